"""The library cohere with ai-proxy: `preserve` passes the requests, responses, streams and errors of both versions of its API, with
the gateway's key."""

import json

import cohere
from cohere.core.api_error import ApiError

from node import TIMEOUT, Node
from providers import COHERE, COHERE_END, KEY, SSE, events
from server import Answer, Server

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße"}]
USAGE = {"billed_units": {"input_tokens": 7, "output_tokens": 2}, "tokens": {"input_tokens": 7, "output_tokens": 2}}


def assert_asked(server, path, **members):
    request = server.last()
    assert (request.method, request.target) == ("POST", path), request
    assert request.headers.get_all("Authorization") == [f"Bearer {KEY}"], request.headers
    asked = request.json()
    assert {name: asked.get(name) for name in members} == members, asked


def first_version(client, server):
    server.will(Answer(COHERE_END))
    history = [{"role": "USER", "message": "Hi"}, {"role": "CHATBOT", "message": "Hello."}]
    response = client.chat(model="m", message="Grüße", chat_history=history, preamble="Be brief.", max_tokens=20)
    assert (response.text, response.finish_reason) == ("Hello there", "COMPLETE"), response
    assert response.meta.billed_units.output_tokens == 2, response
    assert_asked(server, "/v1/chat", model="m", message="Grüße", chat_history=history, stream=False, max_tokens=20)
    server.will(Answer.stream(COHERE.stream, COHERE.content_type))
    received = list(client.chat_stream(model="m", message="Hi"))
    said = [event.text for event in received if event.event_type == "text-generation"]
    assert said == ["Hello", " there"] and received[-1].response.text == "Hello there", received
    assert_asked(server, "/v1/chat", message="Hi", stream=True)


def second_version(client, server):
    content = [{"type": "text", "text": "Hello there"}]
    message = {"role": "assistant", "content": content}
    server.will(Answer({"id": "c1", "finish_reason": "COMPLETE", "message": message, "usage": USAGE}))
    response = client.chat(model="m", messages=MESSAGES, stop_sequences=["."])
    assert (response.message.content[0].text, response.finish_reason) == ("Hello there", "COMPLETE"), response
    assert response.usage.tokens.output_tokens == 2, response
    assert_asked(server, "/v2/chat", model="m", messages=MESSAGES, stop_sequences=["."], stream=False)
    delta = [{"message": {"content": {"text": text}}} for text in ("Hello", " there")]
    end = {"finish_reason": "COMPLETE", "usage": USAGE}
    stream = events(
        {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant", "content": []}}},
        {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}},
        *({"type": "content-delta", "index": 0, "delta": one} for one in delta),
        {"type": "content-end", "index": 0},
        {"type": "message-end", "delta": end},
        done=True,
    )
    server.will(Answer.stream(stream, SSE))
    received = list(client.chat_stream(model="m", messages=MESSAGES))
    said = [event.delta.message.content.text for event in received if event.type == "content-delta"]
    assert said == ["Hello", " there"], received
    assert received[-1].delta.usage.tokens.output_tokens == 2, received
    assert_asked(server, "/v2/chat", messages=MESSAGES, stream=True)


def embedded(client, server):
    embeddings = {"float": [[0.5, -1.0]]}
    reply = {"id": "e1", "response_type": "embeddings_by_type", "embeddings": embeddings, "texts": ["Hi"], "meta": USAGE}
    server.will(Answer(reply))
    response = client.embed(model="m", texts=["Hi"], input_type="search_query", embedding_types=["float"])
    assert response.embeddings.float_ == [[0.5, -1.0]], response
    assert_asked(server, "/v2/embed", texts=["Hi"], input_type="search_query")


def failed(client, server):
    # The library tries again after some of the others.
    for status, exception in [
        (400, cohere.errors.BadRequestError),
        (401, cohere.errors.UnauthorizedError),
        (422, cohere.errors.UnprocessableEntityError),
        (429, cohere.errors.TooManyRequestsError),
        (503, cohere.errors.ServiceUnavailableError),
    ]:
        server.will(Answer({"id": "x", "message": "no"}, status))
        try:
            client.chat(model="m", messages=MESSAGES, request_options={"max_retries": 0})
        except exception as error:
            assert isinstance(error, ApiError) and error.status_code == status, repr(error)
            assert dict(error.body)["message"] == "no", repr(error)
        else:
            raise AssertionError(f"{status} raises nothing")
        server.received.clear()


def main():
    node, server = Node(), Server()
    config = COHERE.config("", "preserve")
    config["auth"] = {"header_name": "Authorization", "header_value": f"Bearer {KEY}"}
    config["model"]["options"]["upstream_url"] = server.url
    node.route("/v1/chat", server.url, {"ai-proxy": config})
    node.route("/v2", server.url, {"ai-proxy": config})
    options = {"base_url": node.proxy, "api_key": "of-the-client", "timeout": TIMEOUT}
    first_version(cohere.Client(**options), server)
    client = cohere.ClientV2(**options)
    for check in (second_version, embedded, failed):
        check(client, server)
    print(json.dumps("done"))


main()
