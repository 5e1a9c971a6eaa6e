"""The library standardwebhooks signs what standard-webhooks accepts, and verifies what the upstream gets."""

import base64
import json
from datetime import datetime, timedelta, timezone

import requests
from standardwebhooks import Webhook

from node import TIMEOUT, Node
from server import Server

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(32)).decode()
BODY = json.dumps({"event": "größer", "text": "a\r\nb", "list": [1.0, None]}, ensure_ascii=False)


def signed(body, ago=0, secret=SECRET, name="msg_1"):
    """The headers of a message that was signed so many seconds ago."""
    at = datetime.now(tz=timezone.utc) - timedelta(seconds=ago)
    signature = Webhook(secret).sign(msg_id=name, timestamp=at, data=body)
    return {"webhook-id": name, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


def main():
    node, server = Node(), Server()
    url = node.route("/hook", server.url, {"standard-webhooks": {"secret_v1": SECRET}})

    def status(body, headers):
        headers = {"Content-Type": "application/json", **headers}
        return requests.post(url, data=body.encode(), headers=headers, timeout=TIMEOUT).status_code

    right = signed(BODY)
    by_other = signed(BODY, secret=OTHER)["webhook-signature"]
    both = {**right, "webhook-signature": f"{by_other} {right['webhook-signature']}"}
    accepted = [(BODY, right), (BODY, both), ("x", signed("x")), (BODY, signed(BODY, ago=200)), ("[]", signed("[]", -200))]
    for body, headers in accepted:
        assert status(body, headers) == 200, headers
        # The library verifies what it gets, too.
        received = server.last()
        Webhook(SECRET).verify(received.body, dict(received.headers), json_parse=False)
    refused = [
        (BODY + " ", right),
        (BODY.replace("größer", "grösser"), right),
        (BODY, signed(BODY, secret=OTHER)),
        (BODY, {**right, "webhook-id": "msg_2"}),
        (BODY, {**right, "webhook-timestamp": str(int(right["webhook-timestamp"]) - 1)}),
        (BODY, signed(BODY, ago=400)),
        (BODY, signed(BODY, ago=-400)),
        *((BODY, {name: value for name, value in right.items() if name != left_out}) for left_out in right),
        (BODY, {}),
    ]
    for body, headers in refused:
        assert status(body, headers) == 400, headers
    assert not server.received
    print(json.dumps({"accepted": len(accepted), "refused": len(refused)}))


main()
