#!/usr/bin/env python3
"""What each target of a run of weir/overload has served under overload: goodput, latency of what was served, memory.

    weirlab run weir/overload --targets weir,nginx --keep-running --rounds 5 --duration 4s
    bench/overload.py output/FOLDER/data.json

Exits with 1 if Weir served less than 90 % of the upstream's capacity at three times that, or took more than twice as long for
it (p99) as at 80 %.
"""
import base64, json, re, struct, sys, zlib

CAPACITY = 200
RATES = {80: 160, 100: 200, 300: 600}


def counts(text):
    """Value and count of each bucket of an HdrHistogram, V2 and deflated."""
    raw = zlib.decompress(base64.b64decode(text)[8:])
    _, length, _, digits, lowest, _, _ = struct.unpack(">iiiiqqd", raw[:40])
    magnitude = lowest.bit_length() - 1
    half = (2 * 10**digits - 1).bit_length() - 1
    index, at = 0, 40
    while at < 40 + length:
        number = shift = 0
        for nth in range(9):
            byte = raw[at]
            at += 1
            number |= (byte if nth == 8 else byte & 0x7F) << shift
            shift += 7
            if nth < 8 and byte < 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        if number < 0:
            index -= number
            continue
        if number:
            bucket = (index >> half) - 1
            below = (index & ((1 << half) - 1)) + (1 << half)
            if bucket < 0:
                bucket, below = 0, below - (1 << half)
            yield below << (bucket + magnitude), number
        index += 1


def quantile(blocks, quantile):
    merged = {}
    for block in blocks:
        for value, count in counts(block["latencies"]["service"]):
            merged[value] = merged.get(value, 0) + count
    left = quantile * sum(merged.values())
    for value in sorted(merged):
        left -= merged[value]
        if left <= 0:
            return value / 1e6
    return 0.0


def row(blocks):
    seconds = sum(block["measured_s"] for block in blocks)
    return {
        "goodput": sum(block["good"] for block in blocks) / seconds / CAPACITY,
        "errors": sum(sum(block["errors"].values()) for block in blocks) / seconds,
        "p50": quantile(blocks, 0.5),
        "p99": quantile(blocks, 0.99),
        "memory": max(block["target"].get("rss_peak_kib") or block["target"].get("rss_kib") or 0 for block in blocks),
    }


def main():
    run = json.load(open(sys.argv[1]))
    targets = sorted({cell["target"] for cell in run["cells"] if not cell["control"]})
    is_kept = True
    for target in targets:
        rows = {}
        for share, rate in RATES.items():
            cells = [cell for cell in run["cells"] if cell["target"] == target and not cell["control"]]
            cells = [cell for cell in cells if re.search(rf"\brate[-=: ]{rate}\b", cell["case"])]
            blocks = [block for cell in cells for block in cell["blocks"] if block["measured_s"]]
            if blocks:
                rows[share] = row(blocks)
        for share, seen in rows.items():
            print(
                f"{target} at {share} %: served {seen['goodput']:.1%} of the capacity, {seen['errors']:.0f} errors/s, "
                f"p50 {seen['p50']:.0f} ms, p99 {seen['p99']:.0f} ms, memory {seen['memory'] / 1024:.0f} MiB"
            )
        if {80, 300} <= set(rows):
            times = rows[300]["p99"] / rows[80]["p99"]
            print(f"{target}: p99 at 300 % is {times:.2f} x that at 80 %")
            if target.split("@")[0] == "weir":
                is_kept = is_kept and rows[300]["goodput"] >= 0.9 and times <= 2
    sys.exit(0 if is_kept else 1)


main()
