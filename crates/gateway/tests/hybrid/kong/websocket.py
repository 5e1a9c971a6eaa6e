"""Frames of RFC 6455 as Kong 3.9 reads and writes them: one message is one unfragmented frame. Frames are made by hand, so
that tests can also send what no library would."""
import base64
import hashlib
import os
import struct

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NAMES = {CONTINUATION: "continuation", TEXT: "text", BINARY: "binary", CLOSE: "close", PING: "ping", PONG: "pong"}
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Dropped(Exception):
    """The connection ends here; the text says why."""


def accept_key(key):
    return base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()


def frame(opcode, payload=b"", masked=False, fin=True, rsv=0):
    """The bytes of one frame."""
    head = bytearray([(0x80 if fin else 0) | rsv << 4 | opcode])
    mask_bit = 0x80 if masked else 0
    if len(payload) < 126:
        head.append(mask_bit | len(payload))
    elif len(payload) < 65536:
        head += struct.pack("!BH", mask_bit | 126, len(payload))
    else:
        head += struct.pack("!BQ", mask_bit | 127, len(payload))
    if not masked:
        return bytes(head) + payload
    key = os.urandom(4)
    return bytes(head) + key + mask(payload, key)


def mask(payload, key):
    repeated = key * (len(payload) // 4 + 1)
    size = len(payload)
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated[:size], "big")).to_bytes(size, "big")


def read_exactly(stream, size):
    data = bytearray()
    while len(data) < size:
        try:
            part = stream.recv(min(size - len(data), 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise Dropped(f"the peer broke off: {error}")
        if not part:
            raise Dropped("the peer closed the connection" + (" within a frame" if data else ""))
        data += part
    return bytes(data)


def read_frame(stream, max_payload, masked):
    """The opcode and the payload of the next frame. `masked` says how the peer has to send; whatever Kong drops the
    connection for is an error."""
    first, second = read_exactly(stream, 2)
    opcode, length = first & 0x0F, second & 0x7F
    if first & 0x70:
        raise Dropped("reserved bits are set")
    if opcode not in NAMES:
        raise Dropped(f"reserved opcode {opcode}")
    if bool(second & 0x80) != masked:
        raise Dropped("the frame is not masked" if masked else "the frame is masked")
    if length == 126:
        length = struct.unpack("!H", read_exactly(stream, 2))[0]
    elif length == 127:
        length = struct.unpack("!Q", read_exactly(stream, 8))[0]
    if opcode >= CLOSE and length > 125:
        raise Dropped("too long a control frame")
    if length > max_payload:
        raise Dropped(f"exceeding max payload len: {length}")
    key = read_exactly(stream, 4) if masked else None
    payload = read_exactly(stream, length) if length else b""
    if not first & 0x80 or opcode == CONTINUATION:
        raise Dropped("the message is fragmented")
    return opcode, mask(payload, key) if masked else payload


def read_head(stream):
    """The first line and the headers, names in lower case, of a request or a response."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        head += read_exactly(stream, 1)
        if len(head) > 32768:
            raise Dropped("the head is too long")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return first, headers


def connect(stream, target, host, protocol=None):
    """Sends the upgrade as Kong's client does, and reads the answer."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET {target} HTTP/1.1", "Upgrade: websocket", f"Host: {host}", f"Sec-WebSocket-Key: {key}"]
    lines += [f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []
    lines += ["Sec-WebSocket-Version: 13", "Connection: Upgrade"]
    stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    status, headers = read_head(stream)
    if not status.startswith("HTTP/1.1 101"):
        raise Dropped(f"bad HTTP response status line: {status}")
    if headers.get("sec-websocket-accept") != accept_key(key):
        raise Dropped("a wrong Sec-WebSocket-Accept")
    if headers.get("upgrade", "").lower() != "websocket" or headers.get("connection", "").lower() != "upgrade":
        raise Dropped("the answer does not upgrade")
    if "sec-websocket-extensions" in headers:
        raise Dropped("an extension that was not offered")
    if headers.get("sec-websocket-protocol") != protocol:
        raise Dropped(f"the subprotocol is {headers.get('sec-websocket-protocol')}")


def answer_upgrade(stream, headers, protocol=None):
    """Answers 101 as Kong's server does."""
    wanted = [("upgrade", "websocket"), ("sec-websocket-version", "13")]
    if any(headers.get(name, "").lower() != value for name, value in wanted) or "sec-websocket-key" not in headers:
        raise Dropped("the request is no upgrade to a websocket")
    lines = ["HTTP/1.1 101 Switching Protocols", "Connection: upgrade", "Upgrade: websocket"]
    lines.append(f"Sec-WebSocket-Accept: {accept_key(headers['sec-websocket-key'])}")
    lines += [f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []
    stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
