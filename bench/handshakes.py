#!/usr/bin/env python3
"""TLS handshakes per CPU-second, Weir's and nginx's in turns: full and resumed, TLS 1.2 and 1.3, ECDSA and RSA keys.

    bench/handshakes.py target/release/weir [SECONDS]

Each connection is one handshake and one small answer of the gateway's own. What is counted is the CPU time of the server,
so the client may be slow and beside it. Needs nginx and openssl.
"""
import json, pathlib, socket, ssl, statistics, subprocess, sys, tempfile, threading, time

ROUNDS = 5
CLIENTS = 4
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def certificate(folder, kind):
    key = {"ecdsa": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"]}[kind]
    cert, pem = folder / f"{kind}.crt", folder / f"{kind}.key"
    subprocess.run(["openssl", "req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost", "-newkey", *key,
                    "-keyout", pem, "-out", cert], check=True, stderr=subprocess.DEVNULL)
    return cert, pem


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start_nginx(folder, cert, key):
    port, config = free_port(), folder / "nginx.conf"
    config.write_text(f"""
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; ssl_session_cache shared:SSL:10m; ssl_session_tickets on; ssl_protocols TLSv1.2 TLSv1.3;
  server {{ listen 127.0.0.1:{port} ssl backlog=4096; ssl_certificate {cert}; ssl_certificate_key {key};
    location / {{ return 404 "{{}}"; }} }}
}}""")
    process = subprocess.Popen(["nginx", "-p", folder, "-c", config], stderr=subprocess.DEVNULL)
    return process, port


def start_weir(weir, folder, cert, key):
    config = folder / "kong.yml"
    config.write_text('_format_version: "3.0"\n')
    settings = {"prefix": folder / "prefix", "workers": 1, "proxy_listen": "127.0.0.1:0 ssl", "admin_listen": "off",
                "status_listen": "off", "ssl_cert": cert, "ssl_cert_key": key}
    command = [weir, "run", "--config", config]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return process, int(json.loads(process.stdout.readline())["proxy_ssl"][0].rsplit(":", 1)[1])


def cpu_seconds(process):
    """Of the process and its children, which are nginx's workers, to the nanosecond."""
    total = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            if process.pid in (int(stat.parent.name), parent):
                tasks = stat.parent.glob("task/*/schedstat")
                total += sum(int(task.read_text().split()[0]) for task in tasks)
        except OSError:
            pass
    return total / 1e9


def connect(context, port, session):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as tcp:
        with context.wrap_socket(tcp, server_hostname="localhost", session=session) as tls:
            tls.sendall(REQUEST)
            while tls.recv(65536):
                pass
            return tls.session, tls.session_reused


def load(port, version, resume, seconds):
    """How many handshakes there were."""
    counts = []

    def client():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        session, count, end = connect(context, port, None)[0] if resume else None, 0, time.monotonic() + seconds
        while time.monotonic() < end:
            newer, reused = connect(context, port, session)
            assert reused == resume, "a session was not resumed" if resume else "a session was resumed"
            session, count = newer if resume else None, count + 1
        counts.append(count)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == CLIENTS, "a client failed"
    return sum(counts)


def measure(process, port, version, resume, seconds):
    before = cpu_seconds(process)
    handshakes = load(port, version, resume, seconds)
    return handshakes / (cpu_seconds(process) - before)


def main():
    weir, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 3
    print(f"{'case':28}{'weir':>10}{'nginx':>10}{'ratio':>8}   handshakes per CPU-second, medians of {ROUNDS}")
    for kind in ("ecdsa", "rsa"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            folder.chmod(0o755)
            cert, key = certificate(folder, kind)
            servers = {"weir": start_weir(weir, folder, cert, key), "nginx": start_nginx(folder, cert, key)}
            time.sleep(1)
            try:
                for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
                    for resume in (False, True):
                        found = {name: [] for name in servers}
                        for turn in range(ROUNDS):
                            for name in sorted(servers, reverse=turn % 2 == 1):
                                found[name].append(measure(*servers[name], version, resume, seconds))
                        ours, theirs = (statistics.median(found[name]) for name in ("weir", "nginx"))
                        case = f"{kind} {version.name} {'resumed' if resume else 'full'}"
                        print(f"{case:28}{ours:10.0f}{theirs:10.0f}{ours / theirs:8.2f}", flush=True)
            finally:
                for process, _ in servers.values():
                    process.terminate()
                    process.wait()


if __name__ == "__main__":
    main()
