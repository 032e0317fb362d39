#!/usr/bin/env python3
"""ws_test.py HTTP_TESTD - WebSocket frames, byte by byte, against the /ws of a server of
src/server/http; prints TAP.

A case whose name begins with WBnn is a case of the attack catalogue.
"""
import base64
import contextlib
import functools
import os
import re
import signal
import socket
import struct
import sys
import time

from http_test import GOOD, Server, parse, read_all, request, run_cases, until

CASES = []
KEY = base64.b64encode(b"0123456789abcdef").decode()
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def case(function):
    CASES.append((function.__doc__.splitlines()[0], function))
    return function


def handshake(*headers, version="13", key=KEY, path="/ws", upgrade="websocket", connection="Upgrade", host="Host: localhost"):
    lines = [f"Upgrade: {upgrade}", f"Connection: {connection}"]
    lines += [f"Sec-WebSocket-Version: {version}"] if version else []
    lines += [f"Sec-WebSocket-Key: {key}"] if key else []
    return request(f"GET {path} HTTP/1.1", *lines, *headers, host=host)


def frame(op, data=b"", fin=True, mask=True, rsv=0, length=None, size=None):
    """A client's frame; `length` is a false payload length, `size` (126, 127) uses a longer form
    than needed."""
    n = len(data) if length is None else length
    size = size or (n if n < 126 else 126 if n < 65536 else 127)
    head = bytes([(0x80 if fin else 0) | rsv << 4 | op, (0x80 if mask else 0) | size])
    head += struct.pack(">H", n) if size == 126 else struct.pack(">Q", n) if size == 127 else b""
    if not mask:
        return head + data
    key = b"\x11\x22\x33\x44"
    return head + key + bytes(b ^ key[i & 3] for i, b in enumerate(data))


def bounded(function):
    """A method that waits for the server. The outermost one on the stack has the deadline: the
    timeout of the socket begins again with every ping."""
    @functools.wraps(function)
    def wait(self, *args, **more):
        if self.deadline is not None:
            return function(self, *args, **more)
        self.deadline = time.monotonic() + self.patience
        try:
            return function(self, *args, **more)
        finally:
            self.deadline = None
    return wait


class Waiting:
    """A socket `s`, and the bytes that were read from it but not used."""

    patience = 180  # seconds of one wait, whatever arrives meanwhile
    deadline = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def more(self):
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TimeoutError(f"waited {self.patience} s")
        piece = self.s.recv(1 << 16)
        if not piece:
            raise EOFError
        self.data += piece

    def need(self, n):
        while len(self.data) < n:
            self.more()
        piece, self.data = self.data[:n], self.data[n:]
        return piece

    @bounded
    def read(self):
        first, n = self.need(2)
        assert first & 0x70 == 0 and first & 0x80 and not n & 0x80, "a server's frame must be complete, unmasked and without extensions"
        if n == 126:
            n = struct.unpack(">H", self.need(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.need(8))[0]
        return first & 15, self.need(n)


class Client(Waiting):
    """A socket after its handshake."""

    def __init__(self, server, *headers, unix=False, early=b"", timeout=60, patience=Waiting.patience):
        self.s, self.patience = server.connect(unix, timeout), patience
        self.s.sendall(handshake(*headers) + early)
        self.data = b""
        while b"\r\n\r\n" not in self.data:
            self.more()
        top, _, self.data = self.data.partition(b"\r\n\r\n")
        self.status = int(top.split()[1])
        self.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in top.decode().split("\r\n")[1:])}
        assert self.status == 101, top

    def send(self, *frames):
        self.s.sendall(b"".join(frames))

    def say(self, text):
        self.send(frame(TEXT, text.encode()))

    @bounded
    def heard(self):
        """The next message; pings before it are answered."""
        while True:
            op, data = self.read()
            if op != PING:
                return op, data
            self.send(frame(PONG, data))

    @bounded
    def ended(self):
        """The code of the close frame that ends the socket, None when there was none; messages
        before it are skipped."""
        code = None
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                op, data = self.read()
                if op == CLOSE:
                    assert code is None, "two farewells"
                    code = struct.unpack(">H", data[:2])[0] if data else 1005
                    with contextlib.suppress(OSError):
                        self.send(frame(CLOSE, data))
        return code


def sanitized(path):
    with open(path, "rb") as f:
        return b"__asan_init" in f.read()


# Under a sanitizer every allocation has a shadow, and freed memory stays for a while: another bound
# applies.
SLACK = 100 << 20 if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) and sanitized(sys.argv[1]) else 0


def rss(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) * 1024


