"""A server of orders by grpcio: prints its port, the text of its `.proto` file and its FileDescriptorSet in base64, as JSON,
and then a line for each call.

The set has two files, of which one imports the other; the text is all of it in one file.
"""
import base64
import json
import sys
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TEXT = """syntax = "proto3";
package shop;
enum Kind { PLAIN = 0; GIFT = 1; }
message Buyer { string name = 1; int32 age = 2; }
message Order {
  string text = 1;
  int64 count = 2;
  repeated string tags = 3;
  Kind kind = 4;
  bool paid = 5;
  Buyer buyer = 6;
  map<string, int32> sizes = 7;
  double weight = 8;
}
message Failure { int64 code = 1; string message = 2; string type = 3; }
service Orders {
  rpc Place(Order) returns (Order);
  rpc Fail(Order) returns (Order);
  rpc Watch(Order) returns (stream Order);
  rpc Collect(stream Order) returns (Order);
}
"""
FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "string": FIELD.TYPE_STRING,
    "int32": FIELD.TYPE_INT32,
    "int64": FIELD.TYPE_INT64,
    "bool": FIELD.TYPE_BOOL,
    "double": FIELD.TYPE_DOUBLE,
    "bytes": FIELD.TYPE_BYTES,
}


def file(name, dependencies=()):
    made = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    made.dependency.extend(dependencies)
    return made


def message(within, name, fields):
    made = within.add(name=name)
    for number, (field, kind) in enumerate(fields.items(), 1):
        label = FIELD.LABEL_REPEATED if kind.startswith("*") else FIELD.LABEL_OPTIONAL
        kind = kind.lstrip("*")
        if kind in TYPES:
            made.field.add(name=field, number=number, label=label, type=TYPES[kind])
        else:
            of = FIELD.TYPE_ENUM if kind == ".shop.Kind" else FIELD.TYPE_MESSAGE
            made.field.add(name=field, number=number, label=label, type=of, type_name=kind)
    return made


people = file("shop/people.proto")
message(people.message_type, "Buyer", {"name": "string", "age": "int32"})
orders = file("shop/orders.proto", ["shop/people.proto"])
kinds = orders.enum_type.add(name="Kind")
kinds.value.add(name="PLAIN", number=0)
kinds.value.add(name="GIFT", number=1)
order = message(
    orders.message_type,
    "Order",
    {
        "text": "string",
        "count": "int64",
        "tags": "*string",
        "kind": ".shop.Kind",
        "paid": "bool",
        "buyer": ".shop.Buyer",
        "sizes": "*.shop.Order.SizesEntry",
        "weight": "double",
    },
)
message(order.nested_type, "SizesEntry", {"key": "string", "value": "int32"}).options.map_entry = True
message(orders.message_type, "Failure", {"code": "int64", "message": "string", "type": "string"})
service = orders.service.add(name="Orders")
for name in ("Place", "Fail", "Watch", "Collect"):
    method = service.method.add(name=name, input_type=".shop.Order", output_type=".shop.Order")
    method.server_streaming, method.client_streaming = name == "Watch", name == "Collect"
# What a failed call says of itself.
status = file("shop/status.proto")
message(status.message_type, "Detail", {"type_url": "string", "value": "bytes"})
message(status.message_type, "Status", {"code": "int32", "message": "string", "details": "*.shop.Detail"})

pool = descriptor_pool.DescriptorPool()
for described in (people, orders, status):
    pool.Add(described)
types = message_factory.MessageFactory(pool)


def of(name):
    return types.GetPrototype(pool.FindMessageTypeByName(name))


Order, Failure, Status = of("shop.Order"), of("shop.Failure"), of("shop.Status")


def say(**said):
    print(json.dumps(said), flush=True)


def place(request, context):
    left = context.time_remaining()
    say(order=str(request), timed=left is not None and 0 < left <= 5)
    return request


def fail(request, context):
    code = next((code for code in grpc.StatusCode if code.value[0] == request.count), None)
    details = Status(code=request.count, message="Out of service")
    failure = Failure(code=1, message="The server is out of service", type="service")
    details.details.add(type_url="type.googleapis.com/shop.Failure", value=failure.SerializeToString())
    trailers = {"": details.SerializeToString(), "broken": b"\xff"}.get(request.text)
    if request.paid:
        # The head leaves before it is known that the call fails.
        context.send_initial_metadata(())
    if trailers is not None:
        context.set_trailing_metadata((("grpc-status-details-bin", trailers),))
    context.abort(code, "Out of service")


def watch(request, context):
    for number in range(request.count):
        yield Order(text=request.text, count=number)
    if request.paid:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more")


def unary(behavior):
    return grpc.unary_unary_rpc_method_handler(behavior, Order.FromString, Order.SerializeToString)


handlers = {
    "Place": unary(place),
    "Fail": unary(fail),
    "Watch": grpc.unary_stream_rpc_method_handler(watch, Order.FromString, Order.SerializeToString),
}
server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Orders", handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
compiled = descriptor_pb2.FileDescriptorSet(file=[people, orders]).SerializeToString()
say(port=port, text=TEXT, compiled=base64.b64encode(compiled).decode())
sys.stdin.read()
