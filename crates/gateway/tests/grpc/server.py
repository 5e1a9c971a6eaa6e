"""A server by grpcio. `/weir.Echo/Unary` answers with what it was sent; `slow` takes three seconds. Prints its port."""
import sys
import threading
import time
from concurrent import futures

import grpc


def unary(request, _context):
    if request == b"slow":
        time.sleep(3)
    return request


server = grpc.server(futures.ThreadPoolExecutor(max_workers=64))
handlers = {"Unary": grpc.unary_unary_rpc_method_handler(unary)}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weir.Echo", handlers),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
threading.Thread(target=lambda: (sys.stdin.read(), server.stop(0)), daemon=True).start()
server.wait_for_termination()
