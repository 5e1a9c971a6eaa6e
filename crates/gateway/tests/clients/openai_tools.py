"""The library openai with ai-proxy in front of Anthropic, Gemini and Ollama: tools, images, and why responses end."""

import json
from typing import get_args

from anthropic.types import StopReason
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as AnthropicMessage
from openai import OpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState

from node import TIMEOUT, Node
from providers import ANTHROPIC, GEMINI, OLLAMA, OLLAMA_END, anthropic_message, anthropic_stream, anthropic_text
from providers import SSE, events, gemini, lines, ollama
from published import assert_published
from server import Answer, Server

PIXEL = "data:image/png;base64,iVBORw0KGgo="
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "The weather of a city.", "parameters": CITY, "strict": True}
# A function without parameters may leave them out.
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": {"name": "now"}}]
MESSAGES = [
    {"role": "developer", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Where?"}, {"type": "image_url", "image_url": {"url": PIXEL}}],
    },
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "toolu_0", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "toolu_0", "content": "noon"},
    {"role": "tool", "tool_call_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]},
    {"role": "user", "content": "And here?"},
]


def openai(node, provider):
    server = Server()
    config = {**provider.config(server.url), "max_request_body_size": 0}
    url = node.route(f"/{provider.name}", server.url, {"ai-proxy": config})
    client = OpenAI(base_url=url, api_key="x", max_retries=0, timeout=TIMEOUT, _strict_response_validation=True)
    return client.chat.completions, server


def assert_calls_weather(completion):
    [choice] = completion.choices
    assert choice.finish_reason == "tool_calls", completion
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "weather") and call.id, completion
    assert json.loads(call.function.arguments) == {"city": "Köln"}, completion


def called(chats, whole, pieces, server, content_type=SSE):
    """The model calls a function, in a whole response and in a stream."""
    server.will(Answer(whole), Answer.stream(pieces, content_type))
    asked = {"model": "m", "messages": MESSAGES, "tools": TOOLS, "max_completion_tokens": 33}
    assert_calls_weather(chats.create(**asked, tool_choice="required"))
    state = ChatCompletionStreamState()
    for chunk in chats.create(**asked, stream=True):
        state.handle_chunk(chunk)
    assert_calls_weather(state.get_final_completion())
    bodies = [request.json() for request in server.received]
    server.received.clear()
    return bodies


def of_anthropic(node):
    chats, server = openai(node, ANTHROPIC)
    use = {"type": "tool_use", "id": "toolu_2", "name": "weather"}
    parts = [{"type": "input_json_delta", "partial_json": part} for part in ("", '{"city": "K', 'öln"}')]
    text = {"type": "text", "text": "Let me see."}
    whole = anthropic_message([text, {**use, "input": {"city": "Köln"}}], "tool_use")
    blocks = [anthropic_text("Let me", " see."), ({**use, "input": {}}, *parts)]
    asked, _ = called(chats, whole, anthropic_stream(*blocks, stop_reason="tool_use"), server)
    assert_published(asked, AnthropicMessage)
    assert (asked["system"], asked["max_tokens"], asked["tool_choice"]) == ("Be brief.", 33, {"type": "any"}), asked
    for choice in ["auto", "none", {"type": "function", "function": {"name": "weather"}}]:
        server.will(Answer(whole))
        chats.create(model="m", messages=MESSAGES, tools=TOOLS, tool_choice=choice)
        assert_published(server.last().json(), AnthropicMessage)
    for reason in get_args(StopReason):
        server.will(Answer(anthropic_message([{"type": "text", "text": "Hello"}], reason)))
        chats.create(model="m", messages=MESSAGES)
        server.will(Answer.stream(anthropic_stream(anthropic_text("Hello"), stop_reason=reason), SSE))
        assert list(chats.create(model="m", messages=MESSAGES, stream=True))


def of_gemini(node):
    chats, server = openai(node, GEMINI)
    whole = gemini("", "STOP")
    whole["candidates"][0]["content"]["parts"] = [{"functionCall": {"name": "weather", "args": {"city": "Köln"}}}]
    # The reason may come behind the call.
    begin = {**whole, "candidates": [{**whole["candidates"][0], "finishReason": None}]}
    asked, _ = called(chats, whole, events(begin, gemini("", "STOP")), server)
    assert asked["generationConfig"] == {"maxOutputTokens": 33}, asked
    [declarations] = [tool["functionDeclarations"] for tool in asked["tools"]]
    assert [set(one) for one in declarations] == [{"name", "description", "parameters"}, {"name"}], asked
    # Google leaves out what is 0, and a prompt that is blocked has no candidate.
    for counted in [{"promptTokenCount": 7, "totalTokenCount": 7}, {}]:
        server.will(Answer({**gemini("", "SAFETY"), "usageMetadata": counted}))
        completion = chats.create(model="m", messages=MESSAGES)
        assert completion.choices[0].finish_reason == "content_filter", completion
        assert completion.usage is None if not counted else completion.usage.completion_tokens == 0, completion


def of_ollama(node):
    chats, server = openai(node, OLLAMA)
    message = {"role": "assistant", "content": ""}
    message["tool_calls"] = [{"function": {"name": "weather", "arguments": {"city": "Köln"}}}]
    whole, begin = {**ollama("", **OLLAMA_END), "message": message}, {**ollama(""), "message": message}
    pieces = lines(begin, ollama("", **OLLAMA_END))
    asked, _ = called(chats, whole, pieces, server, OLLAMA.content_type)
    calls = [call["function"]["arguments"] for call in asked["messages"][2]["tool_calls"]]
    assert (calls, asked["options"]) == ([{}, {"city": "Bonn"}], {"num_predict": 33}), asked


def main():
    node = Node()
    of_anthropic(node)
    of_gemini(node)
    of_ollama(node)
    print(json.dumps(get_args(StopReason)))


main()
