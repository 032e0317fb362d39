"""Tokens of an identity provider against a real server: made by another library, fetched over real
HTTP, with all kinds of failures.
"""
import json
import os
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

from cove import ROOT, Case, Done, run, start
from served import OwnServer, wait_for

sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import pypi  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


class Issued(OwnServer):
    """Each test has its own server: fetched keys and failed addresses are cached."""

    @classmethod
    def setUpClass(cls):
        try:
            python = pypi.ready("issuer", "tests/e2e/issuer/requirements.txt")
        except pypi.Unavailable as why:
            raise unittest.SkipTest(str(why)) from None
        cls.issuer = subprocess.Popen([python, os.path.join(HERE, "issuer/issuer.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cls.at = f"http://127.0.0.1:{int(cls.issuer.stdout.readline())}"

    @classmethod
    def tearDownClass(cls):
        cls.issuer.stdin.close()
        cls.issuer.wait(120)
        cls.issuer.stdout.close()

    def setUp(self):
        self.tell("manner", manner="good")
        self.settings = ["--auth-jwt-audience", "cove", "--auth-jwt-jwks-url", self.at + "/keys",
                         "--auth-jwt-new-user-role", "viewer", "--auth-jwt-role-claim", "roles", "--auth-jwt-jwks-min-interval", "1s", *self.words_of_issuer()]
        super().setUp()
        self.url = self.env["COVE_URL"]

    @staticmethod
    def words_of_issuer():
        return ["--auth-jwt-issuer", "https://id.example"]

    def tell(self, path, **wish):
        request = urllib.request.Request(f"{self.at}/{path}", json.dumps(wish).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def asked(self, path):
        with urllib.request.urlopen(self.at + "/asked", timeout=60) as answer:
            return json.loads(answer.read()).get(path, 0)

    def whoami(self, token):
        """(status, answer)"""
        request = urllib.request.Request(self.url + "/v1/whoami", headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            return refused.code, json.loads(refused.read())


class Issuer(Issued):
    def test_a_token_of_each_algorithm_logs_in_with_the_role_of_the_local_user(self):
        for alg in ("RS256", "ES256", "EdDSA"):
            status, who = self.whoami(self.tell("mint", alg=alg, claims={"roles": ["developer"]}))
            self.assertEqual((status, who.get("kind"), who.get("tenant")), (200, "jwt", "local"), who)
            self.assertIn("executions", who["scopes"])
            self.assertNotIn("admin", who["scopes"])
        token = self.tell("mint", claims={"roles": ["developer"]})
        env = dict(self.env, COVE_API_KEY=token)
        sandbox = run("sandbox", "create", "-q", "--runtime", "sh", env=env)
        self.assertEqual(sandbox.code, 0, sandbox)
        self.assertEqual(run("exec", sandbox.out.strip(), "--", "echo", "hi", env=env).out, "hi\n")
        self.assertEqual(run("key", "create", "mine", env=dict(env, COVE_API_KEY=self.tell("mint", claims={"sub": "looks"}))).code, 125)

    def test_AU13_malformed_and_forged_tokens_are_refused(self):
        now = int(time.time())
        self.assertEqual(self.whoami(self.tell("mint"))[0], 200)
        wrong = [{"none": True}, {"confuse": True}, {"confuse": True, "alg": "EdDSA"}, {"header": {"kid": "../../etc/passwd"}},
                 {"header": {"kid": "' OR 1=1 --"}}, {"header": {"jku": self.at + "/evil"}}, {"header": {"x5u": self.at + "/evil"}},
                 {"header": {"jwk": {"kty": "oct", "k": "AAAA"}}}, {"claims": {"exp": None}}, {"claims": {"exp": now + 10 * 365 * 86400}},
                 {"claims": {"exp": now - 120}}, {"claims": {"nbf": now + 600}}, {"claims": {"iat": now + 600}}, {"claims": {"aud": "other"}},
                 {"claims": {"aud": None}}, {"claims": {"iss": "https://id.example.evil"}}, {"claims": {"sub": None}}, {"header": {"crit": ["exp"]}}]
        for wish in wrong:
            status, answer = self.whoami(self.tell("mint", **wish))
            self.assertIn(status, (401, 429), (wish, answer))
        token = self.tell("mint")
        for text in (token.rsplit(".", 1)[0], token.rsplit(".", 1)[0] + ".", token[:-4], token + ".x", "a.b.c", "." * 50):
            self.assertIn(self.whoami(text)[0], (401, 429), text)
        self.assertEqual(self.asked("/evil"), 0)
        self.assertEqual(self.whoami(token)[0], 200)  # a good token still works afterwards

    def test_AU14_a_rotated_key_is_found_and_the_old_one_is_refused(self):
        old = self.tell("mint")
        self.assertEqual(self.whoami(old)[0], 200)
        self.tell("rotate")
        new = self.tell("mint")
        wait_for(lambda: self.whoami(new)[0] == 200)
        self.assertEqual(self.whoami(old)[0], 401)

    def test_AU14_an_issuer_that_is_down_slow_huge_or_redirects_is_survived(self):
        good = self.tell("mint")
        self.assertEqual(self.whoami(good)[0], 200)
        for manner in ("down", "huge", "redirect", "nonsense", "slow"):
            self.tell("manner", manner=manner)
            before = self.asked("/keys")
            stranger = self.tell("mint", header={"kid": "unknown-" + manner})
            wait_for(lambda: manner == "slow" or self.whoami(stranger)[0] == 401 and self.asked("/keys") > before)
            self.assertEqual(self.whoami(good)[0], 200, manner)
        self.assertEqual(self.asked("/metadata"), 0)
        self.assertIn("the issuer's keys", open(self.launched.err, encoding="utf-8").read())

    def test_no_token_is_in_a_log(self):
        tokens = [self.tell("mint"), self.tell("mint", claims={"aud": "other"}), self.tell("mint", header={"kid": "x"})]
        for token in tokens:
            self.whoami(token)
        with open(self.launched.err, encoding="utf-8") as f:
            log = f.read()
        for token in tokens:
            self.assertNotIn(token.split(".")[2], log)


class Device(Issued):
    """cove login --device. The flow has no redirect, no state and no code in a URL that could be
    stolen, replayed or redirected."""

    def setUp(self):
        self.device("good")
        super().setUp()
        self.env = {"XDG_CONFIG_HOME": os.path.join(self.dir, "config"), "COVE_URL": "", "COVE_API_KEY": ""}
        self.kept = os.path.join(self.dir, "config/cove/login.json")

    def words_of_issuer(self):
        return ["--auth-jwt-issuer", self.at, "--auth-jwt-client-id", "cove-cli"]

    def device(self, manner, **more):
        self.tell("device-manner", manner=manner, **more)

    def log_in(self, agree=True):
        process = start("login", "--device", self.url, env=self.env)
        if agree:
            wait_for(lambda: process.poll() is not None or self.tell("agree") != "0")
        out, err = process.communicate(timeout=60)
        return Done(["login"], process.returncode, out, err)

    def test_a_person_logs_in_at_the_provider_and_stays_logged_in(self):
        done = self.log_in()
        self.assertEqual(done.code, 0, done)
        self.assertIn(self.at + "/enter", done.err)
        self.assertNotIn("\x1b", done.err)  # text of the provider cannot move the cursor
        self.assertRegex(done.err, f"token for '[^']+', which is sent to {self.url} and nowhere else")
        who = self.cove("whoami", "--json").json
        self.assertEqual((who["kind"], who["tenant"]), ("jwt", "local"))
        with open(self.kept, encoding="utf-8") as f:
            kept = json.load(f)
        self.assertNotIn(kept["key"], done.out + done.err)
        self.assertNotIn(kept["refresh"], done.out + done.err)
        with open(self.kept, "w", encoding="utf-8") as f:  # the token expires: the next command renews it by itself
            json.dump(dict(kept, expiresMs=1), f)
        self.cove("whoami")
        with open(self.kept, encoding="utf-8") as f:
            renewed = json.load(f)
        self.assertNotEqual(renewed["refresh"], kept["refresh"])
        with open(self.kept, "w", encoding="utf-8") as f:
            json.dump(dict(renewed, expiresMs=1, refresh=kept["refresh"]), f)
        self.assertErrorCode(run("whoami", env=self.env), 125, "has expired")  # a refresh token works once
        self.assertEqual(self.log_in().code, 0)

    def test_AU15_a_foreign_issuer_an_insecure_endpoint_and_an_html_page_are_refused(self):
        for manner, told in (("mixup", "another name"), ("http", "that is not https"), ("page", "lacks the code or the page"), ("nobearer", "bearer")):
            self.device(manner)
            before = self.asked("/token")
            done = self.log_in(agree=manner == "nobearer")
            self.assertEqual(done.code != 0 and told in done.err, True, (manner, done))
            self.assertFalse(os.path.exists(self.kept))
            if manner != "nobearer":
                self.assertEqual(self.asked("/token"), before, manner)

    def test_AU15_a_code_needs_its_verifier_and_works_once(self):
        form = "client_id=cove-cli&grant_type=urn:ietf:params:oauth:grant-type:device_code"
        for verifier in ("", "&code_verifier=wrong"):
            request = urllib.request.Request(self.at + "/token", (form + "&device_code=none" + verifier).encode())
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(request, timeout=60)
        self.assertEqual(self.log_in().code, 0)  # the provider refuses a device without PKCE, so PKCE was sent and verified

    def test_a_refused_slowed_or_expired_login_is_reported(self):
        self.device("deny")
        self.assertErrorCode(self.log_in(agree=False), 125, "access_denied")
        self.device("expire")
        self.assertErrorCode(self.log_in(agree=False), 124, "expired before it was entered")
        self.device("slow")
        self.assertEqual(self.log_in().code, 0)


class Settings(Case):
    def test_settings_that_contradict_stop_the_server_with_their_name(self):
        os.chmod(self.dir, 0o755)
        for words, told in ((["--auth-jwt-issuer", "x"], "audience"), (["--auth-jwt-issuer", "x", "--auth-jwt-audience", "y"], "jwksUrl"),
                            (["--auth-jwt-issuer", "x", "--auth-jwt-audience", "y", "--auth-jwt-jwks-url", "http://example.org/k"], "https://")):
            with self.subTest(words=words):
                done = run("serve", "--state-dir", os.path.join(self.dir, "place"), "--listen", "127.0.0.1:0", *words)
                self.assertNotEqual(done.code, 0, done)
                self.assertIn(told, done.err, done)
