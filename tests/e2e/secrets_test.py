"""Secrets: requests of a sandbox carry a value that the sandbox never sees."""
import base64
import json
import os
import tempfile
import urllib.parse

from cove import Case, run
from nameserver import NameServer
from network_test import NAMES, Network
from origins import Origins
from served import Served, wait_for

VALUE = "sk-live/4f1c+Zz9=7"
FORMS = [VALUE, base64.b64encode(VALUE.encode()).decode(), urllib.parse.quote(VALUE, safe="")]

# Everything that a program can read of its sandbox: environment, command lines, memory maps, files.
SEARCH = """
import os, stat, sys
needle = sys.argv[1].encode()[::-1]
found = []
for top in ("/proc/self", "/proc/1", "/workspace", "/tmp", "/etc", "/dev/shm", "/run", "/var", "/.cove", "/mnt", "/opt"):
    for where, _, names in os.walk(top):
        for name in names:
            path = os.path.join(where, name)
            try:
                if not stat.S_ISREG(os.stat(path).st_mode):
                    continue
                with open(path, "rb") as f:
                    if needle in f.read(1 << 20) and not path.endswith("cmdline"):
                        found.append(path)
            except OSError:
                pass
print(found)
"""


class Secrets(Network, Served):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="cove-origins-")
        cls.addClassCleanup(scratch.cleanup)
        cls.there = cls.enterClassContext(Origins(scratch.name, NAMES))
        cls.names = cls.enterClassContext(NameServer({name: [cls.there.address] for name in NAMES}))
        cls.settings = ["--egress-open-ranges", "127.0.0.0/8", "--egress-resolvers", cls.names.address, "--egress-ca-file", cls.there.ca]
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.key = self.ask("POST", "/v1/keys", 201, {"name": "with secrets", "tenant": self.tenant, "scopes": [
            "sandboxes:read", "sandboxes:write", "executions", "files", "secrets", "audit"]})["key"]
        self.env = {"COVE_URL": self.launched.url, "COVE_API_KEY": self.key}
        self.ask("PUT", "/v1/secrets/api", 201, {"value": VALUE}, self.key)

    def bound(self, *allow, **fields):
        secret = {"name": "api", "host": "origin.test", **fields}
        return self.ask("POST", "/v1/sandboxes", 201, {"runtime": "python", "network": {"egress": list(allow), "secrets": [secret]}}, self.key)["id"]

    def received(self, path):
        """The headers of the last request for this path."""
        return self.there.requests(path)[-1][3]

    def test_a_request_carries_the_secret_over_tls_and_the_sandbox_never_sees_it(self):
        box = self.bound()
        done = self.curl(box, "http://api.secret.cove/v1/models", code=0)
        self.assertEqual(done["stdout"], "hello from origin.test\n")
        host, method, path, headers, tls = self.there.requests("/v1/models")[-1]
        self.assertEqual((host, method, path, headers["Authorization"], tls), ("origin.test", "GET", "/v1/models", "Bearer " + VALUE, True))
        found = self.python(box, SEARCH, VALUE[::-1], code=0)
        self.assertEqual(found["stdout"], "[]\n")

    def test_EG15_an_origin_that_echoes_the_secret_does_not_reveal_it(self):
        box = self.bound()
        done = self.curl(box, "http://api.secret.cove/headers", code=0)
        self.assertIn("Authorization", done["stdout"])
        for form in FORMS:
            echoed = self.inside(box, "curl", "-sS", "-m", "20", "--data-binary", "@-", "http://api.secret.cove/echo", code=0)
            self.assertNotIn(form, echoed["stdout"])
            self.assertNotIn(form, done["stdout"])

    def test_EG15_a_secret_is_sent_to_its_host_only(self):
        box = self.bound("other.test", "origin.test")
        for url in ("http://other.test/plain", "http://origin.test/plain", "http://api.secret.cove.other.test/plain"):
            self.curl(box, "-o", "/dev/null", url)
        for command in (["-H", "Host: other.test", "http://api.secret.cove/host"], ["http://nope.secret.cove/host"], ["https://api.secret.cove/host"]):
            self.curl(box, "-o", "/dev/null", "-w", "%{http_code}", *command)
        for request in self.there.seen:
            self.assertNotIn(VALUE, json.dumps(request[3]), request) if request[0] != "origin.test" or not request[4] else None
        self.assertEqual([r for r in self.there.requests("/plain") if "Authorization" in r[3]], [])

    def test_the_sandbox_cannot_replace_or_double_the_header(self):
        box = self.bound()
        self.curl(box, "-H", "Authorization: Bearer mine", "-H", "authorization: other", "http://api.secret.cove/own", code=0)
        self.assertEqual(self.received("/own")["Authorization"], "Bearer " + VALUE)

    def test_other_headers_and_formats_methods_and_paths(self):
        box = self.bound(header="X-Api-Key", format="{}", methods=["GET"], path="/allowed/*")
        self.curl(box, "-f", "http://api.secret.cove/allowed/x", code=0)
        self.assertEqual((self.received("/allowed/x")["X-Api-Key"], "Authorization" in self.received("/allowed/x")), (VALUE, False))
        for words in (["http://api.secret.cove/other"], ["-d", "x", "http://api.secret.cove/allowed/x"], ["--path-as-is", "http://api.secret.cove/allowed/../other"]):
            self.assertIn(self.curl(box, "-o", "/dev/null", "-w", "%{http_code}", *words)["stdout"], ("400", "403"), words)
        self.assertEqual(self.there.requests("/other"), [])

    def test_use_is_counted_and_audited_without_the_value(self):
        box = self.bound()
        self.curl(box, "-f", "http://api.secret.cove/audited", code=0)
        record = wait_for(lambda: [r for r in self.ask("GET", "/v1/audit?limit=100", 200, key=self.key)["items"] if r["action"] == "secret.use"])[0]
        self.assertIn(box, json.dumps(record))
        self.assertIn("origin.test", json.dumps(record))
        whole = json.dumps(self.ask("GET", "/v1/audit?limit=1000", 200, key=self.key))
        self.assertNotIn(VALUE, whole)
        wait_for(lambda: self.ask("GET", "/v1/secrets/api", 200, key=self.key)["uses"] == 1)

    def test_a_missing_secret_refuses_the_sandbox_and_a_foreign_one_is_missing(self):
        answer = self.ask("POST", "/v1/sandboxes", 404, {"network": {"egress": [], "secrets": [{"name": "nope", "host": "origin.test"}]}}, self.key)
        self.assertEqual(answer["error"]["code"], "secret_not_found")
        other = f"{self.tenant}-other"
        self.ask("POST", "/v1/tenants", 201, {"name": other})
        self.addCleanup(self.ask, "DELETE", f"/v1/tenants/{other}", 204)
        foreign = self.ask("POST", "/v1/keys", 201, {"name": "k", "tenant": other, "scopes": ["sandboxes:write", "secrets"]})["key"]
        self.ask("GET", "/v1/secrets/api", 404, key=foreign)
        self.ask("POST", "/v1/sandboxes", 404, {"network": {"egress": [], "secrets": [{"name": "api", "host": "origin.test"}]}}, foreign)

    def test_EG15_a_secret_with_hosts_is_bound_to_no_other_host(self):
        self.cove("secret", "set", "fixed", "--host", "other.test", stdin="the fixed value\n")
        self.assertIn("other.test", self.cove("secret", "show", "fixed").out)
        network = {"egress": [], "secrets": [{"name": "fixed", "host": "origin.test"}]}
        self.assertEqual(self.ask("POST", "/v1/sandboxes", 403, {"network": network}, self.key)["error"]["code"], "secret_host_refused")
        box = self.ask("POST", "/v1/sandboxes", 201, {"runtime": "python", "network": {"egress": []}}, self.key)["id"]
        self.ask("PATCH", f"/v1/sandboxes/{box}", 403, {"network": network}, self.key)
        network["secrets"][0]["host"] = "other.test"
        self.ask("PATCH", f"/v1/sandboxes/{box}", 200, {"network": network}, self.key)
        self.curl(box, "-f", "http://fixed.secret.cove/fixed", code=0)
        self.assertEqual(self.received("/fixed")["Authorization"], "Bearer the fixed value")
        self.cove("secret", "rm", "fixed")

    def test_a_new_value_is_used_after_the_network_changes(self):
        box = self.bound()
        self.ask("PUT", "/v1/secrets/api", 200, {"value": "the second value"}, self.key)
        self.ask("PATCH", f"/v1/sandboxes/{box}", 200, {"network": {"egress": [], "secrets": [{"name": "api", "host": "origin.test"}]}}, self.key)
        self.curl(box, "-f", "http://api.secret.cove/rotated", code=0)
        self.assertEqual(self.received("/rotated")["Authorization"], "Bearer the second value")

    def test_the_command_line_sets_and_binds_a_secret(self):
        self.cove("secret", "set", "typed", stdin="from stdin\n")
        box = self.cove("sandbox", "create", "-q", "--runtime", "sh", "--secret", "typed@origin.test").out.strip()
        self.cove("exec", box, "--", "curl", "-sSf", "http://typed.secret.cove/cli")
        self.assertEqual(self.received("/cli")["Authorization"], "Bearer from stdin")
        self.assertIn("typed", self.cove("secret", "ls").out)
        self.cove("secret", "rm", "typed")

    def test_execute_uses_a_secret(self):
        done = self.ask("POST", "/v1/execute", 200, {"command": ["curl", "-sSf", "http://api.secret.cove/execute"],
                                                     "network": {"egress": [], "secrets": [{"name": "api", "host": "origin.test"}]}}, self.key)
        self.assertEqual(done["exitCode"], 0, done)
        self.assertEqual(self.received("/execute")["Authorization"], "Bearer " + VALUE)


class Run(Case):
    """`cove run` takes the value from a variable of the caller."""

    def test_a_variable_that_is_not_set_is_refused(self):
        done = run("run", "--secret", "api=COVE_TEST_NO_SUCH_VARIABLE@origin.test", "--", "true")
        self.assertNotEqual(done.code, 0)
        self.assertIn("COVE_TEST_NO_SUCH_VARIABLE", done.err)

    def test_the_value_is_neither_in_the_arguments_nor_in_the_sandbox(self):
        os.environ["COVE_TEST_SECRET"] = VALUE
        self.addCleanup(os.environ.pop, "COVE_TEST_SECRET")
        done = run("run", "--secret", "api=COVE_TEST_SECRET@origin.test", "--", "python3", "-c", SEARCH, VALUE[::-1])
        self.assertEqual((done.code, done.out), (0, "[]\n"), done)
