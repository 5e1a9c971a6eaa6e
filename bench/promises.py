#!/usr/bin/env python3
"""What reloads lose, what slow clients cost others, and what the time of a refusal shows, as docs/reliability.md states them.

    cargo build --release -p weir-gateway -p weirlab && bench/promises.py target/release/weir target/release/weirlab

changes      requests over kept and new connections and over HTTP/2, while the configuration changes again and again: none may be lost
slow         500 clients that send heads, send bodies or read responses slowly, for each: the latency of others, beside that without them
reader       clients that stop reading a response of 1 GiB: the memory that each takes
credentials  basic-auth with a wrong password and with an unknown user, by turns: the ratio of their times

Exits with 1 if one of them is out of its bound.
"""
import argparse
import base64
import contextlib
import json
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SLOW_CLIENTS = 500
READERS = 16
CONFIG = """_format_version: "3.0"
consumers:
- {{username: someone, basicauth_credentials: [{{username: someone, password: right}}]}}
services:
- name: s
  url: http://127.0.0.1:{upstream}
  routes:
  - {{name: plain, paths: [/plain], plugins: [{{name: response-transformer, config: {{add: {{headers: ["x-word:{word}"]}}}}}}]}}
  - {{name: keyed, paths: [/keyed], plugins: [{{name: basic-auth}}]}}
- {{name: large, url: "http://127.0.0.1:{large}", routes: [{{name: large, paths: [/large]}}]}}
"""


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def send_large(listener):
    """An upstream server whose responses have 1 GiB."""

    def serve(peer):
        with contextlib.suppress(OSError), peer:
            peer.recv(64 * KIB)
            peer.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\nConnection: close\r\n\r\n".encode())
            for _ in range(GIB // MIB):
                peer.sendall(bytes(MIB))

    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


class Node:
    """A gateway with one worker, and its upstream servers."""

    def __init__(self, arguments, folder):
        self.weir, self.weirlab, self.folder = arguments.weir, arguments.weirlab, pathlib.Path(folder)
        self.upstream, self.http, self.h2c = free_port(), free_port(), free_port()
        large = socket.create_server(("127.0.0.1", 0))
        self.large = large.getsockname()[1]
        threading.Thread(target=send_large, args=(large,), daemon=True).start()
        command = [self.weirlab, "upstream", "--listen", f"127.0.0.1:{self.upstream}", "--body", "x" * KIB]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.configure("first")
        settings = {
            "proxy_listen": f"127.0.0.1:{self.http} backlog=4096, 127.0.0.1:{self.h2c} http2 backlog=4096", "workers": 1,
            "admin_listen": "127.0.0.1:0", "admin_gui_listen": "off", "max_connections_per_ip": 4096,
        }
        command = [self.weir, "run", "--prefix", f"{folder}/prefix", "--config", f"{folder}/kong.yml"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "w"), text=True)
        if not self.process.stdout.readline():
            sys.exit(pathlib.Path(f"{folder}/log").read_text())

    def configure(self, word):
        new = self.folder / "kong.yml.new"
        new.write_text(CONFIG.format(upstream=self.upstream, large=self.large, word=word))
        new.rename(self.folder / "kong.yml")

    def reload(self, word):
        self.configure(word)
        subprocess.run([self.weir, "reload", "--prefix", self.folder / "prefix"], check=True, stdout=subprocess.DEVNULL)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.http))

    def load(self, *options, port=None):
        command = [self.weirlab, "load", f"http://127.0.0.1:{port or self.http}/plain", "-t", "1", "--timeout", "30s", "--format", "json"]
        return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)

    def resident(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * KIB for line in lines if line.startswith("VmRSS"))

    def stop(self):
        for process in (self.process, self.server):
            process.send_signal(signal.SIGTERM)
            process.wait()


def answers(process):
    return json.loads(process.communicate()[0])


def changes(node, arguments):
    """Reloads at even times, more than a hundred."""
    measured = answers(node.load("-c", "32", "-d", "3s"))["requests_per_s"]
    seconds = max(10, int(arguments.requests / measured * 1.5))
    series = [["-c", "32"], ["-c", "8", "--no-keep-alive"], ["-c", "4", "-m", "8", "--protocol", "http2"]]
    loads = [node.load(*it, "-d", f"{seconds}s", port=node.h2c if "http2" in it else None) for it in series]
    done, begin = 0, time.monotonic()
    while time.monotonic() < begin + seconds:
        time.sleep(max(0, begin + done * seconds / 110 - time.monotonic()))
        node.reload(f"word-{done}")
        done += 1
    results = [answers(it) for it in loads]
    right, errors = sum(it["good"] for it in results), [it["errors"] for it in results]
    print(f"changes: {done} reloads, {right} requests right ({', '.join(str(it['good']) for it in results)}), others: {errors}")
    return not any(errors) and done >= 100


