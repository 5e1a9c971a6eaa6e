#!/usr/bin/env python3
"""User-space instructions per request of Weir, nginx and HAProxy, side by side, counted by callgrind over real sockets.

    bench/instructions.py [--weir target/release/weir] [--functions 10] [--json FILE]

Each target runs alone under valgrind with one worker and serves 16 connections that are kept and all busy. It gets a
load of a few requests and, over new connections, one of many. The two counts are subtracted, so that the start of the
process and the opening of connections drop out; the rest is divided by the difference in requests. Both loads are
repeated, because the state of a target's heap differs from load to load. Instructions in the kernel are not counted.
Two runs differ by less than 0.5 %, whatever else the machine does.

Needs valgrind, nginx, haproxy and openssl (Debian packages of those names), and a build of Weir with symbols, as
`cargo build --release` makes it.
"""
import argparse, collections, contextlib, json, pathlib, re, shutil, socket, ssl, subprocess, sys, tempfile, time

CONNECTIONS = 16
CONSUMERS = 100
BODY_BYTES = 1024
START_TIMEOUT = 120
DUMP_TIMEOUT = 60
# Symbols and libraries that are cryptography. HTTPS is judged by what it adds beyond them.
CRYPTO_SYMBOL = re.compile(r"aws_lc|^_?(aes|gcm|sha\d|ghash|chacha|poly1305|CRYPTO_|OPENSSL_|EVP_)")
CRYPTO_LIBRARY = re.compile(r"libcrypto")

WEIR_KONG_YML = """_format_version: "3.0"
services:
- {{name: service, url: "http://127.0.0.1:{upstream}", routes: [{{name: route, paths: ["/"]}}]}}
"""
PLUGINS = """plugins:
- {name: rate-limiting, config: {day: 1000000000000, policy: local}}
- {name: key-auth, config: {key_names: [apikey]}}
consumers:
"""
NGINX = """daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000; default_type text/plain;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  scgi_temp_path {folder}/scgi; uwsgi_temp_path {folder}/uwsgi;
  {server}
}}
"""
NGINX_UPSTREAM = """server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{body}"; }} }}"""
# The same headers towards the upstream as the laboratory asks of every target.
NGINX_PROXY = """upstream pool {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port}{tls};
    location / {{
      proxy_pass http://pool; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
    }}
  }}"""
HAPROXY = """global
  nbthread 1
  ssl-default-bind-options ssl-min-ver TLSv1.2
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
  no log
  option forwardfor
frontend traffic
  bind 127.0.0.1:{port}{tls}
  http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}
  http-request set-header X-Forwarded-Proto http if !{{ ssl_fc }}
  default_backend pool
backend pool
  server s 127.0.0.1:{upstream}
"""


# nginx allocates a pool for each request; what that costs depends on the state of its heap, which differs from process to
# process.
PROCESSES = {"nginx": 4}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def make_certificate(folder):
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    (folder / "both.pem").write_text(certificate.read_text() + key.read_text())
    return certificate, key


def weir_command(given, folder, port, upstream, tls, with_plugins):
    kong_yml = WEIR_KONG_YML.format(upstream=upstream)
    if with_plugins:
        kong_yml += PLUGINS
        for n in range(CONSUMERS):
            kong_yml += f"- {{username: consumer-{n}, keyauth_credentials: [{{key: key-of-consumer-{n}}}]}}\n"
    config = folder / "kong.yml"
    config.write_text(kong_yml)
    settings = {
        "prefix": folder / "prefix", "workers": 1, "admin_listen": "off", "status_listen": "off",
        "proxy_listen": f"127.0.0.1:{port}{' ssl' if tls else ''}",
        "ssl_cert": given.folder / "cert.pem", "ssl_cert_key": given.folder / "key.pem",
        "keepalive_requests": 1_000_000_000, "upstream_keepalive_max_requests": 0,
    }
    flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
    return [given.weir, "run", "--config", config, *flags]


def nginx_command(given, folder, port, upstream, tls, _):
    certificate = f" ssl; ssl_certificate {given.folder}/cert.pem; ssl_certificate_key {given.folder}/key.pem"
    server = NGINX_PROXY.format(port=port, upstream=upstream, tls=certificate if tls else "")
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, server=server))
    return [given.nginx, "-p", folder, "-e", folder / "error.log", "-c", config]


