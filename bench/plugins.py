#!/usr/bin/env python3
"""What routes and plugins add to a request, in a loop without sockets: nanoseconds, and instructions where valgrind is
installed.

    bench/plugins.py [--profile NAME] [--out FOLDER] [--executable FILE] [--rounds FILE]

Writes FOLDER/data.jsonl, a line for each case, and FOLDER/README.md, a table of them.
"""
import argparse, contextlib, datetime, json, os, pathlib, platform, re, shutil, socket, subprocess, sys

# So many requests does callgrind see.
COUNTED = 2000

# Cases whose requests valgrind would take minutes to sign.
NOT_COUNTED = {"jwt-rs256"}

# Microseconds that a case may add.
WANTED = {
    "acl": 0.3, "cors": 0.3, "cors-origins": 0.3, "ip-restriction": 0.3, "correlation-id": 0.3,
    "correlation-id-uuid": 0.3, "correlation-id-echo": 0.3, "jwt-known-token": 0.5, "jwt-hs256": 2, "file-log": 0.5,
    "prometheus": 0.5, "prometheus-consumer": 0.5, "request-transformer": 0.6, "rate-limiting": 0.6,
    "rate-limiting-key-auth": 1.2, "rate-limiting-basic-auth": 1.2, "rate-limiting-redis": 0.8, "100-routes": 0.3,
    "10000-routes": 0.75,
}

TEXT = """# What plugins cost

{date}, {machine}, Linux {kernel}. `{command}` wrote this page and [data.jsonl](data.jsonl), which has every round.

A request passes through the whole engine over connections in memory, without a socket and a system call: parsed, routed,
through the plugins, to an upstream that answers 1 KiB, and back. A gateway with what a line names and one without take
turns of {requests} requests, {rounds} of each; the same requests go to both. What is added is the median of the differences
of neighbours, with its 95 % interval. Instructions are those of the thread that serves, counted by valgrind,
whose processor lacks the widest instructions: signatures take fewer on a real one. Beside it stands what other threads
spend on delivering the entries of log plugins, to servers on the same machine that throw them away; syslog needs no receiver.

`nothing` compares a gateway with itself. Plugins that answer themselves add less than nothing: the upstream is not asked.
rate-limiting-redis counts in a real server, with `sync_rate: 0.5`.
forward-auth waits for another server, and mtls-auth looks at what the handshake has found out: they are not measured. Requests of
AI plugins, grpc-web, request-validation and standard-webhooks have bodies, on both sides. The upstream answers ai-proxy with a chat of
OpenAI's API, and grpc-web with a message of gRPC and trailers, over HTTP/1.1. What session, oauth2 and ldap-auth check was issued or
accepted before: session decrypts a cookie, beside key-auth and a request-termination for clients without one, oauth2 knows the token, and ldap-auth the
password, for which a directory was asked once.

| | compared with | ns without | ns added | wanted | instructions added | ns in background |
|---|---|---|---|---|---|---|
{rows}
"""


def built(profile):
    """The benchmark's executable."""
    command = ["cargo", "bench", "--locked", "--profile", profile, "--package", "weir-proxy", "--bench", "serve", "--no-run"]
    output = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr
    return re.search(r"Executable .*\((.*)\)", output)[1]


def instructions(executable, side, case):
    """Those of one request."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=serve::counted",
               executable, side, case]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return int(re.search(r"Collected : (\d+)", output)[1]) / COUNTED


def count(executable, cases):
    """Adds the instructions without and with to each case."""
    of_bases = {}
    for case in (case for case in cases if case["case"] not in NOT_COUNTED):
        base = case["base"]
        if base not in of_bases:
            of_bases[base] = instructions(executable, "without", case["case"])
        case["instructions"] = [round(of_bases[base]), round(instructions(executable, "with", case["case"]))]


def row(case):
    low, middle, high = case["added_nanoseconds"]
    wanted, verdict = WANTED.get(case["case"]), ""
    if wanted:
        verdict = f"≤ {wanted * 1000:.0f}: " + ("met" if middle <= wanted * 1000 else "missed")
    without, beside = case.get("instructions", [0, 0])
    background = case["background_nanoseconds"]
    cells = [case["case"], case["base"], f"{case['base_nanoseconds'][1]:.0f}", f"{middle:.0f} ({low:.0f} to {high:.0f})",
             verdict, f"{beside - without:,}" if without else "", f"{background:.0f}" if background >= 1 else ""]
    return "| " + " | ".join(cells) + " |"


def page(cases, command):
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return TEXT.format(
        date=datetime.date.today().strftime("%-d %B %Y"), machine=model[1] if model else platform.machine(),
        kernel=platform.release(), command=command, requests=cases[0]["requests"], rounds=len(cases[0]["rounds"]),
        rows="\n".join(map(row, cases)))


@contextlib.contextmanager
def redis():
    """A server for the plugin that counts in one, where there is one."""
    if not shutil.which("redis-server"):
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    server = subprocess.Popen(["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", ""], stdout=subprocess.DEVNULL)
    os.environ["REDIS_PORT"] = port
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", default="release", help="of the build")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("output/plugins"))
    parser.add_argument("--executable", help="built before, in place of a build")
    parser.add_argument("--rounds", type=pathlib.Path, help="the output of an earlier run of the executable, in place of a run")
    options = parser.parse_args()
    executable = options.executable or built(options.profile)
    with redis():
        measure(executable, options)


def measure(executable, options):
    if options.rounds:
        output = options.rounds.read_text()
    else:
        output = subprocess.run([executable, "json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    cases = [json.loads(line) for line in output.splitlines()]
    if shutil.which("valgrind"):
        count(executable, cases)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "data.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    command = "bench/plugins.py" + ("" if options.profile == "release" else f" --profile {options.profile}")
    (options.out / "README.md").write_text(page(cases, command))
    print(options.out / "README.md")


if __name__ == "__main__":
    sys.exit(main())
