#!/usr/bin/env python3
"""How soon code in Lua that would run for ever is ended, and what others on its worker wait meanwhile, as docs/lua.md states it.

    cargo build --release -p weir-gateway -p weirlab && bench/loops.py target/release/weir target/release/weirlab

Each kind of loop is sent to one worker, again and again: first alone, for the CPU time until it is ended, then by a client that
sends one after another, beside 64 others that send 250 requests a second. Exits with 1 if a loop takes more than twice
lua_timeout, or if one in a hundred of the others waits longer than lua_timeout and 5 ms.
"""
import argparse
import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

BUDGET_MS = 50
KINDS = {
    "alone": "while true do end",
    "within pcall": "while true do pcall(function() while true do end end) end",
    "within xpcall": "while true do xpcall(error, function() while true do end end) end",
    "in a coroutine": "coroutine.wrap(function() while true do end end)()",
    "in coroutines, each new": "while true do coroutine.wrap(function() for _ = 1, 1e9 do end end)() end",
    "in a timer": "ngx.timer.at(0, function() while true do end end)",
    "in a light thread": "ngx.thread.wait(ngx.thread.spawn(function() while true do end end))",
    "in a callback of gsub": "string.gsub('a', 'a', function() while true do end end)",
    "in a metamethod": "local t = setmetatable({}, {__index = function() while true do end end}) return t.a",
    "in a comparison of table.sort": "table.sort({3, 2, 1}, function() while true do end end)",
    "a quadratic pattern": "string.find(string.rep('a', 3e5), '.-b')",
    "a pattern without end": "string.find(string.rep('a', 60), string.rep('a?', 60) .. string.rep('a', 60) .. 'b')",
    "an expression of ngx.re": "while true do ngx.re.match(string.rep('a', 3e4), [[(a|aa)+$b(?=c)]]) end",
    "calls that each take long": "while true do local _ = string.rep('ab', 1e6):upper():reverse() end",
    "texts that are joined": "local s = string.rep('a', 1e7) while true do local _ = s .. 'b' end",
    "texts that are compared": "local a, b = string.rep('a', 1e7), string.rep('a', 1e7 - 1) .. 'b' while true do local _ = a < b end",
    "texts that double": "local s = 'a' while true do s = s .. s end",
    "texts read as numbers": "local s = string.rep(' ', 1e6) .. '1' while true do local _ = s + 1 end",
}


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


class Node:
    """A gateway with one worker, with a route for each kind of loop."""

    def __init__(self, arguments, folder):
        self.weirlab, self.port = arguments.weirlab, free_port()
        plugins = lambda code: [{"name": "pre-function", "config": {"access": [code]}}]
        answer = {"name": "request-termination", "config": {"status_code": 200}}
        routes = [{"name": f"loop-{at}", "paths": [f"/loop-{at}"], "plugins": [*plugins(code), answer]} for at, code in enumerate(KINDS.values())]
        routes.append({"name": "plain", "paths": ["/plain"], "plugins": [answer]})
        pathlib.Path(f"{folder}/kong.yml").write_text(json.dumps({"_format_version": "3.0", "routes": routes}))
        settings = {
            "proxy_listen": f"127.0.0.1:{self.port}", "workers": 1, "admin_listen": "off", "status_listen": "off", "admin_gui_listen": "off",
            "untrusted_lua": "on", "lua_timeout": f"{BUDGET_MS}ms", "log_level": "crit",
        }
        command = [arguments.weir, "run", "--prefix", f"{folder}/prefix", "--config", f"{folder}/kong.yml"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(f"{folder}/log", "w"), text=True)
        if not self.process.stdout.readline():
            sys.exit(pathlib.Path(f"{folder}/log").read_text())

    def cpu_ms(self):
        """Of the thread that has spent most: the worker."""
        of_threads = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return {it.parent.name: int(it.read_text().split()[0]) / 1e6 for it in of_threads}

    def send(self, path):
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            return client.recv(65536)

    def spent(self, path):
        """CPU time of the worker for one request, and for what the request leaves behind."""
        before = self.cpu_ms()
        self.send(path)
        time.sleep(0.15)
        return max(after - before.get(thread, 0) for thread, after in self.cpu_ms().items())

    def p99_ms(self, seconds):
        command = [self.weirlab, "load", f"http://127.0.0.1:{self.port}/plain", "-t", "1", "-c", "64", "-R", "250", "-d", f"{seconds}s", "--format", "json"]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["response"]["p99_us"] / 1000

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Hammer:
    """A client that sends one request after another for as long as the context lasts."""

    def __init__(self, node, path):
        self.node, self.path, self.ends = node, path, False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ends:
            with contextlib.suppress(OSError):
                self.node.send(self.path)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()


def measured(node, path, arguments):
    taken = [node.spent(path) for _ in range(arguments.rounds)]
    with Hammer(node, path):
        return taken, node.p99_ms(arguments.seconds)


def with_node(arguments, work):
    """A node for each kind, because timers outlive their requests."""
    with tempfile.TemporaryDirectory() as folder:
        node = Node(arguments, folder)
        try:
            return work(node)
        finally:
            node.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir")
    parser.add_argument("weirlab")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=4, help="of load beside each kind")
    arguments = parser.parse_args()
    failed = []
    print(f"others alone: p99 {with_node(arguments, lambda node: node.p99_ms(arguments.seconds)):.1f} ms", flush=True)
    for at, kind in enumerate(KINDS):
        taken, p99 = with_node(arguments, lambda node: measured(node, f"/loop-{at}", arguments))
        is_right = max(taken) <= 2 * BUDGET_MS and p99 <= BUDGET_MS + 5
        failed += [] if is_right else [kind]
        bounds = "" if is_right else ", out of bounds"
        print(f"{kind}: {min(taken):.0f} to {max(taken):.0f} ms; p99 of others {p99:.1f} ms{bounds}", flush=True)
    sys.exit(f"out of bounds: {', '.join(failed)}" if failed else 0)


main()