def haproxy_command(given, folder, port, upstream, tls, _):
    config = folder / "haproxy.cfg"
    certificate = f" ssl crt {given.folder}/both.pem alpn http/1.1" if tls else ""
    config.write_text(HAPROXY.format(port=port, upstream=upstream, tls=certificate))
    return [given.haproxy, "-db", "-f", config]


COMMANDS = {"weir": weir_command, "nginx": nginx_command, "haproxy": haproxy_command}
# What is counted: the label, and of each case the targets, whether TLS is spoken and whether plugins run.
CASES = {
    "plain HTTP": (("weir", "nginx", "haproxy"), False, False),
    "plain HTTPS": (("weir", "nginx", "haproxy"), True, False),
    "rate-limiting + key-auth, 100 consumers": (("weir",), False, True),
}


def wait_until_listening(process, port, log):
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.1)
    sys.exit(f"{process.args[0]} does not listen on port {port}; it wrote:\n{log.read_text()[-2000:]}")


@contextlib.contextmanager
def running(command, port, log):
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_listening(process, port, log)
        yield process
    finally:
        process.kill()
        process.wait()


class Client:
    """One connection that sends its next request when the last is answered."""

    def __init__(self, port, tls, with_key):
        self.port, self.with_key = port, with_key
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def send(self, number):
        key = f"apikey: key-of-consumer-{number % CONSUMERS}\r\n" if self.with_key else ""
        self.socket.sendall(f"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{key}\r\n".encode())

    def receive(self):
        received = b""
        while b"\r\n\r\n" not in received:
            received += self.receive_some()
        head, _, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if not head.startswith(b"HTTP/1.1 200 ") or not length or int(length[1]) != BODY_BYTES:
            sys.exit(f"expected status 200 and a body of {BODY_BYTES} bytes, but the response is:\n{received.decode()}")
        left = BODY_BYTES - len(body)
        while left > 0:
            left -= len(self.receive_some())

    def receive_some(self):
        received = self.socket.recv(65536)
        if not received:
            sys.exit(f"the target on port {self.port} closed a connection during a request")
        return received


