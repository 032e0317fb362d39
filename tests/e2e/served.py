"""served.py - tests with a running server: self.cove(...) is the command line with the key of the
test.

    class Ctl(Served):             one server for the class, one tenant for each test
    class Killed(OwnServer):       one server for each test, whose operator the test is

A test that kills, stops or reconfigures its server, or counts objects of the whole server, belongs
to OwnServer. In a class of Served, self.operator(...) is the command line with the operator's key:
for tenants, pools and templates.
"""
import http.client
import itertools
import json
import tempfile

from cove import COVE, Case, run
from server import Launched, processes, wait_for  # pylint: disable=unused-import

# All scopes that a key of a tenant may have; the others are the operator's.
SCOPES = ["sandboxes:read", "sandboxes:write", "executions", "files", "keys", "tenant", "audit", "usage"]


class Commands(Case):
    """The common part: self.launched is the server, self.env the variables of a client."""

    settings = []  # further arguments of `cove serve`

    def cove(self, *args, code=0, **options):
        done = run(*args, env=self.env, **options)
        self.assertEqual(done.code, code, done)
        return done


class OwnServer(Commands):
    def setUp(self):
        super().setUp()
        self.launched = Launched(COVE, self.dir, *self.settings)
        self.server = self.launched.process
        self.env = {"COVE_URL": self.launched.url, "COVE_API_KEY": self.launched.key}

    def tearDown(self):
        self.launched.stop()
        super().tearDown()


class Served(Commands):
    undivided = True  # run.py keeps such a class in one part

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        scratch = tempfile.TemporaryDirectory(prefix="cove-e2e-")
        cls.addClassCleanup(scratch.cleanup)
        cls.launched = Launched(COVE, scratch.name, *cls.settings)
        cls.server = cls.launched.process
        cls.tenants = (f"test{n}" for n in itertools.count(1))

    @classmethod
    def tearDownClass(cls):
        status = cls.launched.stop()
        left = cls.launched.processes()
        super().tearDownClass()
        if status != 0 or left:
            raise AssertionError(f"the server ended with status {status} and left {left}\n{cls.launched.logged()[-4000:]}")

    def setUp(self):
        super().setUp()
        self.tenant = next(self.tenants)
        self.ask("POST", "/v1/tenants", 201, {"name": self.tenant})
        self.addCleanup(self.leave)  # also when the rest of a set-up fails; after tearDown
        self.key = self.ask("POST", "/v1/keys", 201, {"name": "of the test", "tenant": self.tenant, "scopes": SCOPES})["key"]
        self.env = {"COVE_URL": self.launched.url, "COVE_API_KEY": self.key}

    def leave(self):
        """Removes the sandboxes of the test, then its tenant, and checks that none of the sandboxes
        is alive on the server."""
        alive = self.alive()
        for sandbox in alive:
            self.ask("DELETE", f"/v1/sandboxes/{sandbox}", 200, key=self.key)
        self.assertEqual(self.alive(), [], "sandboxes of the test are still alive")
        self.ask("DELETE", f"/v1/tenants/{self.tenant}", 204)

    def alive(self):
        found, page = [], ""
        while page is not None:
            told = self.ask("GET", f"/v1/sandboxes?limit=100{page}", 200, key=self.key)
            for sandbox in told["items"]:
                self.assertEqual(sandbox.get("tenant", self.tenant), self.tenant)
                if sandbox["state"] != "ended":
                    found.append(sandbox["id"])
            page = "&cursor=" + told["nextCursor"] if told.get("nextCursor") else None
        return found

    def ask(self, method, path, status, body=None, key=None):
        """The answer of the API to the operator, or to the owner of `key`."""
        connection = http.client.HTTPConnection(self.launched.url.removeprefix("http://"), timeout=120)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Authorization": f"Bearer {key or self.launched.key}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        self.assertEqual(answer.status, status, text)
        return json.loads(text) if text else None

    def operator(self, *args, code=0, **options):
        done = run(*args, env=dict(self.env, COVE_URL=self.launched.url, COVE_API_KEY=self.launched.key), **options)
        self.assertEqual(done.code, code, done)
        return done
