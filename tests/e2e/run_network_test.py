"""`cove run --allow`: programs of a sandbox and origins on loopback, with a proxy of the run's own.

The floor opens 127.0.0.0/8, which is closed otherwise, and a nameserver of the test knows the
origins. Each client runs with the proxy variables of the sandbox and without them.
"""
import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
import time

from cove import Case, descendants, run, start
from nameserver import NameServer
from server import wait_for

PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers)))
        if self.path == "/slow":
            time.sleep(30)
        body = b"hello from " + self.headers.get("Host", "nobody").encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Origin:
    def __init__(self, certificate=None):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.seen, self.server.daemon_threads = [], True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port, self.seen = self.server.server_address[1], self.server.seen
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Network(Case):
    @classmethod
    def setUpClass(cls):
        cls.place = os.path.realpath(subprocess.check_output(["mktemp", "-d"], text=True).strip())
        cls.certificate = [os.path.join(cls.place, name) for name in ("cert.pem", "key.pem")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=origin.test", "-addext", "subjectAltName=DNS:origin.test,DNS:other.test", "-keyout",
                        cls.certificate[1], "-out", cls.certificate[0]], check=True, stderr=subprocess.DEVNULL)
        with open(os.path.join(cls.place, "floor.yaml"), "w", encoding="utf-8") as f:
            f.write("version: 1\nnetwork: {openRanges: [127.0.0.0/8]}\n")
        cls.names = NameServer({"origin.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}).__enter__()
        cls.plain, cls.tls = Origin(), Origin(cls.certificate)
        cls.env = {"COVE_FLOOR": os.path.join(cls.place, "floor.yaml"), "COVE_EGRESS_RESOLVERS": cls.names.address,
                   "COVE_EGRESS_CA_FILE": cls.certificate[0], "TESTKEY": "sk-of-this-test"}

    @classmethod
    def tearDownClass(cls):
        cls.plain.close()
        cls.tls.close()
        cls.names.__exit__()
        shutil.rmtree(cls.place)

    def run_with(self, flags, *argv, **options):
        return run("run", *flags, "--", *argv, env=self.env, **options)

    def receipt(self, flags, *argv):
        done = self.run_with(("--json", *flags), *argv)
        return done.json, done.json["receipt"]["network"]

    def clients(self):
        """name -> command, for a URL in $1, with the certificate at /mnt/ca."""
        found = {
            "curl": ["sh", "-c", "curl -sS --cacert /mnt/ca \"$1\"", "sh"],
            "wget": ["sh", "-c", "wget -q -O- --ca-certificate=/mnt/ca \"$1\"", "sh"],
            "urllib": ["python3", "-c", "import ssl, sys, urllib.request as u\n"
                       "print(u.urlopen(sys.argv[1], context=ssl.create_default_context(cafile='/mnt/ca')).read().decode())"],
        }
        found["requests"] = ["python3", "-c", "import sys, requests\nprint(requests.get(sys.argv[1], verify='/mnt/ca').text)"]
        if shutil.which("node"):
            found["node"] = ["node", "-e", "fetch(process.argv[1]).then(r => r.text()).then(console.log)"]
        if shutil.which("git"):
            found["git"] = ["git", "-c", "http.sslCAInfo=/mnt/ca", "ls-remote"]
        return {name: argv for name, argv in found.items() if name == "node" or shutil.which(argv[0])}

    def each_client(self):
        for name, argv in self.clients().items():
            for direct in (False, True):
                with self.subTest(client=name, direct=direct):
                    flags = ["--bind-ro", f"{self.certificate[0]}:/mnt/ca", "-e", "NODE_EXTRA_CA_CERTS=/mnt/ca"]
                    yield name, flags, ["env", *(f"-u{v}" for v in PROXY_VARIABLES)] * direct + argv

    def test_an_allowed_origin_is_reached_by_every_client_with_and_without_proxy_variables(self):
        for name, flags, argv in self.each_client():
            for scheme, origin in (("http", self.plain), ("https", self.tls)):
                before = len(origin.seen)
                done = self.run_with((*flags, "--allow", f"origin.test:{origin.port}"), *argv, f"{scheme}://origin.test:{origin.port}/x")
                self.assertGreater(len(origin.seen), before, done)
                if name != "git":  # the origin has no repository
                    self.assertEqual(done.code, 0, done)
                    self.assertIn(f"hello from origin.test:{origin.port}", done.out)

    def test_a_refused_origin_is_named_with_the_flag_that_allows_it_and_is_never_looked_up(self):
        for _, flags, argv in self.each_client():
            for scheme, origin in (("http", self.plain), ("https", self.tls)):
                before, asked = len(origin.seen), len(self.names.asked)
                flags_with_rule = (*flags, "--allow", f"origin.test:{origin.port}", "--allow", "never.test")
                done = self.run_with(flags_with_rule, *argv, f"{scheme}://other.test:{origin.port}/x")
                self.assertEqual((len(origin.seen), len(self.names.asked)), (before, asked), done)
                if scheme == "https" or done.code:  # a client may print the answer 403 and succeed
                    self.assertNotEqual(done.code, 0, done)
                    self.assertRegex(done.err, r"cove: refused: other\.test(:\d+)?: no rule allows it; allow with --allow other\.test")
                else:
                    self.assertIn("other.test", done.out + done.err)

    def test_the_receipt_has_bytes_refusals_and_the_rules(self):
        target = f"origin.test:{self.plain.port}"
        done, network = self.receipt(("--allow", target, "--deny", "other.test"), "sh", "-c",
                                     f"curl -sS http://{target}/; curl -sS http://other.test/; curl -sS http://third.test/")
        self.assertEqual((network["mode"], network["rules"]), ("egress", [f"allow {target}", "deny other.test"]))
        by_host = {d["host"]: d for d in network["destinations"]}
        self.assertEqual(set(by_host), {"origin.test", "other.test", "third.test"})
        self.assertEqual((by_host["origin.test"]["connections"], by_host["origin.test"]["refused"]), (1, 0))
        self.assertGreater(by_host["origin.test"]["receivedBytes"], 20)
        self.assertIn("deny other.test", by_host["other.test"]["reason"])
        self.assertIn("no rule", by_host["third.test"]["reason"])
        self.assertEqual((network["connections"], network["refused"]), (1, 2))
        text = run("explain", "-", stdin=json.dumps(done["receipt"])).out
        self.assertIn(f"  {target}, 1 connection", text)
        self.assertIn("fix: allow third.test:80", text)

    def test_the_first_rule_that_matches_decides(self):
        target = f"origin.test:{self.plain.port}"
        url = f"http://{target}/"
        self.assertIn("hello", self.run_with(("--allow", target, "--deny", target), "curl", "-sS", url).out)
        self.assertNotIn("hello", self.run_with(("--deny", target, "--allow", target), "curl", "-sS", url).out)
        self.assertNotIn("hello", self.run_with(("--allow", target, "--deny", "*.test:*", "--allow", "other.test:*"), "curl", "-sS",
                                                url.replace("origin", "other")).out)

    def test_a_closed_address_stays_closed_unless_the_floor_opens_it(self):
        target = f"origin.test:{self.plain.port}"
        before = len(self.plain.seen)
        env = {name: value for name, value in self.env.items() if name != "COVE_FLOOR"}
        done = run("run", "--allow", target, "--", "curl", "-sS", "-f", f"http://{target}/", env=env)
        self.assertNotEqual(done.code, 0, done)
        self.assertEqual(len(self.plain.seen), before)
        self.assertRegex(done.err, r"cove: refused: origin\.test:\d+: .*(closed|127\.0\.0\.0/8|loopback)")

    def test_a_secret_is_added_outside_and_never_inside(self):
        flags = ("--secret", f"openai=TESTKEY@origin.test:{self.tls.port}")
        script = "curl -sS http://openai.secret.cove/v1/models; env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"
        done, network = self.receipt(flags, "sh", "-c", script)
        self.assertIn("hello from", done["stdout"])
        self.assertNotIn("sk-of-this-test", json.dumps(done))
        path, headers = self.tls.seen[-1]
        self.assertEqual((path, headers.get("Authorization")), ("/v1/models", "Bearer sk-of-this-test"))
        self.assertEqual(network["connections"], 1)
        refused = self.run_with(flags, "curl", "-sS", "-f", f"https://origin.test:{self.tls.port}/")
        self.assertNotEqual(refused.code, 0)  # the secret allows its own way only

    def test_a_proxy_runs_only_with_a_network_and_ends_with_the_run(self):
        for flags, count in (((), 0), (("--allow", "origin.test"), 1)):
            with self.subTest(flags):
                process = start("run", *flags, "--", "sh", "-c", "echo up; exec sleep 100", env=self.env)
                process.stdout.readline()
                below = descendants(process.pid)
                self.assertEqual(len(below.get("cove-egress", [])), count, below)
                for pid in below.get("cove-egress", []):  # without the environment of the caller, which may hold keys
                    with open(f"/proc/{pid}/environ", "rb") as f:
                        self.assertNotIn(b"sk-of-this-test", f.read())
                process.send_signal(signal.SIGKILL)
                process.wait()
                process.communicate()
                wait_for(lambda proxies=below.get("cove-egress", []): all(map(has_ended, proxies)), 5)

    def test_a_killed_proxy_opens_nothing_and_the_run_ends(self):
        process = start("run", "--json", "--allow", f"origin.test:{self.plain.port}", "--", "sh", "-c",
                        f"echo up >&2; read go; curl -sS --max-time 2 http://origin.test:{self.plain.port}/; "
                        "curl -sS --noproxy '*' --max-time 2 http://127.0.0.1/; echo ended", env=self.env)
        pid = wait_for(lambda: descendants(process.pid).get("cove-egress"))[0]
        wait_for(lambda: len(descendants(process.pid).get("sh", [])) > 0)
        before = len(self.plain.seen)
        os.kill(pid, signal.SIGKILL)
        out, err = process.communicate(b"go\n", 60)
        result = json.loads(out)
        self.assertIn("ended", result["stdout"], err)
        self.assertEqual(len(self.plain.seen), before)
        self.assertIn("absentWhy", result["receipt"]["network"])

    def test_a_signal_of_the_terminal_does_not_reach_the_proxy(self):
        process = start("run", "--allow", f"origin.test:{self.plain.port}", "--", "sh", "-c",
                        f"trap 'curl -sS http://origin.test:{self.plain.port}/; exit' INT; echo up; sleep 100 & wait",
                        env=self.env, start_new_session=True)
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertIn(b"hello from origin.test", out, err)

    def test_what_cannot_have_a_network_is_refused(self):
        self.assertErrorCode(self.run_with(("--keep", "--allow", "origin.test"), "true"), 125, "not_supported")
        if shutil.which("bwrap"):
            self.assertErrorCode(self.run_with(("--driver", "bwrap", "--allow", "origin.test"), "true"), 125, "driver_unsupported")


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
