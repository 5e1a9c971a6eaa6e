#!/usr/bin/env python3
"""Measures one section of `bench/quick.sh`.

http, https   CPU microseconds per request of weir, nginx and HAProxy, one worker each on CPU 0, behind the same nginx
              upstream (1 KiB) and loaded by the same wrk (32 keep-alive connections), both on CPU 1. Targets are taken in
              a new order each round; a ratio is the median over rounds with a bootstrapped 95 % interval. CPU time is the
              scheduler's own account (/proc/PID/task/*/schedstat), so it holds on a busy machine where requests per second
              do not.
memory        Process memory per idle keep-alive connection, 10,000 of them, HTTP and TLS.
start         From exec to the first answer, and from `weir reload` to the last worker, with 10,000 routes.
reload        200 reloads while wrk runs: failed requests, and memory after the tenth and after the last.
"""
import argparse
import json
import os
import random
import re
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

BODY = "x" * 1024


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Bench:
    """Processes of one measurement, ended by pid when it ends."""

    def __init__(self, weir):
        self.weir_path, self.folder, self.processes = os.path.abspath(weir), tempfile.mkdtemp(prefix="weir-bench-"), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def start(self, cpu, *command, **options):
        log = open(os.path.join(self.folder, "log"), "a")
        options.setdefault("stdout", log)
        self.processes.append(subprocess.Popen(["taskset", "-c", str(cpu), *command], stderr=log, **options))
        return self.processes[-1]

    def nginx(self, cpu, name, http):
        head = f"daemon off; worker_processes 1; pid {self.folder}/{name}.pid; error_log stderr; events {{ worker_connections 20000; }}"
        conf = f"{head} http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 3600; {http} }}"
        return self.start(cpu, "nginx", "-c", self.file(f"{name}.conf", conf)).pid

    def upstream(self):
        port = free_port()
        self.nginx(1, "upstream", f'server {{ listen 127.0.0.1:{port}; location / {{ default_type text/plain; return 200 "{BODY}"; }} }}')
        return port

    def certificate(self):
        key, cert, both = (os.path.join(self.folder, name) for name in ("key.pem", "cert.pem", "both.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                        "-keyout", key, "-out", cert, "-subj", "/CN=localhost"], check=True, capture_output=True)
        with open(both, "w") as f:
            f.write(open(cert).read() + open(key).read())
        return key, cert, both

    def weir(self, configuration, cpu="0", workers=1, settings=()):
        """A gateway; returns its process, its start line and the path of its configuration."""
        path, prefix = self.file("kong.yml", configuration), os.path.join(self.folder, "weir")
        given = [f"workers={workers}", "proxy_listen=127.0.0.1:0, 127.0.0.1:0 ssl", "admin_listen=off", "status_listen=off",
                 "upstream_keepalive_max_requests=1000000000", *settings]
        command = [self.weir_path, "run", "--config", path, "--prefix", prefix] + [part for s in given for part in ("--set", s)]
        process = self.start(cpu, *command, stdout=subprocess.PIPE, text=True)
        return process, json.loads(process.stdout.readline()), path, prefix


def port_of(addresses):
    return int(addresses[0].rsplit(":", 1)[1])


def cpu_microseconds(pid):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            total += int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0])
            children = open(f"/proc/{pid}/task/{task}/children").read().split()
        except OSError:
            continue
        total += sum(cpu_microseconds(int(child)) * 1000 for child in children)
    return total / 1000


def rss_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))


def plain_configuration(upstream):
    return f'_format_version: "3.0"\nservices:\n- {{name: s, url: "http://127.0.0.1:{upstream}", routes: [{{name: r, paths: [/]}}]}}\n'


def wrk(url, seconds, connections=32):
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Socket errors" in text or "Non-2xx" in text:
        sys.exit(f"requests failed at {url}, so nothing is compared:\n{text}")
    return int(re.search(r"(\d+) requests in", text).group(1)), float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))


def interval(values):
    draws = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(2000))
    return f"{statistics.median(values):.2f} ({draws[50]:.2f}..{draws[-51]:.2f})"


