"""What providers of language models answer, in the forms that they publish. All say `Hello there`, for 7 tokens and with 2."""

import json
from dataclasses import dataclass, field

KEY = "sk-5ecre7"
SSE = "text/event-stream"


@dataclass
class Provider:
    """A provider by Kong's name, its options, the path of its API, and what it answers: whole, and as a stream."""

    name: str
    path: str
    reply: object
    stream: list = None
    content_type: str = SSE
    options: dict = field(default_factory=dict)

    def config(self, url, route_type="llm/v1/chat"):
        """The configuration of ai-proxy for this provider at a URL."""
        options = {**self.options, "upstream_url": url + self.path}
        return {
            "route_type": route_type,
            "auth": {"header_name": "X-Api-Key", "header_value": KEY},
            "model": {"provider": self.name, "name": "m", "options": options},
        }


def events(*data, done=False):
    """Server-sent events; the types of Anthropic's are their names too."""
    named = [(f"event: {one['type']}\n" if "type" in one else "") + f"data: {json.dumps(one)}\n\n" for one in data]
    return [text.encode() for text in named + ["data: [DONE]\n\n"] * done]


def lines(*data):
    """Events as lines of JSON."""
    return [json.dumps(one).encode() + b"\n" for one in data]


def openai_reply(**more):
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    message = {"role": "assistant", "content": "Hello there", **more}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1732000000, "model": "m-1"}
    return {**head, "choices": [choice], "usage": usage}


def openai_chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1732000000, "model": "m-1"}
    return {**head, "choices": [choice], "usage": None}


OPENAI_STREAM = events(
    openai_chunk({"role": "assistant", "content": "", "refusal": None}),
    openai_chunk({"content": "Hello"}),
    openai_chunk({"content": " there"}),
    openai_chunk({}, "stop"),
    {**openai_chunk({}), "choices": [], "usage": openai_reply()["usage"]},
    done=True,
)

OPENAI = Provider(
    "openai", "/v1/chat/completions", openai_reply(refusal=None, annotations=[]), OPENAI_STREAM
)

MISTRAL = Provider(
    "mistral",
    "/v1/chat/completions",
    openai_reply(tool_calls=None, prefix=False),
    OPENAI_STREAM,
    options={"mistral_format": "openai"},
)


def anthropic_message(content, stop_reason="end_turn", output_tokens=2):
    """A response of Anthropic's Messages API."""
    usage = {
        "input_tokens": 7,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1"}
    return {**head, "content": content, "stop_reason": stop_reason, "stop_sequence": None, "usage": usage}


def anthropic_stream(*blocks, stop_reason="end_turn"):
    """The events of a message; a block is its begin, and its deltas."""
    middle = []
    for index, (begin, *deltas) in enumerate(blocks):
        middle.append({"type": "content_block_start", "index": index, "content_block": begin})
        middle += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        middle.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop_reason, "stop_sequence": None}
    return events(
        {"type": "message_start", "message": anthropic_message([], None, 1)},
        {"type": "ping"},
        *middle,
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )


def anthropic_text(*texts):
    """A block of text."""
    return ({"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in texts))


ANTHROPIC = Provider(
    "anthropic",
    "/v1/messages",
    anthropic_message([{"type": "text", "text": "Hello there"}]),
    anthropic_stream(anthropic_text("Hello", " there")),
    options={"anthropic_version": "2023-06-01"},
)


def gemini(text, finish=None):
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 2, "totalTokenCount": 9}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-1", "responseId": "r1"}


GEMINI = Provider(
    "gemini",
    "/v1beta/models/m:generateContent",
    gemini("Hello there", "STOP"),
    [event.replace(b"\n", b"\r\n") for event in events(gemini("Hello"), gemini(" there", "STOP"))],
)

COHERE_END = {
    "response_id": "r1",
    "text": "Hello there",
    "generation_id": "g1",
    "chat_history": [{"role": "USER", "message": "Hi"}, {"role": "CHATBOT", "message": "Hello there"}],
    "finish_reason": "COMPLETE",
    "meta": {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 7, "output_tokens": 2}},
}

COHERE = Provider(
    "cohere",
    "/v1/chat",
    COHERE_END,
    lines(
        {"is_finished": False, "event_type": "stream-start", "generation_id": "g1"},
        {"is_finished": False, "event_type": "text-generation", "text": "Hello"},
        {"is_finished": False, "event_type": "text-generation", "text": " there"},
        {"is_finished": True, "event_type": "stream-end", "finish_reason": "COMPLETE", "response": COHERE_END},
    ),
    "application/stream+json",
)


def ollama(text, **end):
    head = {"model": "m", "created_at": "2026-11-28T07:00:00.5Z"}
    return {**head, "message": {"role": "assistant", "content": text}, "done": bool(end), **end}


OLLAMA_END = {"done_reason": "stop", "total_duration": 5, "prompt_eval_count": 7, "eval_count": 2}

OLLAMA = Provider(
    "llama2",
    "/api/chat",
    ollama("Hello there", **OLLAMA_END),
    lines(ollama("Hello"), ollama(" there"), ollama("", **OLLAMA_END)),
    "application/x-ndjson",
    {"llama2_format": "ollama"},
)

CHATS = [OPENAI, MISTRAL, ANTHROPIC, GEMINI, COHERE, OLLAMA]
