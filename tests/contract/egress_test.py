#!/usr/bin/env python3
"""egress_test.py PROGRAM - cove-egress against servers on loopback, without a sandbox: this test
has the part of the jailer and of the engine. Prints TAP.

It runs in a network namespace of its own, in which the invented addresses (198.18.0.0/15) are
local, as they are in a sandbox. Names of cases begin with the ids of the attack catalogue that
they run.
"""
import ctypes
import fcntl
import http.server
import json
import os
import re
import resource
import select
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
# pylint: disable=wrong-import-position
from egress import Egress, EgressError, listener  # noqa: E402
from nameserver import NameServer  # noqa: E402

CASES = []
CLONE_NEWNET, CLONE_NEWUSER, CLONE_NEWNS = 0x40000000, 0x10000000, 0x20000
SLOW = int(os.environ.get("COVE_SLOW_HOST", "1"))


def case(function):
    CASES.append(function)
    return function


# --- the world: a network namespace, origins, a name server ---


def enter_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNET | CLONE_NEWNS | (0 if os.geteuid() == 0 else CLONE_NEWUSER)
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        def address(name, ip):
            return struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(ip))
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
        fcntl.ioctl(s, 0x8916, address(b"lo:1", "198.18.0.1"))  # SIOCSIFADDR
        fcntl.ioctl(s, 0x891C, address(b"lo:1", "255.254.0.0"))  # SIOCSIFNETMASK
        fcntl.ioctl(s, 0x8916, address(b"lo:2", "93.184.216.34"))  # an address of "this host"
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w", encoding="ascii") as f:
        f.write("0")


class Origin:
    """A TCP server; `talk` gets each connection."""

    def __init__(self, talk, address=("127.0.0.1", 0)):
        self.sock, self.talk, self.accepted = listener(address=address), talk, 0
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                conn, _ = self.sock.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self.run, args=(conn,), daemon=True).start()

    def run(self, conn):
        with conn:
            try:
                self.talk(conn)
            except OSError:
                pass

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def echo(conn):
    while data := conn.recv(1 << 16):
        conn.sendall(data)
    conn.shutdown(socket.SHUT_WR)


class Web(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked."""
    protocol_version = "HTTP/1.1"

    def answer(self):
        n = int(self.headers.get("Content-Length") or 0)
        body = json.dumps({"method": self.command, "path": self.path, "headers": self.headers.items(),
                           "body": self.rfile.read(n).decode("latin-1")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Origin", "web")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def log_message(self, *_):
        pass


class World:
    def __init__(self, program):
        self.program = program
        with open(program, "rb") as f:
            self.is_sanitized = b"__asan_init" in f.read()
        self.echo = Origin(echo)
        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
        threading.Thread(target=self.web.serve_forever, daemon=True).start()
        self.web80 = http.server.ThreadingHTTPServer(("127.0.0.1", 80), Web)
        threading.Thread(target=self.web80.serve_forever, daemon=True).start()
        self.turns = 0
        self.names = NameServer({
            "origin.test": ["127.0.0.1"], "other.test": ["127.0.0.1"], "private.test": ["10.1.2.3"], "meta.test": ["169.254.169.254"],
            "mixed.test": ["127.0.0.1", "192.168.0.1"], "six.test": ["::ffff:10.0.0.1"], "host.test": ["93.184.216.34"],
            "nowhere.test": ["127.0.0.9"], "rebind.test": lambda n: ["127.0.0.1"] if n == 0 else ["10.0.0.1"]}, ttl=0)
        self.names.__enter__()

    def start(self, **more):
        settings = {"resolvers": self.names.address, "open_ranges": "127.0.0.0/8"} | more
        return Egress(self.program, **settings)


def connect(address, timeout=10):
    sock = socket.create_connection(address, timeout * SLOW)
    sock.settimeout(timeout * SLOW)
    return sock


def processor_time(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def wait_for(check):
    """The first value that is true; the two links of the proxy have no common order."""
    for _ in range(200 * SLOW):
        if found := check():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not become true")


def read_until(sock, end):
    data = b""
    while end not in data:
        more = sock.recv(1 << 16)
        if not more:
            break
        data += more
    return data


def read_all(sock):
    data = b""
    while more := sock.recv(1 << 16):
        data += more
    return data


def tunnel(sandbox, host, port, first=b""):
    """A connection through CONNECT, and the answer."""
    sock = connect(sandbox.proxy)
    sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() + first)
    return sock, read_until(sock, b"\r\n\r\n")


def query(name, kind=1, number=0x1234):
    labels = b"".join(bytes([len(label)]) + label for label in name.encode().split(b".")) + b"\0"
    return struct.pack("!HHHHHH", number, 0x100, 1, 0, 0, 0) + labels + struct.pack("!HH", kind, 1)


def resolve(sandbox, name, kind=1):
    """(response code, address or None)"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5 * SLOW)
        sock.sendto(query(name, kind), sandbox.dns_udp)
        data = sock.recv(600)
    return data[3] & 15, socket.inet_ntoa(data[-4:]) if struct.unpack("!H", data[6:8])[0] else None


class Response:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.line, self.status = lines[0], int(lines[0].split()[1]) if lines[0] else 0
        self.headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:])}

    @property
    def json(self):
        return json.loads(self.body)


def read_response(sock):
    data = read_until(sock, b"\r\n\r\n")
    r = Response(data)
    while len(r.body) < int(r.headers.get("content-length", 0)):
        more = sock.recv(1 << 16)
        assert more, data
        data += more
        r = Response(data)
    return r


def request(sandbox, url, method="GET", headers="", body=""):
    """One request to the proxy on a connection of its own."""
    host = re.match(r"http://([^/]*)", url).group(1)
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    with connect(sandbox.proxy) as sock:
        sock.sendall(f"{method} {url} HTTP/1.1\r\nHost: {host}\r\n{length}{headers}\r\n{body}".encode("latin-1"))
        return read_response(sock)


# --- control ---


@case
def nothing_is_read_before_rules_are_bound_and_connections_wait(w):
    with w.start() as e:
        s = e.listen()
        sock = connect(s.proxy)
        sock.sendall(f"CONNECT origin.test:{w.echo.port} HTTP/1.1\r\nHost: origin.test:{w.echo.port}\r\n\r\n".encode())
        sock.settimeout(0.3)
        try:
            raise AssertionError(sock.recv(100))
        except TimeoutError:
            pass
        s.bind(f"allow origin.test:{w.echo.port}")
        sock.settimeout(10 * SLOW)
        assert b" 200 " in read_until(sock, b"\r\n\r\n")
        s.unbind()
        sock = connect(s.proxy)
        sock.settimeout(0.3)
        sock.sendall(b"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n")
        try:
            raise AssertionError(sock.recv(100))
        except TimeoutError:
            pass


