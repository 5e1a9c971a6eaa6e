"""The library PyJWT makes tokens that jwt accepts, by every algorithm, and tokens that it refuses."""

import json
import time

import jwt
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from node import TIMEOUT, Node
from server import Server

SECRET = "a secret that is as long as the longest of the hashes: sixty-four bytes or more"


def keys():
    """The private key of each algorithm; that of HMAC is the secret."""
    of_rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
    return (
        {f"HS{size}": SECRET for size in (256, 384, 512)}
        | {f"{family}{size}": of_rsa for family in ("RS", "PS") for size in (256, 384, 512)}
        | {name: ec.generate_private_key(curve) for name, curve in curves.items()}
        | {"EdDSA": ed25519.Ed25519PrivateKey.generate()}
    )


def credential(algorithm, key):
    """The entity of the Admin API."""
    if isinstance(key, str):
        return {"algorithm": algorithm, "key": f"by-{algorithm}", "secret": key}
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, kind).decode()
    return {"algorithm": algorithm, "key": f"by-{algorithm}", "rsa_public_key": pem}


def main():
    node, server = Node(), Server()
    url = node.route("/jwt", server.url, {"jwt": {"claims_to_verify": ["exp", "nbf"]}})
    node.configure("PUT", "/consumers/alice")

    def ask(token):
        return requests.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT)

    def refusal(token):
        response = ask(token)
        assert response.status_code == 401 and response.headers["WWW-Authenticate"].startswith("Bearer"), response.text
        return response.json()

    of_first, of_second = keys(), keys()
    now = int(time.time())
    for algorithm, key in of_first.items():
        node.configure("POST", "/consumers/alice/jwt", **credential(algorithm, key))
        claims = {"iss": f"by-{algorithm}", "exp": now + 3600, "nbf": now - 60, "name": "Jürgen"}
        response = ask(jwt.encode(claims, key, algorithm, headers={"kid": "k1"}))
        assert response.status_code == 200, response.text
        headers = response.json()["headers"]
        seen = (headers["x-consumer-username"], headers["x-credential-identifier"])
        assert seen == ("alice", f"by-{algorithm}"), headers
        assert refusal(jwt.encode({**claims, "exp": now - 1}, key, algorithm)) == {"exp": "token expired"}
        assert refusal(jwt.encode({**claims, "nbf": now + 600}, key, algorithm)) == {"nbf": "token not valid yet"}
        other = key + "." if isinstance(key, str) else of_second[algorithm]
        assert refusal(jwt.encode(claims, other, algorithm))["message"] == "Invalid signature"
        assert refusal(jwt.encode(claims, None, "none"))["message"].startswith(("Invalid algorithm", "Bad token"))
        unknown = jwt.encode({**claims, "iss": "unknown"}, key, algorithm)
        assert refusal(unknown)["message"] == "No credentials found for given 'iss'"
    print(json.dumps(list(of_first)))


main()
