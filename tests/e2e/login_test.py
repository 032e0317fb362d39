"""cove login, logout, whoami and token, against a real server."""
import json
import os
import stat
import subprocess

from cove import run
from served import SCOPES, Served


class Login(Served):
    def setUp(self):
        super().setUp()
        self.url = self.env["COVE_URL"]
        self.env = {"XDG_CONFIG_HOME": os.path.join(self.dir, "config"), "COVE_URL": "", "COVE_API_KEY": ""}
        self.kept = os.path.join(self.dir, "config/cove/login.json")

    def test_a_key_is_verified_then_kept_for_its_owner_alone_and_used(self):
        done = self.cove("login", self.url + "/", stdin=self.key + "\n")
        self.assertNotIn(self.key, done.out + done.err)
        self.assertEqual(stat.S_IMODE(os.stat(self.kept).st_mode), 0o600)
        who = self.cove("whoami", "--json").json
        self.assertEqual((who["kind"], who["tenant"], sorted(who["scopes"])), ("key", self.tenant, sorted(SCOPES)))
        who = self.operator("whoami", "--json").json
        self.assertEqual((who["kind"], who["tenant"], who["scopes"]), ("key", "local", ["admin"]))
        self.assertIn(self.url, self.cove("whoami").out)
        sandbox = self.cove("sandbox", "create", "-q", "--runtime", "sh").out.strip()
        self.assertEqual(self.cove("exec", sandbox, "--", "echo", "hi").out, "hi\n")
        self.cove("logout")
        self.assertFalse(os.path.exists(self.kept))
        self.assertErrorCode(run("logout", env=self.env), 125, "not logged in")

    def test_a_wrong_key_is_not_kept_and_the_old_login_stays(self):
        self.cove("login", self.url, stdin=self.key)
        with open(self.kept, encoding="utf-8") as f:
            before = f.read()
        self.assertErrorCode(run("login", self.url, stdin="cove_" + "0" * 40, env=self.env), 125, "not valid")
        self.assertErrorCode(run("login", self.url, stdin="", env=self.env), 2, "no key given")
        self.assertErrorCode(run("login", "ftp://x", stdin=self.key, env=self.env), 2, "not a URL")
        self.assertErrorCode(run("login", "http://example.org", stdin=self.key, env=self.env), 2, "without encryption")
        with open(self.kept, encoding="utf-8") as f:
            self.assertEqual(f.read(), before)

    def test_a_login_that_others_can_read_is_not_used(self):
        self.cove("login", self.url, stdin=self.key)
        os.chmod(self.kept, 0o640)
        done = run("whoami", env=self.env)
        self.assertErrorCode(done, 125, "other users may access it")
        self.assertNotIn(self.key, done.err)

    def test_arguments_override_the_login_and_its_key_goes_to_no_other_server(self):
        self.cove("login", self.url, stdin=self.key)
        other = dict(self.env, COVE_URL=self.url.replace("127.0.0.1", "localhost"))
        self.assertErrorCode(run("whoami", env=other), 125, "no key was sent")
        wrong = dict(self.env, COVE_API_KEY="cove_" + "0" * 40)
        self.assertErrorCode(run("whoami", env=wrong), 125, "not valid")
        same = dict(self.env, COVE_URL=self.url)
        self.assertEqual(run("whoami", env=same).code, 0)

    def test_tokens_urls_and_tickets_from_the_command_line(self):
        self.cove("login", self.url, stdin=self.key)
        sandbox = self.cove("sandbox", "create", "-q", "--runtime", "sh").out.strip()
        token = self.cove("token", "create", "-q", "--ttl", "10m", sandbox[:8]).out.strip()
        self.assertTrue(token.startswith("cove_sb_"), token)
        as_token = dict(self.env, COVE_API_KEY=token)
        self.assertEqual(run("exec", sandbox, "--", "sh", "-c", "echo hi > f", env=as_token).code, 0)
        self.assertErrorCode(run("sandbox", "ls", env=as_token), 125, "one sandbox")
        url = self.cove("token", "url", "-q", f"{sandbox}:f").out.strip()
        got = subprocess.run(["curl", "-sS", url], capture_output=True, text=True, timeout=60)
        self.assertEqual((got.returncode, got.stdout), (0, "hi\n"), got)
        put = self.cove("token", "url", "--json", "--put", f"{sandbox}:/workspace/g").json
        self.assertEqual((put["method"], put["path"]), ("PUT", "/workspace/g"))
        ticket = self.cove("token", "ticket", "-q", "/v1/whoami").out.strip()
        got = subprocess.run(["curl", "-sS", f"{self.url}/v1/whoami?ticket={ticket}"], capture_output=True, text=True, timeout=60)
        self.assertEqual(json.loads(got.stdout)["kind"], "ticket")
        self.assertErrorCode(run("token", "revoke", env=self.env), 2, "--all")
        self.operator("token", "revoke", "--all")
        self.assertErrorCode(run("exec", sandbox, "--", "true", env=as_token), 125, "not valid")
        for wrong in (("create", "--ttl", "2d", sandbox), ("create", "--ttl", "1", sandbox), ("create", "--port", "0", sandbox),
                      ("url", sandbox), ("create",), ("nothing",)):
            self.assertCode(run("token", *wrong, env=self.env), 2)

    def test_WB09_secrets_are_in_no_log(self):
        self.cove("login", self.url, stdin=self.key)
        sandbox = self.cove("sandbox", "create", "-q", "--runtime", "sh").out.strip()
        self.cove("exec", sandbox, "--", "touch", "f")
        token = self.cove("token", "create", "-q", sandbox).out.strip()
        url = self.cove("token", "url", "-q", f"{sandbox}:f").out.strip()
        ticket = self.cove("token", "ticket", "-q", "/v1/whoami").out.strip()
        for target in (url, f"{self.url}/v1/whoami?ticket={ticket}", url + "x", f"{self.url}/nowhere?ticket={ticket}"):
            subprocess.run(["curl", "-sS", "-o", "/dev/null", target], check=True, timeout=60)
        run("exec", sandbox, "--", "true", env=dict(self.env, COVE_API_KEY=token))
        with open(self.launched.err, encoding="utf-8") as f:
            log = f.read()
        self.assertIn("/v1/whoami", log)
        for secret in (self.key, token, token.split(".")[1], ticket, url.split("signature=")[1]):
            self.assertNotIn(secret, log)
