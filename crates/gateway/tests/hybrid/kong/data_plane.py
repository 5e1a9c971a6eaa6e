"""A fake data plane of Kong 3.9: it connects to `/v1/outlet`, or with `rpc` to `/v2/outlet`, and is as strict as Kong's.

    data_plane.py '{"port": 8005, "cert": "cluster.crt", "key": "cluster.key", …}'

Options: `ca` and `server_name` (make it pki instead of shared), `host` (127.0.0.1), `node_id`, `hostname`, `version` (3.9.3),
`plugins` (names, or versions by names; else all of Kong's), `labels`, `max_payload` (16777216), `ping_interval` (30 s), `lost_after` (45 s),
`hash` (what it has already), `number` (the same with `rpc`), `rpc_capabilities` (else `kong.sync.v2`; without it, it asks for
nothing), `texts` (versions as in 3.10), `reconnect` (seconds; else it ends with the connection), `refuse` (a message: it applies nothing).

It prints JSON lines: `connected`, `synced` before each of `applied` and `deltas`, `applied` with `hash`, `config_table` and `hash_matches` (whether it is Kong's hash of that),
`unchanged`, `refused` with its `errors`, `ignored`, `pong`, `deltas`, and `dropped` with a `why`. It reads JSON lines:
`{"ping": TEXT}`, `{"send": {"opcode", "hex", "fin", "rsv", "masked"}}`, `{"call": METHOD, "params": […]}` and
`{"notify": METHOD, "params": […]}` and `{"text": TEXT}`, a compressed frame (v2),
`{"drop": true}`. Its standard input ends it."""
import gzip
import json
import os
import queue
import select
import socket
import ssl
import sys
import threading
import time
import uuid
import zlib

import kong
import rpc
import websocket
from websocket import BINARY, CLOSE, PING, PONG, TEXT, Dropped


class TlsStream:
    """A TLS connection that one thread reads while another writes. A lock keeps them apart because OpenSSL allows one call at a
    time for each connection, and Python before 3.13 does not see to that. The lock is not held while nothing can be read."""

    def __init__(self, context, plain, name):
        self.timeout = plain.gettimeout()
        self.tls, self.lock = context.wrap_socket(plain, server_hostname=name), threading.Lock()

    def settimeout(self, seconds):
        self.timeout = seconds

    def recv(self, size):
        while True:
            try:
                with self.lock:
                    self.tls.settimeout(0)
                    return self.tls.recv(size)
            except ssl.SSLWantReadError:
                if not select.select([self.tls], [], [], self.timeout)[0]:
                    raise TimeoutError from None

    def sendall(self, data):
        with self.lock:
            self.tls.settimeout(self.timeout)
            self.tls.sendall(data)

    def version(self):
        return self.tls.version()

    def shutdown(self, how):
        self.tls.shutdown(how)

    def close(self):
        self.tls.close()