def load(port, tls, with_key, requests):
    """Sends `requests` over CONNECTIONS new connections, all of them busy at once."""
    clients = [Client(port, tls, with_key) for _ in range(CONNECTIONS)]
    for turn in range(requests // CONNECTIONS):
        for index, client in enumerate(clients):
            client.send(turn * CONNECTIONS + index)
        for client in clients:
            client.receive()
    for client in clients:
        client.socket.close()


def dump(process, folder):
    """Lets callgrind write what it counted since the last dump; returns instructions by object and function."""
    before = set(folder.glob("callgrind.out.*"))
    subprocess.run(["callgrind_control", "--dump", str(process.pid)], check=True, capture_output=True)
    deadline = time.monotonic() + DUMP_TIMEOUT
    while time.monotonic() < deadline:
        for file in set(folder.glob("callgrind.out.*")) - before:
            text = file.read_text(errors="replace")
            if re.search(r"^totals: ", text, re.MULTILINE):
                return self_costs(text)
        time.sleep(0.1)
    sys.exit("callgrind wrote no counts within a minute after callgrind_control --dump")


def self_costs(text):
    """Instructions by (object, function) of a file in callgrind's format, without those of called functions."""
    names, costs, at, skip = {}, collections.Counter(), {"ob": "", "fn": ""}, False
    for line in text.splitlines():
        if named := re.match(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?$", line):
            called, kind, number, name = named.groups()
            if name is not None:
                names[kind, number] = name
            if not called:
                at[kind] = names[kind, number]
        elif line.startswith("calls="):
            skip = True  # The next line is the cost of the called function.
        elif line[:1] in "+-*0123456789" and line:
            if not skip:
                costs[at["ob"], at["fn"]] += int(line.split()[1])
            skip = False
    return costs


def count(given, case, target, upstream, folder):
    """Instructions per request, by object and function."""
    _, tls, with_plugins = CASES[case]
    processes, added = PROCESSES.get(target, 1), collections.Counter()
    for number in range(processes):
        count_process(given, target, (tls, with_plugins), upstream, folder / f"process-{number}", added)
    requests = processes * given.repeats * (given.many // CONNECTIONS - given.few // CONNECTIONS) * CONNECTIONS
    return {name: cost / requests for name, cost in added.items()}


def count_process(given, target, load_kind, upstream, folder, added):
    """Adds what the larger loads cost more than the smaller ones, in a new process."""
    folder.mkdir(parents=True)
    port = free_port()
    command = COMMANDS[target](given, folder, port, upstream, *load_kind)
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind.out.%p", "--dump-line=no", *command]
    with running(valgrind, port, folder / "log") as process:
        # Work that is done once, such as filling caches, belongs to neither load.
        load(port, *load_kind, given.many)
        dump(process, folder)
        for _ in range(given.repeats):
            load(port, *load_kind, given.few)
            added.subtract(dump(process, folder))
            load(port, *load_kind, given.many)
            added.update(dump(process, folder))


def is_cryptography(name):
    library, function = name
    return bool(CRYPTO_LIBRARY.search(library) or CRYPTO_SYMBOL.search(function))


def print_table(counts):
    print(f"\n{'instructions per request':42}" + "".join(f"{target:>12}" for target in COMMANDS))
    for case, by_target in counts.items():
        print_row(case, {target: sum(costs.values()) for target, costs in by_target.items()})
        if "HTTPS" in case:
            print_row("  of which cryptography", {target: sum(cost for name, cost in costs.items() if is_cryptography(name))
                                                  for target, costs in by_target.items()})


def print_row(label, totals):
    print(f"{label:42}" + "".join(f"{totals[target]:12,.0f}" if target in totals else f"{'-':>12}" for target in COMMANDS))


def print_functions(counts, limit):
    for case, by_target in counts.items():
        costs = by_target["weir"]
        total = sum(costs.values())
        print(f"\nWeir, {case}: the {limit} functions with the largest share")
        for (library, function), cost in sorted(costs.items(), key=lambda entry: -entry[1])[:limit]:
            name = function.split("'")[0] if function else pathlib.Path(library).name
            print(f"{cost:10,.0f} {cost / total:6.1%}  {shorten(name)}")


def shorten(name, longest=110):
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    return name if len(name) <= longest else name[: longest - 1] + "…"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="target/release/weir", help="the binary, built with symbols (default: %(default)s)")
    parser.add_argument("--nginx", default="nginx")
    parser.add_argument("--haproxy", default="haproxy")
    parser.add_argument("--few", type=int, default=320, help="requests of the smaller load (default: %(default)s)")
    parser.add_argument("--many", type=int, default=2560, help="requests of the larger load (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=8, help="how often both loads are repeated (default: %(default)s)")
    parser.add_argument("--functions", type=int, default=10, help="how many functions to list (default: %(default)s)")
    parser.add_argument("--only", choices=COMMANDS, help="count this target alone")
    parser.add_argument("--json", type=pathlib.Path, help="a file to write all counts to")
    given = parser.parse_args()
    tools = [getattr(given, target) for target in COMMANDS if given.only in (None, target)]
    for tool in ("valgrind", "callgrind_control", "openssl", given.nginx, *tools):
        if not shutil.which(tool):
            parser.error(f"{tool} is not there; install the Debian packages valgrind, nginx, haproxy and openssl, "
                         "and build Weir with cargo build --release --package weir-gateway")
    if not CONNECTIONS <= given.few < given.many:
        parser.error(f"--few must be at least {CONNECTIONS} and less than --many")
    return given


def main():
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="instructions-") as name:
        folder = given.folder = pathlib.Path(name)
        make_certificate(folder)
        upstream, config = free_port(), folder / "upstream.conf"
        config.write_text(NGINX.format(folder=folder, server=NGINX_UPSTREAM.format(port=upstream, body="x" * BODY_BYTES)))
        counts = {}
        with running([given.nginx, "-p", folder, "-e", folder / "error.log", "-c", config], upstream, folder / "upstream.log"):
            for index, case in enumerate(CASES):
                for target in (target for target in CASES[case][0] if given.only in (None, target)):
                    print(f"counting {target}, {case} …", file=sys.stderr, flush=True)
                    counts.setdefault(case, {})[target] = count(given, case, target, upstream, folder / f"{target}-{index}")
    print_table(counts)
    if given.only in (None, "weir"):
        print_functions(counts, given.functions)
    if given.json:
        given.json.write_text(json.dumps({case: {target: {f"{library}: {function}": round(cost, 2) for (library, function), cost in costs.items() if cost}
                                                 for target, costs in by_target.items()} for case, by_target in counts.items()}, indent=1))


if __name__ == "__main__":
    main()
