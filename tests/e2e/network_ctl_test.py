"""The network of sandboxes on the command line, and what an operator sees of it: audit log,
metrics, events, capabilities, pools."""
import json
import os
import re
import signal
import tempfile
import urllib.request

from nameserver import NameServer
from origins import Origins
from served import OwnServer, Served, wait_for

NAMES = ["origin.test", "www.origin.test"]


class Reached:
    """Origins that the operator of the server opened."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="cove-origins-")
        cls.addClassCleanup(scratch.cleanup)
        cls.there = cls.enterClassContext(Origins(scratch.name, NAMES))
        cls.names = cls.enterClassContext(NameServer({name: [cls.there.address] for name in NAMES}))
        cls.settings = ["--egress-open-ranges", f"{cls.there.address}/32", "--egress-resolvers", cls.names.address, "--egress-ca-file", cls.there.ca]
        super().setUpClass()

    def fetch(self, box, url, code=0):
        return self.cove("exec", box, "--", "curl", "-sS", "-m", "20", url, code=code).out


class Commands(Reached, Served):
    def test_flags_name_what_a_sandbox_may_reach_in_their_order(self):
        box = self.cove("sandbox", "create", "-q", "--deny", "www.origin.test", "--allow", "*.origin.test", "--allow", "origin.test:80").out.strip()
        info = json.loads(self.cove("sandbox", "info", "--json", box).out)
        self.assertEqual(info["network"], {"mode": "egress", "egress": ["deny www.origin.test", "allow *.origin.test", "allow origin.test:80"]})
        self.assertRegex(self.cove("sandbox", "info", box).out, r"(?m)^network +deny www\.origin\.test\n +allow \*\.origin\.test\n")
        self.assertEqual(self.fetch(box, "http://origin.test/"), "hello from origin.test\n")
        self.assertIn("egress_denied", self.fetch(box, "http://www.origin.test/"))

    def test_a_rule_has_methods_and_a_path(self):
        box = self.cove("sandbox", "create", "-q", "--allow", "origin.test:80 methods=GET path=/v1/*").out.strip()
        self.assertEqual(self.fetch(box, "http://origin.test/v1/a"), "hello from origin.test\n")
        self.assertIn("egress_denied", self.fetch(box, "http://origin.test/v2"))
        why = self.cove("policy", "why", "--method", "POST", box, "http://origin.test/v1/a", code=1).out
        self.assertIn("refused: origin.test:80\n", why)

    def test_rules_are_replaced_while_the_sandbox_lives(self):
        box = self.cove("sandbox", "create", "-q", "--net", "egress").out.strip()
        self.assertIn("egress_denied", self.fetch(box, "http://origin.test/"))
        self.assertEqual(self.cove("sandbox", "update", "--allow", "origin.test", box).out.strip(), box)
        self.assertEqual(self.fetch(box, "http://origin.test/"), "hello from origin.test\n")
        self.cove("sandbox", "set", "-q", "--net", "none", box)
        self.assertIn("egress_denied", self.fetch(box, "http://origin.test/"))
        self.assertEqual(json.loads(self.cove("sandbox", "info", "--json", box).out)["network"], {"mode": "egress", "egress": []})

    def test_a_sandbox_without_a_network_says_what_to_do(self):
        box = self.cove("sandbox", "create", "-q").out.strip()
        self.assertRegex(self.cove("sandbox", "update", "--allow", "origin.test", box, code=125).err, r"create one with .*\[network_not_enabled\]")
        self.assertRegex(self.cove("sandbox", "info", box).out, r"(?m)^network +none$")
        self.assertEqual(self.cove("sandbox", "connections", box).out, "HOST  PORT  WAY  AGE  RECEIVED  SENT\n")

    def test_wrong_rules_are_refused_before_anything_is_created(self):
        for flags, said in ((["--allow", "http://origin.test/"], r"network\.egress\[0\]: .*\[egress_rule_invalid\]"),
                            (["--allow", "10.0.0.1"], r"closed \(private\); only the operator can open it, with the setting egress\.openRanges"),
                            (["--allow", "origin.test:443 path=/v1"], r"\[egress_rule_invalid\]"),
                            (["--net", "none", "--allow", "origin.test"], r"--net none excludes --allow"),
                            (["--net", "host"], r"--net host: must be none or egress")):
            self.assertRegex(self.cove("sandbox", "create", *flags, code=2).err, said)
        self.assertRegex(self.cove("sandbox", "create", "--driver", "bwrap", "--allow", "origin.test", code=125).err, r"\[driver_unsupported\]")
        self.assertRegex(self.cove("execute", "--driver", "bwrap", "--allow", "origin.test", "-c", "1", code=125).err, r"\[driver_unsupported\]")
        self.assertEqual(self.cove("sandbox", "ls", "-q").out, "")
        refused = self.operator("template", "set", "--runtime", "sh", "--driver", "bwrap", "--allow", "origin.test", "wrapped", code=125)
        self.assertRegex(refused.err, r"\[driver_unsupported\]")
        self.assertRegex(self.cove("sandbox", "update", "any", code=2).err, r"nothing to change; use .*--allow")

    def test_execute_and_templates_have_a_network(self):
        code = "import urllib.request as u; print(u.urlopen('http://origin.test/x', timeout=20).read().decode(), end='')"
        self.assertEqual(self.cove("execute", "--allow", "origin.test", "-c", code).out, "hello from origin.test\n")
        done = json.loads(self.cove("execute", "--json", "--allow", "origin.test", "-c", code).out)
        self.assertEqual((done["receipt"]["network"]["connections"], done["receipt"]["network"]["refused"]), (1, 0))
        self.assertNotIn("network", json.loads(self.cove("execute", "--json", "-c", "1").out)["receipt"])
        self.operator("template", "set", "-q", "--runtime", "sh", "--allow", "origin.test", "reader")
        self.assertRegex(self.operator("template", "set", "--runtime", "sh", "--deny", "a.test", "--allow", "origin.test:80 path=/x", "two").out,
                         r"(?m)^network +deny a\.test\n +allow origin\.test:80 path=/x$")
        box = self.cove("sandbox", "create", "-q", "--template", "reader").out.strip()
        self.assertEqual(self.fetch(box, "http://origin.test/"), "hello from origin.test\n")
        other = self.cove("sandbox", "create", "-q", "--template", "reader", "--net", "none").out.strip()
        self.assertEqual(json.loads(self.cove("sandbox", "info", "--json", other).out)["network"], "none")

    def test_connections_are_listed_and_urls_explained(self):
        box = self.cove("sandbox", "create", "-q", "--allow", "origin.test").out.strip()
        self.cove("exec", "-d", box, "--", "curl", "-sS", "http://origin.test/slow/100")
        wait_for(lambda: json.loads(self.cove("sandbox", "connections", "--json", box).out)["items"])
        self.assertRegex(self.cove("sandbox", "connections", box).out, r"\norigin\.test +80 +proxy +\S+ +\d+ bytes +\d+ bytes\n")
        self.assertEqual(self.cove("policy", "why", box, "https://origin.test/a").out, "allowed: origin.test:443\n  rule    allow origin.test\n")
        answer = json.loads(self.cove("policy", "why", "--json", box, "https://other.test/", code=1).out)
        self.assertEqual((answer["allowed"], answer["fix"]), (False, "allow other.test:443"))
        self.assertRegex(self.cove("policy", "why", box, "ftp://origin.test/", code=2).err, r"url: unknown scheme; write https://HOST/PATH")


class Operated(Reached, OwnServer):
    def test_changes_are_recorded_and_refusals_are_events(self):
        box = self.cove("sandbox", "create", "-q", "--allow", "origin.test").out.strip()
        self.cove("sandbox", "update", "-q", "--allow", "www.origin.test", box)
        record = json.loads(self.get("/v1/audit?action=sandbox.network.update"))["items"][0]
        self.assertEqual((record["outcome"], record["target"]["sandbox"], record["details"]["network"]), ("success", box, "allow www.origin.test"))
        created = json.loads(self.get("/v1/audit?action=sandbox.create"))["items"][0]
        self.assertEqual(created["details"]["network"], "allow origin.test")
        for _ in range(2):
            self.fetch(box, "http://origin.test/")
        events = wait_for(lambda: json.loads(self.get("/v1/audit?action=security.destination_refused"))["items"])
        self.assertEqual(events[0]["details"]["destinations"], [{"host": "origin.test", "port": 80, "refused": 1, "reason": "no rule allows origin.test:80"}])
        self.fetch(box, "http://www.origin.test/")
        metrics = dict(re.findall(r"(?m)^cove_(\S+) (\S+)$", self.get("/metrics")))
        self.assertEqual((metrics['egress_connections_total{outcome="opened"}'], metrics['egress_connections_total{outcome="refused"}'],
                          metrics["egress_proxy_up"]), ("1", "2", "1"))
        self.assertGreater(int(metrics["egress_received_bytes_total"]), 10)

    def get(self, path):
        request = urllib.request.Request(self.launched.url + path, headers={"Authorization": f"Bearer {self.launched.key}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def test_capabilities_show_the_open_ranges(self):
        egress = json.loads(self.get("/v1/capabilities"))["network"]["egress"]
        self.assertEqual((egress["available"], egress["openRanges"], [p["name"] for p in egress["presets"]]),
                         (True, [f"{self.there.address}/32"], ["pypi", "npm", "github"]))

    def test_members_of_a_pool_get_their_rules_at_the_claim(self):
        self.cove("template", "set", "-q", "--runtime", "sh", "--net", "egress", "open")
        self.cove("pool", "set", "-q", "--template", "open", "--min", "1", "--max", "2", "ready")
        wait_for(lambda: re.search(r"(?m)^ready .* ready", self.cove("pool", "ls").out))
        first = self.cove("sandbox", "create", "-q", "--template", "open", "--allow", "origin.test").out.strip()
        self.assertEqual(self.fetch(first, "http://origin.test/"), "hello from origin.test\n")
        self.assertIn("egress_denied", self.fetch(first, "http://www.origin.test/"))
        claims = self.cove("pool", "info", "ready").out
        self.assertRegex(claims, r"(?m)^claims +1: 1 ready")
        wait_for(lambda: re.search(r"(?m)^ready .* ready", self.cove("pool", "ls").out))
        second = self.cove("sandbox", "create", "-q", "--template", "open", "--allow", "www.origin.test").out.strip()
        self.assertIn("egress_denied", self.fetch(second, "http://origin.test/"))
        self.assertEqual(self.fetch(second, "http://www.origin.test/"), "hello from www.origin.test\n")

    def test_changed_rules_survive_a_restart_of_the_server(self):
        box = self.cove("sandbox", "create", "-q", "--allow", "origin.test").out.strip()
        self.cove("sandbox", "update", "-q", "--allow", "www.origin.test", box)
        pid = self.launched.processes()["coved"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.launched.processes().get("coved", pid) != pid)
        wait_for(self.is_ready)
        self.assertEqual(self.fetch(box, "http://www.origin.test/"), "hello from www.origin.test\n")
        self.assertIn("egress_denied", self.fetch(box, "http://origin.test/"))

    def test_a_change_that_the_proxy_does_not_confirm_leaves_the_rules_before_it(self):
        box = self.cove("sandbox", "create", "-q", "--allow", "origin.test").out.strip()
        pid = self.launched.processes()["cove-egress"]
        os.kill(pid, signal.SIGSTOP)
        try:
            self.assertRegex(self.cove("sandbox", "update", "--allow", "www.origin.test", box, code=125).err, r"\[network_unavailable\]")
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(json.loads(self.cove("sandbox", "info", "--json", box).out)["network"]["egress"], ["allow origin.test"])
        wait_for(lambda: "hello" in self.fetch(box, "http://origin.test/"))
        self.assertIn("egress_denied", self.fetch(box, "http://www.origin.test/"))

    def is_ready(self):
        try:
            return json.loads(self.get("/ready"))["status"] == "ready"
        except OSError:
            return False


class Off(OwnServer):
    settings = ["--egress-enabled", "false"]

    def test_a_server_without_the_proxy_refuses_a_network_with_the_reason(self):
        self.assertRegex(self.cove("sandbox", "create", "--allow", "pypi.org", code=125).err,
                         r"network: the operator of this server forbids a network \[policy_below_floor\]")
        self.assertNotIn("cove-egress", self.launched.processes())
        self.cove("sandbox", "create", "-q")
