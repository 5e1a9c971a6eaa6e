#!/usr/bin/env python3
"""Whether memory comes back: resident memory of Weir before, during and after waves of work.

    cargo build --release -p weir-gateway && bench/memory.py target/release/weir

A wave is a thing that takes much memory for a while: connections over TLS, streams of HTTP/2 whose responses no client
reads, bodies that a plugin holds, a cache that fills and is emptied, reloads of many routes. Each wave has a process of its own. It has
had a smaller wave of the same kind before, so that what is made once is made already. A wave passes if, 60 s after
its end, no more than 20 % and 16 MiB more than before is resident. --preload puts another allocator under the binary.
"""
import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MIB = 1 << 20
CONNECTIONS = 10_000
# The gateway gives half of its open files to clients, after some hundreds for itself.
OPEN_FILES = 2 * CONNECTIONS + 1_000
NGINX = """
daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.log; worker_processes 1; worker_rlimit_nofile 60000;
events {{ worker_connections 50000; }}
http {{
    access_log off; default_type text/plain; client_max_body_size 0; keepalive_requests 1000000; keepalive_timeout 5s;
    client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; scgi_temp_path {dir}/s; uwsgi_temp_path {dir}/u;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 small; }}
        location /big/ {{ alias {dir}/; try_files /big.bin =404; add_header Cache-Control max-age=600; }}
        location /block/ {{ alias {dir}/; try_files /block.bin =404; add_header Cache-Control max-age=600; }}
    }}
}}
"""
ROUTES = """_format_version: "3.0"
services:
- name: s
  url: http://127.0.0.1:{upstream}
  routes:
  - {{name: plain, paths: [/], strip_path: false}}
  - name: held
    paths: [/held]
    plugins:
    - {{name: request-transformer, config: {{add: {{body: ["a:b"]}}}}}}
  - name: cached
    paths: [/block]
    strip_path: false
    plugins:
    - {{name: proxy-cache, config: {{strategy: memory, content_type: [text/plain, application/octet-stream], cache_ttl: 600}}}}
"""


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def resident(pid):
    """Kilobytes that are the process's own, as bytes."""
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        for line in lines:
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    return 0