@case
def rules_may_be_bound_before_the_listeners_arrive(w):
    with w.start() as e:
        s = e.listen()
        e.send(e.jailer, 97, struct.pack("<I", 22) + s.name.encode())  # E_UNLISTEN
        s.bind(f"allow origin.test:{w.echo.port}")
        s.announce()
        sock, answer = tunnel(s, "origin.test", w.echo.port)
        assert b" 200 " in answer, answer
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"


@case
def rules_and_secrets_that_are_wrong_are_refused_and_change_nothing(w):
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{w.echo.port}")
        for rules, secrets in ((["allow bad..name"], {}), (["frobnicate x"], {}), (["secret key origin.test header=X-Key format={}"], {})):
            try:
                s.bind(*rules, secrets=secrets)
                raise AssertionError(rules)
            except EgressError:
                pass
        assert b" 200 " in tunnel(s, "origin.test", w.echo.port)[1]


@case
def EG14_a_tightened_policy_ends_connections_that_it_refuses_and_keeps_the_others(w):
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{w.echo.port}", f"allow other.test:{w.echo.port}")
        first, second = (tunnel(s, host, w.echo.port)[0] for host in ("origin.test", "other.test"))
        assert sorted(c["host"] for c in s.connections()) == ["origin.test", "other.test"]
        s.bind(f"allow other.test:{w.echo.port}")
        try:
            assert first.recv(1) == b""
        except ConnectionResetError:
            pass
        second.sendall(b"still")
        assert second.recv(5) == b"still"
        assert [c["host"] for c in s.connections()] == ["other.test"]
        assert b" 403 " in tunnel(s, "origin.test", w.echo.port)[1]
        report = s.report()
        assert report["connections"] == 2 and report["refused"] == 2, report


@case
def EG14_a_prefix_that_is_denied_ends_connections_to_names_in_it(w):
    port = w.web.server_port
    allow = [f"allow origin.test:{port}", f"allow origin.test:{w.echo.port}"]
    with w.start() as e:
        s = e.listen().bind(*allow)
        sock, _ = tunnel(s, "origin.test", w.echo.port)
        with connect(s.proxy) as kept:
            request_head = f"GET http://origin.test:{port}/ HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode()
            kept.sendall(request_head)
            assert read_response(kept).status == 200
            s.bind("deny 10.0.0.0/8:*", *allow)
            sock.sendall(b"still")
            assert sock.recv(5) == b"still"
            s.bind("deny 127.0.0.0/8:*", *allow)
            for gone in (sock, kept):
                try:
                    assert gone.recv(1) == b""
                except ConnectionResetError:
                    pass


@case
def an_ended_sandbox_has_no_listeners_and_no_connections_and_its_counters_stay_until_unbind(w):
    with w.start() as e:
        e.listen().bind("deny *").unbind()
        before = wait_for(lambda: e.descriptors() >= 9 and e.descriptors())
        s = e.listen().bind(f"allow origin.test:{w.echo.port}")
        sock, _ = tunnel(s, "origin.test", w.echo.port)
        sock.sendall(b"12345")
        assert read_until(sock, b"12345")
        s.close()
        assert sock.recv(1) == b""
        report = s.unbind()
        assert (report["connections"], report["sent"], report["received"]) == (1, 5, 5), report
        wait_for(lambda: e.descriptors() == before)
        try:
            s.report()
            raise AssertionError("it is still known")
        except EgressError:
            pass


@case
def what_waits_when_rules_end_is_not_served_by_the_next_rules(w):
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{w.echo.port}", rate=1)
        sockets = []
        for _ in range(40):  # more than the rate allows, so some wait
            sock = connect(s.proxy)
            sock.sendall(f"GET http://origin.test:{w.web.server_port}/ HTTP/1.1\r\nHost: origin.test:{w.web.server_port}\r\n\r\n".encode())
            sockets.append(sock)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for i in range(2000):
                sock.sendto(query(f"n{i}.test"), s.dns_udp)
        s.unbind()
        s.bind(f"allow origin.test:{w.web.server_port}", rate=1000)
        answers = []
        for sock in sockets:
            try:
                answers.append(sock.recv(100))
            except ConnectionResetError:
                answers.append(b"")
        assert not any(b" 200 " in a for a in answers), answers
        time.sleep(0.2)
        assert s.report()["connections"] == 0 and s.report()["refused"] == 0, s.report()


@case
def a_link_that_sends_what_it_may_not_is_ended(w):
    for who, kind in (("engine", 96), ("jailer", 98), ("engine", 1)):
        with w.start() as e:
            sock = getattr(e, who)
            e.send(sock, kind, b"")
            sock.settimeout(5 * SLOW)
            assert sock.recv(100) == b"", (who, kind)
            assert e.process.wait(10) == 0  # of one run: it ends with its links


