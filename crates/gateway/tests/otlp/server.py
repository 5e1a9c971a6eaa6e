"""A collector by grpcio: prints a line of JSON for each call that it gets, and does with it as the next of its plan says.

Arguments: a port or 0, the plan (codes of gRPC, `hang` or `partial`, by commas; then all is well), and for TLS the files of
a certificate and its key.
"""
import json
import sys
import threading
from concurrent import futures

import grpc

CODES = {code.value[0]: code for code in grpc.StatusCode}


def fields(data):
    """The number and value of each field of a message: what is delimited as bytes, numbers as they are."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 2:
            length = varint()
            yield key >> 3, data[at : at + length]
            at += length
        elif key & 7 == 0:
            yield key >> 3, varint()
        else:
            at += 8 if key & 7 == 1 else 4


def all_of(data, *path):
    """The values at the end of a path of field numbers."""
    found = [data]
    for number in path:
        found = [value for message in found for key, value in fields(message) if key == number]
    return found


def attributes(message, number):
    pairs = [dict(fields(attribute)) for attribute in all_of(message, number)]
    return {pair[1].decode(): b"".join(all_of(pair[2], 1)).decode() for pair in pairs}


def export(request, context):
    spans = all_of(request, 1, 2, 2)
    print(
        json.dumps(
            {
                "metadata": {key: value for key, value in context.invocation_metadata() if isinstance(value, str)},
                "resource": attributes(all_of(request, 1, 1)[0], 1),
                "names": [all_of(span, 5)[0].decode() for span in spans],
                "traces": [all_of(span, 1)[0].hex() for span in spans],
                "urls": [attributes(span, 9).get("http.url") for span in spans],
            }
        ),
        flush=True,
    )
    step = plan.pop(0) if plan else "0"
    if step == "hang":
        threading.Event().wait()
    if step == "partial":
        refusal = b"\x08\x02\x12\x07too old"
        return b"\x0a" + bytes([len(refusal)]) + refusal
    if step != "0":
        context.abort(CODES[int(step)], "as planned")
    return b""


def export_logs(request, context):
    for record in all_of(request, 1, 2, 2):
        told = {"severity": all_of(record, 3)[0].decode(), "attributes": attributes(record, 6)}
        told["body"] = all_of(record, 5, 1)[0].decode()
        print(json.dumps(told), flush=True)
    return b""


class Collector(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/opentelemetry.proto.collector.trace.v1.TraceService/Export":
            return grpc.unary_unary_rpc_method_handler(export)
        if details.method == "/opentelemetry.proto.collector.logs.v1.LogsService/Export":
            return grpc.unary_unary_rpc_method_handler(export_logs)


port, plan = sys.argv[1], sys.argv[2].split(",") if sys.argv[2] else []
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Collector(),))
address = f"127.0.0.1:{port}"
if len(sys.argv) > 3:
    certificate, key = (open(path, "rb").read() for path in sys.argv[3:5])
    bound = server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
else:
    bound = server.add_insecure_port(address)
server.start()
print(bound, flush=True)
server.wait_for_termination()
