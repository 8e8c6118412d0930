"""Opens this many connections to each port of 127.0.0.1 that begins to listen, and says nothing on them: strangers.py
COUNT READY COME END.

READY is made when it has begun, with what listens then left alone; COME, when the first connections are there; END ends
it. As fast as it can: a new port gets its connections again and again."""

import os
import socket
import sys


def listening():
    ports = set()
    with open("/proc/net/tcp") as table:
        for line in list(table)[1:]:
            _, local, _, state = line.split()[:4]
            address, port = local.split(":")
            if state == "0A" and address == "0100007F":
                ports.add(int(port, 16))
    return ports


def main():
    count, (ready, come, end) = int(sys.argv[1]), sys.argv[2:]
    before, kept = listening(), []
    open(ready, "w").close()
    while not os.path.exists(end):
        for port in listening() - before:
            for _ in range(count):
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
                kept.append(one)
            open(come, "w").close()
        while len(kept) > 500:
            kept.pop(0).close()


main()
