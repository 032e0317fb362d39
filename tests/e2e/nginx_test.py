"""The recipe of docs/tls.md for nginx, as the page has it: only addresses and paths are filled in.
"""
import json
import os
import re
import shutil
import socket
import subprocess
import time
import unittest

from cove import ROOT, run
from serve_test import wait_for
from tls_test import Tls

NAME = "cove.example.org"
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
AROUND = """daemon off;
user root;
pid {dir}/nginx.pid;
error_log {dir}/nginx.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
{recipe}
}}
"""


def recipe():
    with open(os.path.join(ROOT, "docs/tls.md"), encoding="utf-8") as f:
        return re.search(r"^```nginx\n(.*?)^```$", f.read(), re.MULTILINE | re.DOTALL).group(1)


@unittest.skipUnless(NGINX, "nginx is not installed")
class Nginx(Tls):
    def setUp(self):
        super().setUp()
        self.make(self.cert, self.key, names=f"DNS:{NAME}")
        self.addCleanup(lambda: self.server and self.server.poll() is None and self.server.kill())  # also when nginx does not start
        url = self.start("--allowed-hosts", NAME)
        self.secret = self.launched.key
        self.port = self.proxy(url.removeprefix("http://"))
        status, body = self.call("POST", "/v1/sandboxes", {"runtime": "sh"})
        self.assertEqual(status, 201, body)
        self.sandbox = f"/v1/sandboxes/{json.loads(body)['id']}"

    def proxy(self, behind):
        """Starts nginx; returns its port."""
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        text = recipe()
        for old, new in (("listen 443 ", f"listen 127.0.0.1:{port} "), ("http://127.0.0.1:8700;", f"http://{behind};"),
                         (f"/etc/letsencrypt/live/{NAME}/fullchain.pem", self.cert), (f"/etc/letsencrypt/live/{NAME}/privkey.pem", self.key)):
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        config = self.file("nginx.conf", AROUND.format(dir=self.dir, recipe=text))
        log = self.file("nginx.log", "")
        nginx = subprocess.Popen([NGINX, "-c", config, "-e", log], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(nginx.wait, 60)
        self.addCleanup(nginx.terminate)

        def answers():
            if nginx.poll() is not None:
                with open(log, encoding="utf-8") as f:
                    self.fail(f.read())
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0

        wait_for(answers)
        return port

    def shake(self, context=None, timeout=60):
        return (context or self.trust()).wrap_socket(self.raw(timeout), server_hostname=NAME)

    def opened(self, method, path, body=None, headers=(), length=None):
        """A request on its own connection, whose answer is not read."""
        s = self.shake()
        self.addCleanup(s.close)
        size = {"Content-Length": len(body or b"") if length is None else length} if body is not None else {}
        fields = {"Host": NAME, "Authorization": f"Bearer {self.secret}", "Connection": "close", **size, **dict(headers)}
        s.sendall(f"{method} {path} HTTP/1.1\r\n".encode() + b"".join(f"{k}: {v}\r\n".encode() for k, v in fields.items()) + b"\r\n" + (body or b""))
        return s

    def call(self, method, path, body=None, headers=()):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        kind = {} if isinstance(body, bytes) or body is None else {"Content-Type": "application/json"}
        answer = self.whole(self.opened(method, path, raw, {**kind, **dict(headers)}))
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), rest

    def whole(self, s):
        got = bytearray()
        while piece := s.recv(1 << 16):
            got += piece
        return bytes(got)

    def until(self, s, word):
        got, deadline = b"", time.monotonic() + 120
        while word not in got:
            piece = s.recv(4096)
            self.assertTrue(piece, got)
            self.assertLess(time.monotonic(), deadline, got)  # the timeout of the socket begins again with every ping
            got += piece
        return got

    def test_requests_pass_and_browsers_get_http_2(self):
        done = subprocess.run(["curl", "-sS", "--http2", "--cacert", self.cert, "--resolve", f"{NAME}:{self.port}:127.0.0.1", "-w", "\n%{http_version} %{http_code}",
                               "-H", f"Authorization: Bearer {self.secret}", "-H", "Content-Type: application/json", "-d", '{"command": ["echo", "through"]}',
                               f"https://{NAME}:{self.port}{self.sandbox}/executions"], capture_output=True, timeout=120, check=False)
        body, _, last = done.stdout.decode().rpartition("\n")
        self.assertEqual(last, "2 200", done)
        self.assertEqual(json.loads(body)["stdout"], "through\n")
        done = run("sandbox", "ls", env={"COVE_URL": f"https://localhost:{self.port}", "COVE_API_KEY": self.secret, "COVE_CACERT": self.cert})
        self.assertErrorCode(done, 125, "server_not_trusted")  # that is not the name in the certificate
        self.stop()

    def test_output_arrives_as_it_is_written(self):
        """The program waits for a file that is written only after its first line was seen, so a
        buffered answer would never end."""
        code = "echo first; until [ -e /workspace/go ]; do sleep 0.05; done; echo second"
        for kind in ("application/x-ndjson", "text/event-stream"):
            s = self.opened("POST", self.sandbox + "/executions", json.dumps({"command": ["sh", "-c", code]}).encode(),
                            {"Content-Type": "application/json", "Accept": kind})
            self.assertNotIn(b"second", self.until(s, b"first"))
            status, body = self.call("PUT", self.sandbox + "/files?path=/workspace/go", b"")
            self.assertIn(status, (200, 201, 204), body)
            self.until(s, b"second")
            self.whole(s)
            self.assertEqual(self.call("DELETE", self.sandbox + "/files?path=/workspace/go")[0], 204)
        self.stop()

    def test_files_are_streamed_in_both_directions(self):
        path, data = self.sandbox + "/files?path=/workspace/big", os.urandom(1 << 20) * 24
        status, body = self.call("PUT", path, data)  # more than nginx accepts by default
        self.assertIn(status, (200, 201, 204), body)
        s = self.opened("GET", path)
        answer = self.whole(s)
        self.assertTrue(answer.endswith(data), answer[:300])
        wait_for(lambda: self.figure("api_connections", "") == 1)  # the connection of this request
        s = self.opened("PUT", path, b"x" * 1000, length=2000)
        wait_for(lambda: self.figure("api_connections", "") == 2)  # nginx does not buffer the body first
        s.sendall(b"y" * 1000)
        self.assertRegex(self.whole(s), rb"^HTTP/1.1 20[014] ")
        self.assertTrue(self.call("GET", path)[1].endswith(b"xy" + b"y" * 999))
        self.stop()

    def test_websockets_pass(self):
        s = self.opened("GET", self.sandbox + "/stream", headers={"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                                                                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
        got = self.until(s, b"\r\n\r\n")
        self.assertIn(b" 101 ", got)
        for n in range(20):  # pings, masked with zeros
            s.sendall(bytes([0x89, 0x84, 0, 0, 0, 0]) + b"%04d" % n)
            while b"\x8a\x04%04d" % n not in got:
                got += self.until(s, b"%04d" % n)
        s.close()
        wait_for(lambda: self.figure("api_websockets", "") == 0)
        self.stop()
