"""egress.py - the process cove-egress for tests and benchmarks, without a sandbox: this side plays
the jailer, with listeners on loopback, and the engine.

    with Egress(PROGRAM, resolvers="127.0.0.1:5353", open_ranges="127.0.0.0/8") as egress:
        sandbox = egress.listen()
        sandbox.bind("allow origin.test:8000")
        sandbox.proxy          # ("127.0.0.1", PORT)
        sandbox.report()       # {"connections": 1, ..., "destinations": [...]}
"""
import array
import os
import random
import signal
import socket
import struct
import subprocess

LISTEN, UNLISTEN, BIND, BOUND, UNBIND, REPORT, REPORTED, LIST, LISTED, ERROR, SECRET = range(96, 107)
PROXY, TPROXY = 1, 2
WAYS = {1: "proxy", 2: "tunnel", 3: "transparent", 4: "secret"}


class EgressError(Exception):
    """The answer E_ERROR."""


def text(s):
    data = s.encode()
    return struct.pack("<I", len(data)) + data


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.number("I")
        self.at += n
        return self.data[self.at - n:self.at].decode()


def listener(kind=socket.SOCK_STREAM, address=("127.0.0.1", 0)):
    sock = socket.socket(socket.AF_INET, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(address)
    if kind == socket.SOCK_STREAM:
        sock.listen(512)
    return sock


class Sandbox:
    """The listeners of one sandbox. `any_address` binds the transparent listener, which takes the
    place of the netfilter rule: its port is the port of all destinations."""

    def __init__(self, egress, name=None, any_address=None):
        self.egress, self.name = egress, name or "sb" + "".join(random.choices("abcdefghijklmnopqrstuvwxyz234567", k=20))
        self.any_address = any_address
        self.sockets = [listener(socket.SOCK_DGRAM), listener(), listener()]
        if any_address:
            self.sockets.append(listener(address=any_address))
        self.dns_udp, self.dns_tcp, self.proxy = (s.getsockname() for s in self.sockets[:3])

    def announce(self):
        self.egress.send(self.egress.jailer, LISTEN, text(self.name) + bytes([TPROXY if self.any_address else PROXY]), self.sockets)
        return self

    def close(self):
        self.egress.send(self.egress.jailer, UNLISTEN, text(self.name))
        self.forget()

    def forget(self):
        for sock in self.sockets:
            sock.close()

    def bind(self, *rules, tenant="", connections=0, rate=0, bytes_max=0, secrets=None):
        pairs = [x for pair in (secrets or {}).items() for x in pair]
        self.egress.ask(BIND, BOUND, text(self.name) + text(tenant) + struct.pack("<IIQ", connections, rate, bytes_max) +
                        text("".join(r + "\n" for r in rules)) + struct.pack("<I", len(pairs)) + b"".join(map(text, pairs)))
        return self

    def unbind(self):
        return self.read_report(self.egress.ask(UNBIND, REPORTED, text(self.name)))

    def report(self):
        return self.read_report(self.egress.ask(REPORT, REPORTED, text(self.name)))

    @staticmethod
    def read_report(data):
        r = Reader(data)
        found = {"carrier": r.number("B")}
        found |= {key: r.number("Q") for key in ("connections", "refused", "failed", "received", "sent", "others")}
        found["destinations"] = [
            {"host": r.text(), "port": r.number("H"), "connections": r.number("Q"), "refused": r.number("Q"), "failed": r.number("Q"),
             "received": r.number("Q"), "sent": r.number("Q"), "reason": r.text()} for _ in range(r.number("I"))]
        assert r.at == len(data), data
        return found

    def destination(self, host):
        return next((d for d in self.report()["destinations"] if d["host"] == host), None)

    def connections(self):
        r = Reader(self.egress.ask(LIST, LISTED, text(self.name)))
        return [{"host": r.text(), "port": r.number("H"), "way": WAYS[r.number("B")], "ageMs": r.number("Q"), "received": r.number("Q"),
                 "sent": r.number("Q")} for _ in range(r.number("I"))]


class Egress:
    def __init__(self, program, resolvers="127.0.0.1:9", open_ranges="", options=(), log_level="error"):
        self.argv = [program, "--resolvers", resolvers, "--log-level", log_level, *options]
        if open_ranges:
            self.argv += ["--open-ranges", open_ranges]
        self.sandboxes, self.secrets, self.stream = [], [], 0

    def __enter__(self):
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        self.jailer, self.engine = (p[0] for p in pairs)
        theirs = [p[1] for p in pairs]
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen([*self.argv, "--jailer-fd", str(theirs[0].fileno()), "--engine-fd", str(theirs[1].fileno())],
                                        pass_fds=[s.fileno() for s in theirs])
        for sock in theirs:
            sock.close()
        self.engine.settimeout(30)
        return self

    def __exit__(self, *_):
        self.jailer.close()
        self.engine.close()
        try:
            self.status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.status = self.process.wait()
        for sandbox in self.sandboxes:
            sandbox.forget()

    @staticmethod
    def send(sock, kind, payload, sockets=(), stream=0):
        frame = struct.pack("<IBBHI", len(payload), kind, 0, 0, stream) + payload
        fds = array.array("i", [s.fileno() for s in sockets])
        sock.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if sockets else [])

    def receive(self):
        data = self.engine.recv(1 << 17)
        if not data:
            raise EOFError
        _, kind, _, _, stream = struct.unpack("<IBBHI", data[:12])
        return kind, stream, data[12:]

    def ask(self, kind, answer, payload):
        self.stream += 2
        self.send(self.engine, kind, payload, stream=self.stream)
        while True:
            got, stream, data = self.receive()
            if got == SECRET:
                self.take_secret(data)
                continue
            assert stream == self.stream, (stream, self.stream)
            if got == ERROR:
                r = Reader(data)
                r.number("I"), r.number("i")
                raise EgressError(r.text())
            assert got == answer, got
            return data

    def take_secret(self, data):
        r = Reader(data)
        self.secrets.append((r.text(), r.text(), r.text(), r.number("I")))

    def listen(self, any_address=None):
        self.sandboxes.append(Sandbox(self, any_address=any_address).announce())
        return self.sandboxes[-1]

    def memory(self):
        """Proportional set size in bytes."""
        with open(f"/proc/{self.process.pid}/smaps_rollup", encoding="ascii") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))
