"""The library openai with ai-proxy: chats with providers of every form, whole and as streams. The library validates each response
and each chunk against OpenAI's schema."""

import inspect
import json

import cohere
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as AnthropicMessage
from google.genai import types as gemini
from mistralai.client.models import ChatCompletionRequest as MistralChat
from openai import OpenAI
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as OpenAiChat

from node import TIMEOUT, Node
from providers import CHATS, KEY
from published import assert_modelled, assert_published
from server import Answer, Server

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": [{"type": "text", "text": "Again"}]},
]



def of_gemini(body):
    """Asserts that Google's library could have sent the body."""
    kinds = {"systemInstruction": gemini.Content, "generationConfig": gemini.GenerationConfig}
    assert body.keys() <= {"contents", *kinds}, body
    for content in body["contents"]:
        gemini.Content.model_validate(content)
    for name, kind in kinds.items():
        kind.model_validate(body[name])


def of_cohere(body):
    """Asserts that Cohere's library could have sent the body."""
    members = {"stream", *inspect.signature(cohere.Client.chat).parameters} - {"self", "accepts", "request_options"}
    assert body.keys() <= members and isinstance(body["message"], str), body
    assert [one["role"] for one in body["chat_history"]] == ["SYSTEM", "USER", "CHATBOT"], body
    assert all(isinstance(one["message"], str) for one in body["chat_history"]), body


# What the libraries know of what a provider takes.
REQUESTS = {
    "openai": lambda body: assert_published(body, OpenAiChat),
    "mistral": lambda body: assert_modelled(body, MistralChat),
    "anthropic": lambda body: assert_published(body, AnthropicMessage),
    "gemini": of_gemini,
    "cohere": of_cohere,
}


def assert_usage(usage):
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 2, 9), usage


def whole(client, provider, server):
    server.will(Answer(provider.reply))
    chats = client.chat.completions.with_raw_response
    response = chats.create(model="m", messages=MESSAGES, max_tokens=20, stop=["."])
    assert response.headers["x-kong-llm-model"] == f"{provider.name}/m"
    completion = response.parse()
    [choice] = completion.choices
    said = (choice.message.role, choice.message.content, choice.finish_reason)
    assert said == ("assistant", "Hello there", "stop"), completion
    assert_usage(completion.usage)
    request = server.last()
    assert (request.method, request.target) == ("POST", provider.path), request
    assert request.headers["X-Api-Key"] == KEY and "Authorization" not in request.headers, request.headers
    if provider.name in REQUESTS:
        REQUESTS[provider.name](request.json())


def streamed(client, provider, server):
    """A stream of chunks, and the same put together by the library."""
    stream = Answer.stream(provider.stream, provider.content_type)
    server.will(stream, stream)
    asked = {"model": "m", "messages": MESSAGES, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(**asked, stream=True))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "Hello there", chunks
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"], chunks
    assert choices[0].delta.role == "assistant", chunks
    assert_usage(chunks[-1].usage)
    with client.chat.completions.stream(**asked) as stream:
        completion = stream.get_final_completion()
    message = completion.choices[0].message
    assert (message.role, message.content) == ("assistant", "Hello there"), completion
    assert_usage(completion.usage)
    server.received.clear()


def main():
    node = Node()
    for provider in CHATS:
        server = Server()
        url = node.route(f"/{provider.name}", server.url, {"ai-proxy": provider.config(server.url)})
        client = OpenAI(
            base_url=url, api_key="of-the-client", max_retries=0, timeout=TIMEOUT, _strict_response_validation=True
        )
        whole(client, provider, server)
        streamed(client, provider, server)
    print(json.dumps([provider.name for provider in CHATS]))


main()
