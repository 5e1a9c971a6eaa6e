"""The library google-genai with ai-proxy: `preserve` and `llm_format: gemini` pass its own requests, responses, streams and errors, with
the gateway's key."""

import json

from google import genai
from google.genai import errors, types

from node import TIMEOUT, Node
from providers import GEMINI, KEY, gemini
from server import Answer, Server

TOOL = {"name": "weather", "description": "of a city", "parameters_json_schema": {"type": "object"}}
CONFIG = types.GenerateContentConfig(
    system_instruction="Be brief.",
    max_output_tokens=20,
    stop_sequences=["."],
    tools=[types.Tool(function_declarations=[TOOL])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)
CHAT = [
    types.Content(role="user", parts=[types.Part(text="Hi"), types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")]),
    types.Content(role="model", parts=[types.Part(text="Hello.")]),
    types.Content(role="user", parts=[types.Part(text="Grüße")]),
]


def assert_asked(request, operation):
    assert request.method == "POST" and request.target == f"/v1beta/models/m:{operation}", request
    assert request.headers.get_all("X-Goog-Api-Key") == [KEY], request.headers
    assert "of-the-client" not in f"{request.target} {request.headers} {request.body}", request


def whole(client, server):
    server.will(Answer(GEMINI.reply))
    response = client.models.generate_content(model="m", contents=CHAT, config=CONFIG)
    usage = response.usage_metadata
    assert (response.text, usage.total_token_count) == ("Hello there", 9), response
    assert response.candidates[0].finish_reason == types.FinishReason.STOP, response
    request = server.last()
    assert_asked(request, "generateContent")
    asked = request.json()
    assert [types.Content.model_validate(content) for content in asked["contents"]] == CHAT, asked
    assert asked["systemInstruction"]["parts"] == [{"text": "Be brief."}], asked
    assert asked["generationConfig"] == {"maxOutputTokens": 20, "stopSequences": ["."]}, asked
    assert asked["tools"][0]["functionDeclarations"][0]["name"] == "weather", asked


def called(client, server):
    """A model that calls a function, and gets its result."""
    call = {"functionCall": {"name": "weather", "args": {"city": "Köln"}}}
    reply = gemini("", "STOP")
    reply["candidates"][0]["content"]["parts"] = [call]
    server.will(Answer(reply), Answer(GEMINI.reply))
    response = client.models.generate_content(model="m", contents="Weather?", config=CONFIG)
    [asked] = response.function_calls
    assert (asked.name, asked.args) == ("weather", {"city": "Köln"}), response
    assert_asked(server.last(), "generateContent")
    result = types.Part.from_function_response(name="weather", response={"degrees": 7})
    said = [response.candidates[0].content, types.Content(role="user", parts=[result])]
    assert client.models.generate_content(model="m", contents=said, config=CONFIG).text == "Hello there"
    parts = server.last().json()["contents"]
    assert parts[0]["parts"] == [call] and parts[1]["parts"][0]["functionResponse"]["response"] == {"degrees": 7}, parts


def streamed(client, server):
    server.will(Answer.stream(GEMINI.stream, GEMINI.content_type))
    chunks = list(client.models.generate_content_stream(model="m", contents="Hi", config=CONFIG))
    assert [chunk.text for chunk in chunks] == ["Hello", " there"], chunks
    assert chunks[-1].usage_metadata.total_token_count == 9, chunks
    assert_asked(server.last(), "streamGenerateContent?alt=sse")


def counted(client, server):
    server.will(Answer({"totalTokens": 7}), Answer({"embeddings": [{"values": [0.5, -1.0]}]}))
    assert client.models.count_tokens(model="m", contents="Hi").total_tokens == 7
    assert_asked(server.last(), "countTokens")
    assert client.models.embed_content(model="m", contents="Hi").embeddings[0].values == [0.5, -1.0]
    assert_asked(server.last(), "batchEmbedContents")


def failed(client, server):
    for status, exception, said in [
        (400, errors.ClientError, "INVALID_ARGUMENT"),
        (429, errors.ClientError, "RESOURCE_EXHAUSTED"),
        (500, errors.ServerError, "INTERNAL"),
        (503, errors.ServerError, "UNAVAILABLE"),
    ]:
        error = {"error": {"code": status, "message": "no", "status": said}}
        server.will(Answer(error, status), Answer(error, status))
        for ask in (client.models.generate_content, first_of_stream(client)):
            try:
                ask(model="m", contents="Hi")
            except exception as raised:
                assert (raised.code, raised.status, raised.message) == (status, said, "no"), repr(raised)
            else:
                raise AssertionError(f"{status} raises nothing")
        server.received.clear()


def first_of_stream(client):
    return lambda **asked: next(iter(client.models.generate_content_stream(**asked)))


def native(node, server):
    """`llm_format: gemini`, where the configuration says the model and the path."""
    config = GEMINI.config(server.url) | {"llm_format": "gemini"}
    config["auth"] = {"header_name": "X-Goog-Api-Key", "header_value": KEY}
    url = node.route("/native", server.url, {"ai-proxy": config})
    whole(client_of(url), server)


def client_of(url):
    options = types.HttpOptions(base_url=url, api_version="v1beta", timeout=TIMEOUT * 1000)
    return genai.Client(api_key="of-the-client", http_options=options)


def main():
    node, server = Node(), Server()
    config = GEMINI.config("", "preserve")
    config["auth"] = {"header_name": "X-Goog-Api-Key", "header_value": KEY}
    config["model"]["options"]["upstream_url"] = server.url
    node.route("/v1beta", server.url, {"ai-proxy": config})
    client = client_of(node.proxy)
    for check in (whole, called, streamed, counted, failed):
        check(client, server)
    native(node, server)
    print(json.dumps("done"))


main()
