"""How a client finds its server, which requests it repeats, and which errors it raises."""
from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any, Dict, List, Tuple

from cove import Cove, Retry, Sandbox, __version__
from cove._call import Attempts
from cove._settings import Settings, resolve
from cove.errors import (BY_CODE, ConnectionLostError, CoveError, ForbiddenError, LimitReachedError, RateLimitedError, ServerUnreachableError,
                         ServiceUnavailableError, UnauthorizedError)

from support import COVE, Case

Answer = Tuple[int, Dict[str, str], Any]


def error(code: str, **more: Any) -> Dict[str, Any]:
    return {"error": {"code": code, "message": "no", "cause": "c", "fix": "f", "docs": "", "requestId": "rq1", **more}}


class Script(http.server.BaseHTTPRequestHandler):
    """Sends the given answers one after the other, then the last one again and again. A status of 0
    closes the connection."""

    answers: List[Answer] = []
    asked: List[Tuple[str, str]] = []
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append((f"{self.command} {self.path}", self.headers.get("Idempotency-Key") or ""))
        status, headers, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status == 0:
            self.close_connection = True
            return
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_DELETE = do_PUT = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Scripted(unittest.TestCase):
    def talk(self, *answers: Answer, window: float = 60.0) -> Cove:
        class Handler(Script):
            pass

        Handler.answers, Handler.asked = list(answers), []
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.asked = Handler.asked
        client = Cove(f"http://127.0.0.1:{server.server_address[1]}", "", retry=Retry(window=window, first=0.01, longest=0.05))
        self.addCleanup(client.close)
        return client

    SANDBOX = {"id": "sb1", "state": "running", "runtime": "sh", "level": "standard", "resources": {}, "timeoutMs": 1, "lifetimeMs": 1,
               "idleTimeoutMs": 0, "idleAction": "end", "metadata": {}, "createdAt": "2026-11-16T02:10:00.000Z"}

    def test_a_refusal_with_retry_after_is_repeated_at_that_time(self) -> None:
        began = time.monotonic()
        client = self.talk((429, {"Retry-After": "1"}, error("rate_limited")), (503, {"Retry-After": "0"}, error("service_unavailable")),
                           (201, {}, self.SANDBOX))
        self.assertEqual(Sandbox.create("sh", client=client).id, "sb1")
        self.assertGreaterEqual(time.monotonic() - began, 1.0)
        self.assertEqual(len(self.asked), 3)
        self.assertEqual(len({key for _, key in self.asked}), 1)
        self.assertTrue(self.asked[0][1])

    def test_the_time_of_retries_is_bounded(self) -> None:
        client = self.talk((429, {"Retry-After": "3600"}, error("rate_limited")))
        with self.assertRaises(RateLimitedError) as met:
            client.version()
        self.assertEqual((met.exception.retry_after, met.exception.request_id, len(self.asked)), (3600.0, "rq1", 1))
        client = self.talk((503, {"Retry-After": "0"}, error("service_unavailable")), window=0.3)
        with self.assertRaises(ServiceUnavailableError):
            client.version()
        self.assertGreaterEqual(len(self.asked), 2)

    def test_a_limit_that_waiting_does_not_lift_is_raised_at_once(self) -> None:
        client = self.talk((429, {}, error("process_limit_reached")))
        with self.assertRaises(LimitReachedError):
            client.version()
        self.assertEqual(len(self.asked), 1)

    def test_a_lost_request_is_repeated_only_if_it_is_idempotent(self) -> None:
        client = self.talk((0, {}, b""), (0, {}, b""), (201, {}, self.SANDBOX))
        self.assertEqual(Sandbox.create("sh", client=client).id, "sb1")
        self.assertEqual((len(self.asked), len({key for _, key in self.asked})), (3, 1))
        client = self.talk((0, {}, b""))
        with self.assertRaises(ConnectionLostError):
            client.keys.create("k", ["files"])
        self.assertEqual(len(self.asked), 1)

    def test_a_repeated_request_waits_for_the_first_that_still_runs(self) -> None:
        client = self.talk((0, {}, b""), (409, {"Retry-After": "0"}, error("idempotency_conflict")), (201, {}, self.SANDBOX))
        self.assertEqual(Sandbox.create("sh", client=client).id, "sb1")
        self.assertEqual(len(self.asked), 3)

    def test_not_found_after_a_lost_delete_is_success(self) -> None:
        client = self.talk((0, {}, b""), (404, {}, error("not_found")))
        client.templates.delete("t")
        self.assertEqual(len(self.asked), 2)

    def test_a_proxy_error_page_and_an_unknown_code_raise_errors_with_a_kind(self) -> None:
        client = self.talk((502, {}, b"<html>bad gateway</html>"), (200, {}, {"status": "ok", "version": "9"}))
        self.assertEqual(client.version(), "9")  # repeated, because it is idempotent
        client = self.talk((403, {}, error("not_on_sundays")))
        with self.assertRaises(ForbiddenError) as met:
            client.version()
        self.assertEqual((met.exception.code, met.exception.fix, met.exception.cause), ("not_on_sundays", "f", "c"))
        for odd in (b"no json", b"[" * 200000, b'"text"'):
            for status in (200, 400):
                with self.assertRaises(CoveError):
                    self.talk((status, {}, odd)).version()

    def test_unknown_fields_are_kept(self) -> None:
        client = self.talk((201, {}, {**self.SANDBOX, "colour": "red"}))
        self.assertEqual(Sandbox.create("sh", client=client).info.raw["colour"], "red")


