#!/usr/bin/env python3
"""Whether an hour of load, reloads and faults leaves Weir as it was: wrong answers, memory, open files.

    cargo build --release -p weir-gateway -p weirlab && bench/soak.py target/release/weir target/release/weirlab

Several series of requests run at a share of what the gateway can do, among them slow clients, over routes with native plugins and
with one in Lua. Analytics are on, the configuration is read again each minute, and now and then an upstream server is killed or
stopped, or the gateway gets no CPU. The checkers' requests have an id in the path, which the upstream servers repeat in the body:
an answer is right, wrong (it looks whole and is another), or lost (an error, or a connection that broke).

Exits with 1 if an answer was wrong, if a load or the checkers got none that was right, if more were lost than servers that were
killed can have taken with them, if the memory grows by more than its own noise, or if files stay open.
"""
import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

LUA = {
    "handler.lua": """
local Soak = { PRIORITY = 900, VERSION = '1.0' }
function Soak:access(conf)
  ngx.shared.kong:incr('soak', 1, 0)
  kong.service.request.set_header('x-soak', kong.request.get_header('x-id') or 'none')
  kong.ctx.plugin.words = { conf.word, kong.request.get_path() }
end
function Soak:header_filter() kong.response.set_header('x-word', kong.ctx.plugin.words[1]) end
function Soak:body_filter() kong.response.set_raw_body(kong.response.get_raw_body()) end
function Soak:log() kong.log.serialize() end
return Soak
""",
    "schema.lua": """
return { name = 'soak', fields = { { config = { type = 'record', fields = { { word = { type = 'string', required = true } } } } } } }
""",
}
ROUTES = """_format_version: "3.0"
upstreams:
- name: servers
  targets: [{{target: "127.0.0.1:{one}"}}, {{target: "127.0.0.1:{two}"}}]
  healthchecks: {{active: {{http_path: /health, healthy: {{interval: 0.5, successes: 1}}, unhealthy: {{interval: 0.5, tcp_failures: 1}}}}}}
consumers:
- {{username: someone, keyauth_credentials: [{{key: secret}}]}}
services:
- name: s
  host: servers
  routes:
  - {{name: plain, paths: [/plain], strip_path: false}}
  - name: keyed
    paths: [/keyed]
    strip_path: false
    plugins: [{{name: key-auth}}, {{name: rate-limiting, config: {{minute: 100000000, policy: local}}}}]
  - name: lua
    paths: [/lua]
    strip_path: false
    plugins: [{{name: soak, config: {{word: "{word}"}}}}]
  - name: changed
    paths: [/changed]
    strip_path: false
    plugins: [{{name: response-transformer, config: {{add: {{headers: ["x-changed:yes"]}}}}}}, {{name: correlation-id}}]
"""
PATHS = ["/plain", "/keyed", "/lua", "/changed"]
CHECKERS = 16
CONNECTIONS = 16  # of each load
# How many answers a fault may cost. All requests are GET, which the gateway sends to the other server when one is killed; but an
# answer that had begun is lost. Each client has one request in flight, and one of two servers has half of them. Servers and gateways
# that are stopped go on after two seconds, for which clients (30 s) and the gateway (60 s) wait: they cost nothing, and neither do reloads.
MAX_LOST = {"server killed": (len(PATHS) * CONNECTIONS + CHECKERS) // 2}
KEY = "apikey: secret"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    """The gateway, two upstream servers, and what breaks them."""

    def __init__(self, arguments, folder):
        self.weir, self.weirlab, self.folder = arguments.weir, arguments.weirlab, folder
        self.servers = {free_port(): None, free_port(): None}
        for port in self.servers:
            self.start_server(port)
        os.makedirs(f"{folder}/lua/kong/plugins/soak")
        for name, text in LUA.items():
            open(f"{folder}/lua/kong/plugins/soak/{name}", "w").write(text)
        self.configure("first")
        settings = {"proxy_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "admin_gui_listen": "off", "plugins": "bundled,soak",
                    "lua_package_path": f"{folder}/lua/?.lua;;", "workers": 1, "mem_cache_size": "32m"}
        command = [self.weir, "run", "--prefix", f"{folder}/prefix", "--config", f"{folder}/kong.yml"]
        for setting in [f"{name}={value}" for name, value in settings.items()] + arguments.set:
            command += ["--set", setting]
        log = open(f"{folder}/weir.log", "w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        said = self.process.stdout.readline()
        if not said:
            sys.exit(open(f"{folder}/weir.log").read())
        host, port = json.loads(said)["proxy"][0].split(":")
        self.address = (host, int(port))

    def start_server(self, port):
        command = [self.weirlab, "upstream", "--listen", f"127.0.0.1:{port}", "--body", "{path}"]
        self.servers[port] = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def configure(self, word):
        one, two = self.servers
        with open(f"{self.folder}/kong.yml.new", "w") as out:
            out.write(ROUTES.format(one=one, two=two, word=word))
        os.rename(f"{self.folder}/kong.yml.new", f"{self.folder}/kong.yml")

    def reload(self, word):
        self.configure(word)
        command = [self.weir, "reload", "--prefix", f"{self.folder}/prefix"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def stop(self):
        for process in [self.process, *self.servers.values()]:
            process.send_signal(signal.SIGCONT)
            process.terminate()

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Counts:
    def __init__(self):
        self.right = self.lost = 0
        self.wrong = []

    def count(self, path, status, body):
        if status == 200 and body == path:
            self.right += 1
        elif status == 200 or status < 500:
            self.wrong.append(f"{path}: {status} {body[:80]!r}")
        else:
            self.lost += 1


async def ask(reader, writer, path, slowly):
    request = f"GET {path} HTTP/1.1\r\nHost: a\r\n{KEY}\r\nx-id: {path}\r\n\r\n".encode()
    for piece in [request[at : at + 16] for at in range(0, len(request), 16)] if slowly else [request]:
        writer.write(piece)
        await writer.drain()
        if slowly:
            await asyncio.sleep(0.05)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    status, closes = int(head.split(" ", 2)[1]), "\r\nconnection: close\r\n" in head
    length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), None)
    if length is not None:
        return status, (await reader.readexactly(length)).decode(), closes
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return status, body.decode(), closes


async def check(node, counts, end, number, slowly):
    """One client, which sends a request after the other."""
    sent = 0
    while time.monotonic() < end:
        writer = None
        try:
            reader, writer = await asyncio.open_connection(*node.address)
            closes = False
            while time.monotonic() < end and not closes:
                sent += 1
                path = f"{random.choice(PATHS)}/{number}-{sent}"
                status, body, closes = await asyncio.wait_for(ask(reader, writer, path, slowly), 30)
                counts.count(path, status, body)
                await asyncio.sleep(random.uniform(0, 0.02))
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            counts.lost += 1
            await asyncio.sleep(0.1)
        finally:
            if writer:
                writer.close()


async def breaks(node, end, done):
    """A fault each twenty to forty seconds, of one kind at random; all is well again at the end."""
    while time.monotonic() < end - 45:
        await asyncio.sleep(random.uniform(20, 40))
        port = random.choice(list(node.servers))
        fault = random.choice(["server killed", "server stopped", "gateway stopped"])
        process = node.process if fault == "gateway stopped" else node.servers[port]
        process.send_signal(signal.SIGKILL if fault == "server killed" else signal.SIGSTOP)
        await asyncio.sleep(2)
        if fault == "server killed":
            process.wait()
            node.start_server(port)
        else:
            process.send_signal(signal.SIGCONT)
        done[fault] = done.get(fault, 0) + 1


async def reloads(node, end, done, seconds):
    while time.monotonic() < end - seconds:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(node.reload, f"word-{time.time():.0f}")
        done["reloads"] = done.get("reloads", 0) + 1


async def samples(node, end, counts):
    """Memory and open files each five seconds; a line each five minutes, so that a run that ends early has said something."""
    taken = []
    while time.monotonic() < end:
        await asyncio.sleep(5)
        taken.append((time.monotonic(), node.resident(), node.open_files()))
        if len(taken) % 60 == 0:
            print(f"{len(taken) // 12} min: {taken[-1][1]:.1f} MiB, {taken[-1][2]} open files, "
                  f"checked: {counts.right} right, {counts.lost} lost, {len(counts.wrong)} wrong", flush=True)
    return taken


def load(node, path, seconds, rate):
    command = [node.weirlab, "load", "http://{}:{}{}".format(*node.address, path), "-c", str(CONNECTIONS), "-t", "1"]
    command += ["-d", f"{seconds}s", "-H", KEY, "--timeout", "30s", "--format", "json"]
    command += ["--expect-status", "200", "--expect-body", path]
    if rate:
        command += ["-R", str(rate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def load_counts(process):
    """What a load got right, lost and got wrong, as the checkers count it. A connection that was stuck all the time is wrong."""
    answer = json.loads(process.communicate()[0])
    errors, statuses = answer["errors"], answer["statuses"]
    wrong = sum(errors.get(kind, 0) for kind in ["malformed", "body", "stuck"])
    wrong += sum(count for status, count in statuses.items() if int(status) != 200 and int(status) < 500)
    return answer["good"], sum(errors.values()) - wrong, wrong


def slope(points):
    """Growth in MiB an hour, and the standard error of that."""
    times = [(at - points[0][0]) / 3600 for at, *_ in points]
    line = statistics.linear_regression(times, [resident for _, resident, _ in points])
    rest = [resident - line.intercept - line.slope * at for at, (_, resident, _) in zip(times, points)]
    spread = sum((at - statistics.fmean(times)) ** 2 for at in times)
    return line.slope, (sum(it * it for it in rest) / (len(rest) - 2) / spread) ** 0.5


async def soak(node, seconds, rate, reload_every):
    counts, done, end = Counts(), {}, time.monotonic() + seconds
    loads = [load(node, f"{path}/load", seconds, rate // len(PATHS)) for path in PATHS]
    clients = [check(node, counts, end, number, number % 4 == 0) for number in range(CHECKERS)]
    background = [breaks(node, end, done), reloads(node, end, done, reload_every)]
    taken, *_ = await asyncio.gather(samples(node, end, counts), *background, *clients)
    return counts, done, taken, [await asyncio.to_thread(load_counts, process) for process in loads]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir")
    parser.add_argument("weirlab")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--share", type=float, default=0.7, help="of the rate that a closed loop reaches before")
    parser.add_argument("--reload-every", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the gateway, as analytics=off")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        node = Node(arguments, folder)
        try:
            time.sleep(2)
            capacity = sum(load_counts(process)[0] for process in [load(node, f"{path}/load", 5, None) for path in PATHS]) / 5
            rate = int(capacity * arguments.share)
            print(f"capacity {capacity:.0f} requests/s, load {rate}/s", flush=True)
            counts, done, taken, loads = asyncio.run(soak(node, arguments.minutes * 60, rate, arguments.reload_every))
            time.sleep(5)
            files = node.open_files()
        finally:
            node.stop()
        # Caches fill at first.
        grown, error = slope(taken[len(taken) // 4 :])
        resident = [memory for _, memory, _ in taken]
        print(f"{done}")
        right, lost, wrong = (sum(column) for column in zip(*loads))
        may_be_lost = sum(MAX_LOST.get(fault, 0) * count for fault, count in done.items())
        print(f"load: {right} right, {lost} lost, {wrong} wrong")
        print(f"checked: {counts.right} right, {counts.lost} lost, {len(counts.wrong)} wrong {counts.wrong[:5]}")
        print(f"resident: {resident[0]:.0f} MiB at first, {resident[-1]:.0f} at last, {max(resident):.0f} at most; "
              f"{grown:+.1f} MiB/h (standard error {error:.1f})")
        print(f"open files: {taken[0][2]} at first, {taken[-1][2]} at last, {files} without load")
        print(f"lost: {lost + counts.lost}, at most {may_be_lost} because of faults")
        is_flat = grown <= 3 * error + 1 and files <= taken[0][2]
        is_right = wrong == 0 and not counts.wrong and counts.right > 0 and all(good > 0 for good, *_ in loads)
        sys.exit(0 if is_flat and is_right and lost + counts.lost <= may_be_lost else 1)


main()
