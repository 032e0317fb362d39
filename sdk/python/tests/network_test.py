"""The network of sandboxes: arguments, answers, receipts, and a change while a program waits."""
from __future__ import annotations

import asyncio
import contextlib
import http.server
import threading
from typing import Any, List

from cove import AsyncCove, AsyncSandbox, Cove, Network, NetworkSecret, Sandbox, TemplateSpec
from cove.errors import EgressRuleInvalidError, ForbiddenError, NetworkNotEnabledError
from cove.network import network_of

from support import Case, wait_for


class Origin(http.server.BaseHTTPRequestHandler):
    go: threading.Event

    def do_GET(self) -> None:
        if self.path == "/wait":
            self.go.wait(60)
        data = f"path {self.path}\n".encode()
        with contextlib.suppress(OSError):  # the connection may have been closed meanwhile
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Arguments(Case):
    def test_the_network_argument_becomes_the_field_of_a_request(self) -> None:
        given = Network("egress", ["allow a.example"], [NetworkSecret("key", "b.example", path="/v1")])
        self.assertEqual(network_of(None, ["a.example"]), {"allow": ["a.example"]})
        self.assertEqual(network_of(None, []), {"allow": []})
        self.assertEqual(network_of("none", None), "none")
        self.assertEqual(network_of(Network("none"), None), "none")
        self.assertEqual(network_of(given, None), {"mode": "egress", "egress": ["allow a.example"],
                                                   "secrets": [{"name": "key", "host": "b.example", "path": "/v1"}]})
        self.assertIsNone(network_of(None, None))
        with self.assertRaisesRegex(TypeError, r"allow: must be a list of targets; write \['pypi.org'\]"):
            network_of(None, "pypi.org")
        with self.assertRaisesRegex(ValueError, "one of the two"):
            network_of("none", ["pypi.org"])


class Connected(Case):
    def setUp(self) -> None:
        super().setUp()
        self.origin = http.server.ThreadingHTTPServer(("127.86.1.1", 0), Origin)
        self.origin.daemon_threads = True
        Origin.go = threading.Event()
        threading.Thread(target=self.origin.serve_forever, args=(0.05,), daemon=True).start()
        self.addCleanup(self.origin.server_close)
        self.addCleanup(self.origin.shutdown)
        self.target = f"127.86.1.1:{self.origin.server_address[1]}"
        self.addCleanup(Origin.go.set)

    def box(self, **network: Any) -> Sandbox:
        made = Sandbox.create("sh", client=self.client, lifetime=900, timeout=300, **network)
        self.addCleanup(made.delete)
        return made

    def test_allowed_hosts_are_reached_and_others_are_in_the_receipt(self) -> None:
        box = self.box(allow=[self.target])
        assert box.info.network is not None
        self.assertEqual((box.info.network.mode, box.info.network.egress), ("egress", [f"allow {self.target}"]))
        result = box.run_command(["curl", "-sS", f"http://{self.target}/one"])
        self.assertEqual(result.stdout, "path /one\n")
        used = result.receipt.network if result.receipt else None
        assert used is not None
        self.assertEqual((used.connections, used.refused, [(d.host, d.connections) for d in used.destinations]), (1, 0, [("127.86.1.1", 1)]))
        self.assertGreater(used.received_bytes or 0, 10)
        result = box.run_command(["curl", "-sS", "http://refused.example/"])
        self.assertIn("no rule allows", result.stdout)
        used = result.receipt.network if result.receipt else None
        assert used is not None
        self.assertEqual((used.connections, used.refused, used.destinations[0].reason), (0, 1, "no rule allows refused.example:80"))

    def test_a_change_applies_to_open_connections(self) -> None:
        box = self.box(network={"egress": [self.target]})
        waiting = box.start_command(["curl", "-sS", f"http://{self.target}/wait"])
        found = wait_for(box.connections)
        self.assertEqual([(c.host, c.port, c.way) for c in found], [("127.86.1.1", self.origin.server_address[1], "proxy")])
        self.assertTrue(box.explain_url(f"http://{self.target}/").allowed)
        info = box.update(network={"egress": []})
        assert info.network is not None
        self.assertEqual((info.network.mode, info.network.egress), ("egress", []))
        self.assertFalse(waiting.wait().success)
        self.assertEqual(box.connections(), [])
        decision = box.explain_url(f"http://{self.target}/x", method="POST")
        self.assertEqual((decision.allowed, decision.method), (False, "POST"))
        self.assertEqual(decision.fix, f"allow {self.target}, if the operator opened its range (loopback)")
        box.update(allow=[self.target])
        self.assertEqual(box.run_command(["curl", "-sS", f"http://{self.target}/two"]).stdout, "path /two\n")

    def test_templates_and_execute_take_a_network(self) -> None:
        self.client.templates.put("reader", TemplateSpec(runtime="sh", network={"allow": [self.target]}))
        self.addCleanup(self.client.templates.delete, "reader")
        with Sandbox.create("reader", client=self.client) as box:
            self.assertEqual(box.run_command(["curl", "-sS", f"http://{self.target}/"]).stdout, "path /\n")
            copy = self.box(network=box.info.network)
            self.assertEqual(copy.info.network, box.info.network)
        self.assertEqual(self.client.templates.get("reader").spec.network, {"allow": [self.target]})
        code = f"import urllib.request as u; u.urlopen('http://{self.target}/code').read()"
        result = self.client.execute(code, allow=[self.target])
        self.assertEqual(result.text, "b'path /code\\n'")
        assert result.receipt is not None and result.receipt.network is not None
        self.assertEqual(result.receipt.network.connections, 1)
        self.assertIsNone(getattr(self.client.execute("1").receipt, "network"))

    def test_a_sandbox_without_a_network_gets_none(self) -> None:
        box = self.sandbox()
        assert box.info.network is not None
        self.assertEqual((box.info.network.mode, box.connections()), ("none", []))
        with self.assertRaises(NetworkNotEnabledError):
            box.update(allow=["pypi.org"])
        with self.assertRaisesRegex(EgressRuleInvalidError, r"network.allow\[1\]"):
            self.box(allow=["pypi.org", "http://pypi.org/"])

    def test_a_token_of_the_sandbox_cannot_widen_its_network(self) -> None:
        box = self.box(allow=[])
        token = box.create_token(["sandboxes:read", "sandboxes:write"])
        inside = Cove(self.server.url, token.token)
        self.addCleanup(inside.close)
        with self.assertRaisesRegex(ForbiddenError, "network"):
            Sandbox.connect(box.id, client=inside).update(allow=["*"])

    def test_the_asynchronous_half_is_the_same(self) -> None:
        seen: List[Any] = []

        async def main() -> None:
            async with AsyncCove(self.server.url, self.server.key) as client:
                async with await AsyncSandbox.create("sh", client=client, allow=[self.target]) as box:
                    seen.append((await box.run_command(["curl", "-sS", f"http://{self.target}/a"])).stdout)
                    seen.append((await box.update(network={"egress": []})).network)
                    seen.append(await box.connections())
                    seen.append((await box.explain_url("https://pypi.org/")).allowed)

        asyncio.run(main())
        self.assertEqual((seen[0], seen[1].egress, seen[2], seen[3]), ("path /a\n", [], [], False))