class Upstream:
    """nginx, which takes whatever comes and has no memory of it."""

    def __init__(self, folder):
        self.port = free_port()
        for name, size in (("big.bin", MIB), ("block.bin", 32 * 1024)):
            with open(f"{folder}/{name}", "wb") as file:
                file.write(os.urandom(1024) * (size // 1024))
        with open(f"{folder}/nginx.conf", "w") as file:
            file.write(NGINX.format(dir=folder, port=self.port))
        self.process = subprocess.Popen(["nginx", "-p", folder, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/nginx.log"])

    def end(self):
        self.process.terminate()
        self.process.wait()


class Weir:
    """A gateway in a folder of its own, and the highest of its resident memory."""

    def __init__(self, options, folder, upstream, routes=ROUTES):
        self.folder, self.options = folder, options
        self.http, self.https, self.h2c, self.admin = (free_port() for _ in range(4))
        self.config = f"{folder}/kong.yml"
        with open(self.config, "w") as file:
            file.write(routes.format(upstream=upstream.port))
        settings = [
            f"workers={options.workers}", "admin_gui_listen=off", f"prefix={folder}/prefix",
            f"proxy_listen=127.0.0.1:{self.http} backlog=8192, 127.0.0.1:{self.https} ssl backlog=8192, 127.0.0.1:{self.h2c} http2",
            f"admin_listen=127.0.0.1:{self.admin}", "status_listen=off", "mem_cache_size=1g", "mem_bodies_size=2g",
            "client_max_body_size=0", "client_body_buffer_size=8m", "log_level=warn",
            # All clients have one address.
            f"max_connections_per_ip={CONNECTIONS}", *options.set,
        ]
        command = [options.binary, "run", "--config", self.config]
        for setting in settings:
            command += ["--set", setting]
        environment = dict(os.environ)
        if options.preload:
            environment["LD_PRELOAD"] = options.preload
        for pair in options.env:
            name, value = pair.split("=", 1)
            environment[name] = value
        self.process = subprocess.Popen(command, env=environment, stdout=open(f"{folder}/out", "w"), stderr=open(f"{folder}/log", "w"))
        self.wait_until_up()
        self.peak, self.watching = 0, False

    def wait_until_up(self):
        for _ in range(3000):
            try:
                socket.create_connection(("127.0.0.1", self.http)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"weir ended:\n{open(self.folder + '/log').read()[-2000:]}")
                time.sleep(0.02)
        sys.exit("weir does not come up")

    def watch(self):
        while self.watching:
            self.peak = max(self.peak, resident(self.process.pid))
            time.sleep(0.05)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def gather(count, at_once, one):
    """Runs `one(number)` for all numbers, so many at once."""
    numbers = iter(range(count))

    async def work():
        for number in numbers:
            await one(number)

    await asyncio.gather(*(work() for _ in range(at_once)))


def context():
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


async def request(port, text, tls=None, body=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(text.encode() + body)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    length = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    if length:
        await reader.readexactly(length[0])
    return head, writer


async def tls(weir, scale):
    """Connections over TLS that were used once and stay."""
    made, held = context(), []

    async def one(_):
        _, writer = await request(weir.https, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", made)
        held.append(writer)

    await gather(int(weir.options.connections * scale), 64, one)
    await asyncio.sleep(1)
    for writer in held:
        writer.transport.abort()


async def plain(weir, scale):
    """Connections without TLS that were used once and stay."""
    held = []

    async def one(_):
        _, writer = await request(weir.http, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        held.append(writer)

    await gather(int(weir.options.connections * scale), 64, one)
    await asyncio.sleep(1)
    for writer in held:
        writer.transport.abort()


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


async def stalled(weir, scale):
    """Streams of HTTP/2 whose windows stay closed, each with a response of 1 MiB on its way."""
    held = []
    # GET, http, /big/x and an authority, as literals.
    fields = b"\x82\x86\x44\x06/big/x\x41\x01a"

    async def one(_):
        _, writer = await asyncio.open_connection("127.0.0.1", weir.h2c)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        for stream in range(1, 200, 2):
            writer.write(frame(1, 5, stream, fields))
        await writer.drain()
        held.append(writer)

    # The connection's window is 64 KiB; what streams have beyond it waits in the gateway.
    await gather(int(1_000 * scale), 32, one)
    await asyncio.sleep(5)
    for writer in held:
        writer.transport.abort()


async def bodies(weir, scale):
    """Bodies of 4 MiB that a plugin holds."""
    body = json.dumps({"x": "y" * (4 * MIB)}).encode()
    head = f"POST /held HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    held = []

    async def one(_):
        # All but the last byte, so that all of them are held at once.
        _, writer = await asyncio.open_connection("127.0.0.1", weir.http)
        writer.write(head.encode() + body[:-1])
        await writer.drain()
        held.append((_, writer))

    await gather(int(100 * scale), 16, one)
    for reader, writer in held:
        writer.write(body[-1:])
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()


async def cache(weir, scale):
    """A cache that fills with responses of 32 KiB and is emptied."""

    async def one(number):
        _, writer = await request(weir.http, f"GET /block/{number} HTTP/1.1\r\nHost: a\r\n\r\n")
        writer.close()

    await gather(int(20_000 * scale), 32, one)
    purge = urllib.request.Request(f"http://127.0.0.1:{weir.admin}/proxy-cache", method="DELETE")
    await asyncio.to_thread(lambda: urllib.request.urlopen(purge).read())


async def reloads(weir, scale):
    """Reloads of 10,000 routes, each time with one that differs."""
    for number in range(max(1, int(100 * scale))):
        routes = "".join(f"  - {{name: r{route}, paths: [/r{route}]}}\n" for route in range(10_000))
        with open(weir.config, "w") as file:
            file.write('_format_version: "3.0"\nservices:\n- name: s\n  url: http://127.0.0.1:1\n  routes:\n')
            file.write(routes + f"  - {{name: last, paths: [/last-{number}]}}\n")
        reload = await asyncio.create_subprocess_exec(weir.options.binary, "reload", "--prefix", f"{weir.folder}/prefix", stdout=subprocess.DEVNULL)
        if await reload.wait() != 0:
            sys.exit("a reload failed")


WAVES = {wave.__name__: wave for wave in (tls, plain, stalled, bodies, cache, reloads)}


def run(name, options):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        upstream = Upstream(folder)
        weir = Weir(options, folder, upstream)
        try:
            asyncio.run(WAVES[name](weir, options.warm))
            time.sleep(options.rest)
            before = resident(weir.process.pid)
            weir.watching = True
            watcher = threading.Thread(target=weir.watch)
            watcher.start()
            began = time.monotonic()
            asyncio.run(WAVES[name](weir, options.scale))
            took = time.monotonic() - began
            after = {}
            for at in (5, 20, 60):
                time.sleep(max(0, began + took + at - time.monotonic()))
                after[at] = resident(weir.process.pid)
            weir.watching = False
            watcher.join()
        finally:
            weir.end()
            upstream.end()
    bound = before * 1.2 + 16 * MIB
    return {"wave": name, "before": before, "peak": weir.peak, "after": after, "bound": int(bound), "passes": after[60] <= bound, "seconds": took}


def allow_connections():
    """Raises the limit of open files for this process and the gateway, and returns how many connections that allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limit in (max(hard, OPEN_FILES), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            break
        except (ValueError, OSError):
            continue
    connections = min(CONNECTIONS, (limit - OPEN_FILES) // 2 + CONNECTIONS)
    if connections < CONNECTIONS:
        print(f"{connections} connections instead of {CONNECTIONS}, because the limit of open files is {limit} (ulimit -Hn)")
    return connections


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("waves", nargs="*", default=list(WAVES), help=", ".join(WAVES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1, help="size of the waves")
    parser.add_argument("--warm", type=float, default=0.02, help="size of the wave before")
    parser.add_argument("--rest", type=float, default=12, help="seconds between the two")
    parser.add_argument("--preload", help="a library for LD_PRELOAD, such as libjemalloc.so.2")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.binary = os.path.abspath(options.binary)
    options.connections = allow_connections()
    failed = False
    print(f"{'wave':8} {'before':>8} {'peak':>8} {'5 s':>8} {'20 s':>8} {'60 s':>8} {'bound':>8}  MiB")
    for name in options.waves:
        result = run(name, options)
        failed |= not result["passes"]
        if options.json:
            print(json.dumps(result), flush=True)
        columns = [result["before"], result["peak"], *result["after"].values(), result["bound"]]
        figures = " ".join(f"{column / MIB:8.1f}" for column in columns)
        print(f"{name:8} {figures}  {'passes' if result['passes'] else 'FAILS'} after {result['seconds']:.0f} s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