def versus(bench, rounds, tls):
    upstream = bench.upstream()
    key, cert, both = bench.certificate()
    scheme = "https" if tls else "http"
    nginx, haproxy = free_port(), free_port()
    listen = f"listen 127.0.0.1:{nginx}" + (f" ssl; ssl_certificate {cert}; ssl_certificate_key {key}" if tls else "")
    pids = {"nginx": bench.nginx(0, "nginx", f'upstream u {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000000; }} server '
                                 f'{{ {listen}; location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}')}
    bind = f"bind 127.0.0.1:{haproxy}" + (f" ssl crt {both} alpn http/1.1" if tls else "")
    pids["haproxy"] = bench.start(0, "haproxy", "-db", "-f", bench.file("haproxy.cfg",
        "global\n nbthread 1\n maxconn 5000\ndefaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n http-reuse always\n"
        f"frontend f\n {bind}\n default_backend b\nbackend b\n server s 127.0.0.1:{upstream}\n")).pid
    settings = [f"ssl_cert={cert}", f"ssl_cert_key={key}"] if tls else []
    process, started, _, _ = bench.weir(plain_configuration(upstream), settings=settings)
    pids["weir"] = process.pid
    ports = {"nginx": nginx, "haproxy": haproxy, "weir": port_of(started["proxy_ssl" if tls else "proxy"])}
    time.sleep(1)
    cost, rate = {name: [] for name in pids}, {name: [] for name in pids}
    for _ in range(rounds):
        for name in random.sample(list(pids), len(pids)):
            before = cpu_microseconds(pids[name])
            requests, per_second = wrk(f"{scheme}://127.0.0.1:{ports[name]}/hello", 1)
            cost[name].append((cpu_microseconds(pids[name]) - before) / requests)
            rate[name].append(per_second)
    print(f"{'target':10}{'CPU us/request':>16}{'min..max':>16}{'requests/s':>12}{'weir / target (95 %)':>26}")
    for name in pids:
        ratio = "" if name == "weir" else interval([w / t for w, t in zip(cost["weir"], cost[name])])
        spread = f"{min(cost[name]):.1f}..{max(cost[name]):.1f}"
        print(f"{name:10}{statistics.median(cost[name]):16.2f}{spread:>16}{statistics.median(rate[name]):12.0f}{ratio:>26}")


def memory(bench, _rounds):
    upstream = bench.upstream()
    for tls in (False, True):
        process, started, _, _ = bench.weir(plain_configuration(upstream))
        port = port_of(started["proxy_ssl" if tls else "proxy"])
        context = ssl._create_unverified_context()

        def connect():
            s = socket.create_connection(("127.0.0.1", port))
            s = context.wrap_socket(s) if tls else s
            s.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
            received = b""
            while not received.endswith(BODY.encode()):
                received += s.recv(65536)
            return s

        warm = [connect() for _ in range(100)]
        before, count = rss_kib(process.pid), 10_000
        held = [connect() for _ in range(count)]
        time.sleep(1)
        print(f"{'TLS' if tls else 'HTTP':5} {(rss_kib(process.pid) - before) / count:6.2f} KiB per idle connection ({count} of them)")
        del warm, held
        process.terminate()
        process.wait(20)


def many_routes(upstream, count, marker):
    routes = "".join(f"  - {{name: r{i}, paths: [/p{i}/], tags: [{marker}]}}\n" for i in range(count))
    return f'_format_version: "3.0"\nservices:\n- name: s\n  url: http://127.0.0.1:{upstream}\n  routes:\n{routes}'


def answer_of(port, path):
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        return s.recv(12)


def start(bench, rounds):
    upstream, starts, reloads = bench.upstream(), [], []
    for _ in range(min(rounds, 10)):
        began = time.monotonic()
        process, started, path, prefix = bench.weir(many_routes(upstream, 10_000, "a"), cpu="0,1", workers=2)
        if answer_of(port_of(started["proxy"]), "/p9999/x") != b"HTTP/1.1 200":
            sys.exit("the last of 10,000 routes does not answer 200")
        starts.append(time.monotonic() - began)
        bench.file("kong.yml", many_routes(upstream, 10_000, "b"))
        began = time.monotonic()
        subprocess.run([bench.weir_path, "reload", "--prefix", prefix], check=True, capture_output=True)
        reloads.append(time.monotonic() - began)
        process.terminate()
        process.wait(20)
    for name, values in (("exec to first answer", starts), ("reload until every worker has it", reloads)):
        print(f"{name:34} {statistics.median(values):.3f} s (worst {max(values):.3f} s), 10,000 routes, 2 workers")


def reload(bench, _rounds):
    upstream = bench.upstream()
    process, started, _, prefix = bench.weir(many_routes(upstream, 100, "a") + "- {name: t, url: 'http://127.0.0.1:9'}\n", cpu="0,1", workers=2)
    url = f"http://127.0.0.1:{port_of(started['proxy'])}/p7/x"
    load = subprocess.Popen(["wrk", "-t1", "-c32", "-d60", url], stdout=subprocess.PIPE, text=True)
    sizes = []
    for i in range(200):
        bench.file("kong.yml", many_routes(upstream, 100, f"v{i}"))
        subprocess.run([bench.weir_path, "reload", "--prefix", prefix], check=True, capture_output=True)
        sizes.append(rss_kib(process.pid))
        time.sleep(0.25)
    text = load.communicate()[0]
    failed = re.findall(r"Socket errors.*|Non-2xx.*", text)
    requests = re.search(r"(\d+) requests in", text).group(1)
    print(f"200 reloads under load: {requests} requests, failed: {failed or 0}; "
          f"memory {sizes[9]} KiB after 10 reloads, {max(sizes[10:])} at most and {sizes[-1]} after 200")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=["http", "https", "memory", "start", "reload"])
    parser.add_argument("--weir", required=True)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with Bench(options.weir) as bench:
        if options.section in ("http", "https"):
            versus(bench, options.rounds, options.section == "https")
        else:
            {"memory": memory, "start": start, "reload": reload}[options.section](bench, options.rounds)


main()