class Service(Egress):
    """As `cove serve` starts it: with a socket for any number of links."""

    def __init__(self, program, directory, host_uid, **more):
        super().__init__(program, **more)
        self.path = os.path.join(directory, "egress.sock")
        self.argv += ["--socket", self.path, "--host-uid", str(host_uid), "--parent", str(os.getpid())]

    def __enter__(self):
        self.process = subprocess.Popen(self.argv)  # pylint: disable=consider-using-with
        wait_for(self.try_connect)
        return self

    def try_connect(self):
        try:
            self.jailer, self.engine = self.link(), self.link()
        except OSError:
            return False
        self.engine.settimeout(30)
        return True

    def link(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(self.path)
        return sock

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for sandbox in self.sandboxes:
            sandbox.forget()


@case
def a_service_that_was_killed_serves_again_when_it_is_told_the_same(w):
    with tempfile.TemporaryDirectory() as d, Service(w.program, d, os.geteuid(), resolvers=w.names.address, open_ranges="127.0.0.0/8") as e:
        s = e.listen().bind(f"allow origin.test:{w.echo.port}")
        assert b" 200 " in tunnel(s, "origin.test", w.echo.port)[1]
        e.process.kill()
        e.process.wait()
        waiting = connect(s.proxy)  # the listener is the jailer's too: the connection waits in its queue
        waiting.sendall(f"CONNECT origin.test:{w.echo.port} HTTP/1.1\r\nHost: origin.test:{w.echo.port}\r\n\r\n".encode())
        refused = connect(s.proxy)
        refused.sendall(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")
        Service.__enter__(e)
        s.announce().bind(f"allow origin.test:{w.echo.port}")
        assert b" 200 " in read_until(waiting, b"\r\n\r\n")
        assert b" 403 " in read_until(refused, b"\r\n\r\n")


@case
def a_service_keeps_rules_while_its_engine_is_away_and_ends_them_with_the_jailer(w):
    with tempfile.TemporaryDirectory() as d, Service(w.program, d, os.geteuid(), resolvers=w.names.address, open_ranges="127.0.0.0/8") as e:
        s = e.listen().bind(f"allow origin.test:{w.echo.port}")
        sock, _ = tunnel(s, "origin.test", w.echo.port)
        e.engine.close()
        time.sleep(0.1)
        sock.sendall(b"x")
        assert sock.recv(1) == b"x" and b" 200 " in tunnel(s, "origin.test", w.echo.port)[1]
        e.engine = e.link()
        e.engine.settimeout(30)
        s.bind(f"allow origin.test:{w.echo.port}")  # as an engine that came back does; the counters go on
        assert s.report()["connections"] == 2
        e.jailer.close()  # of a sandbox without listeners no connection remains
        assert sock.recv(1) == b""
        assert s.unbind()["connections"] == 2


@case
def the_user_of_the_engine_may_not_send_listeners_and_others_may_not_connect(w):
    if os.geteuid() != 0:
        return
    with tempfile.TemporaryDirectory() as d, Service(w.program, d, 4242, resolvers=w.names.address) as e:
        os.chmod(d, 0o755)
        e.listen().bind("deny *")
        for uid in (4242, 4243):
            if os.fork() == 0:
                status = 1
                try:
                    os.setresuid(uid, uid, uid)
                    link = e.link()
                    link.settimeout(10)
                    e.send(link, 96, struct.pack("<I", 22) + b"sb" + b"a" * 20 + b"\1", e.sandboxes[0].sockets)
                    status = 0 if link.recv(10) == b"" else 2
                except PermissionError:
                    status = 3
                finally:
                    os._exit(status)  # pylint: disable=protected-access
            assert os.waitstatus_to_exitcode(os.wait()[1]) == (0 if uid == 4242 else 3), uid


# --- the resolver ---


@case
def NT08_EG04_names_are_answered_with_invented_addresses_and_nothing_is_asked(w):
    with w.start() as e:
        s = e.listen().bind("allow origin.test", "allow *.wild.test:443")
        w.names.asked.clear()
        code, address = resolve(s, "origin.test")
        assert (code, address) == (0, "198.18.0.2")
        assert resolve(s, "deep.down.wild.test") == (0, "198.18.0.3")
        assert resolve(s, "ORIGIN.test") == (0, "198.18.0.2")
        for kind in (28, 16, 15, 65, 33):
            assert resolve(s, "origin.test", kind) == (0, None), kind
        for name in ("wild.test", "evil.test", "data-in-a-name.evil.test", "127.1", "0x7f.1"):
            assert resolve(s, name) == (3, None), name
            assert resolve(s, name, 28) == (3, None), name
        assert w.names.asked == []
        assert s.destination("evil.test")["refused"] == 1
        other = e.listen().bind("allow *")
        assert resolve(other, "first.test") == (0, "198.18.0.2")  # no table is shared


@case
def an_address_is_never_given_to_a_second_name(w):
    with w.start() as e:
        s = e.listen().bind("allow *")
        seen = {resolve(s, f"n{i}.test")[1] for i in range(50)}
        assert len(seen) == 50
        s.bind("allow origin.test")
        assert resolve(s, "n0.test") == (3, None)
        s.bind("allow *")
        assert resolve(s, "n0.test") == (0, "198.18.0.2")
        s.unbind()
        s.bind("allow *")
        assert resolve(s, "new.test")[1] not in seen


@case
def dns_over_tcp_answers_and_closes_what_is_not_dns(w):
    with w.start() as e:
        s = e.listen().bind("allow origin.test")
        with connect(s.dns_tcp) as sock:
            for _ in range(3):
                q = query("origin.test")
                sock.sendall(struct.pack("!H", len(q)) + q)
                n = struct.unpack("!H", sock.recv(2))[0]
                assert socket.inet_ntoa(sock.recv(n)[-4:]) == "198.18.0.2"
        with connect(s.dns_tcp) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 400)
            try:
                assert sock.recv(100) == b""
            except ConnectionResetError:
                pass


@case
def a_flood_of_queries_is_limited_and_the_next_sandbox_is_served(w):
    with w.start() as e:
        s, other = e.listen().bind("allow origin.test"), e.listen().bind("allow origin.test")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _ in range(3000):
                sock.sendto(query("origin.test"), s.dns_udp)
            assert resolve(other, "origin.test")[0] == 0
            sock.settimeout(0.2)
            got = 0
            try:
                while sock.recv(600):
                    got += 1
            except TimeoutError:
                pass
        assert 0 < got < 1500 * SLOW, got


@case
def a_query_costs_little_whatever_the_rules_are(w):
    with w.start() as e:
        ports = ",".join(f"{1 + i * 8191}-{8190 + i * 8191}" for i in range(8))
        s = e.listen().bind(*[f"deny *:{ports}"] * 255, "allow *:65535")
        used = processor_time(e.process.pid)
        for i in range(100):
            assert resolve(s, f"name{i}.test")[0] == 0
        assert processor_time(e.process.pid) - used < 0.3, processor_time(e.process.pid) - used


# --- upstream ---


@case
def EG05_SR02_every_closed_address_is_refused_after_the_lookup(w):
    with w.start(open_ranges="127.0.0.1/32") as e:
        s = e.listen().bind("allow *:*")
        for host, port in (("private.test", 80), ("meta.test", 80), ("mixed.test", 81), ("six.test", 81), ("host.test", 81)):
            answer = tunnel(s, host, 81 if port == 80 else port)[1]
            assert b" 403 Egress denied: " in answer and b"closed range" in answer, answer
            assert "closed range" in s.destination(host)["reason"]
        for literal in ("10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]"):
            answer = tunnel(s, literal, 8080)[1]
            assert b" 403 " in answer, (literal, answer)
        for odd in ("127.1", "0x7f.1", "0177.0.0.1", "2130706433", "017700000001", "127.0.0.1."):
            answer = tunnel(s, odd, 8080)[1]
            assert answer[9:12] in (b"400", b"403"), (odd, answer)


@case
def addresses_are_tried_until_one_answers(w):
    w.names.records["several.test"] = ["127.0.0.9", "::1", "127.0.0.8", "127.0.0.1"]
    with w.start(open_ranges="127.0.0.0/8,::1/128") as e:
        s = e.listen().bind("allow *:*")
        assert b" 200 " in tunnel(s, "several.test", w.echo.port)[1]
        assert s.report()["failed"] == 0


@case
def addresses_that_never_answer_cost_few_descriptors(w):
    w.names.records["silent.test"] = [f"127.0.0.{i}" for i in range(2, 10)]
    full = socket.socket()
    full.bind(("0.0.0.0", 0))
    full.listen(0)
    port = full.getsockname()[1]
    fill = []
    for _ in range(3):  # a full queue: the kernel drops what comes after
        fill.append(socket.socket())
        fill[-1].setblocking(False)
        fill[-1].connect_ex(("127.0.0.1", port))
    with w.start() as e:
        s = e.listen().bind(f"allow silent.test:{port}")
        before, most, sockets = e.descriptors(), 0, []
        for _ in range(10):
            sockets.append(connect(s.proxy))
            sockets[-1].sendall(f"CONNECT silent.test:{port} HTTP/1.1\r\nHost: silent.test:{port}\r\n\r\n".encode())
        for _ in range(40):
            most = max(most, e.descriptors() - before)
            time.sleep(0.1)
        assert 20 <= most <= 32, most
    for sock in (full, *fill, *sockets):
        sock.close()


@case
def NT16_connections_to_destinations_have_the_rate_of_connections(w):
    def talk(conn):
        read_until(conn, b"\r\n\r\n")
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    origin = Origin(talk)
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{origin.port}", rate=5)
        began = time.monotonic()
        with connect(s.proxy) as sock:
            for _ in range(30):  # 20 of them may come at once
                sock.sendall(f"GET http://origin.test:{origin.port}/ HTTP/1.1\r\nHost: origin.test:{origin.port}\r\n\r\n".encode())
                assert read_response(sock).status == 200
        assert time.monotonic() - began > 1, time.monotonic() - began
        assert s.report()["connections"] == origin.accepted == 30
    origin.close()


@case
def EG05_a_name_that_rebinds_is_checked_at_every_connection(w):
    with w.start() as e:
        s = e.listen().bind(f"allow rebind.test:{w.echo.port}")
        assert b" 200 " in tunnel(s, "rebind.test", w.echo.port)[1]
        assert b" 403 " in tunnel(s, "rebind.test", w.echo.port)[1]


@case
def failures_of_the_destination_are_502_and_504_and_counted(w):
    with w.start() as e:
        s = e.listen().bind("allow *:*")
        assert b" 502 " in tunnel(s, "missing.test", 8080)[1]
        assert b" 502 " in tunnel(s, "nowhere.test", 1)[1]
        report = s.report()
        assert report["failed"] == 2 and report["refused"] == 0, report
        assert "does not exist" in s.destination("missing.test")["reason"]


@case
def an_answer_of_the_name_server_is_kept_for_its_time_to_live(w):
    w.names.ttl = 30
    try:
        with w.start() as e:
            s = e.listen().bind(f"allow origin.test:{w.echo.port}")
            w.names.asked.clear()
            for _ in range(3):
                assert b" 200 " in tunnel(s, "origin.test", w.echo.port)[1]
            assert len(w.names.asked) == 2, w.names.asked  # A and AAAA, once
    finally:
        w.names.ttl = 0


@case
def the_host_may_move_to_another_name_server(w):
    if os.geteuid() != 0:
        return
    with tempfile.NamedTemporaryFile("w") as conf, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        os.chmod(conf.name, 0o644)
        conf.write("nameserver 127.0.0.77\n")
        conf.flush()
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", conf.name, os.path.realpath("/etc/resolv.conf")], check=True)
        server.bind(("127.0.0.1", 53))

        def serve():
            while True:
                try:
                    data, client = server.recvfrom(4096)
                except OSError:
                    return
                server.sendto(w.names.answer(data), client)
        threading.Thread(target=serve, daemon=True).start()
        with w.start(resolvers="") as e:
            s = e.listen().bind(f"allow origin.test:{w.echo.port}")
            assert b" 502 " in tunnel(s, "origin.test", w.echo.port)[1]
            conf.seek(0)
            conf.write("nameserver 127.0.0.1  \n")
            conf.flush()
            assert b" 200 " in tunnel(s, "origin.test", w.echo.port)[1]
        subprocess.run(["umount", os.path.realpath("/etc/resolv.conf")], check=True)


# --- bytes ---


@case
def bytes_pass_both_ways_with_back_pressure_and_half_close(w):
    total = 32 << 20
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{w.echo.port}")
        sock, _ = tunnel(s, "origin.test", w.echo.port)
        block = os.urandom(1 << 16)
        got = bytearray()

        def send():
            for _ in range(total // len(block)):
                sock.sendall(block)
            sock.shutdown(socket.SHUT_WR)
        thread = threading.Thread(target=send)
        thread.start()
        time.sleep(0.3)  # nothing is read: the sender has to wait, and memory stays bounded
        assert w.is_sanitized or e.memory() < 16 << 20
        while more := sock.recv(1 << 18):
            got += more
        thread.join()
        assert len(got) == total and got == block * (total // len(block))
        d = s.destination("origin.test")
        assert d["sent"] == d["received"] == total, d


@case
def EG10_the_limit_of_bytes_ends_a_connection_and_refuses_the_next(w):
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{w.echo.port}", bytes_max=1 << 20)
        sock, _ = tunnel(s, "origin.test", w.echo.port)
        try:
            for _ in range(64):
                sock.sendall(b"x" * 65536)
            assert read_all(sock) is None
        except (ConnectionResetError, BrokenPipeError):
            pass
        report = s.report()
        assert report["sent"] + report["received"] < 3 << 20, report
        assert b" 403 " in tunnel(s, "origin.test", w.echo.port)[1]
        assert "limit of transferred bytes" in s.destination("origin.test")["reason"]


# --- shares ---


@case
def NT16_open_connections_are_limited_and_the_next_waits_for_an_end(w):
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{w.echo.port}", connections=4)
        held = [tunnel(s, "origin.test", w.echo.port) for _ in range(4)]
        assert all(b" 200 " in answer for _, answer in held)
        waiting = connect(s.proxy)
        waiting.sendall(f"CONNECT origin.test:{w.echo.port} HTTP/1.1\r\nHost: origin.test:{w.echo.port}\r\n\r\n".encode())
        waiting.settimeout(0.3)
        try:
            raise AssertionError(waiting.recv(100))
        except TimeoutError:
            pass
        held[0][0].close()
        waiting.settimeout(10 * SLOW)
        assert b" 200 " in read_until(waiting, b"\r\n\r\n")


@case
def NT16_a_flood_of_connections_does_not_stop_another_tenant(w):
    with w.start() as e:
        loud = e.listen().bind("deny *", tenant="loud")
        quiet = e.listen().bind(f"allow origin.test:{w.echo.port}", tenant="quiet")
        stop, made = threading.Event(), [0]

        def flood():
            while not stop.is_set():
                try:
                    tunnel(loud, "evil.test", 443)[0].close()
                    made[0] += 1
                except OSError:
                    pass
        threads = [threading.Thread(target=flood, daemon=True) for _ in range(8)]
        for t in threads:
            t.start()
        time.sleep(1)
        times = []
        for _ in range(20):
            at = time.monotonic()
            sock, answer = tunnel(quiet, "origin.test", w.echo.port)
            assert b" 200 " in answer
            times.append(time.monotonic() - at)
            sock.close()
        stop.set()
        assert sorted(times)[18] < 0.5 * SLOW, times
        assert made[0] < 200 + 50 * 8 * SLOW, made  # the burst, then its rate


# --- HTTP ---


@case
def NT16_bytes_that_a_tenant_keeps_waiting_leave_room_for_another(w):
    count = 4200
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4 * count:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * count, 4 * count))
    silent, sockets = listener(), []
    port = silent.getsockname()[1]

    def accept():
        try:
            while True:
                sockets.append(silent.accept()[0])
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    with w.start(options=["--tenant-connections", "6000"]) as e:
        victim = e.listen().bind(f"allow origin.test:{w.web.server_port}", tenant="victim")
        hostile = [e.listen().bind(f"allow 127.0.0.1:{port}", tenant="hostile", connections=512, rate=1000) for _ in range(16)]
        head = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
        for i in range(count):
            sock = connect(hostile[i % 16].proxy)
            sock.setblocking(False)
            sockets.append(sock)
            try:
                sock.send(head + b"G" * 32768)  # the next request, which the proxy reads meanwhile
            except BlockingIOError:
                pass
        before = 0
        while before < len(sockets):  # until its share is used up
            before = len(sockets)
            time.sleep(0.3 * SLOW)
        used = processor_time(e.process.pid)
        assert request(victim, f"http://origin.test:{w.web.server_port}/").status == 200
        time.sleep(1)
        assert processor_time(e.process.pid) - used < 0.7, processor_time(e.process.pid) - used
    silent.close()
    for sock in sockets:
        sock.close()


@case
def a_request_to_the_proxy_is_forwarded_without_what_is_for_one_connection_only(w):
    with w.start() as e:
        s = e.listen().bind("allow origin.test")
        r = request(s, "http://origin.test/a/b?c=d", headers="Proxy-Authorization: Basic eDp5\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nX-End: 2\r\n")
        assert r.status == 200 and r.headers["x-origin"] == "web", r.line
        seen = dict((k.lower(), v) for k, v in r.json["headers"])
        assert r.json["path"] == "/a/b?c=d" and seen["host"] == "origin.test" and seen["x-end"] == "2", r.json
        assert not {"proxy-authorization", "x-hop", "proxy-connection"} & set(seen), seen
        assert request(s, "http://origin.test/", "POST", body="hello").json["body"] == "hello"
        r = Response(b"")
        with connect(s.proxy) as sock:
            sock.sendall(b"HEAD http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nConnection: close\r\n\r\n")
            r = Response(read_all(sock))
        assert r.status == 200 and r.body == b"", r.body


@case
def EG09_every_request_of_a_kept_connection_is_decided_anew(w):
    with w.start() as e:
        s = e.listen().bind("allow origin.test:80 methods=GET path=/public/*", "allow other.test")
        with connect(s.proxy) as sock:
            for host, path, status in (("origin.test", "/public/x", 200), ("other.test", "/any", 200), ("origin.test", "/public/y", 200)):
                sock.sendall(f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                r = read_response(sock)
                assert r.status == status and r.json["path"] == path, r.line
            sock.sendall(b"GET http://origin.test/private HTTP/1.1\r\nHost: origin.test\r\n\r\n")
            r = read_response(sock)
            assert r.status == 403 and r.line.startswith("HTTP/1.1 403 Egress denied: origin.test:80, "), r.line
            assert r.json["error"]["code"] == "egress_denied" and r.json["error"]["fix"], r.json
            assert sock.recv(1) == b""
        for url in ("http://origin.test/public/../private", "http://origin.test/public/%2e%2e/private", "http://origin.test/public%2f..%2fprivate",
                    "http://origin.test/public//x"):
            assert request(s, url).status == 403, url
        assert request(s, "http://origin.test/public/x", "POST", body="x").status == 403
        assert request(s, "http://origin.test/public/./x").status == 200


@case
def EG01_EG02_EG03_no_spelling_of_a_closed_address_is_reached(w):
    with w.start(open_ranges="") as e:
        s = e.listen().bind("allow *:*", "allow 0.0.0.0/0:*", "allow [::/0]:*")
        for host in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200", "0.0.0.0",
                     "168.63.129.16", "198.18.0.1", "[::1]", "[::]", "[fd00:ec2::254]", "[fe80::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
                     "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]", "93.184.216.34",
                     "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "017700000001", "0177.0.0.1", "127.0.0.1.", "127.0.1", "[::1%25lo]"):
            for answer in (tunnel(s, host, 8080)[1], None):
                if answer is None:
                    answer = request(s, f"http://{host}/").line.encode()
                assert answer[9:12] in (b"400", b"403"), (host, answer)
        assert s.report()["connections"] == 0


@case
def EG07_names_are_compared_by_whole_labels_in_one_spelling(w):
    with w.start() as e:
        s = e.listen().bind("allow *.example.test:*", "allow xn--bcher-kva.test:*")
        w.names.records |= {"a.example.test": ["127.0.0.1"], "xn--bcher-kva.test": ["127.0.0.1"]}
        for host in ("a.example.test", "A.EXAMPLE.test", "a.example.test.", "xn--bcher-kva.test"):
            assert b" 200 " in tunnel(s, host, w.echo.port)[1], host
        for host in ("example.test", "evilexample.test", "a.example.test.evil.test", "a.example.test..", ".example.test", "a..example.test",
                     "a.example.test%00.evil.test", "evil.test\\a.example.test", "evil.test/a.example.test", "evil@a.example.test", "a.example.test\t",
                     "b\u00fccher.test", "-.example.test@", "a.example.test:80"):
            sock = connect(s.proxy)
            sock.sendall(f"CONNECT {host}:{w.echo.port} HTTP/1.1\r\nHost: {host}:{w.echo.port}\r\n\r\n".encode())
            assert read_all(sock)[9:12] in (b"400", b"403"), host


@case
def EG12_a_sandbox_is_known_by_its_listener_and_not_by_what_it_says(w):
    with w.start() as e:
        first, second = e.listen().bind("allow origin.test", tenant="a"), e.listen().bind("deny *", tenant="b")
        assert request(first, "http://origin.test/").status == 200
        for value in ("Basic " + "YTpi", "Bearer " + first.name):
            assert request(second, "http://origin.test/", headers=f"Proxy-Authorization: {value}\r\nX-Sandbox: {first.name}\r\n").status == 403
        assert first.report()["refused"] == 0 and second.report()["refused"] == 2


@case
def EG13_heads_that_are_too_long_or_too_slow_cost_bounded_memory(w):
    def talk(conn):
        read_until(conn, b"\r\n\r\n")
        conn.sendall(b"HTTP/1.1 200 OK\r\n" + b"X-Bomb: " + b"x" * 1000 + b"\r\n")
        for _ in range(10000):
            conn.sendall(b"X-Bomb: " + b"x" * 1000 + b"\r\n")
    bomb = Origin(talk)
    with w.start() as e:
        s = e.listen().bind("allow origin.test:*")
        slow = connect(s.proxy, 30)
        slow.sendall(b"GET http://origin.test/ HTTP/1.1\r\n")
        with connect(s.proxy) as sock:
            try:
                sock.sendall(b"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n")
                for i in range(200):
                    sock.sendall(b"X-%d: %s\r\n" % (i, b"y" * 1000))
                assert read_all(sock)[9:12] in (b"400", b"431")
            except (ConnectionResetError, BrokenPipeError):
                pass
        r = request(s, f"http://origin.test:{bomb.port}/")
        assert r.status == 502, r.line
        assert w.is_sanitized or e.memory() < 8 << 20, e.memory()
        assert read_all(slow).startswith(b"HTTP/1.1 408 ")
    bomb.close()


@case
def a_destination_without_a_row_of_counters_is_named_and_gets_its_host(w):
    port = w.web.server_port
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{port}", f"allow *.many.test:{port} methods=GET")
        for i in range(70):
            assert request(s, f"http://n{i}.test/").status == 403
        assert "last.test:80" in request(s, "http://last.test/").line
        w.names.records["a.many.test"] = ["127.0.0.1"]
        sock, _ = tunnel(s, "a.many.test", port)
        with sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert ["Host", f"a.many.test:{port}"] in read_response(sock).json["headers"]


@case
def requests_in_a_row_without_waiting_are_answered_in_order(w):
    with w.start() as e:
        s = e.listen().bind("allow origin.test")
        with connect(s.proxy) as sock:
            sock.sendall(b"".join(b"GET http://origin.test/%d HTTP/1.1\r\nHost: origin.test\r\n\r\n" % i for i in range(20)))
            data = b""
            for i in range(20):
                while data.count(b'"path": "/%d"' % i) == 0 or not data.endswith(b"}"):
                    more = sock.recv(1 << 16)
                    assert more
                    data += more
            at = [data.index(b'"path": "/%d"' % i) for i in range(20)]
            assert at == sorted(at)


@case
def EG08_what_two_servers_could_read_differently_is_refused(w):
    bad = [
        b"GET http://origin.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
        b"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nHost: origin.test\r\n\r\n",
        b"POST http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"GET http://origin.test@evil.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        b"GET https://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        b"GET http://origin.test/ HTTP/1.1\nHost: origin.test\n\n",
        b"CONNECT origin.test HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"\x05\x01\x00",
    ]
    with w.start() as e:
        s = e.listen().bind("allow *")
        for raw in bad:
            with connect(s.proxy) as sock:
                sock.sendall(raw)
                assert read_all(sock).startswith(b"HTTP/1.1 400 "), raw
        report = s.report()
        assert report["sent"] == 0, report


@case
def a_chunked_body_passes_and_bytes_after_it_are_the_next_request(w):
    def talk(conn):
        data = read_until(conn, b"0\r\n\r\n")
        conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n%05d\r\n0\r\n\r\n" % data.count(b"y"))
        data = read_until(conn, b"\r\n\r\n")
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"ok" if data.startswith(b"GET /next ") else b"no"))
    origin = Origin(talk)
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{origin.port}")
        host = f"origin.test:{origin.port}".encode()
        with connect(s.proxy) as sock:
            sock.sendall(b"POST http://%s/ HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % (host, host))
            for _ in range(4):
                time.sleep(0.02)
                sock.sendall(b"3;x=1\r\nyyy\r\n")
            sock.sendall(b"0\r\n\r\nGET http://%s/next HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host))
            data = b""
            while not data.endswith(b"ok"):
                more = sock.recv(4096)
                assert more, data
                data += more
            assert b"00012" in data and origin.accepted == 1, data
    origin.close()


@case
def an_answer_passes_as_it_arrives_and_the_interim_ones_too(w):
    def talk(conn):
        read_until(conn, b"\r\n\r\n")
        conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for i in range(5):
            conn.sendall(b"data: %d\n\n" % i)
            time.sleep(0.2)
    origin = Origin(talk)
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{origin.port}")
        host = f"origin.test:{origin.port}".encode()
        with connect(s.proxy) as sock:
            sock.sendall(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host))
            began = time.monotonic()
            assert b"100 Continue" in read_until(sock, b"data: 0\n\n") and time.monotonic() - began < 0.15 * SLOW
            assert read_until(sock, b"data: 4\n\n").endswith(b"data: 4\n\n")
            assert sock.recv(10) == b""  # the end of the connection is the end of the answer
    origin.close()


@case
def the_end_of_an_answer_waits_for_a_slow_client(w):
    def talk(conn):
        n = int(read_until(conn, b"\r\n\r\n").split(b"/")[1].split()[0])
        conn.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n".encode() + b"x" * n)

    def ask(s, n):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.settimeout(10 * SLOW)
        sock.connect(s.proxy)
        sock.sendall(f"GET http://origin.test:{origin.port}/{n} HTTP/1.1\r\nHost: origin.test:{origin.port}\r\n"
                     "Connection: close\r\n\r\n".encode())
        time.sleep(0.5)
        return sock

    origin = Origin(talk)
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{origin.port}")
        ask(s, 20 << 20).close()
        read = s.report()["received"]  # so much is read for a client that reads nothing: the last bytes wait in the proxy
        waiting = {n: ask(s, n) for n in (read - 200, read - 5000, read - 20000, read - 40000)}
        time.sleep(3)
        for n, sock in waiting.items():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            got = len(read_all(sock).partition(b"\r\n\r\n")[2])
            assert got == n, (n, got)
            sock.close()
    origin.close()


@case
def an_answer_that_is_cut_off_is_not_taken_for_whole(w):
    def talk(conn):
        read_until(conn, b"\r\n\r\n")
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    origin = Origin(talk)
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{origin.port}")
        host = f"origin.test:{origin.port}".encode()
        with connect(s.proxy) as sock:
            sock.sendall(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host))
            try:
                assert read_all(sock) is None
            except ConnectionResetError:
                pass
        assert s.destination("origin.test")["failed"] == 1
    origin.close()


@case
def a_kept_connection_that_the_origin_closed_is_opened_again_for_a_safe_request(w):
    def talk(conn):
        read_until(conn, b"\r\n\r\n")
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        read_until(conn, b"\r\n\r\n")  # and closes without an answer
    origin = Origin(talk)
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{origin.port}")
        host = f"origin.test:{origin.port}".encode()
        with connect(s.proxy) as sock:
            for _ in range(3):
                sock.sendall(b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host))
                assert read_response(sock).body == b"ok"
            sock.sendall(b"POST http://%s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: 1\r\n\r\nx" % (host, host))
            assert read_response(sock).status == 502
    origin.close()


@case
def a_request_in_a_tunnel_may_arrive_with_more_bytes_than_a_head_has(w):
    body = b"x" * (3 << 20)
    with w.start() as e:
        port = w.web.server_port
        s = e.listen().bind(f"allow origin.test:{port}")
        for _ in range(4):
            sock, _ = tunnel(s, "origin.test", port)
            with sock:
                sock.sendall(f"POST /first HTTP/1.1\r\nHost: origin.test:{port}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                answer = read_response(sock)
                assert answer.status == 200 and len(answer.json["body"]) == len(body), answer.line
            assert e.process.poll() is None


@case
def an_upgrade_passes_where_no_rule_reads_requests_and_not_otherwise(w):
    def talk(conn):
        head = read_until(conn, b"\r\n\r\n").lower()
        if b"upgrade: websocket" not in head:
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
            return
        conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nfirst")
        echo(conn)
    origin = Origin(talk)
    host = f"origin.test:{origin.port}".encode()
    ask = b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" % (host, host)
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{origin.port}")
        with connect(s.proxy) as sock:
            sock.sendall(ask)
            assert read_until(sock, b"first").endswith(b"\r\n\r\nfirst")
            sock.sendall(b"ping")
            assert sock.recv(10) == b"ping"
        s.bind(f"allow origin.test:{origin.port} methods=GET")
        with connect(s.proxy) as sock:
            sock.sendall(ask)
            assert read_response(sock).body == b"no"
    origin.close()


@case
def EG09_requests_in_a_tunnel_are_read_where_a_rule_asks_for_them(w):
    with w.start() as e:
        s = e.listen().bind("allow origin.test:80 methods=GET")
        for raw, status in ((b"GET / HTTP/1.1\r\nHost: origin.test\r\n\r\n", 200), (b"POST / HTTP/1.1\r\nHost: origin.test\r\nContent-Length: 0\r\n\r\n", 403),
                            (b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", 400), (b"CONNECT origin.test:80 HTTP/1.1\r\nHost: origin.test:80\r\n\r\n", 400),
                            (b"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n", 400)):
            sock, answer = tunnel(s, "origin.test", 80)
            assert b" 200 " in answer
            sock.sendall(raw)
            assert read_response(sock).status == status, raw
            sock.close()


# --- transparent, in which the port of the listener takes the place of the netfilter rule ---


@case
def a_connection_to_an_invented_address_leads_to_its_name(w):
    with w.start() as e:
        s = e.listen(any_address=("198.18.0.2", 8005)).bind("allow origin.test:8005")
        server = Origin(lambda conn: (conn.sendall(b"SSH-2.0-first\r\n"), echo(conn)), ("127.0.0.2", 8005))
        w.names.records["origin.test"] = ["127.0.0.2"]
        try:
            assert resolve(s, "origin.test") == (0, "198.18.0.2")
            with connect(("198.18.0.2", 8005)) as sock:  # the server speaks first
                assert sock.recv(100) == b"SSH-2.0-first\r\n"
                sock.sendall(b"client")
                assert sock.recv(100) == b"client"
                assert s.connections()[0]["way"] == "transparent"
        finally:
            w.names.records["origin.test"] = ["127.0.0.1"]
        s.bind("allow origin.test:9")
        others = [e.listen(any_address=(a, 8005)).bind("allow *") for a in ("198.18.77.7", "127.0.0.1")]
        for where in ("198.18.0.2", "198.18.77.7", "127.0.0.1"):  # a refused port, no name, the listener itself
            try:
                with connect((where, 8005)) as sock:
                    assert sock.recv(1) == b"", where
            except ConnectionResetError:
                pass
        assert s.destination("origin.test")["refused"] >= 1
        assert all(o.report()["destinations"] == [] for o in others)
        server.close()


@case
def EG06_plain_http_on_port_80_must_name_the_host_of_its_address(w):
    with w.start() as e:
        w.web80.socket.close()  # its port is needed for the listener
        w.web80.shutdown()
        server = http.server.ThreadingHTTPServer(("127.0.0.3", 80), Web)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        w.names.records["origin.test"] = ["127.0.0.3"]
        port = 80
        s = e.listen(any_address=("198.18.0.2", port)).bind("allow origin.test", "allow other.test")
        assert resolve(s, "origin.test") == (0, "198.18.0.2")
        for head, status in ((b"GET /x HTTP/1.1\r\nHost: origin.test\r\n\r\n", 200), (b"GET /x HTTP/1.1\r\nHost: other.test\r\n\r\n", 400),
                             (b"GET /x HTTP/1.1\r\n\r\n", 400), (b"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n", 400),
                             (b"GET /x HTTP/1.0\r\n\r\n", 200), (b"GET /x HTTP/1.1\r\nHost: origin.test:81\r\n\r\n", 400)):
            with connect(("198.18.0.2", port)) as sock:
                sock.sendall(head)
                r = read_response(sock)
                assert r.status == status, (head, r.line)
        s.bind("allow origin.test:443")
        with connect(("198.18.0.2", port)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: origin.test\r\n\r\n")
            assert read_response(sock).line.startswith("HTTP/1.1 403 Egress denied: origin.test:80, ")
        server.shutdown()
        server.server_close()
        w.names.records["origin.test"] = ["127.0.0.1"]
        w.web80 = http.server.ThreadingHTTPServer(("127.0.0.1", 80), Web)
        threading.Thread(target=w.web80.serve_forever, daemon=True).start()


@case
def EG06_a_request_in_a_tunnel_names_the_host_of_the_tunnel_in_every_spelling(w):
    port = w.web.server_port
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{port}", f"allow origin.test:{w.echo.port}")
        for line in ("GET /x", "\r\nGET /x", "GET http://other.test/x", "GET HTTP://other.test/x", "OPTIONS *", "VERY-LONG-METHOD_A /x"):
            for pieces in (1, 4):
                head = f"{line} HTTP/1.1\r\nHost: other.test:{port}\r\n\r\n".encode()
                sock, _ = tunnel(s, "origin.test", port)
                with sock:
                    for i in range(0, len(head), -(-len(head) // pieces)):
                        sock.sendall(head[i:i + -(-len(head) // pieces)])
                        time.sleep(0.01)
                    assert read_response(sock).status == 400, (line, pieces)
        for other in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"OPTIONS rtsp://x RTSP/1.0\r\n", b"0032git-upload-pack /a\0", b"SSH-2.0-x\r\n", b"*1\r\n$4\r\nPING\r\n", b"get /key\r\n",
                      b"EHLO x\r\n"):
            sock, _ = tunnel(s, "origin.test", w.echo.port)
            with sock:
                sock.sendall(other)
                assert read_until(sock, other) == other


def tls_client(sock, name):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(sock, server_hostname=name)


@case
def EG06_the_name_in_tls_must_be_the_name_of_the_connection(w):
    with tempfile.TemporaryDirectory() as d, w.start() as e:
        context = certificate(d, "origin.test")

        def talk(conn):
            with context.wrap_socket(conn, server_side=True) as tls:
                echo(tls)
        server = Origin(talk, ("127.0.0.4", 443))
        w.names.records |= {"origin.test": ["127.0.0.4"], "other.test": ["127.0.0.4"]}
        s = e.listen(any_address=("198.18.0.2", 443)).bind("allow origin.test", "allow other.test")
        assert resolve(s, "origin.test") == (0, "198.18.0.2")

        def through_proxy():
            return tunnel(s, "origin.test", 443)[0]

        def transparent():
            return connect(("198.18.0.2", 443))
        for way in (through_proxy, transparent):
            for name in ("origin.test", None):
                with tls_client(way(), name) as tls:
                    tls.sendall(b"hello")
                    assert tls.recv(10) == b"hello"
            try:
                tls_client(way(), "other.test")
                raise AssertionError("another name was accepted")
            except ssl.SSLError as error:
                assert "UNRECOGNIZED_NAME" in str(error), error
            with way() as sock:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: origin.test\r\n\r\n")
                try:
                    assert sock.recv(1) == b""
                except ConnectionResetError:
                    pass
        s.bind("deny *")
        try:
            tls_client(transparent(), "origin.test")
            raise AssertionError("it was not refused")
        except ssl.SSLError as error:
            assert "ACCESS_DENIED" in str(error), error
        w.names.records |= {"origin.test": ["127.0.0.9"], "other.test": ["127.0.0.1"]}
        s.bind("allow origin.test")
        server.close()
        try:
            tls_client(transparent(), "origin.test")
            raise AssertionError("the destination does not listen")
        except ssl.SSLError as error:
            assert "INTERNAL_ERROR" in str(error), error
        w.names.records["origin.test"] = ["127.0.0.1"]


@case
def EG06_http_on_any_port_must_name_the_host_of_its_connection(w):
    port = w.web.server_address[1]
    with w.start() as e:
        s = e.listen().bind(f"allow origin.test:{port}", f"allow origin.test:{w.echo.port}")
        for first in (b"GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", b"G", b"GET ", b"GET /", b"GET /x HTTP/1.1\r\n"):
            whole = b"GET /x HTTP/1.1\r\nHost: origin.test:%d\r\n\r\n" % port
            sock, _ = tunnel(s, "origin.test", port)
            if first.endswith(b"\r\n\r\n"):
                first = whole
            sock.sendall(first)
            time.sleep(0.05)
            sock.sendall(whole[len(first):])
            assert read_response(sock).json["path"] == "/x"
            sock.sendall(b"GET /y HTTP/1.1\r\nHost: other.test\r\n\r\n")
            assert read_response(sock).status == 400
        for data in (b"PING\r\n", b"GET key\r\n", b"*1\r\n$4\r\nPING\r\n", b"\0\1", b"SELECT 1;"):  # not HTTP
            sock, _ = tunnel(s, "origin.test", w.echo.port)
            sock.sendall(data)
            assert sock.recv(100) == data


# --- secrets ---


def certificate(directory, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", directory + "/k",
                    "-out", directory + "/c", "-days", "2", "-subj", "/CN=" + name, "-addext", "subjectAltName=DNS:" + name], check=True,
                   capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory + "/c", directory + "/k")
    os.chmod(directory, 0o755)
    os.chmod(directory + "/c", 0o644)
    return context


@case
def EG15_a_secret_is_added_on_the_way_out_and_removed_from_the_answer(w):
    value = "sk-3f9c81d2e7a64b50"
    with tempfile.TemporaryDirectory() as d:
        context = certificate(d, "origin.test")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        with w.start(options=("--ca-file", d + "/c")) as e:
            rule = f"secret key origin.test:{port} header=Authorization format=Bearer%20{{}} methods=GET,POST path=/v1/*"
            s = e.listen().bind(rule, secrets={"key": value})
            with connect(s.proxy) as sock:
                for body in ("", "x" * 100000):
                    method = "POST" if body else "GET"
                    sock.sendall(f"{method} http://key.secret.cove/v1/models HTTP/1.1\r\nHost: key.secret.cove\r\nAuthorization: Bearer mine\r\n"
                                 f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
                    r = read_response(sock)
                    seen = dict((k.lower(), v) for k, v in r.json["headers"])
                    assert r.status == 200 and seen["host"] == f"origin.test:{port}", (r.line, seen)
                    assert seen["authorization"] == "Bearer " + "*" * len(value) and value not in r.body.decode(), seen
                    assert r.json["body"] == body
            assert request(s, "http://key.secret.cove/v2/other").status == 403
            assert request(s, "http://key.secret.cove/v1/x", "PUT", body="x").status == 403
            assert request(s, "http://other.secret.cove/v1/x").status == 403
            assert b" 403 " in tunnel(s, "origin.test", port)[1]  # the rule opens this way only
            assert b" 403 " in tunnel(s, "key.secret.cove", 443)[1]
            sock, answer = tunnel(s, "key.secret.cove", 80)
            assert b" 200 " in answer
            sock.sendall(b"GET /v1/a HTTP/1.1\r\nHost: key.secret.cove\r\n\r\n")
            assert read_response(sock).status == 200
            assert [c["way"] for c in s.connections() if c["host"] == "origin.test"] == ["secret"]
            s.bind(rule, secrets={"key": value})  # nothing has changed: the connection stays
            sock.sendall(b"GET /v1/b HTTP/1.1\r\nHost: key.secret.cove\r\n\r\n")
            assert read_response(sock).status == 200
            assert resolve(s, "key.secret.cove")[1].startswith("198.18.") and resolve(s, "no.secret.cove")[0] == 3
            s.report()
            assert sum(count for _, name, host, count in e.secrets if (name, host) == ("key", "origin.test")) == 4, e.secrets
        with w.start() as e:  # an authority that is not known
            s = e.listen().bind(f"secret key origin.test:{port} header=X-Key format={{}}", secrets={"key": value})
            r = request(s, "http://key.secret.cove/")
            assert r.status == 502 and value.encode() not in r.body, r.body
            assert s.report()["failed"] == 1
        server.shutdown()
        server.server_close()


@case
def idle_connections_cost_little_memory(w):
    count, conns = 1000, []
    idle = Origin(lambda conn: time.sleep(60))
    with w.start() as e:
        sandboxes = [e.listen().bind(f"allow origin.test:{idle.port}", tenant=f"t{i}", rate=1000) for i in range(8)]
        before = e.memory()
        for i in range(count):
            conns.append(tunnel(sandboxes[i % 8], "origin.test", idle.port)[0])
        used = (e.memory() - before) / count
        assert w.is_sanitized or used < 3000, used
        for sock in conns:
            sock.close()
    idle.close()


@case
def the_process_has_no_privilege(w):
    with w.start() as e:
        s = e.listen().bind("deny *")
        s.report()
        with open(f"/proc/{e.process.pid}/status", encoding="ascii") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        assert all(int(status[c], 16) == 0 for c in ("CapEff", "CapPrm", "CapInh", "CapAmb")), status
        assert status["NoNewPrivs"] == "1" and (w.is_sanitized or status["Seccomp"] == "2"), status
        if os.geteuid() == 0:
            assert status["Uid"].split() == ["1900290001"] * 4 or status["Uid"].split()[0] == "65534", status["Uid"]


def main():
    program = sys.argv[1]
    only = os.environ.get("COVE_TEST_ONLY")
    cases = [c for c in CASES if not only or only in c.__name__]
    print(f"1..{len(cases)}")
    try:
        enter_namespace()
    except OSError as error:
        for number, c in enumerate(cases, 1):
            print(f"ok {number} - {c.__name__} # SKIP no network namespace: {error}")
        return 0
    world, failed = World(program), False
    for number, c in enumerate(cases, 1):
        try:
            c(world)
            print(f"ok {number} - {c.__name__}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed = True
            print(f"not ok {number} - {c.__name__}")
            print("".join("# " + line for line in traceback.format_exc().splitlines(True)), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
