#!/usr/bin/env python3
"""http_test.py HTTP_TESTD [--shard I/N] [CASE...] - raw bytes against a server of src/server/http;
prints TAP.

A case whose name begins with HTnn or WBnn is a case of the attack catalogue. Each case sends bytes
and checks the answer, whether a handler ran, and whether the connection stayed open. Cases that
wait for a deadline set it to a fraction of a second.
"""
import concurrent.futures
import contextlib
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from choice import Choice  # noqa: E402

TESTD = sys.argv[1] if len(sys.argv) > 1 else "build/tests/tools/http-testd"
CASES = []
BIG = 64 << 20
MANY = int(os.environ.get("COVE_TEST_CONNECTIONS", "2000"))
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


class Server:
    def __init__(self, **settings):
        self.dir = tempfile.TemporaryDirectory()
        self.unix = os.path.join(self.dir.name, "s")
        arguments = [f"{k}={v}" for k, v in settings.items()] + [f"unix={self.unix}"]
        self.process = subprocess.Popen([TESTD] + arguments, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline().split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=120)
        self.process.stdout.close()
        self.dir.cleanup()
        assert code == 0, f"the server ended with {code}"

    def connect(self, unix=False, timeout=60):
        s = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        s.settimeout(timeout)
        s.connect(self.unix if unix else ("127.0.0.1", self.port))
        return s

    def talk(self, data, unix=False, timeout=60, half_close=True):
        """Sends, ends the writing side, and reads to the end: the answers, and whether the server
        closed."""
        with self.connect(unix, timeout) as s:
            try:
                s.sendall(data)
                if half_close:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return parse(read_all(s))

    def get(self, path, *headers, method="GET", body=b"", unix=False):
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
        if body:
            head.append(f"Content-Length: {len(body)}")
        answers = self.talk("\r\n".join(head).encode() + b"\r\n\r\n" + body, unix=unix, half_close=False)
        assert len(answers) == 1, f"{len(answers)} answers to {method} {path}"
        return answers[0]

    def counts(self):
        text = self.get("/counts").body.decode()
        return {k: int(v) for k, v in (line.split() for line in text.splitlines())}


class Answer:
    def __init__(self, status, headers, body, whole):
        self.status, self.headers, self.body, self.whole = status, headers, body, whole

    def error(self):
        return json.loads(self.body)["error"]


def read_all(s):
    data = b""
    try:
        while True:
            more = s.recv(1 << 16)
            if not more:
                return data
            data += more
    except ConnectionResetError:
        return data


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def unchunk(data):
    """(body, rest, whether the body is complete)"""
    body = b""
    while True:
        line, sep, rest = data.partition(b"\r\n")
        if not sep:
            return body, b"", False
        size = int(line, 16)
        if len(rest) < size + 2:
            return body + rest[:size], b"", False
        body, data = body + rest[:size], rest[size + 2:]
        if size == 0:
            return body, data, True


def parse(data, head=False):
    answers = []
    while data:
        top, sep, rest = data.partition(b"\r\n\r\n")
        assert sep, f"incomplete head: {data[:200]!r}"
        lines = top.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) [^\r\n]*", lines[0])
        assert match, f"not a status line: {lines[0]!r}"
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(": ")
            assert colon and re.fullmatch(r"[A-Za-z0-9-]+", name), f"not a header: {line!r}"
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value
        status = int(match.group(1))
        if status == 100:
            data = rest
            answers.append(Answer(100, headers, b"", True))
            continue
        if head or status in (204, 304):
            answers.append(Answer(status, headers, b"", True))
            data = rest
        elif headers.get("transfer-encoding") == "chunked":
            body, data, whole = unchunk(rest)
            answers.append(Answer(status, headers, body, whole))
        else:
            n = int(headers["content-length"])
            answers.append(Answer(status, headers, rest[:n], len(rest) >= n))
            data = rest[n:]
    return answers


def case(function):
    CASES.append((function.__doc__.splitlines()[0], function))
    return function


def request(line="GET /hello HTTP/1.1", *headers, host="Host: localhost", body=b"", end=b"\r\n"):
    lines = [line] + ([host] if host else []) + list(headers)
    return end.join(x if isinstance(x, bytes) else x.encode("latin-1") for x in lines) + end + end + body


GOOD = request()
LAST = request("GET /hello HTTP/1.1", "Connection: close")


def refused(server, data, statuses=(400,), what="", unix=False):
    """The request is refused with an ordinary error, nothing after it is read, and no handler
    ran."""
    before = server.counts()["handled"]
    answers = server.talk(data + GOOD, unix=unix)
    what = what or data[:120]
    assert len(answers) == 1, f"{what!r}: {[a.status for a in answers]}"
    a = answers[0]
    assert a.status in statuses, f"{what!r}: {a.status}"
    assert a.whole and a.headers["content-type"] == "application/json" and a.headers["connection"] == "close", f"{what!r}: {a.headers}"
    assert a.error()["requestId"] == a.headers["x-request-id"], f"{what!r}: {a.error()}"
    assert server.counts()["handled"] == before, f"{what!r}: a handler ran"
    return a


# --- framing ---

@case
def ht01(server):
    """HT01 Content-Length together with Transfer-Encoding is refused and ends the connection"""
    for one, two in ((b"Content-Length: 5", b"Transfer-Encoding: chunked"), (b"Transfer-Encoding: chunked", b"Content-Length: 5"),
                     (b"transfer-encoding: CHUNKED", b"CONTENT-LENGTH: 0")):
        a = refused(server, request("POST /echo HTTP/1.1", one, two, body=b"0\r\n\r\n"))
        assert a and a.headers["connection"] == "close" and a.error()["code"] == "malformed_request"


@case
def ht02(server):
    """HT02 a Content-Length that is not one plain number is refused"""
    for value in ("+5", "-1", "0x5", "5 5", "5,5", "5, 5", "", "1e3", str(1 << 63), str(1 << 64), "1" + "0" * 30, "5\v"):
        refused(server, request("POST /echo HTTP/1.1", f"Content-Length: {value}", body=b"hello"), (400, 413))
    for pair in (("5", "6"), ("5", "5")):
        refused(server, request("POST /echo HTTP/1.1", *(f"Content-Length: {v}" for v in pair), body=b"hello"))


@case
def ht03(server):
    """HT03 the only accepted transfer coding is a single chunked"""
    for value in ("chunked, identity", "identity", "xchunked", "chunked, chunked", "gzip, chunked", "chunked;q=1", "\"chunked\"",
                  "chun\tked", "\vchunked"):
        refused(server, request("POST /echo HTTP/1.1", f"Transfer-Encoding: {value}", body=b"0\r\n\r\n"), (400, 501))
    refused(server, request("POST /echo HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"))
    refused(server, request("POST /echo HTTP/1.0", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"))
    refused(server, request("POST /echo HTTP/1.1", "Transfer-Encoding : chunked", body=b"0\r\n\r\n"))


def chunked(body, line="POST /echo HTTP/1.1"):
    return request(line, "Transfer-Encoding: chunked", body=body)


@case
def ht04_chunks(server):
    """HT04 broken chunks never reach a handler"""
    for body in (b"fffffffffffffffff\r\nx", b"10000000000000000\r\nx", b"-1\r\n", b"+5\r\nhello\r\n0\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n",
                 b"5 \r\nhello\r\n0\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"\r\nhello\r\n0\r\n\r\n",
                 b"5\rhello\r\n0\r\n\r\n", b"g\r\n", b"5\nhello\r\n0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r\n0\n\r\n", b"5\r\nhello\r\n0\r\n\n",
                 b"5;x\nhello\r\n0\r\n\r\n", b"5;\x01\r\nhello\r\n0\r\n\r\n", b"5\0\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nA b: c\r\n\r\n"):
        assert refused(server, chunked(body)).error()["code"] == "malformed_request"
    for at in (1, 3, 8, 13):  # in two pieces as in one: the handler got the head and is not called again
        body = b"5\r\nhello\n0\r\n\r\n"
        before = server.counts()["handled"]
        with server.connect() as c:
            c.sendall(chunked(body[:at]))
            time.sleep(0.02)
            c.sendall(body[at:] + GOOD)
            c.shutdown(socket.SHUT_WR)
            answers = parse(read_all(c))
        assert [a.status for a in answers] == [400] and server.counts()["handled"] == before, (at, answers)
    a = server.talk(chunked(b"5\r\nhello\n0\r\n\r\n", "PUT /upload HTTP/1.1"))
    assert [x.status for x in a] == [400] and a[0].error()["code"] == "malformed_request", "the handler that reads must get the error, and its answer must be sent"


@case
def ht04_after_chunks(server):
    """HT04 bytes after a chunked body on the connection are never read as a request"""
    for body in (b"5\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"5;x\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nX: y\r\n\r\n"):
        before = server.counts()["handled"]
        answers = server.talk(chunked(body) + GOOD * 3)
        assert len(answers) == 1 and server.counts()["handled"] - before <= 1, body
        assert answers[0].headers["connection"] == "close", body


@case
def ht04_extension(server):
    """HT04 a chunk extension of 1 MiB is bounded, and does not make the server spin"""
    with Server(body_ms=700) as s:
        with s.connect() as c:
            before = s.counts()["cpu_ms"]
            try:
                c.sendall(chunked(b"5;" + b"x" * (1 << 20) + b"\r\nhello\r\n0\r\n\r\n"))
            except OSError:
                pass
            answers = parse(read_all(c))
            used = s.counts()["cpu_ms"] - before
        assert all(a.status in (400, 408, 413) for a in answers), answers[0].status
        assert used < 350, f"{used} ms of CPU time"
        assert s.counts()["handled"] == 0


@case
def ht04_lines(server):
    """HT04 bare LF, bare CR and NUL in the head are refused"""
    for data in (b"GET /hello HTTP/1.1\nHost: localhost\n\n", b"GET /hello HTTP/1.1\r\nHost: localhost\n\r\n", b"GET /hello HTTP/1.1\nHost: localhost\r\n\r\n",
                 b"GET /hello HTTP/1.1\r\nHost: localhost\r\nA: b\n\r\n", b"GET /hello HTTP/1.1\r\nHost: localhost\r\nA: b\nC: d\r\n\r\n",
                 b"GET /hello HTTP/1.1\r\nHost: localhost\r\nA:b\nC:  d\r\n\r\n", b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\n",
                 b"GET /hello HTTP/1.1\r\nHost: localhost\r\nA: b\rC: d\r\n\r\n", b"GET /hello HTTP/1.1\r\nHost: localhost\r\r\n\r\n",
                 b"GET /hello HTTP/1.1\r\nHost: localhost\r\nA: b\0c\r\n\r\n", b"GET /hello HTTP/1.1\r\nHost: localhost\r\nA\0: b\r\n\r\n",
                 b"GET /hello HTTP/1.1\r\nHost: local\0host\r\n\r\n", b"GET /hel\0lo HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"GET\0 /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /hello\rHTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"GET /hello HTTP/1.1\r\nHost: localhost\r\nA: b\0\r\n\r\n", b"GET /hello HTTP/1.1\0\r\nHost: localhost\r\n\r\n",
                 b"GET /hello HTTP/1.1\r\n\0\r\nHost: localhost\r\n\r\n"):
        refused(server, data, (400, 505))


@case
def ht04_nul_for_cr(server):
    """HT04 NUL LF is not taken for CR LF"""
    for data in (b"GET /show HTTP/1.1\r\nHost: localhost\0\n\r\n", b"GET /show HTTP/1.1\0\nHost: localhost\r\n\r\n", b"GET /show HTTP/1.1\r\nHost: localhost\r\n\0\n"):
        refused(server, data)


@case
def refusals_in_order(server):
    """a malformed request is refused after the answers to all requests before it"""
    slow, bad = request("GET /slow?ms=100 HTTP/1.1"), b"GET /hello\r\n\r\n"
    assert [a.status for a in server.talk(slow + GOOD + bad + GOOD)] == [200, 200, 400]
    assert [a.status for a in server.talk(LAST + bad)] == [200]
    with server.connect() as c:
        c.sendall(slow + b"GET /hello HTTP/1.1\r\nHo")
        time.sleep(0.02)
        c.sendall(b"st : x\r\n\r\n")
        answers = parse(read_all(c))
    assert [a.status for a in answers] == [200, 400] and answers[1].error()["code"] == "malformed_request"
    with server.connect() as c:
        c.sendall(slow + chunked(b"5\r\nhel"))
        time.sleep(0.02)
        c.sendall(b"lo\n")
        answers = parse(read_all(c))
    assert [a.status for a in answers] == [200, 400]


@case
def refusals_that_fill_memory(server):
    """more parameters or cookies than the server keeps are refused with an error of its own"""
    assert refused(server, request(f"GET /hello?{'&' * 8000} HTTP/1.1"), (414,)).error()["code"] == "uri_too_long"
    assert refused(server, request("GET /hello HTTP/1.1", "Cookie: " + "a;" * 8000), (431,)).error()["code"] == "headers_too_large"
    assert server.talk(request("GET /hello HTTP/1.1", "Cookie: " + "a=b; " * 199))[0].status == 200


@case
def half_closed(server):
    """a client that ends its sending side gets all of its answers, over either socket"""
    for unix in (False, True):
        for path in ("/hello", "/slow?ms=200", "/slow?ms=200&watch=1", "/stream?bytes=3000000", "/events"):
            a = server.talk(request(f"GET {path} HTTP/1.1") * 2, unix=unix)
            assert [x.status for x in a] == [200, 200] and all(x.whole for x in a), (path, unix)
        a = server.talk(request("PUT /upload?hold=100 HTTP/1.1", "Content-Length: 5", body=b"hello"), unix=unix)
        assert [x.status for x in a] == [200], unix
        assert server.talk(request("GET /slow?ms=100 HTTP/1.1") + b"GET /hel", unix=unix)[0].status == 200
        assert server.talk(request("POST /echo HTTP/1.1", "Content-Length: 5", body=b"hel"), unix=unix) == [], "an incomplete request must have no answer"


@case
def ht05(server):
    """HT05 folded lines, blanks before the colon, empty names and control bytes are refused"""
    for header in (b"A: b\r\n c", b"A: b\r\n\tc", b"A : b", b"A\t: b", b": b", b" A: b", b"A: \x01b", b"A: b\x7f", b"A", b"A b: c", b"(A): b", b"A: b\x0bc",
                   b"\xc3\xa4: b", b"A@: b", b"A: b\r\n \r\n c"):
        refused(server, request("GET /hello HTTP/1.1", header))
    refused(server, b"GET /hello HTTP/1.1\r\n Host: localhost\r\n\r\n")
    refused(server, b"GET /hello HTTP/1.1\r\n\tA: b\r\nHost: localhost\r\n\r\n")
    for line in ("GET  /hello HTTP/1.1", "GET /hello  HTTP/1.1", "GET /hello HTTP/1.1 ", " GET /hello HTTP/1.1", "GET /hello", "GET", "GET /hello HTTP/2.0",
                 "GET /hello HTTP/1.2", "GET /hello http/1.1", "GET /hello HTTP/1.10", "GET\t/hello\tHTTP/1.1", "GET /hel lo HTTP/1.1", "GET /hello XTTP/1.1"):
        refused(server, request(line), (400, 505))


@case
def head_forms(server):
    """every form of head that the standard allows is accepted, in one piece or byte by byte"""
    for headers in (["A:b"], ["A:"], ["A: "], ["A:   b"], ["A:\tb\t"], ["A: b  "], ["A: ; \"x\" \xe9"], ["x-!#$%&'*+.^_`|~: y"], [f"H{i}: {i}" for i in range(90)],
                    ["A: " + "x" * 10000]):
        answers = server.talk(request("GET /hello HTTP/1.1", *headers))
        assert [a.status for a in answers] == [200], headers[0][:60]
    data = request("GET /show?a=b HTTP/1.1", "X-Test:  value ", *(f"H{i}: {'y' * i}" for i in range(40)))
    with server.connect() as c:
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(0, len(data), 3):
            c.sendall(data[i:i + 3])
        c.shutdown(socket.SHUT_WR)
        answers = parse(read_all(c))
    assert answers[0].status == 200 and b"X-Test: value\n" in answers[0].body, answers[0].body
    assert server.talk(b"\r\n" + GOOD)[0].status == 200
    assert server.talk(b"GET /hello HTTP/1.0\r\n\r\n")[0].status == 200


@case
def ht06(server):
    """HT06 request line, headers and their number are bounded"""
    assert refused(server, request(f"GET /{'x' * 9000} HTTP/1.1"), (414,)).error()["code"] == "uri_too_long"
    assert refused(server, request(f"GET /hello?{'x' * 65536} HTTP/1.1"), (414,)) is not None
    assert refused(server, request("GET /hello HTTP/1.1", "A: " + "x" * 40000), (431,)).error()["code"] == "headers_too_large"
    assert refused(server, request("GET /hello HTTP/1.1", *(f"H{i}: x" for i in range(101))), (431,)).error()["code"] == "headers_too_large"
    refused(server, request("GET /hello HTTP/1.1", *(f"H{i}: x" for i in range(10000))), (431,))
    refused(server, request("GET /hello HTTP/1.1", *(f"H{i}: {'x' * 100}" for i in range(10000))), (431,))
    refused(server, request(f"GET /{'x' * (1 << 20)} HTTP/1.1"), (414,))


@case
def ht07(server):
    """HT07 a body over the limit is refused before it is read, declared or not"""
    a = server.talk(request("POST /echo HTTP/1.1", f"Content-Length: {BIG}", body=b"x" * 2000))[0]
    assert a.status == 413 and a.error()["code"] == "body_too_large"
    a = server.talk(request("POST /echo HTTP/1.1", f"Content-Length: {8 << 20}", body=b"x" * (8 << 20)))[0]
    assert a.status == 413 and a.whole
    with server.connect() as c:
        sent = 0
        try:
            c.sendall(request("POST /echo HTTP/1.1", "Transfer-Encoding: chunked"))
            while sent < BIG:
                c.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536
        except OSError:
            pass
        answers = parse(read_all(c))
    assert [a.status for a in answers] == [413] and sent < BIG, (answers, sent)
    for path in ("/upload-small", "/items/x"):
        a = server.talk(request(f"PUT {path} HTTP/1.1", "Transfer-Encoding: chunked", body=b"20000\r\n" + b"x" * 0x20000 + b"\r\n0\r\n\r\n"))[0]
        assert a.status == 413, (path, a.status)
    a = server.talk(request("PUT /items/x HTTP/1.1", "Content-Length: 1001", body=b"x" * 1001) + GOOD)
    assert [x.status for x in a] == [413, 200], "a small unwanted body must not close the connection"


@case
def ht07_together(server):
    """HT07 bodies in progress are bounded together, and the memory is released"""
    with Server(buffered_max=2000000) as s:
        held = []
        for _ in range(2):
            c = s.connect()
            c.sendall(request("POST /echo HTTP/1.1", "Content-Length: 1000000", body=b"x" * 900000))
            held.append(c)
        until(lambda: s.get("/echo", method="POST", body=b"x" * 250000).status == 503, "more is accepted than the limit allows")
        a = s.get("/echo", method="POST", body=b"x" * 250000)
        assert a.status == 503 and a.headers["retry-after"] == "1" and a.error()["code"] == "service_unavailable"
        assert s.get("/echo", method="POST", body=b"x" * 1000).status == 200
        for c in held:
            c.close()
        until(lambda: s.get("/echo", method="POST", body=b"x" * 1000000).status == 200, "the memory was never released")


@case
def ht08(server):
    """HT08 slow heads hit their deadline, and others are served meanwhile"""
    with Server(head_ms=max(5000, 3 * MANY), idle_ms=5000, conns_max=MANY + 64, conns_per_addr=MANY + 64) as s:
        slow = [s.connect() for _ in range(MANY)]
        for c in slow:
            c.sendall(b"GET /hello HTTP/1.1\r\nHo")
        left, most, rounds = set(slow), 0, 0
        while left:  # each of them is closed, although some send a byte now and then
            rounds += 1
            for c in list(left)[::max(1, len(left) // 50)]:
                with contextlib.suppress(OSError):
                    c.sendall(b"s")
            counts = s.counts()
            most = max(most, counts["open"])
            assert s.get("/hello").status == 200
            ready = select.poll()
            for c in left:
                ready.register(c, select.POLLIN)
            gone = {fd for fd, _ in ready.poll(20)}
            for c in [c for c in left if c.fileno() in gone]:
                assert read_all(c) == b""
                left.discard(c)
        assert most > MANY // 4 and rounds > 2, (most, rounds)
        for c in slow:
            c.close()


@case
def ht08_full(server):
    """HT08 slow heads hold every connection until their deadline, and then others are served"""
    with Server(head_ms=3000, conns_max=100, conns_per_addr=MANY + 64) as s:
        slow = [s.connect() for _ in range(MANY // 4)]
        for c in slow:
            with contextlib.suppress(OSError):
                c.sendall(b"GET /hello HTTP/1.1\r\nHo")
        assert s.get("/hello").status == 200
        assert s.counts()["open"] <= 100 + 1, s.counts()
        for c in slow:
            c.close()
        until(lambda: s.counts()["open"] == 1, "a connection is not free again")


@case
def ht09_body(server):
    """HT09 a body that stops arriving is answered with 408"""
    with Server(body_ms=300) as s:
        for path, head in (("POST /echo", "Content-Length: 100"), ("PUT /upload", "Content-Length: 100"), ("PUT /upload", "Transfer-Encoding: chunked")):
            with s.connect() as c:
                c.sendall(request(f"{path} HTTP/1.1", head, body=b"5\r\nhel"))
                answers = parse(read_all(c))
            assert [a.status for a in answers] == [408], (path, head, answers)
    with Server(body_ms=5000) as s:
        with s.connect() as c:
            c.sendall(request("PUT /upload HTTP/1.1", "Content-Length: 10"))
            for _ in range(10):
                time.sleep(0.6)
                c.sendall(b"x")
            c.shutdown(socket.SHUT_WR)
            assert parse(read_all(c))[0].body == b"bytes 10\n", "a slow but steady body must be accepted"
        until(lambda: s.counts()["active"] == 1, "a request is still active")


@case
def ht09_reader(server):
    """HT09 a client that does not read is disconnected, and costs bounded memory"""
    with Server(write_ms=5000) as s:
        def rss():
            with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
                return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
        before = rss()
        readers = []
        for _ in range(20):
            c = s.connect()
            c.sendall(request("GET /stream?bytes=1000000000 HTTP/1.1"))
            readers.append(c)
        until(lambda: s.counts()["active"] == 21, "twenty requests are not active")
        grown = rss() - before
        assert grown < 20 * 1024, f"{grown} KiB for 20 clients"
        until(lambda: s.counts()["active"] == 1, "some requests are still active")
        assert s.counts()["gone"] == 20
        for c in readers:
            c.close()
        with s.connect() as c:
            c.sendall(request("GET /stream?bytes=30000000 HTTP/1.1", "Connection: close"))
            data, end = b"", time.monotonic() + 7
            while more := c.recv(1 << 18):
                data += more
                if time.monotonic() < end:
                    time.sleep(0.2)
        assert parse(data)[0].whole, "a slow but steady reader must get the complete answer"


@case
def ht10(server):
    """HT10 pipelined requests are answered in order, up to the first bad one"""
    many = b"".join(request(f"GET /items/{i} HTTP/1.1") for i in range(1000))
    with server.connect(timeout=30) as c:
        c.sendall(many)
        c.shutdown(socket.SHUT_WR)
        time.sleep(0.3) # the server wakes up once, not a thousand times
        answers = parse(read_all(c))
    assert [a.body.split(b"\n")[2] for a in answers] == [b"id %d" % i for i in range(1000)]
    mixed = b"".join(request(f"GET /slow?ms={20 - i} HTTP/1.1") if i % 2 else request(f"GET /items/{i} HTTP/1.1") for i in range(8))
    answers = server.talk(mixed + LAST, half_close=False)
    assert [a.status for a in answers] == [200] * 9 and answers.pop() and [a.body == b"later\n" for a in answers] == [False, True] * 4
    answers = server.talk(GOOD + request("GET /nothing HTTP/1.1") + GOOD + request("GET /hello HTTP/1.1", "A : b") + GOOD)
    assert [a.status for a in answers] == [200, 404, 200, 400]


@case
def ht11(server):
    """HT11 Expect: 100-continue is answered, refused early, and does not wait for ever"""
    with Server(body_ms=300) as s:
        with s.connect() as c:
            c.sendall(request("POST /echo HTTP/1.1", "Expect: 100-continue", "Content-Length: 5"))
            assert c.recv(100).startswith(b"HTTP/1.1 100 ")
            c.sendall(b"hello")
            c.shutdown(socket.SHUT_WR)
            assert parse(read_all(c))[0].body == b"hello"
        with s.connect() as c:
            c.sendall(request("POST /echo HTTP/1.1", "Expect: 100-continue", "Content-Length: 5"))
            assert [a.status for a in parse(read_all(c))] == [100, 408]
        for headers, status in ((["X-Deny: 1"], 401), (["X-Later: deny"], 401), ([], 413)):
            answers = s.talk(request("POST /echo HTTP/1.1", "Expect: 100-continue", f"Content-Length: {BIG if status == 413 else 5}", *headers), half_close=False)
            assert [a.status for a in answers] == [status]
        answers = s.talk(request("POST /echo HTTP/1.1", "Expect: the-moon", "Content-Length: 5", body=b"hello"))
        assert [a.status for a in answers] == [417]


@case
def ht12(server):
    """HT12 other forms of target and other methods are refused"""
    for line, statuses in (("GET http://localhost/hello HTTP/1.1", (400,)), ("GET * HTTP/1.1", (400,)), ("CONNECT localhost:80 HTTP/1.1", (400, 501)),
                           ("TRACE /hello HTTP/1.1", (405,)), ("QUERY /hello HTTP/1.1", (405,)), ("TRACE /nowhere HTTP/1.1", (404,)), ("get /hello HTTP/1.1", (501,)), ("BREW /hello HTTP/1.1", (501,)), ("GET hello HTTP/1.1", (400,)),
                           ("GET ?x HTTP/1.1", (400,)), ("G(T /hello HTTP/1.1", (400,)), (f"{'A' * 5000} /hello HTTP/1.1", (501, 414))):
        before = server.counts()["handled"]
        answers = server.talk(request(line))
        assert answers and answers[0].status in statuses, (line[:60], answers and answers[0].status)
        assert server.counts()["handled"] == before
    a = server.get("/hello", method="DELETE")
    assert a.status == 405 and a.headers["allow"] == "GET, HEAD, OPTIONS", a.headers
    assert server.get("/items/x", method="POST").headers["allow"] == "GET, HEAD, PUT, OPTIONS"
    a = server.get("*", method="OPTIONS")
    assert a.status == 204 and "TRACE" not in a.headers["allow"]
    assert server.get("/hello", method="OPTIONS").headers["allow"] == "GET, HEAD, OPTIONS"
    assert server.get("/nothing", method="OPTIONS").status == 404


@case
def ht13(server):
    """HT13 a missing, doubled or malformed Host is refused"""
    refused(server, request(host=None))
    refused(server, request("GET /hello HTTP/1.1", "Host: localhost"))
    for value in ("", "a b", "localhost/", "localhost:99999", "localhost:x", "user@localhost", "[::1", "[x]", "a,b", "localhost\t1", ".localhost", "a" * 300, "%6c"):
        refused(server, request(host=f"Host: {value}"))
    refused(server, request(host="Host: a/b"), unix=True)


@case
def wb02(server):
    """WB02 a foreign host name is refused (DNS rebinding), addresses and our names are not"""
    for value in ("evil.example", "localhost.evil.example", "cove.example.evil", "localhost.", "127.0.0.1.evil.example", "xcove.example", "evil.example:80"):
        answers = server.talk(request(host=f"Host: {value}"))
        assert [a.status for a in answers] == [421], value
    for value in ("localhost", "LOCALHOST:8700", "127.0.0.1", "127.0.0.1:80", "[::1]:80", "10.1.2.3", "cove.example", "Cove.Example:443"):
        assert server.talk(request(host=f"Host: {value}"))[0].status == 200, value
    assert server.talk(request(host="Host: anything"), unix=True)[0].status == 200


@case
def wb03(server):
    """WB03 a form or text/plain body is not accepted as JSON"""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx", "text/plain; application/json"):
        headers = [f"Content-Type: {kind}"] if kind else []
        a = server.get("/json", *headers, method="POST", body=b"{}")
        assert a.status == 415 and "application/json" in a.error()["message"], kind
    assert server.get("/json", "Content-Type: Application/JSON; charset=utf-8", method="POST", body=b"{}").status == 200


@case
def wb04(server):
    """WB04 only listed origins and our own may call, compared completely, without credentials"""
    for origin in ("null", "https://evil.example", "https://page.example.evil", "http://page.example", "https://page.example:444", "https://xpage.example",
                   "https://PAGE.example", "http://localhost:1", "https://page.example/", "*", ""):
        a = server.get("/hello", f"Origin: {origin}")
        assert a.status == 403 and "access-control-allow-origin" not in a.headers, origin
    for origin in ("https://page.example", "http://localhost", "https://localhost"):
        a = server.get("/hello", f"Origin: {origin}")
        assert a.status == 200 and a.headers["access-control-allow-origin"] == origin and "Origin" in a.headers["vary"]
        assert "access-control-allow-credentials" not in a.headers
    a = server.get("/items/x", "Origin: https://page.example", "Access-Control-Request-Method: PUT", method="OPTIONS")
    assert a.status == 204 and "PUT" in a.headers["access-control-allow-methods"] and "Authorization" in a.headers["access-control-allow-headers"]


@case
def ht14(server):
    """HT14 a path is decoded once, and ambiguous or climbing paths are refused"""
    for path in ("/items/..", "/items/../hello", "/items/%2e%2e", "/items/%2E%2e%2fhello", "/items/x/files/%2e%2e%2f%2e%2e%2fhello", "//hello", "/hello//", "/./hello",
                 "/items/x/files/a//b", "/items/x/files/a/./b", "/items/x/files/a/..", "/items/%00", "/items/x%00y", "/items/%c0%ae%c0%ae", "/items/%c0%af", "/items/%ff",
                 "/items/%ed%a0%80", "/items/%", "/items/%2", "/items/%zz", "/items/x#y", "/items/\xe4", "/items/x/files/a%2f%2fb", "/items/x/files/%2f",
                 "/items/x/files/a%2f..", "/items/.", "/items/%2e"):
        refused(server, request(f"GET {path} HTTP/1.1"))
    for path, seen in (("/items/%252e%252e", b"id %2e%2e\n"), ("/items/..%3b", b"id ..;\n"), ("/items/..;", b"id ..;\n"), ("/items/a%5cb", b"id a\\b\n"), ("/items/a\\..\\b", b"id a\\..\\b\n"),
                       ("/items/x.", b"id x.\n"), ("/items/...", b"id ...\n"), ("/items/x/files/a%2fb/c", b"path a/b/c\n"), ("/items/x/files/a/b/", b"path a/b/\n"),
                       ("/items/x/files/", b"path \n"), ("/items/x/files", b"path \n"), ("/items/%e2%82%ac", "id \u20ac\n".encode()), ("/it%65ms/x", b"id x\n"), ("/items/a+b", b"id a+b\n")):
        a = server.get(path)
        assert a.status == 200 and seen in a.body, (path, a.status, a.body)
    for path in ("/hello/", "/items/", "/HELLO", "/hello%20", "/hello;x", "/hello%2f"):
        assert server.get(path).status in (404, 400), path


@case
def ht15(server):
    """HT15 headers that would change method or target change nothing"""
    before = server.counts()["handled"]
    a = server.get("/nothing", "X-HTTP-Method-Override: PUT", "X-HTTP-Method: PUT", "X-Original-URL: /hello", "X-Rewrite-URL: /hello", "X-Forwarded-Prefix: /hello")
    assert a.status == 404 and server.counts()["handled"] == before
    a = server.get("/show", "X-HTTP-Method-Override: DELETE", "X-Method-Override: DELETE")
    assert b"method GET\npattern /show\n" in a.body


@case
def ht16(server):
    """HT16 forwarding headers do not change the address of the client"""
    a = server.get("/show", "X-Forwarded-For: 10.9.9.9", "Forwarded: for=10.9.9.9", "X-Real-IP: 10.9.9.9", "X-Forwarded-Host: evil.example")
    assert b"addr 127.0.0.1\n" in a.body and b"Host: localhost\n" in a.body
    a = server.get("/show", "X-Forwarded-For: 10.9.9.9", unix=True)
    assert b"uid %d\n" % os.getuid() in a.body, a.body


@case
def ht17_ranges(server):
    """HT17 ranges are bounded and their lengths are correct"""
    with tempfile.NamedTemporaryFile() as f:
        f.write(bytes(range(256)) * 4)
        f.flush()
        content = bytes(range(256)) * 4
        with Server(file=f.name) as s:
            whole = s.get("/file")
            tag = whole.headers["etag"]
            assert whole.body == content and whole.headers["accept-ranges"] == "bytes"
            for value, want in (("bytes=0-0", (0, 1)), ("bytes=-1", (1023, 1)), ("bytes=-5000", (0, 1024)), ("bytes=1000-", (1000, 24)), ("bytes=10-19", (10, 10)),
                                ("bytes=1000-99999", (1000, 24)), ("bytes=1023-18446744073709551615", None), ("bytes=5-2", None), ("bytes=", None), ("bytes=-", None),
                                ("bytes=a-b", None), ("items=0-1", None), ("bytes=0-1,3-4", None), ("bytes=" + ",".join(["0-1"] * 3000), None), ("bytes=0-1,", None)):
                a = s.get("/file", f"Range: {value}")
                if want:
                    assert a.status == 206 and a.body == content[want[0]:want[0] + want[1]], (value, a.status)
                    assert a.headers["content-range"] == f"bytes {want[0]}-{want[0] + want[1] - 1}/1024"
                else:
                    assert a.status == 200 and a.body == content, (value[:40], a.status)
            for value in ("bytes=1024-", "bytes=-0", "bytes=9999-99999"):
                a = s.get("/file", f"Range: {value}")
                assert a.status == 416 and a.headers["content-range"] == "bytes */1024", value
            assert s.get("/file", "Range: bytes=0-0", f"If-Range: {tag}").status == 206
            assert s.get("/file", "Range: bytes=0-0", 'If-Range: "other"').status == 200
            assert s.get("/file", f"If-None-Match: {tag}").status == 304
            assert s.get("/file", f'If-None-Match: "x", W/{tag}').status == 304
            assert s.get("/file", 'If-None-Match: "x"').status == 200
            assert s.get("/file", f"If-Match: {tag}").status == 200
            assert s.get("/file", 'If-Match: "x"').error()["code"] == "precondition_failed"


@case
def ht17_head(server):
    """HT17 HEAD has the headers of GET and no body, and the connection stays open"""
    for path, length in (("/hello", "17"), ("/file", None), ("/stream?bytes=1000&known=1", "1000"), ("/stream?bytes=1000", None), ("/nothing", None)):
        with server.connect() as c:
            c.sendall(request(f"HEAD {path} HTTP/1.1") + request("HEAD /hello HTTP/1.1", "Connection: close"))
            answers = parse(read_all(c), head=True)
        closes = [] if path == "/stream?bytes=1000" else [200] # an answer without a length ends with its connection
        assert [a.status for a in answers] == [404 if path == "/nothing" else 200] + closes, path
        assert length is None or answers[0].headers["content-length"] == length, answers[0].headers


@case
def ht18(server):
    """HT18 a compressed body is refused"""
    for coding in ("gzip", "deflate", "br", "gzip, identity"):
        assert server.get("/echo", f"Content-Encoding: {coding}", method="POST", body=b"x").status == 415
    assert server.get("/echo", "Content-Encoding: identity", method="POST", body=b"x").status == 200


@case
def ht19_full(server):
    """HT19 a full server closes the longest idle connection, and continues to answer"""
    with Server(conns_max=50, conns_per_addr=MANY + 64) as s:
        idle = []
        for _ in range(MANY):
            c = s.connect()
            c.sendall(GOOD)
            idle.append(c)
        assert s.get("/hello").status == 200
        counts = s.counts()
        assert counts["open"] <= 50, counts
        used = counts["cpu_ms"]
        time.sleep(0.5)
        assert s.counts()["cpu_ms"] - used < 60
        for c in idle:
            c.close()


@case
def ht19_descriptors(server):
    """HT19 without descriptors the server stops accepting, without a busy loop, and recovers"""
    with Server(nofile=40, conns_per_addr=10000) as s:
        held = []
        for _ in range(100):
            c = s.connect()
            c.sendall(GOOD)
            held.append(c)
        time.sleep(0.3)
        first = s.counts()
        time.sleep(0.6)
        assert s.counts()["cpu_ms"] - first["cpu_ms"] < 100, "the server is busy while it cannot accept"
        for c in held:
            c.close()
        assert s.get("/hello").status == 200


@case
def ht19_address(server):
    """HT19 one address cannot take all connections"""
    with Server(conns_per_addr=10) as s:
        held = [s.connect() for _ in range(10)]
        for c in held:
            c.sendall(GOOD)
            assert c.recv(1000)
        with s.connect() as c:
            assert read_all(c) == b""
        assert s.get("/hello", unix=True).status == 200, "connections of others must not be counted"
        held.pop().close()
        until(lambda: [a.status for a in s.talk(LAST, half_close=False)] == [200], "the connection is not free again")
        for c in held:
            c.close()


@case
def ht22(server):
    """HT22 no part of a request can split a header of the answer"""
    for value in ("a%0d%0aSet-Cookie:%20x=1", "a%0aX:%20y", "a%0d%0d", "a%01b%7f"):
        a = server.get(f"/header?value={value}")
        assert a.status == 200 and "set-cookie" not in a.headers and "x" not in a.headers, a.headers
        assert re.fullmatch(r"[\x20-\x7e]*", a.headers["x-given"])
        a = server.get(f"/file?name={value}%22;%20x=")
        assert a.status == 200 and "set-cookie" not in a.headers
        assert re.fullmatch(r"attachment; filename=\"[A-Za-z0-9._-]+\"; filename\*=UTF-8''[A-Za-z0-9._%-]+", a.headers["content-disposition"]), a.headers
    a = server.get("/fail?what=%0d%0aSet-Cookie:%20x=1%22%3Cscript%3E")
    assert a.status == 409 and a.headers["content-type"] == "application/json" and "\r\nSet-Cookie" in a.error()["message"]
    for given in ("a b", "x" * 65, "a\"b", "<script>", "a;b", "\xe4"):
        assert server.get("/hello", f"X-Request-Id: {given}").headers["x-request-id"] != given
    assert server.get("/hello", "X-Request-Id: trace-1.2_3").headers["x-request-id"] == "trace-1.2_3"


# --- guarantees for handlers ---

@case
def errors(server):
    """an error has code, message, docs, request id and details, cause and fix only if specific, and
    hides errno texts"""
    a = server.get("/fail?what=thing", "X-Request-Id: abc")
    e = a.error()
    assert a.status == 409 and e["code"] == "conflict" and e["message"] == "there is a thing already" and e["requestId"] == "abc" and e["details"] == {"field": "name"}
    assert e["docs"].endswith("conflict") and "cause" not in e and "fix" not in e, e
    a = server.get("/fail?sys=1")
    assert a.status == 500 and b"secret" not in a.body
    e = server.get("/hallo").error()
    assert e["code"] == "route_not_found" and "/hello" in e["message"]
    assert "did you mean" not in server.get("/something/else/altogether").error()["message"]
    assert "'ms'" not in server.get("/slow?ms=x").error()["message"] and server.get("/slow?ms=x").status == 400
    assert server.get("/slow?ms=1&ms=2").status == 400


@case
def routing(server):
    """a literal wins over a parameter, and an unexpected body is refused"""
    assert b"pattern /items/special\n" in server.get("/items/special").body
    assert b"pattern /items/{id}\n" in server.get("/items/other").body
    assert server.get("/items/special", method="PUT", body=b"x").body == b"x"
    assert server.get("/hello", body=b"x").status == 400
    assert b"query a=b c\nquery d=\n" in server.get("/show?a=b+c&d").body


@case
def waiting(server):
    """handlers answer late, out of order over connections, and over a connection that stays open"""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: server.talk(request(f"GET /slow?ms={i * 7 % 50} HTTP/1.1") * 3 + LAST, half_close=False),
                                range(32)))
    assert all([a.status for a in each] == [200] * 4 for each in answers)


@case
def no_clock(server):
    """no deadline of the connection runs while a handler has the request"""
    with Server(head_ms=2500, body_ms=2500, idle_ms=2500, write_ms=2500) as s:
        assert s.get("/slow?ms=3500").body == b"later\n"
        assert s.get("/upload?hold=3500", method="PUT", body=b"x" * 2000).body == b"bytes 2000\n"


@case
def hook(server):
    """the hook answers or passes, immediately or later, before the body is requested"""
    a = server.get("/hello", "X-Deny: 1")
    assert a.error()["code"] == "unauthorized" and a.headers["www-authenticate"] == "Bearer"
    assert server.get("/hello", "X-Later: deny").status == 401
    assert server.get("/hello", "X-Later: pass").status == 200
    assert server.get("/echo", "X-Later: pass", method="POST", body=b"hello").body == b"hello"
    assert server.get("/upload", "X-Later: pass", method="PUT", body=b"x" * 300000).body == b"bytes 300000\n"
    answers = server.talk(request("POST /echo HTTP/1.1", "X-Deny: 1", "Content-Length: 5", body=b"hello") + GOOD)
    assert [a.status for a in answers] == [401, 200]
    a = server.talk(request("PUT /upload HTTP/1.1", "X-Deny: 1", f"Content-Length: {8 << 20}", body=b"x" * (8 << 20)))
    assert [x.status for x in a] == [401] and a[0].whole, "a large body must not cost the client its answer"
    with server.connect() as c:
        c.sendall(request("GET /hello HTTP/1.1", "X-Later: pass"))
    until(lambda: server.counts()["active"] == 1, "a request is still active")


@case
def uploads(server):
    """a streamed body is counted, paused, and answered before its end"""
    assert server.get("/upload", method="PUT", body=b"x" * 5000000).body == b"bytes 5000000\n"
    assert server.get("/upload?hold=1", method="PUT", body=b"x" * 100000).body == b"bytes 100000\n"
    assert server.get("/upload", method="PUT").body == b"bytes 0\n"
    pieces = b"".join(b"%x\r\n%s\r\n" % (n, b"y" * n) for n in range(1, 400)) + b"0\r\n\r\n"
    assert server.talk(chunked(pieces, "PUT /upload HTTP/1.1"))[0].body == b"bytes %d\n" % sum(range(1, 400))
    assert server.talk(chunked(pieces))[0].body == b"".join(b"y" * n for n in range(1, 400))
    a = server.get("/upload?stop=1000", method="PUT", body=b"x" * (8 << 20))
    assert a.status == 507 and a.error()["code"] == "disk_full" and a.headers["connection"] == "close"
    with server.connect() as c:
        c.sendall(request("PUT /upload?stop=10 HTTP/1.1", "Content-Length: 100000000", body=b"x" * 20))
        assert parse(read_all(c))[0].status == 507, "the same must hold when the client waits"
    with server.connect() as c:
        c.sendall(request("PUT /upload?stop=10 HTTP/1.1", "Content-Length: 1000", body=b"x" * 20))
        time.sleep(0.05)
        c.sendall(b"x" * 980 + GOOD)
        c.shutdown(socket.SHUT_WR)
        assert [a.status for a in parse(read_all(c))] == [507, 200]


@case
def held_body(server):
    """a paused body applies back-pressure to the client"""
    with Server() as s, s.connect() as c:  # a server of its own: the sent bytes will be read for hours
        c.sendall(request("PUT /upload?hold=1000 HTTP/1.1", f"Content-Length: {BIG}"))
        c.setblocking(False)
        sent, until = 0, time.monotonic() + 0.8
        while time.monotonic() < until:
            if select.select([], [c], [], 0.05)[1]:
                try:
                    sent += c.send(b"x" * 65536)
                except BlockingIOError:
                    pass
        assert sent < 24 << 20, f"{sent} bytes were accepted"


@case
def streams(server):
    """a streamed answer arrives complete, and a broken one differs from a complete one"""
    for query, whole in (("bytes=3000000", True), ("bytes=3000000&known=1", True), ("bytes=0", True), ("bytes=1000&break=1", False)):
        a = server.get(f"/stream?{query}")
        assert a.whole == whole, query
        if whole:
            assert len(a.body) == int(query.split("=")[1].split("&")[0])
    a = server.talk(request("GET /stream?bytes=100000 HTTP/1.1") + GOOD)
    assert [x.status for x in a] == [200, 200] and len(a[0].body) == 100000
    with server.connect() as c:
        c.sendall(b"GET /stream?bytes=100000 HTTP/1.0\r\n\r\n")
        data = read_all(c)
    assert b"chunked" not in data and len(data.partition(b"\r\n\r\n")[2]) == 100000
    a = server.get("/events")
    assert a.headers["content-type"] == "text/event-stream"
    assert a.body == b"id: 1\nevent: note\ndata: one\ndata: two\n\nid: 2\ndata: three\ndata: \ndata: four\n\n", a.body
    a = server.get("/lines")
    assert a.headers["content-type"] == "application/x-ndjson" and a.body == b'{"n":0}\n{"n":1}\n{"n":2}\n'


@case
def silent_streams(server):
    """TCP keepalive probes a client that listens to a silent stream"""
    def probed(port):
        with open("/proc/net/tcp", encoding="ascii") as f:
            ends = f":{server.port:04X}", f":{port:04X}"
            lines = [x.split() for x in f.readlines()[1:]]
        return any(x[1].endswith(ends[0]) and x[2].endswith(ends[1]) and x[5].startswith("02:") for x in lines)
    with server.connect() as c:
        c.sendall(GOOD)
        assert c.recv(1000).startswith(b"HTTP/1.1 200")
        assert not probed(c.getsockname()[1]), "an immediate answer must not enable keepalive"
        c.sendall(request("GET /stream?bytes=10 HTTP/1.1"))
        until(lambda: probed(c.getsockname()[1]), "keepalive is not enabled")


@case
def gone(server):
    """a handler is notified when its client disconnects"""
    def told(n):
        until(lambda: server.counts()["gone"] == before + n, f"{n} times")

    def under_way():
        until(lambda: server.counts()["active"] == 2, "the request never arrived")

    until(lambda: server.counts()["active"] == 1, "the previous request is not finished")
    before = server.counts()["gone"]
    with server.connect(unix=True) as c:
        c.sendall(request("GET /slow?ms=60000&watch=1 HTTP/1.1"))
        under_way()
    told(1)
    with server.connect() as c:
        c.sendall(request("GET /stream?bytes=1000000000 HTTP/1.1"))
        c.recv(1000)
    told(2)
    with server.connect() as c:
        c.sendall(request("PUT /upload HTTP/1.1", "Content-Length: 1000", body=b"x"))
        under_way()
    told(3)
    with server.connect() as c:  # a reset, as sent by a killed client with unread bytes
        c.sendall(request("GET /slow?ms=60000&watch=1 HTTP/1.1"))
        under_way()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    told(4)


@case
def done_log(server):
    """every request is reported once when it is done, including refused ones"""
    server.get("/log")
    server.get("/items/x", "X-Request-Id: one")
    server.get("/nothing", "X-Request-Id: two")
    server.get("/echo", "X-Request-Id: three", "X-Deny: 1", method="POST", body=b"abc")
    server.get("/stream?bytes=1000", "X-Request-Id: four")
    server.talk(request("GET /hello HTTP/1.1", "X-Request-Id: five", "A : b"))
    lines = [line.split(" ", 1) for line in server.get("/log").body.decode().splitlines()]
    told = dict(lines)
    assert told["one"].startswith("GET /items/x /items/{id} 200 whole in=0") and told["one"].endswith("user=user-1")
    assert told["two"].startswith("GET /nothing - 404 whole") and told["two"].endswith("user=-")
    assert told["three"].startswith("POST /echo /echo 401 whole in=3")
    assert told["four"].startswith("GET /stream /stream 200 whole in=0 out=1000 ")
    assert sum(" 400 whole" in rest for _, rest in lines) == 1 and len(lines) == 5


@case
def drain(server):
    """draining finishes active requests, closes idle connections, and accepts no more"""
    with Server(drain_ms=60000) as s:
        idle, busy, fresh = s.connect(), s.connect(), s.connect()
        idle.sendall(GOOD)
        assert idle.recv(1000)
        busy.sendall(request("GET /slow?ms=5000 HTTP/1.1"))
        until(lambda: s.counts()["active"] == 2, "the request never arrived")
        s.process.send_signal(signal.SIGTERM)
        assert read_all(idle) == b"" and read_all(fresh) == b""
        try:
            s.connect().close()
            assert False, "a connection was accepted while draining"
        except ConnectionRefusedError:
            pass
        answers = parse(read_all(busy))
        assert answers[0].body == b"later\n" and answers[0].headers["connection"] == "close"
        assert s.process.wait(timeout=60) == 0 and not os.path.exists(s.unix)
    with Server() as s:
        stuck = s.connect()
        stuck.sendall(request("GET /slow?ms=60000 HTTP/1.1"))
        until(lambda: s.counts()["active"] == 2, "the request never arrived")
        began = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        assert read_all(stuck) == b"" and time.monotonic() - began < 30


@case
def quiet(server):
    """an idle server does not run its loop"""
    with Server() as s:
        held = [s.connect() for _ in range(20)]
        for c in held[:10]:
            c.sendall(GOOD)
        waiting = s.connect()
        waiting.sendall(request("GET /slow?ms=60000 HTTP/1.1"))

        def switches():
            with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
                return int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", f.read()).group(1))

        def still():
            before = switches()
            time.sleep(0.5)
            return switches() - before <= 3
        until(still, "the loop wakes up without end")
        for c in held + [waiting]:
            c.close()


def run_cases(cases, wanted):
    """Runs the (name, function) pairs that the command line chooses against one server; returns
    whether any failed."""
    cases = Choice(wanted).of(cases, lambda case: case[0])
    print(f"1..{len(cases)}")
    failed = False
    with Server(conns_per_addr=2000) as server:
        for number, (name, function) in enumerate(cases, 1):
            try:
                function(server)
                print(f"ok {number} - {name}", flush=True)
            except (AssertionError, OSError, EOFError, subprocess.TimeoutExpired, KeyError, IndexError, ValueError) as error:
                failed = True
                print(f"not ok {number} - {name}")
                trace = error.__traceback__
                while trace.tb_next and trace.tb_next.tb_frame.f_code.co_filename in (__file__, function.__code__.co_filename):
                    trace = trace.tb_next
                print(f"# line {trace.tb_lineno}: {type(error).__name__} {str(error)[:500]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[2:]))