@case
def basics(server):
    """a handshake, messages of all sizes in both directions, a close"""
    with Client(server) as c:
        assert c.headers["sec-websocket-accept"] == "BACScCJPNqyz+UBoqMH89VmURoA=", c.headers
        assert c.headers["upgrade"].lower() == "websocket" and c.headers["connection"].lower() == "upgrade"
        for n in (0, 1, 125, 126, 65535, 65536, 1 << 20):
            c.send(frame(TEXT, b"a" * n))
            assert c.read() == (TEXT, b"a" * n), n
        c.send(frame(TEXT, b"ab", fin=False), frame(PING, b"!"), frame(0, b"c", fin=False), frame(0, b"d"))
        assert c.read() == (PONG, b"!") and c.read() == (TEXT, b"abcd")
        c.send(frame(CLOSE, struct.pack(">H", 1000) + b"bye"))
        assert c.read() == (CLOSE, struct.pack(">H", 1000) + b"bye")
        assert c.s.recv(10) == b""
    until(lambda: server.counts()["last_code"] == 1000, "the owner was not notified")
    with Client(server, unix=True) as c:
        c.say("close 4001")
        assert c.read() == (TEXT, b"last words") and c.ended() == 4001


@case
def deadline(_):
    """a test stops waiting for a message although pings arrive"""
    with Server(ws_ping_ms=200) as s, Client(s, patience=1) as c:
        began = time.monotonic()
        with contextlib.suppress(TimeoutError):
            c.heard()
            raise AssertionError("a message that was not sent")
        assert 1 < time.monotonic() - began < 20
        c.patience = 60
        c.say("here")
        assert c.heard() == (TEXT, b"here")


@case
def early(server):
    """frames that arrive with the handshake are not lost, and neither are frames in pieces"""
    with Client(server, early=frame(TEXT, b"one") + frame(TEXT, b"two")) as c:
        assert c.read() == (TEXT, b"one") and c.read() == (TEXT, b"two")
        for byte in frame(TEXT, b"slowly"):
            c.s.sendall(bytes([byte]))
        assert c.read() == (TEXT, b"slowly")


@case
def subprotocols(server):
    """the first offered subprotocol that we support is accepted, and never an extension"""
    for offer, agreed in (("one", "one"), ("one, two", "two"), ("x,one ,y", "one"), ("three", None), ("ones", None)):
        with Client(server, f"Sec-WebSocket-Protocol: {offer}") as c:
            assert c.headers.get("sec-websocket-protocol") == agreed, offer


@case
def wb01(server):
    """WB01 pages of other origins and clients that the hook refuses cannot open a socket"""
    for origin in ("null", "https://evil.example", "https://page.example.evil", "http://page.example", ""):
        answers = server.talk(handshake(f"Origin: {origin}", "Cookie: session=1"))
        assert [a.status for a in answers] == [403], origin
    assert [a.status for a in server.talk(handshake(host="Host: evil.example"))] == [421]
    assert [a.status for a in server.talk(handshake("X-Deny: 1"))] == [401]
    with Client(server, "Origin: https://page.example", "X-Later: pass") as c:
        c.say("here")
        assert c.read() == (TEXT, b"here")


@case
def wb05(server):
    """WB05 invalid frames end the socket with the right code, and nothing else"""
    bad_text = b"\xc3\x28"
    attacks = {
        "unmasked": (frame(TEXT, b"x", mask=False), 1002), "rsv1": (frame(TEXT, b"x", rsv=4), 1002), "rsv2": (frame(TEXT, b"x", rsv=2), 1002),
        "rsv3": (frame(TEXT, b"x", rsv=1), 1002), "reserved opcode": (frame(3, b"x"), 1002), "reserved control": (frame(11), 1002),
        "fragmented ping": (frame(PING, b"x", fin=False), 1002), "long ping": (frame(PING, b"x" * 126), 1002), "long close": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
        "126 for less": (frame(TEXT, b"x", size=126), 1002), "127 for less": (frame(TEXT, b"x" * 200, size=127), 1002),
        "2^63": (frame(TEXT, b"", length=1 << 63), 1002), "2^62": (frame(TEXT, b"", length=1 << 62), 1009), "too big": (frame(TEXT, b"", length=(4 << 20) + 1), 1009),
        "close 1005": (frame(CLOSE, struct.pack(">H", 1005)), 1002), "close 999": (frame(CLOSE, struct.pack(">H", 999)), 1002),
        "close 1006": (frame(CLOSE, struct.pack(">H", 1006)), 1002), "close 1015": (frame(CLOSE, struct.pack(">H", 1015)), 1002),
        "close with no text": (frame(CLOSE, b"\x03\xe8" + bad_text), 1007), "no text": (frame(TEXT, bad_text), 1007),
        "half a character": (frame(TEXT, b"\xe2\x82"), 1007), "surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
        "continuation of nothing": (frame(0, b"x"), 1002), "a message in a message": (frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), 1002),
        "sum too big": (frame(TEXT, b"x" * 10, fin=False) + frame(0, b"", length=4 << 20), 1009),
    }
    for name, (data, code) in attacks.items():
        with Client(server) as c:
            c.send(data, frame(TEXT, b"after"))
            got = c.ended()
            assert got == code, f"{name}: {got}, not {code}"
    with Client(server) as c:
        c.send(frame(CLOSE, b"\x03"))
        assert c.ended() in (1002, 1005)
    with Client(server) as c:
        c.send(frame(BINARY, bad_text))
        assert c.read()[1] == bad_text
    until(lambda: server.counts()["sockets"] == 0, "sockets are still open")


