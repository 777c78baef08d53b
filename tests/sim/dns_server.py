"""A name server on UDP that answers A and AAAA questions as told, and remembers what it was asked."""

import socket
import struct
import threading
import time


class DnsServer:
    """names: {name: {"A": [...], "AAAA": [...]}}; ttl in seconds. rcode, truncate and silent are faults."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.names, self.ttl = {}, 5
        self.rcode, self.truncate, self.silent = {}, False, False  # rcode: by kind of question
        self.asked = []  # (time, name, kind)
        threading.Thread(target=self._run, daemon=True).start()

    def times(self, kind="A"):
        return [t for t, _, k in list(self.asked) if k == kind]

    def _run(self):
        while True:
            try:
                data, peer = self.sock.recvfrom(2048)
            except OSError:
                return
            answer = self._answer(data)
            if answer and not self.silent:
                self.sock.sendto(answer, peer)

    def _answer(self, data):
        at, labels = 12, []
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
            at += 1 + data[at]
        kind = {1: "A", 28: "AAAA"}.get(struct.unpack(">H", data[at + 1:at + 3])[0])
        name = ".".join(labels).lower()
        self.asked.append((time.monotonic(), name, kind))
        rcode = self.rcode.get(kind, 0 if name in self.names else 3)
        addresses = [] if rcode else self.names.get(name, {}).get(kind, [])
        family, number = (socket.AF_INET, 1) if kind == "A" else (socket.AF_INET6, 28)
        records = b""
        for a in addresses:
            packed = socket.inet_pton(family, a)
            records += b"\xc0\x0c" + struct.pack(">HHIH", number, 1, self.ttl, len(packed)) + packed
        flags = 0x8180 | rcode | (0x0200 if self.truncate else 0)
        return data[:2] + struct.pack(">HHHHH", flags, 1, len(addresses), 0, 0) + data[12:at + 5] + records

    def stop(self):
        self.sock.close()
