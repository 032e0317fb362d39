"""How a client finds its server, which requests it repeats, and which errors it raises."""
from __future__ import annotations

import asyncio
import contextlib
import datetime
import http.server
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.parse
from typing import Any, Dict, List, Tuple

from cove import Cove, Retry, Sandbox, __version__
from cove._async._http import AsyncHTTP
from cove._call import ANSWER_MAX, Attempts, Call
from cove._json import milliseconds
from cove._settings import Settings, resolve
from cove._sync._http import HTTP
from cove.errors import (BY_CODE, ConnectionLostError, CoveError, ForbiddenError, LimitReachedError, ProtocolError, RateLimitedError, ServerUnreachableError,
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
        client = self.talk((409, {}, error("process_limit_reached")))
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
        client = self.talk((404, {}, {"error": {"code": "not_found", "message": "no", "docs": "", "requestId": "rq1"}}))
        with self.assertRaises(CoveError) as missing:
            client.version()
        self.assertEqual((str(missing.exception), missing.exception.fix, missing.exception.cause), ("no [not_found]", None, None))
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
        self.assertIn("cove serve", met.exception.fix or "")

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
        self.assertTrue(box._http.connections.closed)
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
        with self.assertRaisesRegex(ValueError, "has expired"):
            self.settings(environ=self.kept(url="https://one", key="cove_1", expiresMs=1000, refresh="r"))
        with self.assertRaisesRegex(ValueError, "log in again"):
            self.settings(environ=self.kept(url="https://one"))
        self.settings(environ=self.kept(0o640, url="https://one", key="cove_1"), url="https://two", api_key="cove_2")  # the login is not read

    def test_an_expired_login_that_can_be_renewed_is_used(self) -> None:
        told = self.settings(environ=self.kept(url="https://one", key="old", expiresMs=1000, refresh="r", issuer="i", clientId="c", tokenUrl="https://id/t"))
        self.assertEqual((told.api_key, told.bearer, told.login is not None and told.login.is_due()), ("old", "old", True))

    def test_invalid_settings_are_refused(self) -> None:
        for said in ({"url": "example.org"}, {"url": "ftp://x"}, {"url": "http://x", "socket": "/s"}, {"url": "https://x", "api_key": "a\nb"}):
            with self.assertRaises(ValueError, msg=said):
                self.settings(**said)

    def test_certificates_are_read_for_https_only(self) -> None:
        patch = unittest.mock.patch.object
        with patch(ssl.SSLContext, "load_verify_locations") as read, patch(ssl.SSLContext, "load_default_certs") as found:
            def ask(client: Cove) -> None:
                with client, self.assertRaises(ServerUnreachableError):
                    client.version()

            ask(Cove("http://127.0.0.1:1", "cove_key", retry=Retry(window=0)))
            ask(Cove(socket="/nowhere/api.sock", retry=Retry(window=0)))
            self.assertEqual((read.call_count, found.call_count), (0, 0))
            ask(Cove("https://127.0.0.1:1", "cove_key", retry=Retry(window=0)))
            self.assertGreater(read.call_count + found.call_count, 0)

    def test_repr_does_not_show_the_key(self) -> None:
        with Cove("https://example.org", "cove_secret") as client:
            self.assertNotIn("secret", repr(client) + str(vars(client)))


class Durations(unittest.TestCase):
    def test_a_time_is_seconds_or_a_text_with_a_unit_or_a_timedelta(self) -> None:
        for given, sent in ((5, 5000), (0.0001, 1), (0, 0), ("500ms", 500), ("5s", 5000), ("1.5s", 1500), ("2m", 120000), ("1h", 3600000), ("1d", 86400000),
                            (datetime.timedelta(seconds=2), 2000)):
            with self.subTest(given):
                self.assertEqual(milliseconds(given), sent)
        for wrong in ("5", "", "5 s", "s", "-5s", "5min", "1e3s", "\u0665s"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "500ms"):
                milliseconds(wrong)


class Provider(http.server.BaseHTTPRequestHandler):
    """An identity provider and a server in one: it issues tokens for refresh tokens, and its whoami
    answers requests with such a token."""

    forms: List[Dict[str, str]] = []
    bearers: List[str] = []
    status = 200
    answer: Dict[str, Any] = {}
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.forms.append({name: values[0] for name, values in urllib.parse.parse_qs(form).items()})
        self.reply(self.status, self.answer)

    def do_GET(self) -> None:
        self.bearers.append(self.headers.get("Authorization") or "")
        self.reply(200, {"ready": True, "checks": {}})

    def reply(self, status: int, body: Dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Renewal(unittest.TestCase):
    """Tokens of an identity provider, as `cove login --device` keeps them."""

    def setUp(self) -> None:
        Provider.forms, Provider.bearers, Provider.status = [], [], 200
        Provider.answer = {"access_token": "new", "token_type": "Bearer", "refresh_token": "r2", "expires_in": 600}
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        scratch = tempfile.TemporaryDirectory(prefix="cove-sdk-")
        self.addCleanup(scratch.cleanup)
        self.environ = {"XDG_CONFIG_HOME": scratch.name}
        self.path = os.path.join(scratch.name, "cove/login.json")
        os.mkdir(os.path.dirname(self.path))

    def keep(self, ends_in: float, **more: Any) -> None:
        told = {"url": self.url, "key": "old", "issuer": self.url, "clientId": "cli", "tokenUrl": self.url + "/token", "refresh": "r1",
                "expiresMs": int((time.time() + ends_in) * 1000), **more}
        with open(self.path, "w", encoding="utf-8") as f:
            json.dump(told, f)
        os.chmod(self.path, 0o600)

    def kept(self) -> Dict[str, Any]:
        with open(self.path, encoding="utf-8") as f:
            return dict(json.load(f))

    def client(self) -> HTTP:
        made = HTTP(resolve(None, None, None, 10.0, Retry(window=0), False, self.environ))
        self.addCleanup(made.close)
        return made

    def test_a_token_that_is_about_to_expire_is_renewed_before_the_request_and_in_the_file(self) -> None:
        self.keep(ends_in=20, cacert=__file__)
        client = self.client()
        for _ in range(3):
            client.json(Call("GET", "/ready"))
        self.assertEqual(Provider.forms, [{"grant_type": "refresh_token", "refresh_token": "r1", "client_id": "cli"}])
        self.assertEqual(Provider.bearers, ["Bearer new"] * 3)
        kept = self.kept()
        self.assertEqual((kept["key"], kept["refresh"], kept["cacert"], kept["url"]), ("new", "r2", __file__, self.url))
        self.assertAlmostEqual(kept["expiresMs"] / 1000, time.time() + 600, delta=60)
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["login.json"])

    def test_a_valid_token_is_not_renewed(self) -> None:
        self.keep(ends_in=600)
        self.client().json(Call("GET", "/ready"))
        self.assertEqual((Provider.forms, Provider.bearers), ([], ["Bearer old"]))

    def test_a_token_renewed_by_another_program_is_used(self) -> None:
        self.keep(ends_in=20)
        client = self.client()
        self.keep(ends_in=600, key="theirs", refresh="r7")
        client.json(Call("GET", "/ready"))
        self.assertEqual((Provider.forms, Provider.bearers), ([], ["Bearer theirs"]))

    def test_a_refusing_provider_ends_the_login(self) -> None:
        self.keep(ends_in=20)
        Provider.status, Provider.answer = 400, {"error": "invalid_grant"}
        with self.assertRaisesRegex(UnauthorizedError, "log in again"):
            self.client().json(Call("GET", "/ready"))
        self.assertEqual((Provider.bearers, self.kept()["key"]), ([], "old"))

    def test_a_broken_provider_does_not_stop_a_valid_token(self) -> None:
        self.keep(ends_in=20)
        Provider.answer = {"hello": "world"}
        self.client().json(Call("GET", "/ready"))
        self.assertEqual(Provider.bearers, ["Bearer old"])
        self.keep(ends_in=-1)
        with self.assertRaisesRegex(ProtocolError, "without a bearer token"):
            self.client().json(Call("GET", "/ready"))

    def test_a_refresh_token_is_not_sent_unencrypted(self) -> None:
        self.keep(ends_in=-1, tokenUrl="http://id.example.org/token")
        with self.assertRaisesRegex(ProtocolError, "https://"):
            self.client().json(Call("GET", "/ready"))

    def test_a_removed_login_is_not_written_again(self) -> None:
        self.keep(ends_in=20)
        client = self.client()
        os.unlink(self.path)
        client.json(Call("GET", "/ready"))
        self.assertEqual((Provider.bearers, os.path.exists(self.path)), (["Bearer new"], False))

    def test_many_threads_renew_once(self) -> None:
        self.keep(ends_in=20)
        client = self.client()
        threads = [threading.Thread(target=client.json, args=(Call("GET", "/ready"),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(Provider.forms), Provider.bearers), (1, ["Bearer new"] * 8))

    def test_the_async_half_renews_too(self) -> None:
        async def ask() -> None:
            made = AsyncHTTP(resolve(None, None, None, 10.0, Retry(window=0), False, self.environ))
            await made.json(Call("GET", "/ready"))
            await made.aclose()

        self.keep(ends_in=20)
        asyncio.run(ask())
        self.assertEqual((len(Provider.forms), Provider.bearers), (1, ["Bearer new"]))


class Endless(http.server.BaseHTTPRequestHandler):
    """Sends a body until the client has gone."""

    status = 200
    sent = 0

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b" " * 65536)
                Endless.sent += 65536

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Bounds(unittest.TestCase):
    def test_an_endless_answer_is_aborted(self) -> None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        client = HTTP(resolve(f"http://127.0.0.1:{server.server_address[1]}", "", None, 10.0, Retry(window=0), False, {}))
        self.addCleanup(client.close)
        for Endless.status in (200, 503):
            Endless.sent = 0
            with self.assertRaisesRegex(ProtocolError, f"more than {ANSWER_MAX} bytes"):
                client.json(Call("GET", "/ready"))
            self.assertLess(Endless.sent, 2 * ANSWER_MAX)
        Endless.status = 200
        with self.assertRaisesRegex(ProtocolError, "GET /ready has more than 1000 bytes"):
            client.json(Call("GET", "/ready", answer_max=1000))


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
            self.assertEqual(str(made).split("\n")[0], f"m [{code}]")
            self.assertEqual(made.cause is None, made.fix is None, code)
            self.assertEqual(len(str(made).split("\n")), 3 if made.fix else 1, code)
        self.assertIsNone(BY_CODE["not_found"]("m").fix)
        self.assertIn("cove serve", str(BY_CODE["server_unreachable"]("m")))
        self.assertRegex(__version__, r"^\d+\.\d+\.\d+")
