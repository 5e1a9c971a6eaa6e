"""The library openai with ai-proxy: errors of providers and of the gateway are the library's own exceptions, and it retries."""

import json

import openai
from openai import OpenAI

from node import TIMEOUT, Node
from providers import ANTHROPIC, OPENAI, anthropic_message, events, openai_chunk
from server import Answer, Server

MESSAGES = [{"role": "user", "content": "Hi"}]
JSON = {"Content-Type": "application/json"}


def client(url, **more):
    return OpenAI(base_url=url, api_key="x", timeout=TIMEOUT, **{"max_retries": 0, **more})


def ask(client, **more):
    return client.chat.completions.create(model="m", messages=MESSAGES, **more)


def raised(kind, act):
    """The exception that the library raises: of exactly this kind."""
    try:
        act()
    except openai.APIError as error:
        assert type(error) is kind, repr(error)
        return error
    raise AssertionError(f"no {kind.__name__}")


def of_openai(code, kind):
    return {"error": {"message": f"OpenAI says {code}", "type": kind, "param": None, "code": code}}


def of_anthropic(kind):
    return {"type": "error", "error": {"type": kind, "message": f"Anthropic says {kind}"}, "request_id": "req_1"}


def of_providers(node):
    """What a provider answers with an error passes with its status, its headers and its text."""
    server = Server()
    urls = {
        provider.name: node.route(f"/{provider.name}", server.url, {"ai-proxy": provider.config(server.url)})
        for provider in (OPENAI, ANTHROPIC)
    }
    wait = {**JSON, "Retry-After": "7", "x-request-id": "req_7"}
    for name, status, body, kind, says in [
        ("openai", 401, of_openai("invalid_api_key", "invalid_request_error"), openai.AuthenticationError, "OpenAI says"),
        ("openai", 404, of_openai("model_not_found", "invalid_request_error"), openai.NotFoundError, "OpenAI says"),
        ("openai", 429, of_openai("rate_limit_exceeded", "requests"), openai.RateLimitError, "OpenAI says"),
        ("openai", 503, of_openai("overloaded", "server_error"), openai.InternalServerError, "OpenAI says"),
        ("anthropic", 401, of_anthropic("authentication_error"), openai.AuthenticationError, "Anthropic says"),
        ("anthropic", 429, of_anthropic("rate_limit_error"), openai.RateLimitError, "Anthropic says"),
        ("anthropic", 529, of_anthropic("overloaded_error"), openai.InternalServerError, "Anthropic says"),
    ]:
        for stream in (False, True):
            server.will(Answer(body, status, wait))
            error = raised(kind, lambda: ask(client(urls[name]), stream=stream))
            assert error.status_code == status and says in error.body["message"], repr(error)
            assert error.response.headers["retry-after"] == "7" and error.request_id == "req_7", error.response.headers
            assert name != "openai" or error.code == body["error"]["code"], repr(error)
    return server, urls


def retried(server, urls):
    """The library waits as the provider says, and asks again."""
    server.received.clear()
    busy = Answer(of_anthropic("rate_limit_error"), 429, {**JSON, "retry-after-ms": "1"})
    server.will(busy, busy, Answer(ANTHROPIC.reply))
    completion = ask(client(urls["anthropic"], max_retries=2))
    assert completion.choices[0].message.content == "Hello there" and len(server.received) == 3, completion
    assert len({request.body for request in server.received}) == 1


def broken_streams(server, urls):
    """An error among the events of a stream is an exception, behind what has come before."""
    begin = [openai_chunk({"role": "assistant", "content": "Hel"})]
    failed = {"error": {"message": "The server had an error", "type": "server_error", "param": None, "code": None}}
    message = {"type": "message_start", "message": anthropic_message([], None, 1)}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}
    for name, pieces, says in [
        ("openai", events(*begin, failed), "The server had an error"),
        ("anthropic", events(message, delta, of_anthropic("overloaded_error")), "Anthropic says overloaded_error"),
    ]:
        server.will(Answer.stream(pieces, "text/event-stream"))
        stream, said = ask(client(urls[name]), stream=True), []

        def read():
            said.extend(choice.delta.content or "" for chunk in stream for choice in chunk.choices)

        error = raised(openai.APIError, read)
        assert "".join(said) == "Hel" and error.message == says, (said, error)


def of_the_gateway(node):
    """What the gateway refuses itself: the plugins ai-proxy, key-auth and rate-limiting."""
    server = Server()
    config = OPENAI.config(server.url)
    limits = {"year": 1, "policy": "local"}
    url = node.route("/limited", server.url, {"ai-proxy": config, "key-auth": {}, "rate-limiting": limits})
    node.configure("PUT", "/consumers/alice")
    node.configure("POST", "/consumers/alice/key-auth", key="of-alice")
    error = raised(openai.AuthenticationError, lambda: ask(client(url)))
    assert error.body["message"] == "No API key found in request", repr(error)
    alice = client(url, default_headers={"apikey": "of-alice"})
    server.will(Answer(OPENAI.reply))
    assert ask(alice).choices[0].message.content == "Hello there"
    error = raised(openai.RateLimitError, lambda: ask(alice))
    assert int(error.response.headers["retry-after"]) > 0, error.response.headers
    url = node.route("/unlimited", server.url, {"ai-proxy": config})
    error = raised(openai.BadRequestError, lambda: client(url).chat.completions.create(model="n", messages=MESSAGES))
    assert error.body["message"] == "cannot use own model - must be: m", repr(error)
    error = raised(openai.BadRequestError, lambda: client(url).completions.create(model="m", prompt="Hi"))
    assert "not compatible with [llm/v1/chat] route type" in error.body["message"], repr(error)
    assert len(server.received) == 1


def main():
    node = Node()
    server, urls = of_providers(node)
    retried(server, urls)
    broken_streams(server, urls)
    of_the_gateway(node)
    print(json.dumps("done"))


main()
