#!/usr/bin/env python3
"""origins.py - servers on loopback that sandboxes of tests call through the egress proxy.

    with Origins(directory, names=["origin.test"]) as there:
        there.address      # of 127.0.0.0/8: HTTP on port 80, HTTPS on 443, echo on 7000
        there.seen         # every request so far: (host, method, path, headers, tls)
        there.ca           # file of the certificate authority of HTTPS

Paths: /headers answers with the request's headers as JSON, /echo with its body, /bytes/N with N
bytes, /slow/N with N lines, one each 100 ms, /redirect/URL with a redirect, /headers-bomb with a
head that never ends, /files/... with files of `there.files`; others with "hello from HOST".
"""
import http.server
import itertools
import json
import os
import socketserver
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def answer(self, body, status=200, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def taken(self):
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length) if length else b""

    def do(self):
        origins = self.server.origins
        body = self.taken()
        tls = isinstance(self.request, ssl.SSLSocket)
        with origins.lock:
            origins.seen.append((self.headers.get("Host", ""), self.command, self.path, dict(self.headers.items()), tls))
        first, _, rest = self.path[1:].partition("/")
        if first == "headers":
            return self.answer(json.dumps(dict(self.headers.items())).encode(), kind="application/json")
        if first == "echo":
            return self.answer(body)
        if first == "bytes":
            return self.answer(b"x" * int(rest))
        if first == "slow":
            return self.slow(int(rest))
        if first == "redirect":
            self.send_response(302)
            self.send_header("Location", urllib.parse.unquote(rest))
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if first == "headers-bomb":
            return self.bomb()
        if first == "files":
            self.directory = origins.files
            self.path = "/" + rest
            return super().do_GET() if self.command == "GET" else super().do_HEAD()
        return self.answer(f"hello from {self.headers.get('Host', '')}\n".encode())

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do

    def slow(self, lines):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for n in range(lines):
            self.wfile.write(b"7\r\nline %d\n\r\n" % (n % 10))
            self.wfile.flush()
            time.sleep(0.1)
        self.wfile.write(b"0\r\n\r\n")

    def bomb(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        try:
            for n in range(100000):
                self.wfile.write(b"X-Header-%d: %s\r\n" % (n, b"y" * 1000))
        except OSError:
            pass
        self.close_connection = True


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        with self.server.origins.lock:
            self.server.origins.echoed += 1
        self.request.sendall(b"ready\n")  # the server speaks first, as those of mail and databases do
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 128

    def __init__(self, address, handler, origins):
        self.origins = origins
        super().__init__(address, handler)

    def handle_error(self, *_):
        pass  # clients of these tests break off


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Origins:
    HTTP, HTTPS, ECHO = 80, 443, 7000
    made = itertools.count()

    def __init__(self, directory, names, address=None):
        # Each object has an address of its own, so that tests run beside and after each other.
        number = os.getpid() * 8 + next(self.made) % 8
        self.address = address or f"127.{77 + number // 50000 % 100}.{number // 200 % 250 + 1}.{number % 200 + 10}"
        self.directory, self.names = directory, names
        self.seen, self.echoed, self.lock, self.servers = [], 0, threading.Lock(), []
        self.files = os.path.join(directory, "origin-files")
        self.ca = os.path.join(directory, "ca.pem")

    def certificate(self):
        key, request, leaf, more = (os.path.join(self.directory, name) for name in ("ca.key", "leaf.csr", "leaf.pem", "leaf.cnf"))
        if not os.path.exists(leaf):
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test authority",
                    "-keyout", key, "-out", self.ca)
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={self.names[0]}", "-keyout",
                    leaf + ".key", "-out", request)
            with open(more, "w", encoding="ascii") as f:
                f.write("subjectAltName=" + ",".join("DNS:" + name for name in self.names))
            openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", key, "-CAcreateserial", "-days", "2", "-extfile", more, "-out", leaf)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf, leaf + ".key")
        return context

    def __enter__(self):
        os.makedirs(self.files, exist_ok=True)
        for port, handler in ((self.HTTP, Handler), (self.HTTPS, Handler), (self.ECHO, Echo)):
            server = Server((self.address, port), handler, self)
            if port == self.HTTPS:
                server.socket = self.certificate().wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self.servers.append(server)
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def requests(self, path):
        with self.lock:
            return [request for request in self.seen if request[2].startswith(path)]


def main():
    """origins.py NAME... - the same for the examples of pages: prints RESOLVER PREFIX CA, and runs
    until standard input ends."""
    from nameserver import NameServer  # pylint: disable=import-outside-toplevel

    names = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="cove-origins-") as directory:
        os.chmod(directory, 0o755)
        with Origins(directory, names) as there, NameServer({name: [there.address] for name in names}) as resolver:
            os.chmod(there.ca, 0o644)
            print(resolver.address, there.address + "/32", there.ca, flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    sys.exit(main())
