"""The library requests-oauthlib as a client of oauth2: every grant, PKCE, refreshed tokens, and errors as the library's exceptions."""

import json
import time
from urllib.parse import parse_qsl, urlsplit

import requests
from oauthlib.oauth2 import BackendApplicationClient, LegacyApplicationClient, MobileApplicationClient, OAuth2Error
from requests_oauthlib import OAuth2Session

from node import TIMEOUT, Node
from server import Server

CALLBACK = "https://shop.test/callback?a=b"
SECRET = "shop secret/+%"
SCOPES = ["read", "write"]
PROVISION_KEY = "of-the-login-page"


class Shop:
    """An application with a secret, and one without; the service that they use, and its login page."""

    def __init__(self, node, server):
        grants = ["authorization_code", "implicit_grant", "client_credentials", "password_grant"]
        config = {f"enable_{grant}": True for grant in grants}
        config |= {"scopes": SCOPES, "provision_key": PROVISION_KEY}
        node.route("/orders", server.url, {"oauth2": config})
        node.configure("PUT", "/consumers/alice")
        shop = {"client_id": "shop", "client_secret": SECRET, "redirect_uris": [CALLBACK]}
        app = {"client_id": "app", "client_type": "public", "redirect_uris": [CALLBACK]}
        for client in (shop, app):
            node.configure("POST", "/consumers/alice/oauth2", name=client["client_id"], **client)
        self.url = f"{node.proxy_ssl}/orders"
        self.token_url, self.trusted = f"{self.url}/oauth2/token", node.trusted

    def session(self, *arguments, **named):
        session = OAuth2Session(*arguments, **named)
        session.verify = self.trusted
        return session

    def log_in(self, session, **more):
        """Sends the user to the login page, who agrees there. Returns the URL that the user is sent back to."""
        address, _ = session.authorization_url(f"{self.url}/oauth2/authorize", **more)
        form = dict(parse_qsl(urlsplit(address).query))
        form |= {"provision_key": PROVISION_KEY, "authenticated_userid": "user 1"}
        page = requests.post(f"{self.url}/oauth2/authorize", data=form, verify=self.trusted, timeout=TIMEOUT)
        return page.json()["redirect_uri"]

    def assert_lets_in(self, session, scope, user=None):
        response = session.get(self.url, params={"x": "y"}, timeout=TIMEOUT)
        assert response.status_code == 200, response.text
        headers = response.json()["headers"]
        assert headers["x-consumer-username"] == "alice", headers
        assert (headers["x-authenticated-scope"], headers.get("x-authenticated-userid")) == (scope, user), headers


def raised(code, act):
    """The description of the error that the library raises."""
    try:
        act()
    except OAuth2Error as error:
        assert error.error == code, repr(error)
        return error.description
    raise AssertionError(f"{code} is not raised")


def client_credentials(shop):
    for body in (False, True):
        session = shop.session(client=BackendApplicationClient("shop", scope=["read"]))
        token = session.fetch_token(shop.token_url, client_secret=SECRET, include_client_id=body)
        assert (token["token_type"], token["expires_in"], "refresh_token" in token) == ("bearer", 7200, False), token
        shop.assert_lets_in(session, "read")
        wrong = lambda: session.fetch_token(shop.token_url, client_secret="wrong", include_client_id=body)
        assert raised("invalid_client", wrong) == "Invalid client authentication"
    session = shop.session(client=BackendApplicationClient("shop", scope=["admin"]))
    raised("invalid_scope", lambda: session.fetch_token(shop.token_url, client_secret=SECRET))


def password(shop):
    session = shop.session(client=LegacyApplicationClient("shop", scope=SCOPES))
    page = {"provision_key": PROVISION_KEY, "authenticated_userid": "user 1"}
    asked = {"username": "u", "password": "p", "client_secret": SECRET}
    session.fetch_token(shop.token_url, **asked, **page)
    shop.assert_lets_in(session, "read write", "user 1")
    # An error of Kong's own.
    page["provision_key"] = "wrong"
    other = shop.session(client=LegacyApplicationClient("shop"))
    wrong = lambda: other.fetch_token(shop.token_url, **asked, **page)
    assert raised("invalid_provision_key", wrong) == "Invalid provision_key"
    return session


def refreshed(shop, session):
    """By hand, and by the library once the token has expired."""
    old = dict(session.token)
    credentials = {"client_id": "shop", "client_secret": SECRET}
    new = session.refresh_token(shop.token_url, **credentials)
    assert {new["access_token"], new["refresh_token"]}.isdisjoint(old.values()), new
    shop.assert_lets_in(session, "read write", "user 1")
    refused = shop.session("shop", token=old).get(shop.url, timeout=TIMEOUT)
    assert refused.status_code == 401 and refused.json()["error"] == "invalid_token", refused.text
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"], refused.headers
    again = lambda: shop.session("shop", token=old).refresh_token(shop.token_url, **credentials)
    assert raised("invalid_request", again) == "Invalid refresh_token"
    tokens, expired = [], {**new, "expires_at": time.time() - 1}
    session = shop.session(
        "shop",
        token=expired,
        auto_refresh_url=shop.token_url,
        auto_refresh_kwargs=credentials,
        token_updater=tokens.append,
    )
    shop.assert_lets_in(session, "read write", "user 1")
    assert len(tokens) == 1 and tokens[0]["access_token"] != new["access_token"], tokens


def authorization_code(shop):
    """With PKCE: a public client has nothing else, and any other client may use it too."""
    for client, secret in [("shop", {"client_secret": SECRET}), ("app", {"include_client_id": True})]:
        session = shop.session(client, redirect_uri=CALLBACK, scope=SCOPES, pkce="S256")
        back = shop.log_in(session)
        assert back.startswith(f"{CALLBACK}&"), back
        other = shop.session(client, redirect_uri=CALLBACK, scope=SCOPES, pkce="S256", state="other")
        other.authorization_url(shop.token_url)
        stolen = lambda: other.fetch_token(shop.token_url, authorization_response=back, **secret)
        raised("mismatching_state", stolen)
        code = dict(parse_qsl(urlsplit(back).query))["code"]
        assert raised("invalid_grant", lambda: other.fetch_token(shop.token_url, code=code, **secret))
        session.fetch_token(shop.token_url, authorization_response=back, **secret)
        shop.assert_lets_in(session, "read write", "user 1")
        twice = lambda: session.fetch_token(shop.token_url, authorization_response=back, **secret)
        assert raised("invalid_request", twice) == "Invalid code"
    plain = shop.session("app", redirect_uri=CALLBACK, scope=SCOPES)
    back = shop.log_in(plain)
    response = lambda: plain.fetch_token(shop.token_url, authorization_response=back, include_client_id=True)
    assert raised("invalid_request", response) == "code_challenge is required for public clients"


def implicit(shop):
    session = shop.session(client=MobileApplicationClient("shop"), redirect_uri=CALLBACK, scope=["read"])
    session.token_from_fragment(shop.log_in(session))
    shop.assert_lets_in(session, "read", "user 1")


def main():
    node, server = Node(), Server()
    shop = Shop(node, server)
    client_credentials(shop)
    refreshed(shop, password(shop))
    authorization_code(shop)
    implicit(shop)
    print(json.dumps(len(server.received)))


main()