class Contact(Case):
    def test_an_unreachable_server_is_reported_soon(self) -> None:
        began = time.monotonic()
        with Cove("http://127.0.0.1:9") as client, self.assertRaises(ServerUnreachableError) as met:
            client.version()
        self.assertLess(time.monotonic() - began, 60)
        self.assertIn("cove serve", met.exception.fix)

    def test_tcp_needs_a_key_and_the_socket_does_not(self) -> None:
        with Cove(self.server.url, "") as nobody, self.assertRaises(UnauthorizedError):
            list(Sandbox.list(client=nobody))
        with Cove(self.server.url, self.server.key) as owner:
            list(Sandbox.list(client=owner))
        list(Sandbox.list(client=self.client))

    def test_a_sandbox_without_a_client_creates_its_own(self) -> None:
        os.environ.update(COVE_URL=self.server.url, COVE_API_KEY=self.server.key)
        self.addCleanup(lambda: (os.environ.pop("COVE_URL"), os.environ.pop("COVE_API_KEY")))
        with Sandbox.create("sh") as box:
            self.assertEqual(box.run_command("echo hi").stdout, "hi\n")
        self.assertTrue(box._http.client.is_closed)
        self.assertIn(box.id, [info.id for info in Sandbox.list()])


    def test_the_login_of_the_command_line_is_used(self) -> None:
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("COVE_")}, "XDG_CONFIG_HOME": self.dir}
        subprocess.run([COVE, "login", "-q", self.server.url], input=self.server.key, text=True, check=True, env=env)
        told = resolve(None, None, None, 60.0, None, False, env)
        self.assertEqual((told.url, told.api_key, told.socket), (self.server.url, self.server.key, None))
        script = "import cove; print(cove.Cove().whoami().kind)"
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
        self.assertEqual((done.stdout, done.returncode), ("key\n", 0), done.stderr)


