"""A server that answers as a program says, and keeps what it was sent."""

import json
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Request:
    method: str
    target: str
    headers: object
    body: bytes

    def json(self):
        return json.loads(self.body)


@dataclass
class Answer:
    """A whole body, or a tuple with the pieces of a stream."""

    body: object
    status: int = 200
    headers: dict = field(default_factory=lambda: {"Content-Type": "application/json"})

    @classmethod
    def stream(cls, pieces, content_type):
        return cls(tuple(pieces), headers={"Content-Type": content_type})


def echo(request):
    """The answer that says what was sent."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Answer({"target": request.target, "headers": headers, "body": request.body.decode()})


class Server:
    """A server on a free port. It gives the answers that it has, one after the other, and echoes when there are no more."""

    def __init__(self):
        self.received, self.answers = [], deque()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.script = self
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        Thread(target=self.http.serve_forever, daemon=True).start()

    def will(self, *answers):
        self.answers.extend(answers)

    def last(self):
        """The request that came last, which must be the only one since the last call."""
        [request] = self.received
        self.received.clear()
        return request


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        script = self.server.script
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, self.path, self.headers, body)
        script.received.append(request)
        self.reply(script.answers.popleft() if script.answers else echo(request))

    do_GET = do_POST = do_PUT = handle_any

    def reply(self, answer):
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if isinstance(answer.body, tuple):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in answer.body:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
            return
        body = json.dumps(answer.body).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass
