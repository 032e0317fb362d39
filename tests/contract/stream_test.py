#!/usr/bin/env python3
"""stream_test.py API_TESTD RUNTIME - the WebSocket of a sandbox and its terminals, over real
sandboxes; prints TAP.

A case whose name begins with WBnn or AUnn is a case of the attack catalogue. Needs root.
"""
import base64
import contextlib
import datetime
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
import traceback

import api_test
import ws_test
from api_test import Server
from ws_test import CLOSE, PING, PONG, TEXT, bounded, frame

CASES = []


def case(function):
    CASES.append(function)
    return function


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status} {body[:200]!r}")
        self.status, self.body = status, body


class Stream(ws_test.Waiting):
    """The WebSocket of a sandbox: messages as dicts."""

    def __init__(self, server, sandbox, query="", key=True, headers=(), timeout=60):
        self.s = socket.create_connection(("127.0.0.1", server.port), timeout)
        self.data, self.seq, self.closed = b"", 0, None
        lines = list(headers)
        if key:
            lines.append("Authorization: Bearer " + (key if isinstance(key, str) else server.key))
        self.s.sendall(ws_test.handshake(*lines, path=f"/v1/sandboxes/{sandbox}/stream{query}"))
        while b"\r\n\r\n" not in self.data:
            self.more()
        top, _, self.data = self.data.partition(b"\r\n\r\n")
        self.head = top.decode()
        if not top.startswith(b"HTTP/1.1 101 "):
            while len(self.data) < int(re.search(r"Content-Length: (\d+)", self.head).group(1)):
                self.more()
            self.s.close()
            raise Refused(int(top.split()[1]), self.data)

    def send(self, type_, **fields):
        self.s.sendall(frame(TEXT, json.dumps({"type": type_, **fields}).encode()))

    @bounded
    def receive(self):
        """The next message; None when the socket was closed, with its code in `closed`."""
        while True:
            op, data = self.read()
            if op == PING:
                self.s.sendall(frame(PONG, data))
            elif op == CLOSE:
                self.closed = int.from_bytes(data[:2], "big") if data else 1005
                self.reason = data[2:].decode()
                with contextlib.suppress(OSError):
                    self.s.sendall(frame(CLOSE, data))
                return None
            elif op == TEXT:
                m = json.loads(data)
                assert m["seq"] == self.seq + 1, f"{m} after {self.seq}"
                self.seq = m["seq"]
                assert abs(datetime.datetime.fromisoformat(m["at"].replace("Z", "+00:00")).timestamp() - time.time()) < 600
                return m

    @bounded
    def until(self, *types, **fields):
        """The next message of one of these types with these fields; those before it go to
        `skipped`."""
        self.skipped = []
        while True:
            m = self.receive()
            assert m is not None, f"closed with {self.closed} while waiting for {types}: {self.skipped[-3:]}"
            if m["type"] in types and all(m.get(k) == v for k, v in fields.items()):
                return m
            self.skipped.append(m)

    @bounded
    def output(self, name=None, stream="stdout"):
        """All output of an execution up to its end, and the end."""
        pieces = []
        while True:
            m = self.until("output", "end")
            if name and name not in (m["executionId"], m.get("label")):
                continue
            if m["type"] == "end":
                return b"".join(pieces), m
            if m["stream"] == stream:
                pieces.append(piece(m))

    @bounded
    def shown(self, text, name=None):
        """Reads until the output contains this text."""
        whole = b""
        while text.encode() not in whole:
            m = self.until("output")
            if name is None or name in (m["executionId"], m.get("label")):
                whole += piece(m)
        return whole


def piece(m):
    return base64.b64decode(m["base64"]) if "base64" in m else m["data"].encode()


def terminal(server, sandbox, **more):
    a = server.execute(sandbox, dict({"tty": True, "background": True}, **more))
    assert a.status == 202 and a.json["tty"] is True, a.body
    return a.json["id"]


@case
def an_execution_is_started_followed_and_ended(server, box):
    with Stream(server, box, headers=["Sec-WebSocket-Protocol: cove.v1", "X-Request-Id: socket-1"]) as c:
        assert "Sec-WebSocket-Protocol: cove.v1" in c.head
        assert c.receive()["state"] == "running"
        c.send("execute", label="one", isolated=True, code="import sys; print('hello'); print('oh', file=sys.stderr); sys.exit(3)")
        start = c.until("started")
        assert start["label"] == "one" and re.fullmatch("ex[a-z2-7]{20}", start["execution"]["id"]) and start["executionId"] == start["execution"]["id"]
        told = {"stdout": b"", "stderr": b""}
        while (m := c.receive())["type"] == "output":
            assert m["label"] == "one" and m["offset"] == len(told[m["stream"]])
            told[m["stream"]] += piece(m)
        assert told == {"stdout": b"hello\n", "stderr": b"oh\n"}
        assert m["type"] == "end" and m["execution"]["exitCode"] == 3 and m["execution"]["endedBy"] == "exit"
        assert server.call("GET", f"/v1/sandboxes/{box}/executions/{start['execution']['id']}").json["exitCode"] == 3
        receipt = server.call("GET", f"/v1/sandboxes/{box}/executions/{start['execution']['id']}/receipt").json
        assert receipt["requestId"] == "socket-1", receipt
        c.send("execute", command="echo $0 $((6*7))")
        start = c.until("started")
        assert start["executionId"] == start["execution"]["id"]
        assert c.output()[0].split()[-1] == b"42"
        c.send("execute", command=["cat"], stdin="through")
        assert c.output()[0] == b"through"


@case
def many_executions_share_a_socket(server, box):
    with Stream(server, box) as c:
        for i in range(10):
            c.send("execute", label=f"e{i}", command=f"for n in 1 2 3; do echo {i}-$n; sleep 0.02; done; exit {i}")
        got, codes = {}, {}
        while len(codes) < 10:
            m = c.until("output", "end")
            if m["type"] == "output":
                got[m["label"]] = got.get(m["label"], "") + m["data"]
            else:
                codes[m["label"]] = m["execution"]["exitCode"]
        assert codes == {f"e{i}": i for i in range(10)}
        assert got == {f"e{i}": f"{i}-1\n{i}-2\n{i}-3\n" for i in range(10)}


@case
def binary_output_arrives_unchanged(server, box):
    with Stream(server, box) as c:
        c.send("execute", code="import os,sys\nfor i in range(64): sys.stdout.buffer.write(bytes(range(256)) * 16)\nsys.stdout.buffer.write('\\u20ac'.encode()*9999)")
        got, _ = c.output()
        assert got == bytes(range(256)) * 1024 + "\u20ac".encode() * 9999


@case
def input_is_written_and_acknowledged(server, box):
    with Stream(server, box) as c:
        c.send("execute", label="cat", command=["cat"], stdinOpen=True)
        c.until("started")
        c.send("stdin", label="cat", data="abc")
        assert c.until("stdin_ack")["stdinBytes"] == 3
        c.send("stdin", label="cat", base64=base64.b64encode(b"\x00\xff").decode(), offset=3)
        c.send("stdin", label="cat", data="abcde", offset=0)  # the bytes that the sandbox already has are skipped
        c.send("stdin", label="cat", data="x", offset=99)
        assert c.until("error")["error"]["code"] == "conflict"
        c.send("stdin", label="cat", data="!", close=True)
        _, end = c.output()
        assert end["execution"]["exitCode"] == 0
        whole = server.call("GET", f"/v1/sandboxes/{box}/executions/{end['execution']['id']}/output").body
        assert whole == b"abc\x00\xff!", whole


@case
def WB07_input_that_is_not_read_blocks_the_client_and_not_the_server(server, box):
    with Stream(server, box) as c:
        c.send("execute", label="deaf", command=["sleep", "60"], stdinOpen=True)
        c.until("started")
        c.s.settimeout(1)
        sent, data = 0, frame(TEXT, json.dumps({"type": "stdin", "label": "deaf", "data": "x" * 60000}).encode())
        with contextlib.suppress(socket.timeout):
            while sent < 64 << 20:
                sent += c.s.send(data)
        assert sent < 64 << 20, "the server accepted everything"
    for one in server.call("GET", f"/v1/sandboxes/{box}/executions?state=running").json["items"]:
        server.call("POST", f"/v1/sandboxes/{box}/executions/{one['id']}/cancel")


@case
def a_client_that_reconnects_misses_nothing(server, box):
    with Stream(server, box) as c:
        c.send("execute", label="count", code="import time\nfor i in range(60): print(i, flush=True); time.sleep(0.03)")
        start = c.until("started")
        ident, got = start["execution"]["id"], b""
        while len(got) < 40:
            m = c.until("output")
            assert m["offset"] == len(got)
            got += piece(m)
        c.s.close()
    for n in range(3):
        with Stream(server, box) as c:
            c.send("resume", executionId=ident, label=f"again{n}", stdoutOffset=len(got))
            start = c.until("started")
            assert start["label"] == f"again{n}" and start["stdoutOffset"] == len(got)
            if n < 2:
                m = c.until("output", "end")  # all output may have arrived by now
                if m["type"] == "output":
                    assert m["offset"] == len(got)
                    got += piece(m)
                c.s.close()
            else:
                rest, end = c.output()
                got += rest
    assert got == b"".join(b"%d\n" % i for i in range(60)) and end["execution"]["exitCode"] == 0
    with Stream(server, box) as c:  # an ended execution is reported in the same way
        c.send("resume", executionId=ident, stdoutOffset=len(got) - 3)
        assert c.output() [0] == b"59\n"
        c.send("resume", executionId=ident, tailBytes=6)
        assert c.output()[0] == b"58\n59\n"
        c.send("resume", executionId=ident, stdoutOffset=len(got) + 1)
        assert c.until("error")["error"]["code"] == "range_not_satisfiable"


@case
def an_execution_id_of_the_client_is_started_once(server, box):
    ident = "ex" + base64.b32encode(os.urandom(13)).decode().lower()[:20]
    for _ in range(2):
        with Stream(server, box) as c:
            c.send("execute", executionId=ident, command="echo once >> once; echo done")
            assert c.until("started")["execution"]["id"] == ident
            assert c.output()[0] == b"done\n"
    assert server.execute(box, {"command": ["cat", "once"]}).json["stdout"] == "once\n"


@case
def a_socket_resumes_after_the_server_was_killed(server, box):
    with Stream(server, box) as c:
        c.send("execute", label="long", stdinOpen=True, isolated=True,
               code="import sys,time\nfor i in range(100): print(i, flush=True); time.sleep(0.03)\nprint(sys.stdin.read())")
        ident = c.until("started")["execution"]["id"]
        c.send("stdin", label="long", data="first")
        got = piece(c.until("output"))
        assert any(m["type"] == "stdin_ack" for m in c.skipped) or c.until("stdin_ack")
        got += b"".join(piece(m) for m in c.skipped if m["type"] == "output" and m["offset"] == len(got))
        server.kill()
    server.start()
    end = time.monotonic() + 60
    while True:
        with Stream(server, box) as c:
            c.send("resume", executionId=ident, stdoutOffset=len(got))
            m = c.until("started", "error")
            if m["type"] == "error":
                assert m["error"]["code"] == "service_unavailable" and time.monotonic() < end, m
                time.sleep(0.1)
                continue
            assert m["stdinBytes"] == 5
            c.send("stdin", executionId=ident, data="first", offset=0)
            c.send("stdin", executionId=ident, data=" second", offset=5, close=True)
            whole = b""
            while (m := c.until("output", "end", "error"))["type"] == "output":
                whole += piece(m)
            assert m["type"] == "end", m
            break
    assert got + whole == b"".join(b"%d\n" % i for i in range(100)) + b"first second\n", (got, whole)


@case
def errors_are_reported_and_the_socket_stays_open(server, box):
    with Stream(server, box) as c:
        c.receive()
        for text in ("", "[]", "{", '{"type":"execute"}', '{"type":"fly"}', '{"a":1}', '{"type":1}', '{"type":"ping","type":"ping"}', '{"type":"execute","code":"1","unknown":1}',
                     '{"type":"execute","mode":"code","content":"1"}', '{"type":"execute","executionId":"one","code":"1"}',
                     '{"type":"execute","code":"1","rows":5}', '{"type":"execute","label":"a b","code":"1"}', '{"type":"execute","label":"' + "a" * 65 + '","code":"1"}',
                     '{"type":"cancel"}', '{"type":"cancel","label":"none"}', '{"type":"stdin","label":"none","data":"x"}', '{"type":"resume","label":"none"}',
                     '{"type":"resume","executionId":"ex' + "a" * 20 + '"}', '{"type":"execute","tty":true,"rows":0}', '{"type":"execute","tty":true,"stdin":"x"}',
                     '{"type":"ping","timestamp":1,"x":2}', "[" * 1000):
            c.s.sendall(frame(TEXT, text.encode()))
            m = c.receive()
            assert m["type"] == "error" and m["error"]["code"] in ("invalid_request", "not_found") and m["error"]["message"], (text, m)
        for wrong in ({"code": 1}, {"code": "1", "unknown": 1}, {"mode": "code", "code": "1"}, {"tty": True, "rows": 0}):
            for name in ("a" * 20, "b" * 33, "c" * 64):
                c.send("execute", label=name, **wrong)
                m = c.receive()
                assert m["type"] == "error" and m["label"] == name, m
        c.send("execute", label="gone", command=["/no/such"])
        m = c.until("error", "end", label="gone")
        assert m["type"] == "end" and m["execution"]["outcome"] == "error" and m["execution"]["error"]["code"] == "program_not_found", m
        c.send("ping", timestamp=7)
        assert c.until("pong")["timestamp"] == 7
        c.s.sendall(frame(2, b"\x00"))
        assert c.receive() is None and c.closed == 1003


@case
def cancel_signal_and_timeout_end_an_execution(server, box):
    with Stream(server, box) as c:
        for name in ("killed", "signalled"):
            c.send("execute", label=name, command="echo up; exec sleep 60")
            c.shown("up", name)
        c.send("cancel", label="killed")
        assert c.until("end", label="killed")["execution"]["endedBy"] == "killed"
        c.send("signal", label="signalled", signal="SIGTERM")
        assert c.until("end", label="signalled")["execution"]["signal"] == 15
        c.send("execute", label="late", command=["sleep", "60"], timeoutMs=200)
        assert c.until("error", "end", label="late")["execution"]["outcome"] == "timeout"
        c.send("execute", label="left", command="echo up; exec sleep 60")
        c.shown("up", "left")
        c.send("detach", label="left")
        c.send("cancel", label="left")
        assert c.until("error")["error"]["code"] == "not_found"
    running = server.call("GET", f"/v1/sandboxes/{box}/executions?state=running").json["items"]
    assert len(running) == 1, running
    a = server.call("POST", f"/v1/sandboxes/{box}/executions/{running[0]['id']}/signal", {"signal": "KILL"})
    assert a.status == 200, a.body


@case
def WB07_a_viewer_that_does_not_read_blocks_no_other(server, box):
    with Stream(server, box) as lazy, Stream(server, box) as brisk:
        lazy.send("execute", label="flood", outputBytes=64 << 20, code="import sys\nfor _ in range(256): sys.stdout.write('y' * 65536)")
        ident = lazy.until("started")["execution"]["id"]
        brisk.send("resume", executionId=ident)
        whole, end = brisk.output()
        assert len(whole) == 16 << 20 and end["execution"]["exitCode"] == 0
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
            rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) >> 10
        assert rss < 100 or ws_test.SLACK, f"{rss} MiB"
        got = 0
        while (m := lazy.until("output", "end"))["type"] == "output":
            assert m["offset"] == got
            got += len(piece(m))
        assert got == 16 << 20


@case
def status_is_sent_on_change_and_at_the_requested_interval(server, _):
    box = server.create()
    with Stream(server, box, "?statusIntervalMs=500") as c:
        assert c.receive()["state"] == "running"
        m = c.until("status")
        assert m["memoryBytes"] > 0 and m["cpuMs"] >= 0
        server.call("POST", f"/v1/sandboxes/{box}/pause")
        assert c.until("status", state="paused")
        server.call("POST", f"/v1/sandboxes/{box}/resume")
        assert c.until("status", state="running")
    server.delete(box)


@case
def WB10_deleting_the_sandbox_closes_its_sockets_with_the_reason(server, _):
    box = server.create()
    with Stream(server, box) as c, Stream(server, box) as other:
        c.send("execute", label="e", command="echo up; sleep 60")
        c.shown("up")
        server.delete(box)
        assert c.until("end")["execution"]["endedBy"] == "killed"
        assert c.until("status")["state"] == "ended"
        assert c.receive() is None and c.closed == 4410 and "has ended" in c.reason, (c.closed, c.reason)
        assert other.until("status", state="ended") and other.receive() is None and other.closed == 4410
    for wanted, status in ((box, 410), ("sb" + "a" * 20, 404), ("nonsense", 404)):
        try:
            Stream(server, wanted)
            raise AssertionError("opened")
        except Refused as no:
            assert no.status == status, (wanted, no)


@case
def AU12_WB10_a_revoked_or_expired_key_closes_its_sockets(server, box):
    key = server.call("POST", "/v1/keys", {"name": "short", "scopes": ["executions"]}).json
    with Stream(server, box, key=key["key"]) as c:
        c.receive()
        began = time.monotonic()
        assert server.call("DELETE", f"/v1/keys/{key['id']}").status < 300
        assert c.until("error")["error"]["code"] == "unauthorized"
        assert c.receive() is None and c.closed == 4401 and time.monotonic() - began < 60
    for seconds in (3, 15, 60):  # on a slow machine it may expire before the socket is open
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + seconds))
        key = server.call("POST", "/v1/keys", {"name": "brief", "scopes": ["executions"], "expiresAt": moment}).json
        try:
            with Stream(server, box, key=key["key"], timeout=120) as c:
                assert c.until("error")["error"]["code"] == "unauthorized" and c.receive() is None and c.closed == 4401
            break
        except Refused as no:
            assert no.status == 401 and seconds < 60
    for wrong, status in ((key["key"], 401), ("cove_" + "0" * 40, 401), (False, 401)):
        try:
            Stream(server, box, key=wrong)
            raise AssertionError("opened")
        except Refused as no:
            assert no.status == status
    looker = server.call("POST", "/v1/keys", {"name": "looker", "scopes": ["executions:read"]}).json["key"]
    with Stream(server, box) as c, Stream(server, box, key=looker) as viewer:
        c.send("execute", label="t", tty=True, command=["sh", "-i"])
        ident = c.until("started")["execution"]["id"]
        viewer.send("resume", executionId=ident)
        viewer.until("started")
        for order in ({"type": "stdin", "data": "x"}, {"type": "resize", "rows": 2, "cols": 2}, {"type": "signal", "signal": 2}, {"type": "cancel"}):
            viewer.send(order.pop("type"), executionId=ident, **order)
            assert viewer.until("error")["error"]["code"] == "forbidden"
        c.send("stdin", label="t", data="echo se'e'n\n")
        viewer.shown("seen")
        c.send("cancel", label="t")
    with Stream(server, box, key=False, headers=[f"Sec-WebSocket-Protocol: cove.v1, cove.key.{server.key}", "Origin: http://localhost"]) as c:
        assert "Sec-WebSocket-Protocol: cove.v1\r\n" in c.head + "\r\n" and c.receive()["state"] == "running"
    reader = server.call("POST", "/v1/keys", {"name": "reader", "scopes": ["sandboxes:read"]}).json["key"]
    try:
        Stream(server, box, key=reader)
        raise AssertionError("opened")
    except Refused as no:
        assert no.status == 403


@case
def WB09_a_key_in_the_query_is_refused_and_WB01_a_cookie_too(server, box):
    for query, headers in ((f"?key={server.key}", ()), (f"?access_token={server.key}", ()), ("", (f"Cookie: key={server.key}", "Origin: http://localhost"))):
        try:
            Stream(server, box, query, key=False, headers=headers)
            raise AssertionError("opened")
        except Refused as no:
            assert no.status in (400, 401), no


@case
def a_terminal_takes_input_is_resized_and_left(server, box):
    with Stream(server, box) as c:
        c.send("execute", label="t", tty=True, rows=30, cols=100, command=["sh", "-i"])
        start = c.until("started")
        assert (start["rows"], start["cols"]) == (30, 100) and start["execution"]["tty"] is True
        c.send("stdin", label="t", data="stty size; tty; echo $TERM\n")
        assert b"30 100" in c.shown("xterm-256color")
        c.send("resize", label="t", rows=40, cols=120)
        c.send("stdin", label="t", data="stty size\n")
        c.shown("40 120")
        c.send("stdin", label="t", data="""sh -c 'trap "echo cau""ght; exit" INT; echo rea""dy; while :; do sleep 0.05; done'\n""")
        c.shown("ready")
        c.send("stdin", label="t", data="\x03")
        c.shown("caught")
        c.send("stdin", label="t", data="echo st'ill' here\n")
        c.shown("still here")
        ident = start["execution"]["id"]
    with Stream(server, box) as c:
        c.send("resume", executionId=ident)
        c.shown("still here")
        c.send("stdin", executionId=ident, data="exit 7\n")
        assert c.until("end")["execution"]["exitCode"] == 7


@case
def several_viewers_see_the_same_output_and_all_may_type(server, box):
    ident = terminal(server, box, command=["sh", "-i"], rows=24, cols=80)
    with contextlib.ExitStack() as stack:
        viewers = [stack.enter_context(Stream(server, box)) for _ in range(5)]
        for v in viewers:
            v.send("resume", executionId=ident)
            v.until("started")
        for i, v in enumerate(viewers):
            v.send("stdin", executionId=ident, data=f"echo from-$(({i}+10))\n")
            for w in viewers:
                w.shown(f"from-{i + 10}")
        viewers[0].send("resize", executionId=ident, rows=10, cols=20)
        for v in viewers[1:]:
            m = v.until("resized")
            assert (m["rows"], m["cols"]) == (10, 20)
        viewers[2].s.close()
        viewers[1].send("stdin", executionId=ident, data="exit\n")
        for v in viewers[:2] + viewers[3:]:
            assert v.until("end")["execution"]["exitCode"] == 0


@case
def a_terminal_keeps_its_latest_output_and_drops_the_oldest(server, box):
    ident = terminal(server, box, command=["sh", "-c", "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); echo line-$i; done; sleep 60"], outputBytes=65536)
    with Stream(server, box) as c:
        c.send("resume", executionId=ident)
        c.until("started")
        c.shown("line-40000")
    with Stream(server, box) as c:
        c.send("resume", executionId=ident)
        start = c.until("started")
        assert start["stdoutOffset"] > 300000, start
        got = c.shown("line-40000")
        assert 65536 <= len(got) <= 110000 and b"\0" not in got and b"line-39000\r\n" in got, len(got)
        c.send("cancel", executionId=ident)
        c.until("end")
    a = server.call("GET", f"/v1/sandboxes/{box}/executions/{ident}/output?offset=0")
    assert a.body.endswith(b"line-40000\r\n") and b"\0" not in a.body and int(a.headers["Cove-Offset"]) > 300000


@case
def a_terminal_without_a_command_is_a_shell_and_outlives_the_timeout(server, _):
    box = server.create(timeoutMs=1000)
    ident = terminal(server, box)
    with Stream(server, box) as c:
        c.send("resume", executionId=ident)
        c.until("started")
        time.sleep(1.5)
        c.send("stdin", executionId=ident, data="echo $((40+2))\n")
        c.shown("42")
        a = server.call("POST", f"/v1/sandboxes/{box}/executions/{ident}/resize", {"rows": 5, "cols": 6})
        assert a.status == 200, a.body
        c.until("resized", rows=5)
    plain = server.execute(box, {"command": ["sleep", "9"], "background": True}).json["id"]
    assert server.call("POST", f"/v1/sandboxes/{box}/executions/{plain}/resize", {"rows": 5, "cols": 6}).status == 409
    for path, body in (("resize", {"rows": 5}), ("resize", {"rows": 0, "cols": 1}), ("resize", {"rows": 1, "cols": 1, "x": 1}), ("signal", {}), ("signal", {"signal": "NONE"}), ("signal", {"signal": 65})):
        assert server.call("POST", f"/v1/sandboxes/{box}/executions/{plain}/{path}", body).status == 400, (path, body)
    server.delete(box)


@case
def WB11_a_terminal_s_bytes_are_passed_on_unchanged(server, box):
    evil = "\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\x1b[6n\x1b]8;;http://evil\x07x\x1b]8;;\x07"
    with Stream(server, box) as c:
        c.send("execute", label="t", tty=True, command=["printf", "%s", evil])
        whole, _ = c.output()
        assert whole == evil.encode(), whole


@case
def many_sockets_leave_no_resources(server, box):
    for _ in range(50):
        c = Stream(server, box)
        c.send("execute", command="echo x")
        c.s.close()
    end = time.monotonic() + 60
    while "cove_api_websockets 0\n" not in (text := server.call("GET", "/metrics").body.decode()):
        assert time.monotonic() < end, re.findall("cove_api_websockets.*", text)
        time.sleep(0.05)


class Few:
    """While it lasts, the server can open no further file and accept no further connection."""

    def __init__(self, server):
        self.pid = server.process.pid

    def __enter__(self):
        self.before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (1, self.before[1]))

    def __exit__(self, *_):
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.before)


@case
def a_server_without_descriptors_reports_that_and_loses_nothing(server, box):
    a = server.execute(box, {"command": ["sh", "-c", "echo one; echo two >&2"]}).json
    path = f"/v1/sandboxes/{box}/executions/{a['id']}"
    late = server.execute(box, {"command": ["sh", "-c", "read x; echo $x"], "stdinOpen": True, "background": True}).json["id"]
    connection = server.connect(60)

    def ask(where, **headers):
        connection.request("GET", where, headers={"Authorization": "Bearer " + server.key, **headers})
        answer = connection.getresponse()
        return answer, answer.read()

    assert ask(path)[0].status == 200  # it stays open
    with Stream(server, box) as ws:
        ws.send("resume", executionId=late)
        ws.until("started", executionId=late)
        with Few(server):
            ws.send("resume", executionId=a["id"])
            told = ws.until("error", "end")
            assert told["type"] == "error" and told["error"]["code"] == "descriptors_exhausted", told
            answer, body = ask(path)
            told = json.loads(body)
            assert answer.status == 200 and told["truncated"] and told["exitCode"] == 0, told
            for accept in ("application/x-ndjson", "text/event-stream"):
                answer, body = ask(path + "/stream", Accept=accept)
                assert answer.status == 503 and answer.headers["Retry-After"], body
                assert json.loads(body)["error"]["code"] == "descriptors_exhausted", body
            answer, body = ask(path + "/output?stream=stdout")
            assert answer.status == 503, body
        ws.send("resume", executionId=a["id"])
        whole, end = ws.output(a["id"])
        assert whole == b"one\n" and end["execution"]["exitCode"] == 0, (whole, end)
        told = json.loads(ask(path)[1])
        assert told["stdout"] == "one\n" and told["stderr"] == "two\n" and not told["truncated"], told
        ws.send("stdin", executionId=late, data="later\n")
        whole, end = ws.output(late)
        assert whole == b"later\n" and end["execution"]["exitCode"] == 0, (whole, end)
    connection.close()


@case
def a_terminal_is_bounded_on_file_systems_without_hole_punching(server, box):
    """ramfs punches no holes. The mount belongs to a namespace that ends with the server."""
    script = 'mount -t ramfs ramfs "$1/output" && exec "$0" serve "$1"'
    server.kill()
    server.process = subprocess.Popen(["unshare", "-m", "sh", "-c", script, api_test.TESTD, server.dir],
                                      stdout=subprocess.PIPE, text=True)
    server.port = int(server.process.stdout.readline().split()[1])
    server.process.stdout.readline()
    server.wait_ready()
    try:
        sb = server.create({"runtime": "sh"})
        ex = server.execute(sb, {"command": ["sh", "-c", "yes 0123456789abcde | head -c 6000000; echo end"], "tty": True,
                                 "outputBytes": 65536, "background": True}).json["id"]
        end = time.monotonic() + 120
        while (row := server.call("GET", f"/v1/sandboxes/{sb}/executions/{ex}").json)["state"] != "ended":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert row["exitCode"] == 0, row  # the program is not blocked
        stored = os.stat(f"/proc/{server.process.pid}/root{server.dir}/output/{ex}.1").st_size
        assert 65536 <= stored <= 17 * 65536, stored
        server.delete(sb)
    finally:
        server.kill()
        server.start()


def main():
    cases = api_test.Choice(sys.argv[3:]).of(CASES, lambda function: function.__name__)
    print(f"1..{len(cases)}")
    failed = False
    server = Server()
    box = server.create(lifetimeMs=3600000)
    for number, function in enumerate(cases, 1):
        began = time.monotonic()
        try:
            function(server, box)
            print(f"ok {number} - {function.__name__}", flush=True)
            print(f"# {time.monotonic() - began:.1f} s", flush=True)
        except (AssertionError, OSError, EOFError, Refused, subprocess.TimeoutExpired, KeyError, IndexError, ValueError, TypeError):
            failed = True
            print(f"not ok {number} - {function.__name__}")
            print("\n".join("# " + line for line in traceback.format_exc().splitlines()[-12:]), flush=True)
    server.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
