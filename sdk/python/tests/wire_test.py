"""HTTP: answers in any pieces, malformed answers, connections that are kept, proxies."""
from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest
import unittest.mock
from typing import Callable, Iterator, List, Tuple

from cove import AsyncCove, Cove, Retry
from cove._settings import resolve
from cove._wire import AnswerParser, Headers, WireError, request_head
from cove.errors import ConnectionLostError, InvalidRequestError, ServerUnreachableError

from support import Case

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
ANSWERS: Tuple[Tuple[bytes, int, bytes, bool], ...] = (
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", 200, b"abcde", True),
    (CHUNKED, 200, b"abcde", True),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", 201, b"", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    (b"HTTP/1.1 404\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", 404, b"no", False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    (b"HTTP/1.1 200 OK\r\nX: 1\r\n\r\nuntil the end", 200, b"until the end", False),
)
MALFORMED = (
    b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: ,\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 2000, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70000,
)


class Parser(unittest.TestCase):
    def test_answers_are_read_in_pieces_of_any_size(self) -> None:
        for text, status, body, keeps in ANSWERS:
            for size in (1, 2, 7, len(text)):
                parser, pieces = AnswerParser("GET"), []
                for at in range(0, len(text), size):
                    pieces += parser.feed(text[at:at + size])
                if not parser.ended:
                    pieces += parser.feed(b"")
                self.assertEqual((parser.status, b"".join(pieces), parser.ended, parser.keeps), (status, body, True, keeps), (text, size))

    def test_malformed_answers_are_refused(self) -> None:
        for text in MALFORMED:
            with self.assertRaises(WireError, msg=text):
                AnswerParser("GET").feed(text)

    def test_an_answer_that_is_cut_is_not_complete(self) -> None:
        for text, _, _, _ in ANSWERS[:3]:
            for end in range(len(text)):
                parser = AnswerParser("GET")
                parser.feed(text[:end] or b"H")
                with self.assertRaises(WireError, msg=text[:end]):
                    parser.feed(b"")

    def test_a_connection_with_unread_bytes_is_not_kept(self) -> None:
        parser = AnswerParser("GET")
        self.assertEqual(parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1"), [b"ok"])
        self.assertEqual((parser.ended, parser.keeps), (True, False))

    def test_headers_are_joined_and_compared_without_case(self) -> None:
        headers = Headers([("Connection", "Keep-Alive"), ("connection", "close"), ("ETag", '"1"')])
        self.assertEqual((headers.words("CONNECTION"), headers.get("etag"), headers.get("none")), (["keep-alive", "close"], '"1"', None))

    def test_a_header_cannot_hold_another(self) -> None:
        for value in ("a\r\nX: b", "a\nb", "a\0", "\u2028"):
            with self.assertRaisesRegex(ValueError, "Idempotency-Key: "):
                request_head("POST", "/", {"Idempotency-Key": value})


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a port of this machine that handles each connection in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def head_of(connection: socket.socket) -> bytes:
    text = b""
    while b"\r\n\r\n" not in text:
        piece = connection.recv(65536)
        if not piece:
            break
        text += piece
    return text


HEALTH = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + b'{"version":"9"}'


class Connections(Case):
    def test_connections_are_kept_until_the_server_closes_them(self) -> None:
        proxy_client = self.through()
        for _ in range(3):
            proxy_client.version()
        self.assertEqual(self.proxy.connections, 1)
        self.proxy.cut()
        proxy_client.version()
        self.assertEqual(self.proxy.connections, 2)

    def test_an_asynchronous_client_keeps_connections_too(self) -> None:
        self.through()

        async def main() -> None:
            async with AsyncCove(self.proxy.url, self.server.key) as client:
                await client.version()
                await client.version()
                self.proxy.cut()
                await client.version()
                await asyncio.gather(*(client.version() for _ in range(3)))

        asyncio.run(main())
        self.assertEqual(self.proxy.connections, 4)

    def test_a_closed_client_sends_nothing(self) -> None:
        self.client.close()
        with self.assertRaisesRegex(RuntimeError, "this client is closed"):
            self.client.version()

    def test_a_refusal_is_read_although_the_server_takes_no_more_data(self) -> None:
        def refuse(connection: socket.socket) -> None:
            head_of(connection)
            body = b'{"error":{"code":"invalid_request","message":"too large"}}'
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):  # the client may send all of it, or notice the end
                pass
            connection.close()

        with listening(refuse) as port, Cove(f"http://127.0.0.1:{port}", "", retry=Retry(window=0)) as client:
            with self.assertRaisesRegex(InvalidRequestError, "too large"):
                client.execute("1", files={"f": b"x" * 3000000})

    def test_a_server_that_does_not_speak_http_is_reported(self) -> None:
        def greet(connection: socket.socket) -> None:
            connection.sendall(b"SSH-2.0-OpenSSH_9\r\n\r\n")
            connection.close()

        with listening(greet) as port, Cove(f"http://127.0.0.1:{port}", "", retry=Retry(window=0)) as client:
            with self.assertRaisesRegex(ConnectionLostError, "does not speak HTTP"):
                client.version()


