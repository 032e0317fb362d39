"""Delegated credentials: tokens, signed URLs, tickets."""
from __future__ import annotations

import urllib.error
import urllib.request

from cove import Cove, Sandbox
from cove.errors import ForbiddenError, NotFoundError, UnauthorizedError

from support import Case


class Tokens(Case):
    def setUp(self) -> None:
        super().setUp()
        self.box = self.sandbox()
        self.url = self.server.url

    def test_a_token_works_as_a_key_for_its_sandbox_only(self) -> None:
        made = self.box.create_token(ttl=600)
        self.assertEqual((made.sandbox_id, sorted(made.operations)), (self.box.id, ["executions", "files"]))
        self.assertNotIn(made.token, repr(made))
        other = self.sandbox()
        with Cove(self.url, made.token) as client:
            me = client.whoami()
            self.assertEqual((me.kind, me.sandbox_id, me.tenant), ("sandbox_token", self.box.id, "local"))
            with self.assertRaises(ForbiddenError):
                list(Sandbox.list(client=client))
            with self.assertRaises((NotFoundError, ForbiddenError)):
                Sandbox.connect(other.id, client=client)
        self.assertIn(self.client.whoami().kind, ("key", "local"))

    def test_a_signed_url_reads_and_writes_without_a_key(self) -> None:
        put = self.box.files.sign("/workspace/f", method="PUT", ttl=60)
        urllib.request.urlopen(urllib.request.Request(self.url + put.url, b"hello", method="PUT"), timeout=60).close()
        with urllib.request.urlopen(self.url + self.box.files.sign("/workspace/f").url, timeout=60) as answer:
            self.assertEqual(answer.read(), b"hello")
        self.assertEqual((put.method, put.path), ("PUT", "/workspace/f"))

    def test_a_session_of_mcp_is_opened_listed_and_ended(self) -> None:
        made = self.client.mcp_sessions.create(sandbox=self.box.id)
        self.assertEqual((made.kind, made.sandbox_id, len(made.secret or "")), ("bridge", self.box.id, 64))
        self.assertIn(made.id, [s.id for s in self.client.mcp_sessions.list()])
        self.assertIsNone(self.client.mcp_sessions.get(made.id).secret)
        self.client.mcp_sessions.delete(made.id)
        with self.assertRaises(NotFoundError):
            self.client.mcp_sessions.get(made.id)
        with self.assertRaises(NotFoundError):
            self.client.mcp_sessions.create(template="none")

    def test_a_ticket_works_once(self) -> None:
        ticket = self.client.ticket("/v1/whoami")
        target = f"{self.url}/v1/whoami?ticket={ticket.ticket}"
        urllib.request.urlopen(target, timeout=60).close()
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(target, timeout=60)
        with self.assertRaises(UnauthorizedError), Cove(self.url, "cove_sb_nothing.x") as client:
            client.whoami()
