"""The library anthropic with ai-proxy: `preserve` passes its own requests, responses, streams and errors, with the gateway's key."""

import json

import anthropic
from anthropic import Anthropic

from node import TIMEOUT, Node
from providers import ANTHROPIC, KEY, anthropic_message, anthropic_stream, anthropic_text
from server import Answer, Server

ASKED = {"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]}
TEXT = {"type": "text", "text": "Hello there"}


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


def whole(client, server):
    server.will(Answer(anthropic_message([TEXT])))
    message = client.messages.create(**ASKED, system="Be brief.")
    assert (text(message), message.stop_reason, message.usage.output_tokens) == ("Hello there", "end_turn", 2), message
    request = server.last()
    assert request.target == "/v1/messages" and request.json() == {**ASKED, "system": "Be brief."}, request
    assert request.headers.get_all("X-Api-Key") == [KEY], request.headers
    assert request.headers["anthropic-version"] == "2023-06-01", request.headers


def streamed(client, server):
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    parts = [{"type": "input_json_delta", "partial_json": part} for part in ('{"city": "K', 'öln"}')]
    blocks = [anthropic_text("Hello", " there"), (use, *parts)]
    server.will(Answer.stream(anthropic_stream(*blocks, stop_reason="tool_use"), "text/event-stream"))
    with client.messages.stream(**ASKED) as stream:
        assert list(stream.text_stream) == ["Hello", " there"]
        message = stream.get_final_message()
    assert (message.stop_reason, message.content[1].input) == ("tool_use", {"city": "Köln"}), message
    assert server.last().json()["stream"] is True


def counted(client, server):
    server.will(Answer({"input_tokens": 7}))
    asked = {name: value for name, value in ASKED.items() if name != "max_tokens"}
    assert client.messages.count_tokens(**asked).input_tokens == 7
    assert server.last().target == "/v1/messages/count_tokens"


def failed(client, server):
    headers = {"Content-Type": "application/json", "Retry-After": "7", "request-id": "req_7"}
    for status, kind, exception in [
        (401, "authentication_error", anthropic.AuthenticationError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (529, "overloaded_error", anthropic.InternalServerError),
    ]:
        server.will(Answer({"type": "error", "error": {"type": kind, "message": "no"}}, status, headers))
        try:
            client.messages.create(**ASKED)
        except anthropic.APIStatusError as error:
            assert isinstance(error, exception) and error.status_code == status, repr(error)
            assert error.body["error"]["type"] == kind and error.request_id == "req_7", repr(error)
            assert error.response.headers["retry-after"] == "7", error.response.headers
        else:
            raise AssertionError(f"{status} raises nothing")
    try:
        client.messages.create(**{**ASKED, "model": "n"})
    except anthropic.BadRequestError as error:
        assert error.body["error"]["message"] == "cannot use own model - must be: m", repr(error)
    else:
        raise AssertionError("another model is refused")


def main():
    node, server = Node(), Server()
    config = ANTHROPIC.config("", "preserve")
    config["model"]["options"]["upstream_url"] = server.url
    node.route("/v1/messages", server.url, {"ai-proxy": config})
    client = Anthropic(
        base_url=node.proxy, api_key="of-the-client", max_retries=0, timeout=TIMEOUT, _strict_response_validation=True
    )
    for check in (whole, streamed, counted, failed):
        check(client, server)
    print(json.dumps("done"))


main()
