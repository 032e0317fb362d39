"""A real server in its own directory, and a proxy that cuts connections."""
from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, TypeVar

import cove._async._http
import cove._async._websocket
import cove._sync._http
import cove._sync._websocket
from cove import Cove, Retry, Sandbox

COVE = os.environ.get("COVE", "cove")
PATIENCE = 120.0
OPEN_RANGE = "127.86.0.0/16"
"""Addresses of this machine that sandboxes may reach, if their rules allow it."""
T = TypeVar("T")


def wait_for(what: Callable[[], Optional[T]], seconds: float = PATIENCE) -> T:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("the condition did not become true in time")


class Server:
    """`cove serve`, as an operator starts it."""

    def __init__(self) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="cove-sdk-")
        os.chmod(self.scratch.name, 0o755)
        place = os.path.join(self.scratch.name, "place")
        self.run_dir = os.path.join(place, "run")
        self.socket = os.path.join(self.run_dir, "api.sock")
        self.said = os.path.join(self.scratch.name, "said")
        self.logged = os.path.join(self.scratch.name, "log")
        with open(self.said, "wb") as out, open(self.logged, "wb") as err:
            self.process = subprocess.Popen([COVE, "serve", "--state-dir", place, "--listen", "127.0.0.1:0", "--egress-open-ranges", OPEN_RANGE],
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        wait_for(lambda: "is ready" in self.text() or self.process.poll() is not None)
        if self.process.poll() is not None:
            with open(self.logged, encoding="utf-8") as f:
                raise AssertionError(f.read())
        words = self.text().split()
        self.url, self.key = words[words.index("address") + 1], words[words.index("key") + 1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def text(self) -> str:
        with open(self.said, encoding="utf-8") as f:
            return f.read()

    def pid(self, name: str) -> Optional[int]:
        """The process id of a program of this server."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f, open(f"/proc/{pid}/comm", encoding="utf-8") as g:
                    if g.read().strip() == name and self.run_dir in f.read().decode(errors="replace"):
                        return int(pid)
            except OSError:
                continue
        return None

    def kill_coved(self) -> None:
        pid = wait_for(lambda: self.pid("coved"))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: (self.pid("coved") or pid) != pid)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.scratch.cleanup()


class Proxy:
    """Forwards to a port. Each connection transfers as many bytes of the answer as the next number
    of `cuts` says, and is cut when there would be more; with 0 the server has done its work and the
    answer is lost. `ups` are the same limits for the bytes that the client sends."""

    def __init__(self, port: int, cuts: Sequence[int], ups: Sequence[int] = (), context: Optional[ssl.SSLContext] = None) -> None:
        self.port, self.cuts, self.ups, self.context = port, list(cuts), list(ups), context
        self.connections = 0
        self.lock = threading.Lock()
        self.heard = threading.Event()  # while it is clear, answers of the server are held back
        self.heard.set()
        self.open: List[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                budget = self.cuts.pop(0) if self.cuts else None
                upward = self.ups.pop(0) if self.ups else None
            threading.Thread(target=self.serve, args=(client, budget, upward), daemon=True).start()

    def serve(self, client: socket.socket, budget: Optional[int], upward: Optional[int]) -> None:
        try:
            client = self.context.wrap_socket(client, server_side=True) if self.context else client
        except OSError:
            client.close()
            return
        server = socket.create_connection(("127.0.0.1", self.port))
        with self.lock:
            self.open += [client, server]
        threading.Thread(target=self.forward, args=(client, server, upward), daemon=True).start()
        self.forward(server, client, budget)

    def forward(self, source: socket.socket, target: socket.socket, budget: Optional[int]) -> None:
        try:
            while True:
                data = source.recv(65536)
                if not data or source in self.open[1::2] and not self.heard.wait(PATIENCE):
                    break
                target.sendall(data if budget is None else data[:budget])
                if budget is not None:
                    budget -= len(data)
                    if budget < 0:
                        break
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            if budget is not None and not self.context:
                end.close()

    def cut(self) -> None:
        """Cuts every open connection; answers held back are lost."""
        with self.lock:
            for end in self.open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self.open = []
        self.heard.set()

    def close(self) -> None:
        self.heard.set()
        self.listener.close()


CALLED: Set[Tuple[str, str]] = set()


def record(module: Any, name: str) -> None:
    """Makes every request append its method and path to CALLED."""
    cls = getattr(module, name)
    plain = cls.open

    def open_and_tell(self: Any, call: Any) -> Any:
        CALLED.add((call.method, call.path))
        return plain(self, call)

    cls.open = open_and_tell


def record_links(module: Any, name: str) -> None:
    """Does the same for WebSockets."""
    cls = getattr(module, name)
    plain = cls.open

    def open_and_tell(settings: Any, target: str) -> Any:
        CALLED.add(("GET", target.partition("?")[0]))
        return plain(settings, target)

    cls.open = open_and_tell


record_links(cove._sync._websocket, "WebSocket")
record_links(cove._async._websocket, "AsyncWebSocket")
record(cove._sync._http, "HTTP")
record(cove._async._http, "AsyncHTTP")


_server: List[Server] = []


def server() -> Server:
    """The server that all tests of this run share."""
    if not _server:
        _server.append(Server())
    return _server[0]


def stop_server() -> None:
    while _server:
        _server.pop().stop()


class Case(unittest.TestCase):
    """A test with a client that is the owner of the server."""

    maxDiff = 4000

    def setUp(self) -> None:
        self.server = server()
        self.client = Cove(socket=self.server.socket)
        self.addCleanup(self.client.close)
        scratch = tempfile.TemporaryDirectory(prefix="cove-sdk-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name

    def sandbox(self, client: Optional[Cove] = None, runtime: str = "sh", metadata: Optional[Dict[str, str]] = None) -> Sandbox:
        made = Sandbox.create(runtime, client=client or self.client, lifetime=900, timeout=300, metadata=metadata)
        self.addCleanup(lambda: Sandbox.connect(made.id, client=self.client).delete())
        return made

    def through(self, *cuts: int, ups: Sequence[int] = ()) -> Cove:
        """A client whose connections are cut after the given numbers of bytes, one after the other;
        later ones are not cut."""
        proxy = Proxy(self.server.port, cuts, ups)
        self.addCleanup(proxy.close)
        client = Cove(proxy.url, self.server.key, retry=Retry(window=PATIENCE, first=0.01))
        self.addCleanup(client.close)
        self.proxy = proxy
        return client

    def path(self, name: str) -> str:
        return os.path.join(self.dir, name)
