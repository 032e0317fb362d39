#!/usr/bin/env python3
"""origins.py [NAME...] - HTTP servers for the examples of pages: each NAME has an address of its
own on loopback, port 80 there, and an answer that begins with its name. Prints one line when they
listen:

    RESOLVER PREFIX    for egress.resolvers and egress.openRanges

and runs until standard input ends. Needs root, because of the port.

    with Origins("api.example.org") as origins:
        origins.resolver, origins.prefix, origins.requests   # (host, method, path, headers)
"""
import http.server
import os
import random
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from nameserver import NameServer  # noqa: E402


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.headers.get("Host"), self.command, self.path, dict(self.headers)))
        data = f"{self.headers.get('Host')} {self.command} {self.path} {len(body)}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


class Origins:
    def __init__(self, *names, port=80):
        self.names, self.port, self.requests, self.servers = names, port, [], []

    def __enter__(self):
        part = random.SystemRandom().randrange(256, 1 << 16)  # one network of 256 addresses for each user of this class
        self.prefix = f"127.{part >> 8}.{part & 255}.0/24"
        addresses = {name: self.prefix.replace(".0/24", f".{i}") for i, name in enumerate(self.names, 1)}
        self.servers = [http.server.ThreadingHTTPServer((address, self.port), Handler) for address in addresses.values()]
        for server in self.servers:
            server.requests, server.daemon_threads = self.requests, True
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.resolution = NameServer({name: [address] for name, address in addresses.items()}).__enter__()
        self.resolver = self.resolution.address
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()
        self.resolution.__exit__()


def main():
    with Origins(*sys.argv[1:]) as origins:
        print(origins.resolver, origins.prefix, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