class Where(unittest.TestCase):
    def settings(self, **said: Any) -> Settings:
        environ = said.pop("environ", {})
        return resolve(said.get("url"), said.get("api_key"), said.get("socket"), 60.0, None, said.get("insecure", False), environ)

    def test_arguments_take_precedence_over_the_environment(self) -> None:
        environ = {"COVE_URL": "https://one/", "COVE_API_KEY": "cove_1"}
        told = self.settings(environ=environ)
        self.assertEqual((told.url, told.api_key, told.socket), ("https://one", "cove_1", None))
        told = self.settings(environ=environ, url="https://two:1", api_key="cove_2")
        self.assertEqual((told.url, told.api_key), ("https://two:1", "cove_2"))
        self.assertEqual(self.settings(environ=environ, socket="/s").socket, "/s")

    def test_the_certificate_of_an_authority_is_read_or_refused(self) -> None:
        environ = {"COVE_URL": "https://one", "COVE_CACERT": "/nowhere/ca.pem"}
        with self.assertRaisesRegex(ValueError, "/nowhere/ca.pem"):
            self.settings(environ=environ)
        told = resolve(None, None, None, 60.0, None, False, environ, __file__)
        self.assertEqual(told.cacert, __file__)
        self.assertIsNone(self.settings(environ={"COVE_URL": "https://one", "COVE_CACERT": ""}).cacert)

    def test_a_key_is_not_sent_unencrypted_over_the_network(self) -> None:
        with self.assertRaisesRegex(ValueError, "https://"):
            self.settings(url="http://example.org", api_key="cove_1")
        self.settings(url="http://example.org", api_key="cove_1", insecure=True)
        for url in ("http://127.0.0.1:8700", "http://localhost", "http://[::1]:1", "https://example.org"):
            self.settings(url=url, api_key="cove_1")

    def kept(self, mode: int = 0o600, **told: Any) -> Dict[str, str]:
        """An environment with a login in its configuration directory."""
        scratch = tempfile.TemporaryDirectory(prefix="cove-sdk-")
        self.addCleanup(scratch.cleanup)
        os.mkdir(os.path.join(scratch.name, "cove"))
        path = os.path.join(scratch.name, "cove/login.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(told, f)
        os.chmod(path, mode)
        return {"XDG_CONFIG_HOME": scratch.name}

    def test_the_kept_login_supplies_missing_arguments(self) -> None:
        environ = self.kept(url="https://one/", key="cove_1", cacert=__file__, expiresMs=0)
        told = self.settings(environ=environ)
        self.assertEqual((told.url, told.api_key, told.cacert, told.socket), ("https://one", "cove_1", __file__, None))
        told = self.settings(environ=environ, url="https://one")
        self.assertEqual((told.url, told.api_key, told.cacert), ("https://one", "cove_1", __file__))
        told = self.settings(environ={**environ, "COVE_API_KEY": "cove_2"})
        self.assertEqual((told.url, told.api_key), ("https://one", "cove_2"))
        told = self.settings(environ={**environ, "COVE_CACERT": os.__file__})
        self.assertEqual(told.cacert, os.__file__)
        told = self.settings(environ=environ, socket="/s")
        self.assertEqual((told.socket, told.api_key, told.cacert), ("/s", None, None))

    def test_a_kept_key_is_sent_to_its_own_server_only(self) -> None:
        environ = self.kept(url="https://one", key="cove_1", cacert=__file__)
        for told in (self.settings(environ=environ, url="https://two"), self.settings(environ={**environ, "COVE_URL": "https://one:444"})):
            self.assertEqual((told.api_key, told.cacert), (None, None))
        self.assertIsNone(self.settings(environ=environ, api_key="").api_key)

    def test_a_readable_expired_or_malformed_login_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "other users can read it"):
            self.settings(environ=self.kept(0o640, url="https://one", key="cove_1"))
        with self.assertRaisesRegex(ValueError, "has ended"):
            self.settings(environ=self.kept(url="https://one", key="cove_1", expiresMs=1000, refresh="r"))
        with self.assertRaisesRegex(ValueError, "log in again"):
            self.settings(environ=self.kept(url="https://one"))
        self.settings(environ=self.kept(0o640, url="https://one", key="cove_1"), url="https://two", api_key="cove_2")  # the login is not read

    def test_invalid_settings_are_refused(self) -> None:
        for said in ({"url": "example.org"}, {"url": "ftp://x"}, {"url": "http://x", "socket": "/s"}, {"url": "https://x", "api_key": "a\nb"}):
            with self.assertRaises(ValueError, msg=said):
                self.settings(**said)

    def test_repr_does_not_show_the_key(self) -> None:
        with Cove("https://example.org", "cove_secret") as client:
            self.assertNotIn("secret", repr(client) + str(vars(client)))


class Pauses(unittest.TestCase):
    def test_pauses_grow_and_end_with_the_window(self) -> None:
        attempts = Attempts(Retry(window=10, first=1, longest=4), True, known=True)
        lost, now, waits = ConnectionLostError("x"), 100.0, []
        with self.assertRaises(ConnectionLostError):
            while True:
                waits.append(attempts.pause(lost, now))
                now += waits[-1]
        self.assertLessEqual(sum(waits), 10)
        self.assertTrue(all(w <= 4 for w in waits))
        attempts.record_success()
        self.assertLessEqual(attempts.pause(lost, now), 1)

    def test_every_error_code_has_its_class(self) -> None:
        self.assertGreater(len(BY_CODE), 50)
        for code, cls in BY_CODE.items():
            made = cls("m")
            self.assertEqual(made.code, code)
            self.assertTrue(made.cause and made.fix and code in str(made), code)
        self.assertRegex(__version__, r"^\d+\.\d+\.\d+")