class DataPlane:
    is_client = True

    def __init__(self, options):
        self.lines, self.options = kong.Lines(), options
        self.say = self.lines.say
        self.node = options.get("node_id", str(uuid.uuid4()))
        self.version = options.get("version", "3.9.3")
        self.max_payload = options.get("max_payload", 16777216)
        self.hash, self.calls = options.get("hash", kong.EMPTY_HASH), 1
        self.texts = options.get("texts", False)
        self.number = options.get("number", f"v02_{0:028x}" if self.texts else 0)
        self.capabilities = options.get("rpc_capabilities", [rpc.CAPABILITY])
        self.outgoing, self.stream = queue.Queue(), None

    def context(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.options.get("ca", self.options["cert"]))
        context.load_cert_chain(self.options["cert"], self.options["key"])
        return context

    def run_for_ever(self):
        while True:
            try:
                self.outgoing = queue.Queue()
                self.run()
            except TimeoutError:
                self.say("dropped", why="nothing was received for too long")
            except (Dropped, OSError, ValueError, KeyError, AssertionError) as error:
                self.say("dropped", why=str(error) or repr(error))
            self.outgoing.put(None)
            if self.stream:
                self.stream.close()
            if "reconnect" not in self.options:
                os._exit(0)
            time.sleep(self.options["reconnect"])

    def run(self):
        host, port = self.options.get("host", "127.0.0.1"), self.options["port"]
        name = self.options.get("server_name", host) if "ca" in self.options else "kong_clustering"
        # Kong waits for 5 s, which a busy machine may need for its other side.
        plain = socket.create_connection((host, port), 30)
        self.stream = TlsStream(self.context(), plain, name)
        if self.options.get("rpc"):
            return self.run_rpc(f"{host}:{port}")
        hostname = self.options.get("hostname", "fake-data-plane")
        query = f"node_id={self.node}&node_hostname={hostname}&node_version={self.version}"
        websocket.connect(self.stream, f"/v1/outlet?{query}", f"{host}:{port}")
        self.say("connected", tls=self.stream.version())
        self.stream.sendall(websocket.frame(BINARY, kong.compact(self.basic_info()), masked=True))
        self.ping()
        self.start_threads(self.ping)
        while True:
            self.next_frame()

    def basic_info(self):
        plugins = self.options.get("plugins", kong.PLUGINS)
        versions = plugins if isinstance(plugins, dict) else dict.fromkeys(plugins, self.version)
        conf = {"role": "data_plane", "cluster_max_payload": self.max_payload, "cluster_cert_key": "******"}
        info = {"type": "basic_info", "process_conf": conf, "filters": {}}
        info["plugins"] = [{"name": name, "version": versions[name]} for name in sorted(versions)]
        if self.options.get("labels"):
            info["labels"] = self.options["labels"]
        return info

    def ping(self, payload=None):
        self.outgoing.put(websocket.frame(PING, (self.hash if payload is None else payload).encode(), masked=True))

    def start_threads(self, beat):
        self.stream.settimeout(self.options.get("lost_after", 45))
        stream, outgoing = self.stream, self.outgoing

        def write():
            try:
                while (data := outgoing.get()) is not None:
                    stream.sendall(data)
            except OSError:
                pass

        def beats():
            while outgoing is self.outgoing:
                time.sleep(self.options.get("ping_interval", 30))
                if outgoing is self.outgoing:
                    beat()

        for task in (write, beats):
            threading.Thread(target=task, daemon=True).start()

    def next_frame(self):
        opcode, payload = websocket.read_frame(self.stream, self.max_payload, masked=False)
        if opcode == CLOSE:
            raise Dropped(f"a close frame {int.from_bytes(payload[:2], 'big')}" if payload else "a close frame")
        if opcode == PONG:
            self.say("pong", payload=payload.decode())
        elif opcode in (TEXT, PING):
            self.say("ignored", frame=websocket.NAMES[opcode])
        elif opcode == BINARY:
            try:
                self.reconfigure(json.loads(gzip.decompress(payload)), len(payload))
            except (OSError, EOFError, zlib.error, ValueError) as error:
                # As of Kong: the frame is logged and forgotten.
                self.say("refused", errors=[str(error)])

    def reconfigure(self, message, size):
        if message.get("type") != "reconfigure":
            return self.say("ignored", frame=message.get("type"))
        wanted, table = message["config_hash"], message["config_table"]
        if wanted == self.hash:
            return self.say("unchanged", hash=wanted)
        assert isinstance(message["timestamp"], (int, float)) and len(wanted) == 32
        errors = kong.refusals(table) + ([self.options["refuse"]] if "refuse" in self.options else [])
        if errors:
            return self.say("refused", errors=errors, hash=wanted)
        if not [name for name in table if not name.startswith("_") and name != "workspaces"]:
            wanted = kong.EMPTY_HASH
        self.hash = wanted
        ours = kong.hashes_of(table)
        matches = ours["config"] == message["config_hash"] and ours == message["hashes"]
        self.say("synced")
        self.say("applied", hash=wanted, config_table=table, bytes=size, hash_matches=matches)
        self.ping()

    def run_rpc(self, host):
        websocket.connect(self.stream, "/v2/outlet", host, rpc.PROTOCOL)
        conf = {"cluster_max_payload": self.max_payload, "cluster_dp_labels": self.options.get("labels", {})}
        hello = {"rpc_capabilities": self.capabilities, "rpc_frame_encodings": [rpc.ENCODING], "kong_version": self.version}
        hello.update(kong_hostname=self.options.get("hostname", "fake-data-plane"), kong_node_id=self.node, kong_conf=conf)
        message = {"jsonrpc": "2.0", "method": rpc.PROTOCOL + ".hello", "params": [hello], "id": 1}
        self.stream.sendall(websocket.frame(BINARY, kong.compact(message), masked=True))
        opcode, payload = websocket.read_frame(self.stream, self.max_payload, masked=False)
        result = json.loads(payload)["result"]
        if opcode != BINARY or result["rpc_frame_encoding"] != rpc.ENCODING:
            raise Dropped("the answer to the hello is not understood")
        self.say("connected", tls=self.stream.version(), capabilities=result["rpc_capabilities"])
        is_synced = rpc.CAPABILITY in self.capabilities
        self.start_threads(self.get_delta if is_synced else lambda: None)
        if is_synced:
            self.get_delta()
        while True:
            opcode, payload = websocket.read_frame(self.stream, self.max_payload, masked=False)
            if opcode == CLOSE:
                raise Dropped(f"a close frame {int.from_bytes(payload[:2], 'big')}" if payload else "a close frame")
            if opcode == PING:
                self.outgoing.put(websocket.frame(PONG, payload, masked=True))
            elif opcode == BINARY:
                self.rpc_message(rpc.read_call(payload, self.texts))

    def call(self, method, params):
        self.calls += 1
        rpc.send(self, {"jsonrpc": "2.0", "method": method, "params": params, "id": self.calls})

    def get_delta(self):
        self.call(rpc.CAPABILITY + ".get_delta", [{"default": {"version": self.number}}])

    def rpc_message(self, message):
        if "method" in message:
            known = message["method"] == rpc.CAPABILITY + ".notify_new_version"
            answer = {"result": True} if known else {"error": {"code": -32601, "message": "Method not found"}}
            rpc.send(self, {"jsonrpc": "2.0", "id": message["id"], **answer})
            if known and message["params"][0]["default"]["new_version"] > self.number:
                self.get_delta()
        elif "error" in message:
            self.say("error", error=message["error"], id=message["id"])
        elif isinstance(message["result"], dict) and "default" in message["result"]:
            self.apply_deltas(message["result"]["default"])
        else:
            self.say("result", result=message["result"])

    def apply_deltas(self, answer):
        deltas, wipe = answer["deltas"], answer["full_sync" if self.texts else "wipe"]
        if not deltas:
            return self.say("unchanged", number=self.number)
        for delta in deltas:
            entity = delta["entity"]
            assert delta["type"] in kong.FIELDS, f"an unknown type: {delta['type']}"
            assert entity is not None or "id" in delta["pk"], "a deletion without a primary key"
            for field in kong.FOREIGN:
                named = (entity or {}).get(field)
                assert named is None or isinstance(named, dict), f"{delta['type']}.{field} is no object"
        before, self.number = self.number, deltas[-1]["version"]
        assert isinstance(self.number, str) == self.texts, "a version of another form"
        self.say("synced")
        self.say("deltas", wipe=wipe, deltas=deltas, number=self.number)
        if self.number != before:
            # Asking again reports the new number.
            self.get_delta()

    def command(self, command):
        if "ping" in command:
            self.ping(command["ping"])
        if "send" in command:
            wanted = {"masked": True, **command["send"]}
            flags = {name: wanted[name] for name in ("fin", "rsv", "masked") if name in wanted}
            self.outgoing.put(websocket.frame(wanted.get("opcode", BINARY), bytes.fromhex(wanted.get("hex", "")), **flags))
        if "text" in command:
            self.outgoing.put(websocket.frame(BINARY, kong.snappy(command["text"].encode()), masked=True))
        if "call" in command:
            self.call(command["call"], command["params"])
        if "notify" in command:
            rpc.send(self, {"jsonrpc": "2.0", "method": command["notify"], "params": command["params"]})
        if command.get("drop"):
            self.stream.shutdown(socket.SHUT_RDWR)


def main():
    data_plane = DataPlane(json.loads(sys.argv[1]))
    threading.Thread(target=data_plane.run_for_ever, daemon=True).start()
    for command in data_plane.lines.commands():
        data_plane.command(command)


if __name__ == "__main__":
    main()