class Proxies(unittest.TestCase):
    asked: List[bytes]

    def environment(self, **more: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        patch = unittest.mock.patch.dict(os.environ, {**kept, **more}, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def setUp(self) -> None:
        self.asked = []

    def test_a_request_passes_a_proxy(self) -> None:
        def proxy(connection: socket.socket) -> None:
            self.asked.append(head_of(connection))
            connection.sendall(HEALTH)

        with listening(proxy) as port:
            self.environment(http_proxy=f"http://me:p%40ss@127.0.0.1:{port}", no_proxy="other.example")
            with Cove("http://cove.example", "") as client:
                self.assertEqual(client.version(), "9")
        self.assertTrue(self.asked[0].startswith(b"GET http://cove.example/health HTTP/1.1\r\nHost: cove.example\r\n"), self.asked)
        self.assertIn(b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n", self.asked[0])

    def test_tls_passes_a_tunnel(self) -> None:
        with tempfile.TemporaryDirectory() as here:
            pem = os.path.join(here, "pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=cove.example",
                            "-addext", "subjectAltName=DNS:cove.example", "-keyout", pem, "-out", pem + "2"], check=True, stderr=subprocess.DEVNULL)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem + "2", pem)

            def proxy(connection: socket.socket) -> None:
                self.asked.append(head_of(connection))
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                with contextlib.suppress(OSError):
                    secure = context.wrap_socket(connection, server_side=True)
                    self.asked.append(head_of(secure))
                    secure.sendall(HEALTH)

            async def ask() -> str:
                async with AsyncCove("https://cove.example", "cove_key", cacert=pem + "2") as client:
                    return await client.version()

            with listening(proxy) as port:
                self.environment(https_proxy=f"127.0.0.1:{port}")
                with Cove("https://cove.example", "cove_key", cacert=pem + "2") as client:
                    self.assertEqual((client.version(), asyncio.run(ask())), ("9", "9"))
        tunnel, request = self.asked[:2]
        self.assertEqual(tunnel, b"CONNECT cove.example:443 HTTP/1.1\r\nHost: cove.example:443\r\n\r\n")
        self.assertIn(b"Authorization: Bearer cove_key", request)
        self.assertEqual(len(self.asked), 4)

    def test_a_proxy_that_refuses_is_reported(self) -> None:
        def proxy(connection: socket.socket) -> None:
            head_of(connection)
            connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

        with listening(proxy) as port:
            self.environment(all_proxy=f"http://127.0.0.1:{port}")
            with Cove("https://cove.example", "", retry=Retry(window=0)) as client, self.assertRaisesRegex(ServerUnreachableError, "refused .* status 407"):
                client.version()

    def test_which_servers_have_a_proxy(self) -> None:
        self.environment(HTTPS_PROXY="http://proxy.example:3128", NO_PROXY="inside.example")
        for url, host in (("https://cove.example", "proxy.example"), ("http://cove.example", None), ("https://inside.example", None),
                          ("https://127.0.0.1:8700", None)):
            found = resolve(url, "", None, 10.0, None, False, {}).proxy()
            self.assertEqual(found.host if found else None, host, url)
        self.environment(https_proxy="socks5://proxy.example")
        with self.assertRaisesRegex(ValueError, "^'socks5://proxy.example': is not a proxy that this package can use"):
            Cove("https://cove.example", "")
