#!/usr/bin/env python3
"""What things cost: how much resident memory Weir has more with many of each.

    cargo build --release -p weir-gateway && bench/costs.py target/release/weir

Connections, requests in flight, WebSockets, cached responses and counters are made in a process that has had a tenth of them
before. Routes and consumers are read at the start, by one process with half of them and by another with all. Memory is read
once what was freed meanwhile has gone back to the system.
"""
import argparse
import asyncio
import os
import sys
import tempfile
import time
import types

from memory import Upstream, Weir, allow_connections, frame, free_port, gather, request, resident

# The allocator gives freed memory back over ten seconds.
SETTLE = 15
STREAMS = 100
GET = "GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
# The answer to that key.
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\n"
SERVICE = """_format_version: "3.0"
services:
- name: s
  url: http://127.0.0.1:{upstream}
  read_timeout: 600000
  routes:
  - {{name: all, paths: [/], strip_path: false{plugins}}}
"""
CACHE = ", plugins: [{{name: proxy-cache, config: {{strategy: memory, content_type: [text/plain], cache_ttl: 600}}}}]"
LIMIT = ", plugins: [{{name: rate-limiting, config: {{policy: local, hour: 1000000, limit_by: header, header_name: x-who}}}}]"
KEYS = ", plugins: [{{name: key-auth}}]"


def routes(plugins="", more=""):
    return SERVICE.replace("{plugins}", plugins) + more


class Silent(asyncio.Protocol):
    """An upstream that switches protocols, and else never answers."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if b"websocket" in data:
            self.transport.write(SWITCH)


async def preface(weir):
    reader, writer = await asyncio.open_connection("127.0.0.1", weir.h2c)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
    return reader, writer


async def http1_request(weir, count, held):
    """Requests over HTTP/1.1 that wait for their upstream, with both connections."""

    async def one(_):
        _, writer = await asyncio.open_connection("127.0.0.1", weir.http)
        writer.write(GET.format(path="/", more="").encode())
        held.append(writer)

    await gather(count, 64, one)


async def http2_request(weir, count, held):
    """The same over HTTP/2, a hundred on a connection."""

    async def one(_):
        _, writer = await preface(weir)
        # GET, http, / and an authority.
        for stream in range(1, 2 * STREAMS, 2):
            writer.write(frame(1, 5, stream, b"\x82\x86\x84\x41\x01a"))
        await writer.drain()
        held.append(writer)

    await gather(count // STREAMS, 8, one)


async def http2_connection(weir, count, held):
    """Connections over HTTP/2 without requests."""

    async def one(_):
        reader, writer = await preface(weir)
        await reader.readexactly(9)
        held.append(writer)

    await gather(count, 64, one)


async def websocket(weir, count, held):
    """WebSockets on which nothing is sent, with both connections."""

    async def one(_):
        head, writer = await request(weir.http, GET.format(path="/", more=UPGRADE))
        if b" 101 " not in head:
            sys.exit(f"no WebSocket: {head}")
        held.append(writer)

    await gather(count, 64, one)


async def requests(weir, numbers, text):
    """A request for each number, over connections that are kept."""
    numbers = iter(numbers)

    async def work():
        reader, writer = await asyncio.open_connection("127.0.0.1", weir.http)
        for number in numbers:
            writer.write(text(number).encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head:
                sys.exit(f"no response: {head}")
            await reader.readexactly(len(b"small"))
        writer.close()

    await asyncio.gather(*(work() for _ in range(32)))


async def cached_response(weir, count, held):
    """Responses of five bytes in the cache of proxy-cache."""
    start = len(held)
    held.extend(range(start, start + count))
    await requests(weir, held[start:], lambda number: GET.format(path=f"/{number}", more=""))


async def counter(weir, count, held):
    """Counters of rate-limiting on the node."""
    start = len(held)
    held.extend(range(start, start + count))
    await requests(weir, held[start:], lambda number: GET.format(path="/", more=f"x-who: client-{number}\r\n"))


def route(count):
    """Routes with a path, of one service."""
    return routes(more="".join(f"  - {{{{name: r{number}, paths: [/r{number}]}}}}\n" for number in range(count)))


def consumer(count):
    """Consumers with a key."""
    lines = (f"- {{{{username: consumer-{number}, keyauth_credentials: [{{{{key: key-of-{number}}}}}]}}}}\n" for number in range(count))
    return routes(KEYS, "consumers:\n" + "".join(lines))


# What is made, how many of it, with which configuration, and whether the upstream never answers.
MADE = {
    http1_request: (3_000, routes(), True),
    http2_request: (3_000, routes(), True),
    http2_connection: (5_000, routes(), True),
    websocket: (3_000, routes(), True),
    cached_response: (20_000, routes(CACHE), False),
    counter: (50_000, routes(LIMIT), False),
}
READ = {route: 20_000, consumer: 20_000}


async def grown(weir, make, count, silent_port):
    """How much memory so many take."""
    loop = asyncio.get_running_loop()
    server = silent_port and await loop.create_server(Silent, "127.0.0.1", silent_port, backlog=4096)
    held = []
    await make(weir, count // 10, held)
    await asyncio.sleep(SETTLE)
    before = resident(weir.process.pid)
    await make(weir, count, held)
    await asyncio.sleep(SETTLE)
    after = resident(weir.process.pid)
    for writer in held:
        if hasattr(writer, "transport"):
            writer.transport.abort()
    if server:
        server.close()
    return after - before


def made(options, make):
    count, config, never_answers = MADE[make]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        upstream = types.SimpleNamespace(port=free_port(), end=lambda: None) if never_answers else Upstream(folder)
        weir = Weir(options, folder, upstream, config)
        try:
            silent_port = upstream.port if never_answers else None
            return count, asyncio.run(grown(weir, make, count, silent_port)) / count
        finally:
            weir.end()
            upstream.end()


def read(options, config):
    def with_some(count):
        with tempfile.TemporaryDirectory() as folder:
            weir = Weir(options, folder, types.SimpleNamespace(port=1), config(count))
            try:
                time.sleep(SETTLE)
                return resident(weir.process.pid)
            finally:
                weir.end()

    count = READ[config]
    half = count // 2
    return half, (with_some(count) - with_some(half)) / half


def main():
    things = {thing.__name__: thing for thing in (*MADE, *READ)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("things", nargs="*", default=list(things), help=", ".join(things))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.binary = os.path.abspath(options.binary)
    # The history of analytics grows by itself.
    options.set, options.preload, options.env = ["analytics=off"], None, []
    options.connections = allow_connections()
    for name in options.things:
        thing = things[name]
        count, each = (made if thing in MADE else read)(options, thing)
        print(f"{name:16} {count:6} of them: {each / 1024:7.2f} KiB each", flush=True)


if __name__ == "__main__":
    main()
