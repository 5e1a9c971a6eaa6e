"""The node that a program is for: where it listens, and its configuration by the Admin API."""

import json
import sys

import requests

TIMEOUT = 60


class Node:
    """The node that the program's argument describes."""

    def __init__(self):
        known = json.loads(sys.argv[1])
        self.proxy, self.proxy_ssl, self.admin = known["proxy"], known["proxy_ssl"], known["admin"]
        self.trusted = known["trusted"]

    def configure(self, method, path, **entity):
        """Writes an entity, and waits until it is active."""
        url = self.admin + path
        response = requests.request(method, url, params={"wait": "true"}, json=entity, timeout=TIMEOUT)
        assert response.ok, f"{method} {path}: {response.text}"
        return response.json()

    def route(self, path, upstream, plugins):
        """Adds a service whose route has this path, and plugins with their configuration. Returns the route's URL."""
        name = path.strip("/").replace("/", "-")
        self.configure("PUT", f"/services/{name}", url=upstream)
        self.configure("PUT", f"/routes/{name}", paths=[path], service={"name": name})
        for plugin, config in plugins.items():
            self.configure("POST", f"/services/{name}/plugins", name=plugin, config=config)
        return self.proxy + path
