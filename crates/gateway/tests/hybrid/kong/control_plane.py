"""A fake control plane of Kong 3.9: `/v1/outlet` and `/v2/outlet` over TLS, as strict as Kong's. nginx ends TLS, as in Kong.

    control_plane.py '{"cert": "cluster.crt", "key": "cluster.key", …}'

Options: `ca` (makes it pki instead of shared), `version` (3.9.3), `max_payload` (16777216), `lost_after` (45 s, without a ping),
`config_table` (what it pushes; else it is empty and pushes nothing but `workspaces`), `rpc` (true to serve `/v2/outlet`),
`rpc_capabilities` (of `/v2/outlet`; else `kong.sync.v2`), `texts` (versions as in 3.10), `deltas` (its first version, if any),
`plugins` (checked against those of the data plane; all configured ones else).

It prints JSON lines, the first `{"event": "listening", "port": …}`; then `connected`, `basic_info`, `ping`, `pushed`, `refused`,
`hello`, `call`, `result`, `error` and `dropped` with a `why`. Each has the `node` that it is about. It reads JSON lines:
`{"push": CONFIG_TABLE}` sends it to all, `{"deltas": [{"type", "pk", "entity"}]}` makes a version of them and notifies (v2),
`{"send": {"opcode", "hex", "fin", "rsv", "masked"}}` sends any frame, `{"message": TEXT}` one gzipped binary frame,
`{"drop": true}` closes every connection. Its standard input ends it."""
import json
import os
import queue
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import kong
import rpc
import websocket
from websocket import BINARY, CLOSE, PING, PONG, Dropped

WORKSPACE = {"id": "0dc6f45b-8f8d-40d2-a504-473544ee190b", "name": "default", "comment": None, "created_at": 1700000000}
NGINX = """
daemon off; master_process off; pid nginx.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; server_tokens off;
  client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;
  server {{
    listen 127.0.0.1:{port} ssl reuseport; server_name kong_cluster_listener;
    ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:SSL:10m;
    ssl_verify_client {verify};
    proxy_http_version 1.1; proxy_read_timeout 1h; proxy_send_timeout 1h; proxy_buffering off;
    proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection; proxy_set_header Host $http_host;
    location = /v1/outlet {{ {check} proxy_pass http://unix:{socket}; }}
    {second}
    location / {{ return 404; }}
  }}
}}
"""


def fingerprint(certificate):
    """The SHA-1 that nginx can compare; Kong compares the SHA-256 of the same bytes."""
    printed = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha1", "-in", certificate], capture_output=True, check=True
    )
    return printed.stdout.decode().split("=")[1].strip().replace(":", "").lower()


