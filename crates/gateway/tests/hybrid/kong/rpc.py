"""JSON-RPC at `/v2/outlet`, and the incremental sync of Kong 3.9 over it; with `texts`, that of 3.10."""
import json
import threading

import kong
import websocket
from websocket import BINARY, CLOSE, PING, PONG, Dropped

PROTOCOL, ENCODING, CAPABILITY = "kong.meta.v1", "x-snappy-framed", "kong.sync.v2"
MAX_BEHIND = 512


class History:
    """The versions of a configuration, and what each changed."""

    def __init__(self, texts=False):
        self.lock, self.number, self.deltas, self.entities = threading.Lock(), 0, [], {}
        self.texts = texts

    def named(self, number):
        return f"v02_{number:028x}" if self.texts else number

    def add(self, deltas):
        with self.lock:
            self.number += 1
            for delta in deltas:
                delta = {"ws_id": "0dc6f45b-8f8d-40d2-a504-473544ee190b", **delta, "version": self.number}
                self.deltas.append(delta)
                key = (delta["type"], delta["pk"]["id"])
                self.entities.pop(key, None)
                if delta["entity"] is not None:
                    self.entities[key] = {name: value for name, value in delta.items() if name != "pk"}
            return self.named(self.number)

    def since(self, number):
        if self.texts:
            return self.everything_unless(number)
        with self.lock:
            later = [delta for delta in self.deltas if delta["version"] > number]
            if number and (not later or later[0]["version"] == number + 1) and self.number - number <= MAX_BEHIND:
                return {"default": {"wipe": False, "deltas": later}}
            everything = [dict(entity, version=self.number) for entity in self.entities.values()]
            return {"default": {"wipe": True, "deltas": everything if self.number else []}}

    def everything_unless(self, number):
        """3.10 sends nothing or everything."""
        with self.lock:
            if number == self.named(self.number):
                return {"default": {"full_sync": False, "deltas": []}}
            everything = [dict(entity, version=self.named(self.number)) for entity in self.entities.values()]
            return {"default": {"full_sync": True, "deltas": everything}}


def send(session, message):
    masked = getattr(session, "is_client", False)
    session.outgoing.put(websocket.frame(BINARY, kong.snappy(kong.compact(message)), masked))


def read_call(payload, texts=False):
    message = json.loads(kong.unsnappy(payload))
    if message.get("jsonrpc") != "2.0" or isinstance(message, list):
        raise Dropped("the message is not of JSON-RPC 2.0")
    if "method" in message and not isinstance(message.get("params"), list):
        raise Dropped("the parameters are no array")
    if "id" not in message and not texts:
        raise Dropped("Kong 3.9 knows no notifications")
    return message


def serve(session, headers):
    """The control plane's side of one connection."""
    if PROTOCOL not in [offered.strip() for offered in headers.get("sec-websocket-protocol", "").split(",")]:
        raise Dropped("the subprotocol is not offered")
    websocket.answer_upgrade(session.stream, headers, PROTOCOL)
    hello = read_hello(session)
    session.node = hello["kong_node_id"]
    session.say("hello", info=hello)
    session.capabilities = hello["rpc_capabilities"]
    offered = session.of.options.get("rpc_capabilities", [CAPABILITY])
    result = {"rpc_capabilities": offered, "rpc_frame_encoding": ENCODING}
    session.stream.sendall(
        websocket.frame(BINARY, kong.compact({"jsonrpc": "2.0", "result": result, "id": session.hello_id}))
    )
    session.start_writing()
    session.stream.settimeout(session.of.options.get("lost_after", 45))
    while True:
        opcode, payload = websocket.read_frame(session.stream, session.of.max_payload, masked=True)
        if opcode == CLOSE:
            raise Dropped("a close frame")
        if opcode == PING:
            session.outgoing.put(websocket.frame(PONG, payload))
        elif opcode == BINARY:
            answer(session, read_call(payload, session.of.history.texts))
        elif opcode != PONG:
            raise Dropped(f"unknown websocket frame: {websocket.NAMES[opcode]}")


def read_hello(session):
    opcode, payload = websocket.read_frame(session.stream, session.of.max_payload, masked=True)
    message = json.loads(payload)
    if opcode != BINARY or message.get("method") != PROTOCOL + ".hello" or message.get("jsonrpc") != "2.0":
        raise Dropped("the first message is no hello")
    session.hello_id, hello = message["id"], message["params"][0]
    missing = {"rpc_capabilities", "rpc_frame_encodings", "kong_version", "kong_hostname", "kong_node_id", "kong_conf"} - set(hello)
    if missing or ENCODING not in hello["rpc_frame_encodings"]:
        raise Dropped(f"the hello lacks {sorted(missing) or ENCODING}")
    return hello


def answer(session, message):
    if "method" not in message:
        event = "error" if "error" in message else "result"
        return session.say(event, **{event: message.get(event)}, id=message["id"])
    session.say("call", method=message["method"], params=message["params"])
    if "id" not in message:
        return None
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == CAPABILITY + ".get_delta":
        number = message["params"][0]["default"]["version"]
        reply["result"] = session.of.history.since(number)
        session.say("ping", hash=number if isinstance(number, str) else f"{number:032d}")
    else:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    send(session, reply)
    return None
