"""The library openai with ai-proxy: completions of prompts by the providers that have them."""

import json

from openai import OpenAI
from openai.types.completion_create_params import CompletionCreateParamsNonStreaming as OpenAiCompletion

from node import TIMEOUT, Node
from providers import OLLAMA_END, Provider, events, lines
from published import assert_published
from server import Answer, Server


def completion(text, finish=None):
    """A response of OpenAI, or an event of its stream."""
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m-1", "choices": [choice]}


def anthropic(text, stop_reason):
    return {"type": "completion", "id": "compl_1", "completion": text, "stop_reason": stop_reason, "model": "c-1"}


def ollama(text, **end):
    return {"model": "m", "created_at": "2026-11-28T07:00:00Z", "response": text, "done": bool(end), **end}


COHERE = {
    "id": "c1",
    "generations": [{"id": "g1", "text": "Hello there", "finish_reason": "COMPLETE"}],
    "prompt": "Hi",
    "meta": {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 7, "output_tokens": 2}},
}
COUNTED = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
END = {"is_finished": True, "finish_reason": "COMPLETE", "response": COHERE}

PROVIDERS = [
    Provider(
        "openai",
        "/v1/completions",
        {**completion("Hello there", "stop"), "usage": COUNTED},
        events(completion("Hello"), completion(" there"), completion("", "stop"), done=True),
    ),
    Provider(
        "anthropic",
        "/v1/complete",
        anthropic("Hello there", "stop_sequence"),
        events(anthropic("Hello", None), anthropic(" there", None), anthropic("", "stop_sequence")),
        options={"anthropic_version": "2023-06-01"},
    ),
    Provider(
        "cohere",
        "/v1/generate",
        COHERE,
        lines({"text": "Hello", "is_finished": False}, {"text": " there", "is_finished": False}, END),
        "application/stream+json",
    ),
    Provider(
        "llama2",
        "/api/generate",
        ollama("Hello there", **OLLAMA_END),
        lines(ollama("Hello"), ollama(" there"), ollama("", **OLLAMA_END)),
        "application/x-ndjson",
        {"llama2_format": "ollama"},
    ),
    Provider("huggingface", "/models/m", [{"generated_text": "Hello there"}]),
]


def main():
    node, with_usage = Node(), []
    for provider in PROVIDERS:
        server = Server()
        config = provider.config(server.url, "llm/v1/completions")
        url = node.route(f"/{provider.name}", server.url, {"ai-proxy": config})
        client = OpenAI(base_url=url, api_key="x", max_retries=0, timeout=TIMEOUT, _strict_response_validation=True)
        server.will(Answer(provider.reply))
        answer = client.completions.create(model="m", prompt="Hi", max_tokens=20)
        [choice] = answer.choices
        assert (choice.text, choice.finish_reason) == ("Hello there", "stop"), answer
        with_usage += [provider.name] if answer.usage else []
        request = server.last()
        assert request.target == provider.path, request
        if provider.name == "openai":
            assert_published(request.json(), OpenAiCompletion)
        if provider.stream:
            # OpenAI's own events say null where its schema demands a reason, so the library must not validate them.
            lenient = OpenAI(base_url=url, api_key="x", max_retries=0, timeout=TIMEOUT)
            server.will(Answer.stream(provider.stream, provider.content_type))
            choices = [one.choices[0] for one in lenient.completions.create(model="m", prompt="Hi", stream=True)]
            assert "".join(choice.text for choice in choices) == "Hello there", choices
            assert choices[-1].finish_reason == "stop", choices
    print(json.dumps(with_usage))


main()
