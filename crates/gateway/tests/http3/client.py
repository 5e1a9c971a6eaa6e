"""A client of HTTP/3 by aioquic. It follows commands from its standard input, one a line in JSON, and tells what comes in
the same way: a line for each response that has ended, for GOAWAY and for the end of the connection."""

import asyncio
import hashlib
import json
import socket
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StopSendingReceived, StreamDataReceived, StreamReset

CONTROL_STREAM = 3
GOAWAY = 7
PIECE = 64 * 1024
LONGEST_TEXT = 4096
LONGEST_COMMAND = 4 * 1024 * 1024


def tell(**event):
    print(json.dumps(event), flush=True)


def number(data):
    """The variable-length integer that the bytes begin with, and the rest; none if it is not whole."""
    size = 1 << (data[0] >> 6) if data else 1
    if len(data) < size:
        return None, data
    return int.from_bytes(data[:size], "big") & ((1 << (8 * size - 2)) - 1), data[size:]


class Connection(H3Connection):
    """A connection with settings of the test's own, or a control stream that begins otherwise."""

    settings = {}
    control = None

    def _init_connection(self):
        if self.control is None:
            return super()._init_connection()
        self._local_control_stream_id = self._create_uni_stream(0)
        self._quic.send_stream_data(self._local_control_stream_id, bytes.fromhex(self.control))

    def _get_local_settings(self):
        return {**super()._get_local_settings(), **self.settings}


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = Connection(self._quic)
        self.names, self.responses, self.control = {}, {}, b""
        self.limits = self._quic._write_stream_limits

    def ask(self, command):
        stream = self._quic.get_next_available_stream_id()
        self.names[stream] = command.get("name", "")
        self.responses[stream] = {"bytes": 0, "hash": hashlib.sha256()}
        if "raw" in command:
            self._quic.send_stream_data(stream, bytes.fromhex(command["raw"]), command.get("end", True))
            return self.transmit()
        fields = [(name.encode(), value.encode()) for name, value in command["fields"]]
        size, trailers = command.get("body", 0), command.get("trailers")
        open_ended = command.get("open", False)
        self.http.send_headers(stream, fields, end_stream=not size and trailers is None and not open_ended)
        if size:
            self.send_body(stream, size, command.get("piece", PIECE), trailers is None and not open_ended)
        if trailers is not None:
            self.http.send_headers(stream, [(n.encode(), v.encode()) for n, v in trailers], end_stream=True)
        self.transmit()

    def send_body(self, stream, size, piece, ends):
        for start in range(0, size, piece):
            data = b"x" * min(piece, size - start)
            self.http.send_data(stream, data, end_stream=ends and start + piece >= size)

    def cancel(self, name):
        stream = next(stream for stream, given in self.names.items() if given == name)
        self._quic.stop_stream(stream, 0x10C)
        self._quic.reset_stream(stream, 0x10C)
        self.transmit()

    def write(self, name, raw, end):
        """Sends bytes on one of the connection's own streams: control, encoder or decoder."""
        stream = getattr(self.http, f"_local_{name}_stream_id")
        self._quic.send_stream_data(stream, bytes.fromhex(raw), end)
        self.transmit()

    def hold(self, holds):
        """Gives the server no more leave to send, or gives it again."""
        self._quic._write_stream_limits = (lambda **_: None) if holds else self.limits
        self.transmit()

    async def rebind(self):
        """Goes on from another port, as behind a NAT that has forgotten the first."""
        new = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        new.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        new.bind(("::", 0, 0, 0))
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=new)
        tell(rebound=True)

    def quic_event_received(self, event):
        if isinstance(event, StreamReset):
            self.finish(event.stream_id, reset=event.error_code)
        elif isinstance(event, StopSendingReceived):
            tell(stopped=self.names.get(event.stream_id), code=event.error_code)
        elif isinstance(event, ConnectionTerminated):
            tell(closed=event.error_code, reason=event.reason_phrase)
        elif isinstance(event, StreamDataReceived) and event.stream_id == CONTROL_STREAM:
            self.read_control(event.data)
        for told in self.http.handle_event(event):
            self.http_event_received(told)

    def read_control(self, data):
        self.control += data
        kind, rest = number(self.control)
        while rest:
            kind, rest = number(rest)
            length, rest = number(rest) if rest else (None, rest)
            if length is None or len(rest) < length:
                return
            if kind == GOAWAY:
                tell(goaway=number(rest[:length])[0])
                self.control = b"\0"
            rest = rest[length:]

    def http_event_received(self, event):
        response = self.responses[event.stream_id]
        if isinstance(event, HeadersReceived):
            fields = [[name.decode(), value.decode()] for name, value in event.headers]
            if fields[0] == [":status", "100"]:
                tell(invited=self.names[event.stream_id])
            elif fields[0][0] == ":status" and fields[0][1].startswith("1"):
                tell(interim=fields[0][1], fields=fields[1:])
            else:
                response["trailers" if "fields" in response else "fields"] = fields
        elif isinstance(event, DataReceived):
            response["bytes"] += len(event.data)
            response["hash"].update(event.data)
            text = response.get("text", "") + event.data.decode("latin-1")
            response["text"] = text if len(text) < LONGEST_TEXT else ""
        if event.stream_ended:
            self.finish(event.stream_id)

    def finish(self, stream, **more):
        response = self.responses.pop(stream, None)
        if response is not None:
            response["hash"] = response["hash"].hexdigest()
            tell(name=self.names[stream], **response, **more)


async def main(host, port, options):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=options.get("alpn", H3_ALPN))
    configuration.verify_mode = ssl.CERT_NONE
    configuration.server_name = options.get("sni", "localhost")
    configuration.idle_timeout = options.get("idle", 60.0)
    configuration.max_stream_data = options.get("window", 1024 * 1024)
    Connection.settings = {int(identifier): value for identifier, value in options.get("settings", {}).items()}
    Connection.control = options.get("control")
    async with connect(host, int(port), configuration=configuration, create_protocol=Client) as client:
        certificate = client._quic.tls._peer_certificate.subject.rfc4514_string()
        tell(connected=certificate, proved=client._quic._retry_count)
        lines = asyncio.StreamReader(limit=LONGEST_COMMAND)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            command = json.loads(line)
            match command.pop("do"):
                case "ask":
                    client.ask(command)
                case "cancel":
                    client.cancel(command["name"])
                case "hold":
                    client.hold(command["holds"])
                case "rebind":
                    await client.rebind()
                case "control" | "encoder" | "decoder" as name:
                    client.write(name, command["raw"], command.get("end", False))
                case "one_way":
                    stream = client._quic.get_next_available_stream_id(is_unidirectional=True)
                    client._quic.send_stream_data(stream, bytes.fromhex(command["raw"]), command.get("end", False))
                    client.transmit()


try:
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
except ConnectionError as error:
    tell(refused=str(error))
