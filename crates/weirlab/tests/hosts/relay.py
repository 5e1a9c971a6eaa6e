"""A switch that holds each frame for a while and loses some, for kernels without netem.

    relay.py MICROSECONDS LOSS INTERFACE...
"""
import collections
import errno
import random
import select
import socket
import sys
import time

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 15, 23, 3
# Checksums and segments that the kernel has left to a device pass through, in this header of each frame.
HEADER = 10


def port(name):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.bind((name, 0))
    opened.setblocking(False)
    return opened


def frames(opened):
    while True:
        try:
            yield opened.recv(HEADER + 70_000)
        except BlockingIOError:
            return


def send(opened, frame):
    try:
        opened.send(frame)
    except OSError as error:
        # The queue of a device is full, or its other end has gone: a frame is lost.
        if error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.ENETDOWN, errno.ENXIO):
            raise


def main():
    delay, loss = float(sys.argv[1]) / 1e6, float(sys.argv[2])
    ports = [port(name) for name in sys.argv[3:]]
    # Timeouts would be rounded up by 50 us otherwise.
    with open("/proc/self/timerslack_ns", "w") as slack:
        slack.write("1")
    draw = random.Random(20)
    at = {}
    queue = collections.deque()
    print("ready", flush=True)
    while True:
        timeout = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        for source in select.select(ports, [], [], timeout)[0]:
            due = time.monotonic() + delay
            for frame in frames(source):
                at[frame[HEADER + 6 : HEADER + 12]] = source
                if draw.random() >= loss:
                    queue.append((due, source, frame))
        while queue and queue[0][0] <= time.monotonic():
            _, source, frame = queue.popleft()
            known = at.get(frame[HEADER : HEADER + 6])
            for target in [known] if known else [other for other in ports if other is not source]:
                send(target, frame)


main()