def free_port():
    """A socket with a port of its own, which nothing but `listen … reuseport` can take while the socket is open."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]


def start_nginx(options, folder, port):
    """nginx in front of a Unix socket."""
    check, verify = "", f"on; ssl_client_certificate {options.get('ca')}; ssl_verify_depth 4"
    if "ca" not in options:
        verify = "optional_no_ca"
        check = f"if ($ssl_client_fingerprint != {fingerprint(options['cert'])}) {{ return 444; }}"
    names = {"port": port, "verify": verify, "check": check, "socket": f"{folder}/control_plane.sock"}
    second = f"location = /v2/outlet {{ {check} proxy_pass http://unix:{names['socket']}; }}" if options.get("rpc") else ""
    with open(f"{folder}/nginx.conf", "w") as file:
        file.write(NGINX.format(cert=options["cert"], key=options["key"], second=second, **names))
    child = subprocess.Popen(["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"], stdin=subprocess.DEVNULL)
    while child.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return child
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise SystemExit("nginx did not start")


def version_of(text):
    found = re.match(r"^(\d+)\.(\d+)\.\d+", text)
    return (int(found[1]), int(found[2])) if found else None


class ControlPlane:
    def __init__(self, options):
        self.lines, self.options = kong.Lines(), options
        self.version = options.get("version", "3.9.3")
        self.max_payload = options.get("max_payload", 16777216)
        self.sessions, self.lock = {}, threading.Lock()
        self.history = rpc.History(options.get("texts", False))
        if "deltas" in options:
            self.history.add(options["deltas"])
        self.load(options.get("config_table", {}))

    def load(self, table):
        self.table = {"_format_version": "3.0", "_transform": False, "workspaces": [WORKSPACE], **table}
        hashes = kong.hashes_of(self.table)
        message = {"type": "reconfigure", "timestamp": round(time.time(), 3), "config_table": self.table}
        self.payload, self.hash = kong.pack({**message, "config_hash": hashes["config"], "hashes": hashes}), hashes["config"]

    def serve(self, listener):
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=self.connection, args=[stream], daemon=True).start()

    def connection(self, stream):
        session = Session(self, stream)
        try:
            session.run()
        except TimeoutError:
            self.lines.say("dropped", node=session.node, why="nothing was received for too long")
        except (Dropped, OSError, ValueError, KeyError, AssertionError) as error:
            self.lines.say("dropped", node=session.node, why=str(error) or repr(error))
        finally:
            with self.lock:
                self.sessions.pop(id(session), None)
            session.outgoing.put(None)
            stream.close()

    def everyone(self):
        with self.lock:
            return list(self.sessions.values())

    def command(self, command):
        if "push" in command:
            self.load(command["push"])
            for session in self.everyone():
                session.push()
        if "deltas" in command:
            number = self.history.add(command["deltas"])
            for session in self.everyone():
                session.call("kong.sync.v2.notify_new_version", [{"default": {"new_version": number}}])
        if "send" in command:
            wanted = command["send"]
            flags = {name: wanted[name] for name in ("fin", "rsv", "masked") if name in wanted}
            data = websocket.frame(wanted.get("opcode", BINARY), bytes.fromhex(wanted.get("hex", "")), **flags)
            for session in self.everyone():
                session.outgoing.put(data)
        if "message" in command:
            for session in self.everyone():
                session.outgoing.put(websocket.frame(BINARY, kong.gzip.compress(command["message"].encode())))
        if command.get("drop"):
            for session in self.everyone():
                session.stream.shutdown(socket.SHUT_RDWR)


class Session:
    """One connection."""

    def __init__(self, control_plane, stream):
        self.of, self.stream, self.node = control_plane, stream, None
        self.outgoing, self.accepted, self.calls, self.capabilities = queue.Queue(), False, 0, []
        self.say = lambda event, **members: control_plane.lines.say(event, node=self.node, **members)

    def run(self):
        # Kong waits for 5 s, which a busy machine may need for its other side.
        self.stream.settimeout(30)
        line, headers = websocket.read_head(self.stream)
        url = urllib.parse.urlsplit(line.split(" ")[1])
        if url.path == "/v2/outlet":
            return rpc.serve(self, headers)
        query = dict(urllib.parse.parse_qsl(url.query))
        if "node_id" not in query or "node_version" not in query:
            self.stream.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            raise Dropped("node_id or node_version is missing")
        self.node = query["node_id"]
        websocket.answer_upgrade(self.stream, headers)
        self.say("connected", **query)
        plugins = self.basic_info()
        if not self.is_version_compatible(query["node_version"]):
            self.say("refused", sync_status="kong_version_incompatible")
            self.stream.sendall(websocket.frame(CLOSE))
            raise Dropped("the version is not compatible")
        self.plugins = {plugin["name"]: plugin.get("version") for plugin in plugins}
        self.start_writing()
        self.push()
        self.stream.settimeout(self.of.options.get("lost_after", 45))
        while True:
            self.next_frame()

    def basic_info(self):
        opcode, payload = websocket.read_frame(self.stream, self.of.max_payload, masked=True)
        if opcode != BINARY:
            raise Dropped(f"the first frame is no basic_info, but {websocket.NAMES[opcode]}")
        info = json.loads(payload)
        if info.get("type") != "basic_info" or not isinstance(info.get("plugins"), list):
            raise Dropped("the first message is no basic_info")
        self.say("basic_info", info=info)
        return info["plugins"]

    def is_version_compatible(self, text):
        ours, theirs = version_of(self.of.version), version_of(text)
        return theirs is not None and ours[0] == theirs[0] and theirs[1] <= ours[1]

    def start_writing(self):
        with self.of.lock:
            self.of.sessions[id(self)] = self
        threading.Thread(target=self.write, daemon=True).start()

    def write(self):
        try:
            while (data := self.outgoing.get()) is not None:
                self.stream.sendall(data)
        except OSError:
            pass

    def next_frame(self):
        opcode, payload = websocket.read_frame(self.stream, self.of.max_payload, masked=True)
        if opcode == CLOSE:
            raise Dropped("a close frame")
        if opcode != PING:
            raise Dropped(f"unknown websocket frame: {websocket.NAMES[opcode]}")
        if len(payload) != 32:
            raise Dropped(f"a ping of {len(payload)} bytes")
        self.say("ping", hash=payload.decode())
        self.outgoing.put(websocket.frame(PONG))

    def incompatible(self):
        """The `sync_status`, if the data plane lacks a plugin that is configured."""
        configured = {row["name"] for row in self.of.table.get("plugins", [])}
        if not configured <= self.plugins.keys():
            return "plugin_set_incompatible"
        ours = version_of(self.of.version)
        known = [version_of(self.plugins[name]) for name in configured if self.plugins[name]]
        is_newer = any(theirs and (theirs[0] != ours[0] or theirs[1] > ours[1]) for theirs in known)
        return "plugin_version_incompatible" if is_newer else None

    def push(self):
        if self.capabilities:
            return
        if status := self.incompatible():
            return self.say("refused", sync_status=status)
        if len(self.of.payload) > self.of.max_payload:
            self.say("refused", sync_status="payload too big")
            return self.outgoing.put(None)
        self.outgoing.put(websocket.frame(BINARY, self.of.payload))
        self.say("pushed", hash=self.of.hash, bytes=len(self.of.payload))

    def call(self, method, params):
        if not self.capabilities:
            return
        self.calls += 1
        rpc.send(self, {"jsonrpc": "2.0", "method": method, "params": params, "id": self.calls})


def main():
    options = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/control_plane.sock")
        os.chmod(f"{folder}/control_plane.sock", 0o777)
        listener.listen(1024)
        control_plane = ControlPlane(options)
        threading.Thread(target=control_plane.serve, args=[listener], daemon=True).start()
        held, port = free_port()
        child = start_nginx(options, folder, port)
        try:
            control_plane.lines.say("listening", port=port)
            for command in control_plane.lines.commands():
                control_plane.command(command)
        finally:
            child.kill()
            child.wait()
            held.close()


if __name__ == "__main__":
    main()