@case
def wb06_fragments(server):
    """WB06 endless fragments end with 1009 and cost little memory"""
    before = rss(server)
    with Client(server) as c:
        with contextlib.suppress(OSError):
            c.send(frame(TEXT, b"", fin=False))
            for _ in range(20):
                c.send(*[frame(0, b"x", fin=False)] * 1000)
        assert c.ended() == 1009
    assert rss(server) - before < (8 << 20) + SLACK


@case
def wb06_rate(server):
    """WB06 a flood of tiny frames is slowed down to the rate, and others are served meanwhile"""
    with Server(ws_rate=500) as s, Client(s) as c:
        c.s.settimeout(0.1)
        began, sent, tiny = time.monotonic(), 0, frame(TEXT, b"") * 1000
        c.s.setblocking(False)
        while time.monotonic() - began < 2:
            with contextlib.suppress(BlockingIOError):
                sent += c.s.send(tiny)
            with contextlib.suppress(BlockingIOError):
                c.data += c.s.recv(1 << 16)
        answered = len(c.data) // 2
        assert answered <= 500 * (2 + time.monotonic() - began) + 700, f"{answered} answered"
        assert s.counts()["cpu_ms"] < 1500 and s.get("/hello").status == 200


@case
def wb06_pings(server):
    """WB06 a flood of pings with unread answers is no longer read, and memory stays bounded"""
    with Server(ws_rate=1000000) as s, Client(s) as c:
        c.send(frame(PING, b"x"))
        assert c.read()[0] == PONG
        before, sent = rss(s), 0
        c.s.settimeout(1)
        with contextlib.suppress(socket.timeout):
            while sent < 256 << 20:
                sent += c.s.send(frame(PING, b"x" * 125) * 500)
        assert sent < 256 << 20, "the server reads without a bound"
        assert rss(s) - before < (8 << 20) + SLACK and s.get("/hello").status == 200


@case
def wb06_silence(server):
    """WB06 a client that does not answer pings is closed; a slow reader stays"""
    with Server(ws_ping_ms=4000) as s, Client(s) as silent, Client(s) as alive:
        began = time.monotonic()
        while time.monotonic() - began < 10:
            op, data = alive.read()
            assert op == PING, op
            alive.send(frame(PONG, data))
        assert silent.ended() == 1011
        alive.say("here")
        assert alive.heard() == (TEXT, b"here")


@case
def wb07(server):
    """WB07 a client that does not read blocks itself only, in bounded memory, and loses nothing"""
    total = 64 << 20
    with Server() as s, Client(s, timeout=60) as lazy, Client(s) as brisk:
        before = rss(s)
        lazy.say(f"flood {total}")
        for i in range(50):
            brisk.say(f"{i}")
            assert brisk.read()[1] == b"%d" % i
        assert rss(s) - before < (4 << 20) + SLACK, rss(s) - before
        got = 0
        while got < total:
            got += len(lazy.read()[1])
        assert got == total and rss(s) - before < (4 << 20) + SLACK


@case
def wb07_many(server):
    """WB07 many clients that do not read cost no more than their queues"""
    with Server() as s:
        clients = [Client(s) for _ in range(100)]
        before = rss(s)
        for c in clients:
            c.say(f"flood {1 << 30}")
        with Client(s) as c:
            c.say("still here")
            assert c.read()[1] == b"still here"
        assert rss(s) - before < 100 * 160 * 1024 + SLACK, rss(s) - before
        for c in clients:
            c.s.close()
        until(lambda: s.counts()["sockets"] == 0, "sockets are still open")


