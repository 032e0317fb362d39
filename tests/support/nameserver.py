"""nameserver.py - a DNS server for tests and benchmarks, on UDP and TCP of one loopback port.

    with NameServer({"origin.test": ["127.0.0.1"]}) as names:
        names.address          # "127.0.0.1:PORT", for the setting egress.resolvers
        names.asked            # every question so far, as ("origin.test", "A")

A record is a list of addresses, or a function of the number of earlier questions for it that
returns such a list: so an answer can change between two questions. A name without a record does not
exist. `ttl` is that of all answers.
"""
import socket
import socketserver
import struct
import threading

TYPES = {1: "A", 28: "AAAA"}


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


class NameServer:
    def __init__(self, records, ttl=60):
        self.records = {name.lower(): record for name, record in records.items()}
        self.ttl, self.asked, self.lock = ttl, [], threading.Lock()

    def __enter__(self):
        outer = self

        class Udp(socketserver.BaseRequestHandler):
            def handle(self):
                data, sock = self.request
                if answer := outer.answer(data):
                    sock.sendto(answer, self.client_address)

        class Tcp(socketserver.StreamRequestHandler):
            def handle(self):
                while len(head := self.rfile.read(2)) == 2:
                    if answer := outer.answer(self.rfile.read(struct.unpack("!H", head)[0])):
                        self.wfile.write(struct.pack("!H", len(answer)) + answer)

        class TcpServer(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads = True, True

        for again in range(20, -1, -1):
            self.udp = socketserver.UDPServer(("127.0.0.1", 0), Udp)
            self.port = self.udp.server_address[1]
            try:
                self.tcp = TcpServer(("127.0.0.1", self.port), Tcp)
                break
            except OSError:  # another program has the port of that number for TCP
                self.udp.server_close()
                if not again:
                    raise
        self.address = f"127.0.0.1:{self.port}"
        for server in (self.udp, self.tcp):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in (self.udp, self.tcp):
            server.shutdown()
            server.server_close()

    def addresses(self, name, kind):
        """The addresses of this kind, or None if the name does not exist."""
        with self.lock:
            before = sum(1 for asked in self.asked if asked == (name, kind))
            self.asked.append((name, kind))
        record = self.records.get(name)
        if callable(record):
            record = record(before)
        if record is None:
            return None
        return [a for a in record if (":" in a) == (kind == "AAAA")]

    def answer(self, data):
        if len(data) < 12:
            return None
        number, _, questions = struct.unpack("!HHH", data[:6])
        if questions != 1:
            return None
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
            at += 1 + data[at]
        kind = TYPES.get(struct.unpack("!H", data[at + 1:at + 3])[0], "other")
        question = data[12:at + 5]
        found = self.addresses(".".join(labels).lower(), kind)
        code = 3 if found is None else 0
        records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 28 if ":" in a else 1, 1, self.ttl, len(packed(a))) + packed(a)
                           for a in found or [])
        return struct.pack("!HHHHHH", number, 0x8580 | code, 1, len(found or []), 0, 0) + question + records
