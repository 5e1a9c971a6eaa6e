"""The library botocore signs again what aws-lambda, apisix-aws-lambda, and ai-proxy for Bedrock, have sent: the signatures are the same."""

import json

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from node import TIMEOUT, Node
from server import Answer, Server

REGION = "eu-west-1"
# Of the node's environment, which the test sets.
OF_ENVIRONMENT = Credentials("ASIAENVIRONMENT", "s3cret/+of=environment", "token/+of==environment")
CONFIGURED = Credentials("AKIDCONFIGURED", "s3cret/+configured")
KEYS = {"aws_key": CONFIGURED.access_key, "aws_secret": CONFIGURED.secret_key}


def assert_signed(request, credentials, service):
    """Asserts that the request is signed as botocore would sign it, if the same headers are signed. Returns their names."""
    given = request.headers["Authorization"]
    names = given.split("SignedHeaders=")[1].split(",")[0].split(";")
    assert {"host", "x-amz-date"} <= set(names), given
    token = [credentials.token] if credentials.token else None
    assert request.headers.get_all("X-Amz-Security-Token") == token, request.headers
    assert token is None or "x-amz-security-token" in names, given
    url = f"http://{request.headers['Host']}{request.target}"
    signed = {name: request.headers[name] for name in names}
    again = AWSRequest(request.method, url, headers=signed, data=request.body)
    again.context["timestamp"] = request.headers["X-Amz-Date"]
    auth = SigV4Auth(credentials, service, REGION)
    to_sign = auth.string_to_sign(again, auth.canonical_request(again))
    auth._inject_signature_to_request(again, auth.signature(to_sign, again))
    assert again.headers["Authorization"] == given, auth.canonical_request(again)
    return names


class Lambda:
    """Functions behind routes of the node, each with its configuration."""

    def __init__(self, node, server):
        self.node, self.server, self.routes = node, server, 0

    def invoked(self, function, credentials, request, **config):
        """Sends a request to a route with the function, and returns what AWS gets."""
        self.routes += 1
        host, port = self.server.http.server_address
        to = {"aws_region": REGION, "host": host, "port": port, "disable_https": True, "function_name": function}
        keys = KEYS if credentials is CONFIGURED else {}
        url = self.node.route(f"/f{self.routes}", self.server.url, {"aws-lambda": {**to, **keys, **config}})
        self.server.will(Answer({"hello": "world"}))
        response = requests.request(url=url, timeout=TIMEOUT, **request)
        assert (response.status_code, response.json()) == (200, {"hello": "world"}), response.text
        sent = self.server.last()
        assert "content-type" in assert_signed(sent, credentials, "lambda")
        return sent


def lambdas(node, server):
    functions = Lambda(node, server)
    get = {"method": "GET", "params": {"a": "1"}}
    sent = functions.invoked("hello", CONFIGURED, get)
    assert (sent.target, sent.json()) == ("/2015-03-31/functions/hello/invocations", {"a": "1"}), sent
    sent = functions.invoked("hello", OF_ENVIRONMENT, get, qualifier="$LATEST")
    assert sent.target.endswith("?Qualifier=%24LATEST"), sent
    # Each of these is escaped in the path, and once more where it is signed.
    name = "arn:aws:lambda:eu-west-1:123456789012:function:a b/c+d~é%2F:$LATEST"
    for credentials in (CONFIGURED, OF_ENVIRONMENT):
        sent = functions.invoked(name, credentials, get)
        assert "%3Aa%20b%2Fc%2Bd~%C3%A9%252F%3A%24LATEST/" in sent.target, sent
    body = "line one\r\nzwei: äöü\n" * 200
    post = {"method": "POST", "data": body.encode(), "headers": {"Content-Type": "text/plain"}}
    for credentials in (CONFIGURED, OF_ENVIRONMENT):
        sent = functions.invoked("hello", credentials, post, forward_request_body=True)
        assert sent.json()["request_body"] == body, sent
    event = {"awsgateway_compatible": True, "invocation_type": "RequestResponse", "log_type": "None"}
    sent = functions.invoked("hello", OF_ENVIRONMENT, post, **event)
    assert sent.json()["httpMethod"] == "POST" and sent.headers["X-Amz-Log-Type"] == "None", sent
    return functions.routes


def bedrock(node, server):
    """Models have colons in their names, and so have the paths to them."""
    model = "anthropic.claude-3-5-sonnet-20241022-v2:0"
    reply = {
        "output": {"message": {"role": "assistant", "content": [{"text": "Hello there"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 7, "outputTokens": 2, "totalTokens": 9},
        "metrics": {"latencyMs": 5},
    }
    paths = [f"/model/{model}/converse", "/model/arn:aws:bedrock:eu-west-1::m/a~b/converse"]
    keys = {"aws_access_key_id": CONFIGURED.access_key, "aws_secret_access_key": CONFIGURED.secret_key}
    for number, path in enumerate(paths):
        for credentials, auth in [(CONFIGURED, keys), (OF_ENVIRONMENT, {})]:
            options = {"upstream_url": server.url + path, "bedrock": {"aws_region": REGION}}
            config = {
                "route_type": "llm/v1/chat",
                "auth": auth,
                "model": {"provider": "bedrock", "name": model, "options": options},
            }
            url = node.route(f"/bedrock{number}{credentials.access_key}", server.url, {"ai-proxy": config})
            server.will(Answer(reply))
            messages = [{"role": "user", "content": "Grüße"}]
            response = requests.post(f"{url}?b=a%20b%2F&a=", json={"messages": messages}, timeout=TIMEOUT)
            assert response.json()["choices"][0]["message"]["content"] == "Hello there", response.text
            assert_signed(server.last(), credentials, "bedrock")
    return 2 * len(paths)


def gateways(node, server):
    """Functions behind API Gateway, and by their own URLs: the client's request is signed as it is."""
    iam = {"accesskey": CONFIGURED.access_key, "secretkey": CONFIGURED.secret_key, "aws_region": REGION}
    paths = ["", "/orders/a%20b/%C3%A9", "/a%2Fb/"]
    arguments = ["", "?a=1", "?b=a%20b+c&a=x/y~!*'()&empty=&flag&%C3%A9=%26&a=0"]
    asked = 0
    for service in ("execute-api", "lambda"):
        config = {"function_uri": f"{server.url}/default/f", "authorization": {"iam": {**iam, "service": service}}}
        url = node.route(f"/{service}", server.url, {"apisix-aws-lambda": config})
        for path in paths:
            for query in arguments:
                server.will(Answer({"hello": "world"}))
                headers = {"Content-Type": "text/plain", "X-Tag": "a   b"}
                response = requests.put(f"{url}{path}{query}", data="äöü".encode(), headers=headers, timeout=TIMEOUT)
                assert (response.status_code, response.json()) == (200, {"hello": "world"}), response.text
                sent = server.last()
                assert sent.target.split("?")[0] == "/default/f" + path, sent
                assert {"content-type", "x-tag"} <= set(assert_signed(sent, CONFIGURED, service)), sent
                asked += 1
    return asked


def main():
    node, server = Node(), Server()
    signed = {"lambda": lambdas(node, server), "bedrock": bedrock(node, server), "gateway": gateways(node, server)}
    print(json.dumps(signed))


main()