@case
def held(server):
    """an owner that takes no messages blocks the client, and nothing is lost"""
    with Client(server) as c:
        c.say("hold 300")
        for i in range(200):
            c.send(frame(TEXT, b"%d" % i + b" " * 1000))
        for i in range(200):
            assert c.read()[1].split()[0] == b"%d" % i


@case
def wb08(server):
    """WB08 compression is never accepted, and a compressed frame is refused"""
    with Client(server, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits") as c:
        assert "sec-websocket-extensions" not in c.headers
        c.send(frame(TEXT, b"\xaa\x00", rsv=4))
        assert c.ended() == 1002


@case
def wb14(server):
    """WB14 an invalid handshake is refused, and the bytes after it are never read as a request"""
    cases = [(handshake(version="12"), 426), (handshake(version=""), 426), (handshake(version="13, 8"), 426), (handshake(key=""), 400), (handshake(key="short"), 400),
             (handshake(key=KEY[:-3] + "B=="), 400), (handshake(f"Sec-WebSocket-Key: {KEY}"), 400)]
    for data, status in cases:
        before = server.counts()["handled"]
        answers = server.talk(data + GOOD, half_close=False)
        assert [a.status for a in answers] == [status] and answers[0].headers["connection"] == "close", (data, [a.status for a in answers])
        assert server.counts()["handled"] <= before + 1, data
    answer = server.get("/ws", "Upgrade: websocket")
    assert answer.status == 426 and answer.headers["upgrade"] == "websocket" and answer.headers["sec-websocket-version"] == "13"
    assert server.get("/ws", "Connection: upgrade", "Upgrade: h2c", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}").status == 426
    # An ordinary route ignores the upgrade, and the next request is handled on its own.
    answers = server.talk(handshake(path="/hello") + request("GET /hello HTTP/1.1", "Connection: close"), half_close=False)
    assert answers[0].status == 200 and all(a.status == 200 for a in answers)
    # The handler has not answered: bytes after a handshake are early data of the socket, not a
    # request.
    with Client(server, "X-Later: pass", early=GOOD) as c:
        assert c.ended() == 1002


@case
def bounds(server):
    """sockets are limited: in total, and for each address"""
    with Server(ws_max=3, ws_per_addr=2) as s:
        with Client(s), Client(s), Client(s, unix=True):
            assert s.talk(handshake())[0].status == 503 and s.talk(handshake(), unix=True)[0].status == 503
        until(lambda: s.counts()["sockets"] == 0, "sockets are still open")
        with Client(s), Client(s):
            answer = s.talk(handshake())[0]
            assert answer.status == 503 and "this address" in answer.error()["message"]


@case
def gathered(server):
    """messages in progress are bounded together"""
    with Server(buffered_max=3 << 20) as s, Client(s) as a, Client(s) as b:
        a.send(frame(TEXT, b"x" * 1000, length=2 << 20))
        until(lambda: s.counts()["sockets"] == 2, "two sockets are not open")  # after this answer the first message has been read
        b.send(frame(TEXT, b"x" * 1000, length=2 << 20))
        assert b.ended() == 1013
        a.send(b"\0" * ((2 << 20) - 1000))
        op, data = a.read()
        assert op == TEXT and len(data) == 2 << 20


@case
def drained(server):
    """a stopping server sends 1001, and does not wait for clients that do not answer"""
    with Server() as s, Client(s) as polite, Client(s) as deaf:
        deaf.say(f"flood {64 << 20}")
        polite.say("x")
        assert polite.read()[1] == b"x"
        s.process.send_signal(signal.SIGTERM)
        assert polite.ended() == 1001
        assert s.process.wait(timeout=60) == 0


@case
def left(server):
    """a client that vanishes at any point leaves nothing"""
    for data in (b"", frame(TEXT, b"half")[:-1], frame(TEXT, b"a", fin=False), frame(TEXT, b"flood 100000000"), frame(TEXT, b"hold 200")):
        c = Client(server)
        c.send(data)
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.s.close()
    until(lambda: server.counts()["sockets"] == 0 and server.counts()["open"] == 1, "a socket or a connection is still open")


@case
def memory(server):
    """a quiet socket costs less than 16 KiB, and its HTTP connection is released"""
    with Server(ws_per_addr=2000) as s:
        for c in [Client(s) for _ in range(50)]:
            c.s.close()
        until(lambda: s.counts()["sockets"] == 0, "sockets are still open")
        before = rss(s)
        clients = [Client(s) for _ in range(500)]
        until(lambda: s.counts()["open"] == 1, "a connection is still open")
        each = (rss(s) - before) / 500
        assert each < 16 << 10 or SLACK, f"{each} bytes"
        for c in clients:
            c.s.close()


if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[2:]))
