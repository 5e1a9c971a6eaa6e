#!/usr/bin/env python3
"""Whether `weirlab load` agrees with wrk and h2load, and what each spends: the same upstream, the same connections, in turn.

    bench/generators.py [--weirlab target/release/weirlab] [--rounds 20] [--delay 2ms]

Each round runs the three in random order for a second each. Printed are ratios of weirlab to each other one, as the
median over rounds with a 95 % interval by bootstrap: requests per second and median latency where the upstream waits
before it answers, so that not CPU decides, and requests per CPU second of the generator where it does not wait.
"""
import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys

CONNECTIONS = 32


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def weirlab(program, url):
    arguments = [program, "load", url, "-c", CONNECTIONS, "-t", 1, "-d", "1s", "--format", "json"]
    result = json.loads(spent(arguments))
    # Its own warm-up is left out; the others have none.
    return result["requests_per_s"], result["response"]["p50_us"] / 1e3, result["answers"] / result["generator_cpu_us"] * 1e6


def wrk(_, url):
    before = cpu_of_children()
    text = spent(["wrk", "-t1", f"-c{CONNECTIONS}", "-d1s", "--latency", url])
    value, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", text).groups()
    requests = int(re.search(r"(\d+) requests in", text)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    return rate, float(value) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit], requests / (cpu_of_children() - before)


def h2load(_, url):
    before = cpu_of_children()
    text = spent(["h2load", "--h1", "-t1", f"-c{CONNECTIONS}", "-D1", url])
    requests = int(re.search(r"(\d+) succeeded", text)[1])
    rate = float(re.search(r"finished in [\d.]+s, ([\d.]+) req/s", text)[1])
    return rate, None, requests / (cpu_of_children() - before)


def spent(arguments):
    return subprocess.run([str(part) for part in arguments], check=True, capture_output=True, text=True).stdout


GENERATORS = {"weirlab": weirlab, "wrk": wrk, "h2load": h2load}


def measure(program, url, rounds):
    """For each round and generator: requests per second, median latency in ms, requests per CPU second."""
    found = []
    for _ in range(rounds):
        one = {}
        for name in random.sample(list(GENERATORS), len(GENERATORS)):
            one[name] = GENERATORS[name](program, url)
        found.append(one)
    return found


def ratio(found, other, index):
    pairs = [one["weirlab"][index] / one[other][index] for one in found if one[other][index]]
    if not pairs:
        return "-"
    middle = lambda values: sorted(values)[len(values) // 2]
    draws = sorted(middle(random.choices(pairs, k=len(pairs))) for _ in range(2000))
    return f"{middle(pairs):.3f} ({draws[50]:.3f}..{draws[1949]:.3f})"


def with_upstream(program, arguments, then):
    upstream = subprocess.Popen([program, "upstream", "--listen", "127.0.0.1:0", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"127\.0\.0\.1:\d+", upstream.stdout.readline())[0]
        return then(f"http://{address}/")
    finally:
        upstream.terminate()
        upstream.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weirlab", default=os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release/weirlab"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--delay", default="2ms")
    arguments = parser.parse_args()
    for title, upstream in [(f"upstream waits {arguments.delay}", ["--delay", arguments.delay]), ("upstream answers at once", [])]:
        found = with_upstream(arguments.weirlab, upstream, lambda url: measure(arguments.weirlab, url, arguments.rounds))
        print(f"{title}, {arguments.rounds} rounds, {CONNECTIONS} connections; weirlab load over the other:")
        for other in ["wrk", "h2load"]:
            print(f"  {other:7} requests/s {ratio(found, other, 0)}   median latency {ratio(found, other, 1)}   requests per CPU second {ratio(found, other, 2)}")


if __name__ == "__main__":
    sys.exit(main())
