"""The library mistralai with ai-proxy, whose route has OpenAI's form for any provider: chats, tools and streams of Mistral's own models and
of Anthropic's, and errors."""

import json

from mistralai.client import Mistral, errors

from node import TIMEOUT, Node
from providers import ANTHROPIC, KEY, MISTRAL, anthropic_message, openai_reply
from server import Answer, Server

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße"}]
FUNCTION = {"name": "weather", "description": "of a city", "parameters": {"type": "object", "properties": {}}}


def whole(client, server, provider):
    server.will(Answer(provider.reply))
    response = client.chat.complete(model="m", messages=MESSAGES, max_tokens=20, stop=["."])
    [choice] = response.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello there", "stop")
    usage = response.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 2, 9), response
    request = server.last()
    assert request.headers.get_all("X-Api-Key") == [KEY] and "Authorization" not in request.headers, request.headers
    assert "of-the-client" not in f"{request.headers}", request.headers


def streamed(client, server, provider):
    server.will(Answer.stream(provider.stream, provider.content_type))
    with client.chat.stream(model="m", messages=MESSAGES) as stream:
        chunks = [event.data for event in stream]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "Hello there", chunks
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"], chunks
    server.received.clear()


def called(client, server, provider):
    """A model that calls a function, and gets its result."""
    use = {"id": "toolu_1", "name": "weather", "input": {"city": "Köln"}}
    call = {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Köln"}'}}
    asks = openai_reply(tool_calls=[call])
    asks["choices"][0]["finish_reason"] = "tool_calls"
    if provider is ANTHROPIC:
        asks = anthropic_message([{"type": "tool_use", **use}], "tool_use")
    server.will(Answer(asks), Answer(provider.reply))
    tools = [{"type": "function", "function": FUNCTION}]
    response = client.chat.complete(model="m", messages=MESSAGES, tools=tools, tool_choice="auto")
    [choice] = response.choices
    [asked] = choice.message.tool_calls
    assert (choice.finish_reason, asked.id, asked.function.name) == ("tool_calls", "toolu_1", "weather"), response
    assert json.loads(asked.function.arguments) == {"city": "Köln"}, response
    result = {"role": "tool", "name": "weather", "tool_call_id": asked.id, "content": "7 degrees"}
    messages = [*MESSAGES, choice.message, result]
    response = client.chat.complete(model="m", messages=messages, tools=tools)
    assert response.choices[0].message.content == "Hello there", response
    assert "7 degrees" in server.received[-1].body.decode(), server.received[-1]
    server.received.clear()


def failed(client, server):
    for status, reply, exception in [
        (400, {"object": "error", "message": "no", "type": "invalid_request_error"}, errors.SDKError),
        (422, {"detail": [{"loc": ["body"], "msg": "no", "type": "missing"}]}, errors.HTTPValidationError),
        (429, {"message": "no"}, errors.SDKError),
        (503, {"message": "no"}, errors.SDKError),
    ]:
        server.will(Answer(reply, status))
        try:
            client.chat.complete(model="m", messages=MESSAGES)
        except exception as error:
            assert error.status_code == status and json.loads(error.body) == reply, repr(error)
        else:
            raise AssertionError(f"{status} raises nothing")
    try:
        client.chat.complete(model="n", messages=MESSAGES)
    except errors.SDKError as error:
        said = json.loads(error.body)["error"]["message"]
        assert (error.status_code, said) == (400, "cannot use own model - must be: m"), repr(error)
    else:
        raise AssertionError("another model is refused")


def main():
    node = Node()
    for provider in (MISTRAL, ANTHROPIC):
        server = Server()
        url = node.route(f"/{provider.name}", server.url, {"ai-proxy": provider.config(server.url)})
        client = Mistral(api_key="of-the-client", server_url=url, timeout_ms=TIMEOUT * 1000)
        for check in (whole, streamed, called):
            check(client, server, provider)
        if provider is MISTRAL:
            failed(client, server)
    print(json.dumps("done"))


main()
