#!/usr/bin/env python3
"""What passing streams on costs: CPU seconds per GiB of Weir and of HAProxy in TCP mode, in one interleaved run.

    cargo build --release -p weir-gateway && bench/streams.py target/release/weir

Each round measures every gateway once, in another order. A ratio is taken within a round; its median and its range over
all rounds are printed. Both gateways have one thread.
"""
import argparse
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

CHUNK = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def sender(listener):
    """Answers each connection's 8 bytes with as many bytes as they say, until it is killed."""
    block = bytes(CHUNK)

    def serve(connection):
        with connection:
            try:
                left = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
                while left > 0:
                    left -= connection.send(block[: min(left, CHUNK)])
            except OSError:
                pass  # The one who checked whether the gateway is up.

    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def fetch(port, count):
    """Asks for so many bytes and throws them away."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(count.to_bytes(8, "big"))
        left, room = count, bytearray(CHUNK)
        while left > 0:
            n = connection.recv_into(room, 0, socket.MSG_TRUNC)
            if n == 0:
                sys.exit("the gateway cut a stream short")
            left -= n


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Gateway:
    def __init__(self, name, command, port):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    sys.exit(f"{name} does not listen")
                time.sleep(0.05)

    def per_gib(self, connections, count):
        before = cpu_seconds(self.process.pid)
        clients = [threading.Thread(target=fetch, args=(self.port, count)) for _ in range(connections)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return (cpu_seconds(self.process.pid) - before) / (connections * count / (1 << 30))

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def weir(binary, folder, upstream):
    port, config = free_port(), os.path.join(folder, "kong.yml")
    with open(config, "w") as file:
        file.write(
            '_format_version: "3.0"\nservices:\n'
            f"- {{name: s, protocol: tcp, host: 127.0.0.1, port: {upstream}}}\nroutes:\n"
            "- {name: r, protocols: [tcp], sources: [{ip: 127.0.0.1}], service: s}\n"
        )
    settings = {
        "prefix": os.path.join(folder, "prefix"),
        "workers": "1",
        "proxy_listen": "off",
        "admin_listen": "off",
        "status_listen": "off",
        "stream_listen": f"127.0.0.1:{port}",
    }
    flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
    return Gateway("weir", [binary, "run", "--config", config, *flags], port)


def haproxy(folder, upstream, name, option):
    port, config = free_port(), os.path.join(folder, f"{name}.cfg")
    with open(config, "w") as file:
        file.write(
            "global\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 9s\n  timeout client 60s\n"
            f"  timeout server 60s\n  {option}\nlisten l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{upstream}\n"
        )
    return Gateway(name, ["haproxy", "-db", "-f", config], port)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("weir", help="the binary")
    arguments.add_argument("--rounds", type=int, default=8)
    arguments.add_argument("--connections", type=int, default=4)
    arguments.add_argument("--mib", type=int, default=512, help="of each connection")
    given = arguments.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    upstream = listener.getsockname()[1]
    child = os.fork()
    if child == 0:
        sender(listener)
    with tempfile.TemporaryDirectory() as folder:
        gateways = [
            weir(given.weir, folder, upstream),
            haproxy(folder, upstream, "haproxy", ""),
            haproxy(folder, upstream, "haproxy, splice-auto", "option splice-auto"),
        ]
        try:
            measure(gateways, given)
        finally:
            for gateway in gateways:
                gateway.stop()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def measure(gateways, given):
    costs = {gateway.name: [] for gateway in gateways}
    for _ in range(given.rounds):
        for gateway in random.sample(gateways, len(gateways)):
            costs[gateway.name].append(gateway.per_gib(given.connections, given.mib << 20))
    for name, seconds in costs.items():
        print(f"{name}: {statistics.median(seconds):.3f} CPU seconds per GiB")
    for name, seconds in list(costs.items())[1:]:
        ratios = [own / other for own, other in zip(costs["weir"], seconds)]
        middle = statistics.median(ratios)
        print(f"weir / {name}: {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
