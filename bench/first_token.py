#!/usr/bin/env python3
"""How much later the first token of a model's stream comes through ai-proxy than without it.

    cargo build --release -p weir-gateway -p weirlab && bench/first_token.py target/release/weir target/release/weirlab

One connection asks for a stream with ai-proxy and for one without, in turns that change places. Prints the median time to the first
event of each in microseconds, and the median difference of neighbours with its 95 % interval, for:

    alone    streams of 64 events, 4 to 6 ms apart: nothing else happens, so that the CPUs sleep between events
    awake    the same, while another process of the idle class keeps each CPU from sleeping
    at once  streams of one event, one behind the other
"""
import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

EVENT = 'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" The"}}]}\n\n'
BODY = '{"messages":[{"role":"user","content":"Say something nice."}],"stream":true}'
CONFIGURATION = """_format_version: "3.0"
services:
- name: service
  url: http://127.0.0.1:{port}
  routes:
  - {{name: bare, paths: [/bare]}}
  - name: ai
    paths: [/ai]
    plugins:
    - name: ai-proxy
      config:
        route_type: llm/v1/chat
        auth: {{header_name: Authorization, header_value: Bearer key}}
        model: {{provider: openai, name: m, options: {{upstream_url: "http://127.0.0.1:{port}/v1/chat/completions"}}}}
"""


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connect(port):
    end = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def first_event(connection, route):
    """Seconds until it has come; reads the rest too."""
    head = f"POST /{route}/chat HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    begun, first, received = time.perf_counter(), None, b""
    connection.sendall((head + BODY).encode())
    while not received.endswith(b"0\r\n\r\n"):
        part = connection.recv(65536)
        if not part:
            raise SystemExit(f"the connection ended within: {received[-200:]}")
        received += part
        if first is None and b"data:" in received:
            first = time.perf_counter() - begun
    if b" 200 " not in received.split(b"\r\n", 1)[0]:
        raise SystemExit(f"no stream: {received[:200]}")
    return first


def pairs(port, count):
    """So many times to the first event, without and with ai-proxy."""
    times = {"bare": [], "ai": []}
    with connect(port) as connection:
        for warm_up in times:
            first_event(connection, warm_up)
        for pair in range(count):
            for route in ("bare", "ai") if pair % 2 else ("ai", "bare"):
                times[route].append(first_event(connection, route))
    return times["bare"], times["ai"]


def measured(options, case, upstream_options, count):
    upstream_port, port = unused_port(), unused_port()
    with tempfile.TemporaryDirectory() as folder:
        configuration = pathlib.Path(folder) / "kong.yml"
        configuration.write_text(CONFIGURATION.format(port=upstream_port))
        settings = {"prefix": folder, "proxy_listen": f"127.0.0.1:{port}", "admin_listen": "off", "status_listen": "off",
                    "admin_gui_listen": "off", "nginx_worker_processes": "1"}
        pairs_of_settings = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        listen = ["--listen", f"127.0.0.1:{upstream_port}", "--chunked", "--header", "Content-Type: text/event-stream"]
        commands = [[options.weirlab, "upstream", *listen, *upstream_options],
                    [options.weir, "run", "--config", str(configuration), *pairs_of_settings]]
        if case == "awake":
            cpus = sorted(os.sched_getaffinity(0))
            commands += [["taskset", "-c", str(cpu), "chrt", "-i", "0", "sh", "-c", "while :; do :; done"] for cpu in cpus]
        started = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands]
        try:
            report(case, *pairs(port, count))
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


def report(case, bare, ai):
    added = sorted(1e6 * (with_it - without) for without, with_it in zip(bare, ai))
    # The order statistics that enclose the median with 95 %.
    middle, reach = len(added) / 2, 0.98 * len(added) ** 0.5
    low, high = added[max(0, int(middle - reach))], added[min(len(added) - 1, int(middle + reach))]
    medians = f"{1e6 * statistics.median(bare):.0f} without, {1e6 * statistics.median(ai):.0f} with"
    print(f"{case}: {medians}, added {statistics.median(added):.0f} ({low:.0f} to {high:.0f}), {len(added)} pairs", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weir")
    parser.add_argument("weirlab")
    parser.add_argument("--pairs", type=int, default=100, help="of paced streams (default: %(default)s)")
    options = parser.parse_args()
    end = "data: [DONE]\n\n"
    paced = ["--event-pause", "uniform:4ms..6ms", "--body", EVENT * 64 + end]
    measured(options, "alone", paced, options.pairs)
    measured(options, "awake", paced, options.pairs)
    measured(options, "at once", ["--body", EVENT + end], options.pairs * 20)


if __name__ == "__main__":
    main()