class Slow:
    """Clients that go on for as long as the context lasts, a few bytes each second."""

    def __init__(self, node, mode):
        self.node, self.mode, self.ends = node, mode, False
        self.thread = threading.Thread(target=self.run)

    def open(self):
        client = self.node.connect()
        if self.mode == "read":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        start = {
            "heads": b"GET /plain HTTP/1.1\r\nHost: a\r\nX-Slow: ",
            "bodies": b"POST /plain HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
            "read": b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        }
        client.sendall(start[self.mode])
        client.setblocking(False)
        return client

    def go_on(self, client):
        try:
            if self.mode == "read":
                return bool(client.recv(512))
            return client.send(b"slow") > 0
        except BlockingIOError:
            return True
        except OSError:
            return False

    def run(self):
        clients = [self.open() for _ in range(SLOW_CLIENTS)]
        while not self.ends:
            for number, client in enumerate(clients):
                if not self.go_on(client):
                    client.close()
                    clients[number] = self.open()
                time.sleep(1 / SLOW_CLIENTS)
        for client in clients:
            client.close()

    def __enter__(self):
        self.thread.start()
        time.sleep(3)

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()
        time.sleep(1)


def latency(node):
    measured = answers(node.load("-c", "32", "-R", "2000", "-d", "5s"))
    return measured["response"]["p99_us"], measured["answers"] - measured["good"] + sum(measured["errors"].values())


def slow(node, arguments):
    """Rounds with and without slow clients take turns; the medians are compared."""
    is_right = True
    for mode in ("heads", "bodies", "read"):
        alone, beside, failed = [], [], 0
        for _ in range(arguments.rounds):
            alone.append(latency(node)[0])
            with Slow(node, mode):
                p99, errors = latency(node)
            beside.append(p99)
            failed += errors
        ratio = statistics.median(beside) / statistics.median(alone)
        print(f"slow {mode}: p99 of others {statistics.median(beside):.0f} us, {ratio:.2f} times that without slow clients; {failed} failed")
        is_right &= ratio <= 2 and failed == 0
    return is_right


def reader(node, _):
    before, clients = node.resident(), []
    for _ in range(READERS):
        client = node.connect()
        client.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        client.recv(KIB)
        clients.append(client)
    time.sleep(5)
    each = (node.resident() - before) / READERS
    for client in clients:
        client.close()
    print(f"reader: {each / KIB:.0f} KiB for each of {READERS} responses of 1 GiB that are not read")
    return each <= 256 * KIB


def refused(client, user):
    """Nanoseconds until a wrong password is refused."""
    word = base64.b64encode(f"{user}:wrong-password".encode()).decode()
    request = f"GET /keyed HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {word}\r\n\r\n".encode()
    start = time.perf_counter_ns()
    client.sendall(request)
    answer = client.recv(64 * KIB)
    taken = time.perf_counter_ns() - start
    assert answer.startswith(b"HTTP/1.1 401"), answer
    return taken


def credentials(node, arguments):
    """Medians of blocks of 100; names of one length, so that nothing else differs. Each connection carries one block of each."""
    ratios = []
    for _ in range(arguments.rounds * 40):
        with node.connect() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = {"someone": [], "anybody": []}
            for _ in range(100):
                for user in random.sample(list(times), 2):
                    times[user].append(refused(client, user))
        ratios.append(statistics.median(times["anybody"]) / statistics.median(times["someone"]))
    middle, error = statistics.fmean(ratios), statistics.stdev(ratios) / len(ratios) ** 0.5
    low, high = middle - 1.96 * error, middle + 1.96 * error
    print(f"credentials: an unknown user takes {middle:.3f} ({low:.3f} to {high:.3f}) times as long as a wrong password")
    return low > 0.95 and high < 1.05


PROMISES = {it.__name__: it for it in (changes, slow, reader, credentials)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir")
    parser.add_argument("weirlab")
    parser.add_argument("promises", nargs="*", metavar="PROMISE", default=list(PROMISES))
    parser.add_argument("--requests", type=int, default=1_000_000, help="of `changes`, about")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if unknown := set(arguments.promises) - set(PROMISES):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PROMISES)}")
    failed = []
    for name in arguments.promises:
        with tempfile.TemporaryDirectory() as folder:
            node = Node(arguments, folder)
            try:
                if not PROMISES[name](node, arguments):
                    failed.append(name)
            finally:
                node.stop()
    sys.exit(f"out of bounds: {', '.join(failed)}" if failed else 0)


main()
