"""What Kong 3.9's control planes and data planes have in common, written from its documentation and independent of Weir's
code: the hash, raw Snappy blocks, the checks of a payload, JSON lines between a test and a fake."""
import decimal
import gzip
import hashlib
import json
import os
import sys
import threading

EMPTY_HASH = "0" * 32
PARTS = ["routes", "services", "plugins", "upstreams", "targets"]
# The fields of Kong 3.9's entities: a data plane refuses a payload with any other.
with open(os.path.join(os.path.dirname(__file__), "fields.json")) as file:
    FIELDS = json.load(file)
FOREIGN = "service route consumer upstream certificate client_certificate set credential".split()
PLUGINS = """acl acme ai-prompt-decorator ai-prompt-guard ai-prompt-template ai-proxy ai-request-transformer
ai-response-transformer aws-lambda azure-functions basic-auth bot-detection correlation-id cors datadog file-log
grpc-gateway grpc-web hmac-auth http-log ip-restriction jwt key-auth ldap-auth loggly oauth2 opentelemetry post-function
pre-function prometheus proxy-cache rate-limiting redirect request-size-limiting request-termination request-transformer
response-ratelimiting response-transformer session standard-webhooks statsd syslog tcp-log udp-log zipkin""".split()


def number(value):
    """A number as `%.14g`; ties are rounded away from zero."""
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    exact = decimal.Decimal(float(value))
    exponent = exact.adjusted()
    unit = decimal.Decimal(1).scaleb(exponent - 13)
    with decimal.localcontext() as context:
        context.prec = 400
        rounded = exact.quantize(unit, rounding=decimal.ROUND_HALF_UP)
    exponent = rounded.adjusted()
    if -4 <= exponent < 14:
        text = f"{rounded:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits = f"{rounded.scaleb(-exponent):f}".rstrip("0").rstrip(".")
    return f"{digits}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def serialise(value, out):
    if len(out) > 1000000:
        digest = hashlib.md5(out).digest()
        out.clear()
        out += digest
    if value is None:
        out += b"/null/"
    elif value is True or value is False:
        out += b"true" if value else b"false"
    elif isinstance(value, str):
        out += value.encode()
    elif isinstance(value, (int, float)):
        out += number(value).encode()
    elif not value:
        out += b"{}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if index and len(value) < 6:
                out += b";"
            serialise(item, out)
            if len(value) >= 6:
                out += b";"
    else:
        for key in sorted(value, key=str.encode):
            out += key.encode() + b":"
            serialise(value[key], out)
            out += b";"


def hash_of(value):
    out = bytearray()
    serialise(value, out)
    return hashlib.md5(out).hexdigest()


def hashes_of(table):
    """The hash of a configuration, and those of its parts."""
    parts = {part: hash_of(table[part]) if part in table else EMPTY_HASH for part in PARTS}
    rest = hash_of({name: value for name, value in table.items() if name not in PARTS})
    whole = hashlib.md5(("".join(parts[part] for part in PARTS) + rest).encode()).hexdigest()
    return dict(parts, config=whole)


def snappy(data):
    """One raw block, of literals alone."""
    out, left = bytearray(), len(data)
    while left >= 128:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    for start in range(0, len(data), 65536):
        part = data[start : start + 65536]
        size = len(part) - 1
        out += bytes([size << 2]) if size < 60 else bytes([61 << 2]) + size.to_bytes(2, "little")
        out += part
    return bytes(out)


def unsnappy(block):
    """What a raw block holds."""
    size, shift, at = 0, 0, 0
    while True:
        size |= (block[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if block[at - 1] < 128:
            break
    out = bytearray()
    while at < len(block):
        tag, kind = block[at], block[at] & 3
        at += 1
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(block[at : at + extra], "little")
                at += extra
            out += block[at : at + length + 1]
            at += length + 1
            continue
        if kind == 1:
            length, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | block[at]
            at += 1
        else:
            width = 2 if kind == 2 else 4
            length, offset = (tag >> 2) + 1, int.from_bytes(block[at : at + width], "little")
            at += width
        if not 0 < offset <= len(out):
            raise ValueError("a copy from before the beginning")
        for _ in range(length):
            out.append(out[-offset])
    if len(out) != size:
        raise ValueError("the length is not as announced")
    return bytes(out)


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def pack(message):
    return gzip.compress(compact(message), 6)


def refusals(table):
    """Why a Kong 3.9 data plane would refuse a configuration; its schemas are strict."""
    found = []
    if table.get("_format_version") not in ("1.1", "2.1", "3.0"):
        found.append("_format_version: expected one of: 1.1, 2.1, 3.0")
    for name, rows in table.items():
        if name in ("_format_version", "_transform"):
            continue
        if name not in FIELDS:
            found.append(f"{name}: unknown field")
            continue
        if not isinstance(rows, list) or not rows:
            found.append(f"{name}: expected a list with rows")
            continue
        for row in rows:
            label = f"{name} {row.get('id')}"
            found += [f"{label}: {field}: unknown field" for field in row if field not in FIELDS[name]]
            found += [
                f"{label}: {field}: expected a bare id"
                for field in FOREIGN
                if isinstance(row.get(field), dict) or row.get(field) == ""
            ]
            if name == "plugins" and row.get("name") not in PLUGINS:
                found.append(f"{label}: plugin '{row.get('name')}' not enabled; add it to the 'plugins' configuration property")
    ids = {name: {row.get("id") for row in table.get(name, [])} for name in FIELDS}
    for name, field, of in [("routes", "service", "services"), ("targets", "upstream", "upstreams")]:
        found += [
            f"{name} {row.get('id')}: {field}: {row[field]} does not exist"
            for row in table.get(name, [])
            if row.get(field) and row[field] not in ids[of]
        ]
    return found


class Lines:
    """JSON lines: events to the test on standard output, its commands on standard input."""

    def __init__(self):
        self.lock = threading.Lock()

    def say(self, event, **members):
        with self.lock:
            print(json.dumps(dict(members, event=event)), flush=True)

    def commands(self):
        for line in sys.stdin:
            yield json.loads(line)


def main(what, path):
    """For tests of Weir's own code: what this one makes of a file."""
    with open(path, "rb") as file:
        data = file.read()
    if what == "hashes":
        answer = [hashes_of(case["config_table"]) for case in json.loads(data)]
    elif what == "frame":
        message = json.loads(gzip.decompress(data))
        table, hashes = message["config_table"], message["hashes"]
        answer = {"refusals": refusals(table), "hash_matches": hashes_of(table) == hashes, "kinds": sorted(table)}
    elif what == "unsnappy":
        answer = json.loads(unsnappy(data))
    elif what == "snappy":
        answer = snappy(data).hex()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
