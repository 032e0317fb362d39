"""TLS with real clients: curl, OpenSSL's own client, Python; and hostile ones."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

from cove import ROOT, run
from serve_test import Server, Unix, processes, wait_for

HANDSHAKES_MAX = 256
ROUNDS = 12  # renewals under load


def openssl(*args, stdin=b"", timeout=60):
    return subprocess.run(["openssl", *args], input=stdin, capture_output=True, timeout=timeout, check=False)


class Tls(Server):
    """A server with a self-signed certificate, in self.cert and self.key."""

    def setUp(self):
        super().setUp()
        self.cert, self.key = os.path.join(self.dir, "live.crt"), os.path.join(self.dir, "live.key")
        self.talks = []
        self.make(self.cert, self.key)

    def make(self, cert, key, name="first", days=30, kind=("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), more=(), names="DNS:localhost,IP:127.0.0.1"):
        """Creates a self-signed certificate, put in place by a rename as renewals do."""
        done = openssl("req", "-x509", "-newkey", *kind, "-nodes", "-keyout", key + ".new", "-out", cert + ".new", "-days",
                       str(days), "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        os.rename(key + ".new", key)
        os.rename(cert + ".new", cert)

    def serve(self, *flags):
        url = self.start("--tls-certificate", self.cert, "--tls-key", self.key, *flags)
        self.port = int(url.rsplit(":", 1)[1])
        words = self.said().decode().split()
        self.secret = words[words.index("key") + 1]
        return url

    def trust(self, cafile=None):
        return ssl.create_default_context(cafile=cafile or self.cert)

    def raw(self, timeout=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def shake(self, context=None, timeout=60):
        return (context or self.trust()).wrap_socket(self.raw(timeout), server_hostname="localhost")

    def talk(self, context=None):
        connection = http.client.HTTPSConnection("localhost", self.port, context=context or self.trust(), timeout=60)
        self.addCleanup(connection.close)
        self.talks.append(connection)
        return connection

    def stop(self, how=signal.SIGTERM, hang_up=True):
        """Closes the connections first: a server waits 2 s for clients that do not."""
        for connection in self.talks if hang_up else ():
            connection.close()
        super().stop(how)

    def ask(self, connection, path="/health", method="GET", body=None, key=None, headers=()):
        connection.request(method, path, body, {**dict(headers), **({"Authorization": f"Bearer {key}"} if key else {})})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def figure(self, name, family="tls_"):
        over_socket = Unix(os.path.join(self.run_dir, "api.sock"))
        over_socket.request("GET", "/metrics")
        text = over_socket.getresponse().read().decode()
        over_socket.close()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"cove_{family}{name} "))

    def running(self):
        return self.figure("executions_running", "")

    def subject(self):
        with self.shake() as s:
            return dict(pair[0] for pair in s.getpeercert()["subject"])["commonName"]


class Spoken(Tls):
    def test_curl_openssl_and_python_connect_in_both_versions(self):
        url = self.serve()
        self.assertTrue(url.startswith("https://127.0.0.1:"), url)
        for version in ("1.2", "1.3"):
            done = subprocess.run(["curl", "-sS", "--cacert", self.cert, "--tlsv" + version, "--tls-max", version,
                                   f"https://localhost:{self.port}/health"], capture_output=True, timeout=60, check=False)
            self.assertEqual(json.loads(done.stdout)["status"], "ok", done.stderr)
            request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            said = openssl("s_client", "-connect", f"127.0.0.1:{self.port}", "-CAfile", self.cert, "-servername", "localhost",
                           "-verify_return_error", "-alpn", "http/1.1", "-ign_eof", "-tls" + version.replace(".", "_"),
                           stdin=request).stdout
            self.assertIn(b"200 OK", said)
            self.assertIn(b"ALPN protocol: http/1.1", said)
        connection = self.talk()
        for _ in range(20):  # kept open
            self.assertEqual(self.ask(connection)[0], 200)
        self.assertEqual(self.figure("handshakes_total"), 5)
        self.stop(hang_up=False)  # the server ends although a client stays connected

    def test_rsa_keys_and_certificate_chains_work(self):
        """A leaf signed by an intermediate authority, which the server sends too: the client knows
        only the root."""
        root, middle = os.path.join(self.dir, "root"), os.path.join(self.dir, "middle")
        rsa = ("rsa:2048",)
        self.make(root + ".crt", root + ".key", "root", more=("-addext", "basicConstraints=critical,CA:TRUE"), kind=rsa)
        for name, of, extensions in (("middle", "root", "basicConstraints=critical,CA:TRUE"), ("leaf", "middle", "subjectAltName=DNS:localhost")):
            path, above = os.path.join(self.dir, name), os.path.join(self.dir, of)
            openssl("req", "-newkey", *rsa, "-nodes", "-keyout", path + ".key", "-out", path + ".csr", "-subj", f"/CN={name}")
            done = openssl("x509", "-req", "-in", path + ".csr", "-CA", above + ".crt", "-CAkey", above + ".key", "-CAcreateserial", "-days", "9",
                           "-extfile", self.file("extensions", extensions), "-out", path + ".crt")
            self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.cert, "w", encoding="ascii") as f:
            for name in ("leaf", "middle"):
                with open(os.path.join(self.dir, name + ".crt"), encoding="ascii") as part:
                    f.write(part.read())
        os.rename(os.path.join(self.dir, "leaf.key"), self.key)
        self.serve()
        self.assertEqual(self.ask(self.talk(self.trust(root + ".crt")))[0], 200)
        self.stop()

    def test_old_versions_weak_ciphers_and_other_protocols_are_refused(self):
        self.serve()
        for words in (("-tls1",), ("-tls1_1",), ("-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"),
                      ("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"), ("-alpn", "h2")):
            done = openssl("s_client", "-connect", f"127.0.0.1:{self.port}", "-servername", "localhost", *words)
            self.assertNotEqual(done.returncode, 0, words)
        self.assertEqual(self.figure("handshakes_total"), 0)
        self.assertEqual(self.ask(self.talk())[0], 200)
        self.stop()

    def test_renegotiation_is_refused_and_the_connection_survives(self):
        self.serve()
        done = openssl("s_client", "-connect", f"127.0.0.1:{self.port}", "-servername", "localhost", "-tls1_2", stdin=b"R\nR\nR\n")
        self.assertRegex(done.stderr + done.stdout, rb"(?i)no renegotiation")
        self.assertEqual(self.ask(self.talk())[0], 200)
        self.stop()

    def test_a_session_ticket_shortens_the_second_handshake(self):
        self.serve()
        context = self.trust()
        first = self.shake(context)
        first.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertIn(b"200", first.recv(4096))
        session = first.session
        first.close()
        second = context.wrap_socket(self.raw(), server_hostname="localhost", session=session)
        self.assertTrue(second.session_reused)
        second.close()
        wait_for(lambda: self.figure("handshakes_resumed_total") == 1)
        self.stop()

    def test_plain_http_gets_an_explaining_error(self):
        self.serve()
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            plain = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            status, body = self.ask(plain, "/v1/sandboxes", method)
            plain.close()
            self.assertEqual(status, 400)
            self.assertEqual(json.loads(body)["error"]["code"], "https_required")
        self.assertEqual(self.figure("plain_requests_total"), 4)
        self.stop()

    def test_the_address_of_the_client_is_its_own_and_never_local(self):
        """The Unix socket needs no key; a client over TLS does, although a pair of Unix sockets is
        between."""
        self.serve("--http-max-connections-per-address", "5")
        self.assertEqual(self.ask(self.talk(), "/v1/sandboxes")[0], 401)
        self.assertEqual(self.ask(self.talk(), "/v1/sandboxes", key=self.secret)[0], 200)
        kept = [self.talk() for _ in range(9)]
        answered = 0
        for connection in kept:
            try:
                answered += self.ask(connection)[0] == 200
            except (OSError, http.client.HTTPException):
                pass
        self.assertLessEqual(answered, 5)  # connections of one address: they are counted for the client, not one pair each
        self.assertGreaterEqual(answered, 1)
        self.stop()

    def test_pages_of_the_same_host_without_tls_may_not_call(self):
        self.serve()
        connection = self.talk()
        for origin, status in ((f"https://localhost:{self.port}", 200), (f"http://localhost:{self.port}", 403)):
            self.assertEqual(self.ask(connection, headers=[("Origin", origin)])[0], status, origin)
        self.stop()

    def test_files_of_many_megabytes_pass_completely_in_both_directions(self):
        self.serve()
        connection, size = self.talk(), 24 << 20
        status, body = self.ask(connection, "/v1/sandboxes", "POST", '{"runtime": "sh"}', self.secret, [("Content-Type", "application/json")])
        self.assertEqual(status, 201, body)
        path = f"/v1/sandboxes/{json.loads(body)['id']}/files?path=/workspace/big"
        data = os.urandom(1 << 20) * (size >> 20)
        status, body = self.ask(connection, path, "PUT", data, self.secret)
        self.assertIn(status, (200, 201, 204), body)
        status, body = self.ask(connection, path, key=self.secret)
        self.assertEqual((status, len(body)), (200, size))
        self.assertTrue(body == data)
        # A slow reader gets everything, and a client that disconnects in the middle harms no other.
        slow = self.shake()
        slow.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {self.secret}\r\n\r\n".encode())
        left = self.shake()
        left.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.secret}\r\n\r\n".encode())
        left.recv(100)
        left.close()
        got = 0
        while piece := slow.recv(1 << 16):
            got += len(piece)
            if got % (8 << 20) < 1 << 16:
                time.sleep(0.1)
        self.assertGreater(got, size)
        slow.close()
        wait_for(lambda: self.figure("connections") <= 1)
        self.stop()

    def test_websockets_pass_frames_in_both_directions(self):
        self.serve()
        status, body = self.ask(self.talk(), "/v1/sandboxes", "POST", '{"runtime": "sh"}', self.secret, [("Content-Type", "application/json")])
        self.assertEqual(status, 201, body)
        with self.shake() as s:
            s.sendall(f"GET /v1/sandboxes/{json.loads(body)['id']}/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {self.secret}\r\n\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += s.recv(1)
            self.assertIn(b" 101 ", head)
            got, deadline = b"", time.monotonic() + 120
            for n in range(50):  # pings, masked with zeros; other messages of the server may stand between the pongs
                s.sendall(bytes([0x89, 0x84, 0, 0, 0, 0]) + b"%04d" % n)
                while b"\x8a\x04%04d" % n not in got:
                    piece = s.recv(4096)
                    self.assertTrue(piece, got)
                    self.assertLess(time.monotonic(), deadline, got)  # the timeout of the socket begins again with every ping
                    got += piece
        wait_for(lambda: self.figure("api_websockets", "") == 0)
        self.stop()

    def test_active_requests_are_finished_when_the_server_stops(self):
        self.serve()
        connection = self.talk()
        status, body = self.ask(connection, "/v1/sandboxes", "POST", '{"runtime": "sh"}', self.secret, [("Content-Type", "application/json")])
        self.assertEqual(status, 201, body)
        path = f"/v1/sandboxes/{json.loads(body)['id']}/executions"
        connection.request("POST", path, json.dumps({"command": ["sh", "-c", "sleep 1; head -c 300000 /dev/zero | tr '\\0' x"]}),
                           {"Authorization": f"Bearer {self.secret}", "Content-Type": "application/json"})
        wait_for(lambda: self.running() == 1)
        os.kill(processes(self.run_dir)["coved"], signal.SIGTERM)
        answer = connection.getresponse()
        self.assertIn("x" * 300000, answer.read().decode())
        self.stop(hang_up=False)


class Clients(Tls):
    def test_cove_trusts_the_given_authority_and_no_other(self):
        url = self.serve().replace("127.0.0.1", "localhost")
        other = os.path.join(self.dir, "other")
        self.make(other + ".crt", other + ".key", "other")
        env = {"COVE_URL": url, "COVE_API_KEY": self.secret, "COVE_CACERT": ""}
        for flags, more in (((), {"COVE_CACERT": self.cert}), (("--cacert", self.cert), {"COVE_CACERT": other + ".crt"})):
            done = run("sandbox", "ls", "--json", *flags, env={**env, **more})
            self.assertEqual((done.code, done.json["items"]), (0, []), done)
        for flags in ((), ("--cacert", other + ".crt")):
            done = run("sandbox", "ls", *flags, env=env)
            self.assertEqual(done.code, 125, done)
            self.assertIn("server_not_trusted", done.err)
        done = run("sandbox", "ls", "--cacert", self.dir + "/none", env=env)
        self.assertEqual(done.code, 2, done)
        self.assertIn("No such file", done.err)
        done = run("exec", run("sandbox", "create", "-q", "--runtime", "sh", "--cacert", self.cert, env=env).out.strip(), "--cacert", self.cert,
                   "--", "sh", "-c", "echo over TLS", env=env)
        self.assertEqual((done.code, done.out), (0, "over TLS\n"), done)
        home = {"COVE_URL": "", "COVE_API_KEY": "", "COVE_CACERT": "", "XDG_CONFIG_HOME": os.path.join(self.dir, "config")}
        self.assertIn("server_not_trusted", run("login", url, stdin=self.secret, env=home).err)
        self.assertEqual(run("login", "--cacert", os.path.relpath(self.cert), url, stdin=self.secret, env=home).code, 0)
        with open(os.path.join(self.dir, "config/cove/login.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f)["cacert"], os.path.realpath(self.cert))
        self.assertEqual(run("sandbox", "ls", env=home).code, 0)
        self.assertIn("server_not_trusted", run("sandbox", "ls", "--cacert", other + ".crt", env=home).err)
        elsewhere = run("sandbox", "ls", env={**home, "COVE_URL": url.replace("localhost", "127.0.0.1"), "COVE_API_KEY": self.secret})
        self.assertIn("server_not_trusted", elsewhere.err)  # the authority belongs to that server, as the key does
        self.assertErrorCode(run("login", "--cacert", self.dir + "/none", url, stdin=self.secret, env=home), 2, "No such file")
        done = run("sandbox", "ls", env={**env, "COVE_URL": url.replace("https", "http")})
        self.assertIn("https_required", done.err)
        self.stop()

    def test_the_python_package_uses_tls(self):
        python = subprocess.run([os.path.join(ROOT, "tests/sdk/run.py"), "--python"], capture_output=True, text=True, timeout=900, check=False)
        if python.returncode == 77:
            self.skipTest(python.stderr.strip())
        url = self.serve().replace("127.0.0.1", "localhost")
        story = ("import sys; from cove import Cove, Sandbox, Retry, errors\n"
                 "with Cove(cacert=sys.argv[1]) as c, Sandbox.create('sh', client=c) as s:\n"
                 "    assert s.run_command(['echo', 'hi']).stdout == 'hi\\n'\n"
                 "try:\n    Cove(retry=Retry(window=0)).version()\n"
                 "except errors.ServerNotTrustedError as e:\n    print('refused', e.code)\n")
        done = subprocess.run([python.stdout.strip(), "-c", story, self.cert], env=dict(os.environ, COVE_URL=url, COVE_API_KEY=self.secret),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.stdout, "refused server_not_trusted\n", done.stderr)
        self.stop()


class Certificates(Tls):
    def test_a_renewed_certificate_is_used_without_a_signal(self):
        self.serve()
        kept = self.talk()
        self.assertEqual(self.ask(kept)[0], 200)
        self.make(self.cert, self.key, "second")
        wait_for(lambda: self.figure("certificates_loaded_total") == 2)
        self.assertEqual(self.subject(), "second")
        self.assertEqual(self.ask(kept)[0], 200)  # with the certificate of its handshake
        self.stop()

    def test_a_swapped_directory_of_links_is_noticed_without_polling(self):
        """As Kubernetes mounts secrets: the files are links through a link that a rename
        replaces."""
        mount = os.path.join(self.dir, "mount")
        for n in ("1", "2"):
            os.makedirs(f"{mount}/..{n}")
            self.make(f"{mount}/..{n}/tls.crt", f"{mount}/..{n}/tls.key", n)
        os.symlink("..1", f"{mount}/..data")
        for name in ("tls.crt", "tls.key"):
            os.symlink(f"..data/{name}", f"{mount}/{name}")
        self.cert, self.key = f"{mount}/tls.crt", f"{mount}/tls.key"
        self.serve()
        self.assertEqual(self.subject(), "1")
        wait_for(lambda: self.figure("connections") == 0)
        self.wait_for_quiet()
        os.symlink("..2", f"{mount}/..new")
        os.rename(f"{mount}/..new", f"{mount}/..data")
        wait_for(lambda: self.figure("certificates_loaded_total") == 2)
        self.assertEqual(self.subject(), "2")
        self.stop()

    def wait_for_quiet(self, seconds=6, patience=300):
        """Waits until no thread of the server has run for so long; right after a start some still
        do."""
        end, since, before = time.monotonic() + patience, time.monotonic(), self.switches()
        while time.monotonic() - since < seconds:
            self.assertLess(time.monotonic(), end, "a thread of the server wakes up again and again")
            time.sleep(0.2)
            if (now := self.switches()) != before:
                since, before = time.monotonic(), now

    def switches(self):
        found = []
        for pid in processes(self.run_dir).values():
            for tid in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8") as f:
                    found.append((pid, tid, re.findall(r"ctxt_switches:\s+(\d+)", f.read())))
        return sorted(found)

    def test_a_renewal_under_load_loses_no_request(self):
        self.serve()
        certs = [(os.path.join(self.dir, f"c{i}.crt"), os.path.join(self.dir, f"c{i}.key")) for i in range(2)]
        context = self.trust()
        for i, (cert, key) in enumerate(certs):
            self.make(cert, key, f"c{i}")
            context.load_verify_locations(cert)
        stop, done, wrong = threading.Event(), [0, 0], []

        def load(fresh):
            connection = self.talk(context)
            while not stop.is_set():
                try:
                    if fresh:
                        connection.close()
                    status = self.ask(connection)[0]
                    if status != 200:
                        wrong.append(status)
                except (OSError, http.client.HTTPException) as error:
                    wrong.append(repr(error))
                done[fresh] += 1

        threads = [threading.Thread(target=load, args=(i % 2,)) for i in range(4)]
        for thread in threads:
            thread.start()
        try:
            for i in range(ROUNDS):
                loaded, before = self.figure("certificates_loaded_total"), list(done)
                cert, key = certs[i % 2]
                os.link(key, self.key + ".new")
                os.link(cert, self.cert + ".new")
                os.rename(self.key + ".new", self.key)
                os.rename(self.cert + ".new", self.cert)
                self.server.send_signal(signal.SIGHUP)
                wait_for(lambda: self.figure("certificates_loaded_total") > loaded)
                wait_for(lambda: all(now > then for now, then in zip(done, before)))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(self.subject_of(context), f"c{(ROUNDS - 1) % 2}")
        self.stop()

    def subject_of(self, context):
        with self.shake(context) as s:
            return dict(pair[0] for pair in s.getpeercert()["subject"])["commonName"]

    def test_bad_new_files_keep_the_old_certificate_in_use(self):
        self.serve()
        good, other = self.trust(), (os.path.join(self.dir, "o.crt"), os.path.join(self.dir, "o.key"))
        self.make(*other, "other")
        with open(self.key, encoding="ascii") as f:
            key = f.read()
        with open(self.cert, encoding="ascii") as f:
            cert = f.read()
        with open(other[1], encoding="ascii") as f:
            other_key = f.read()
        locked = openssl("ec", "-aes128", "-passout", "pass:secret", stdin=key.encode()).stdout.decode()
        old = openssl("x509", "-in", self.cert, "-signkey", self.key, "-days", "-1").stdout.decode()
        for number, (cert_text, key_text, word) in enumerate([
                (cert, other_key, "does not belong"), (cert, "", "is empty"), ("nonsense", key, "no certificate in PEM"),
                (cert, locked, "has a passphrase"), (cert, None, "No such file"), (old, key, "has expired"),
                (cert + cert[:200], key, "chain"), (cert, "x" * (2 << 20), "larger than")], 1):
            for path, text in ((self.cert, cert_text), (self.key, key_text)):
                os.unlink(path) if text is None else self.file(os.path.basename(path), text)
            self.server.send_signal(signal.SIGHUP)
            wait_for(lambda: self.figure("certificates_refused_total") >= number)
            self.assertRegex(self.logged(), f"the new certificate is not used: .*{word}")
            self.assertEqual(self.ask(self.talk(good))[0], 200)
        self.assertEqual(self.figure("certificates_loaded_total"), 1)
        self.assertNotIn("PRIVATE", self.logged())
        self.stop()

    def test_the_expiry_is_in_the_metrics_and_a_near_one_in_the_log(self):
        self.make(self.cert, self.key, "soon", days=5)
        self.serve()
        left = self.figure("certificate_expiry_timestamp_seconds") - time.time()
        self.assertTrue(4 * 86400 < left <= 5 * 86400, left)
        self.assertRegex(self.logged(), "warning coved: the certificate of /CN=soon expires at ")
        self.stop()

    def test_a_server_with_bad_files_does_not_start_and_says_why(self):
        self.make(self.cert, os.path.join(self.dir, "another.key"), "one")
        for flags, code, words in (
                (["--tls-certificate", self.cert], 2, "TLS needs both"),
                (["--tls-key", self.key], 2, "TLS needs both"),
                (["--tls-certificate", self.cert, "--tls-key", self.key], 125, "does not belong"),
                (["--tls-certificate", self.dir + "/none", "--tls-key", self.key], 125, "No such file"),
                (["--tls-certificate", self.dir, "--tls-key", self.key], 125, "is not a regular file")):
            done = run("serve", "--state-dir", self.place, "--listen", "127.0.0.1:0", *flags)
            self.assertEqual(done.code, code, done)
            self.assertIn(words, done.err)

    def test_a_restarted_coved_gets_the_certificate_again(self):
        self.serve()
        before = processes(self.run_dir)["coved"]
        self.make(self.cert, self.key, "second")
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: processes(self.run_dir).get("coved", before) != before)
        self.assertEqual(self.subject(), "second")
        self.stop()

    def test_a_key_that_only_root_may_read_works_and_stays_secret(self):
        os.chmod(self.key, 0o600)
        self.serve()
        self.assertEqual(self.ask(self.talk())[0], 200)
        self.assertNotIn("may read", self.logged())
        self.stop()

    def test_clients_must_send_a_certificate_where_one_is_required(self):
        ours, theirs = (os.path.join(self.dir, n) for n in ("ours", "theirs"))
        for name in (ours, theirs):
            self.make(name + ".crt", name + ".key", os.path.basename(name))
        self.serve("--tls-client-ca", ours + ".crt")
        for name in (None, theirs, ours):
            context = self.trust()
            if name:
                context.load_cert_chain(name + ".crt", name + ".key")
            connection = self.talk(context)
            if name == ours:
                self.assertEqual(self.ask(connection)[0], 200)
                self.assertEqual(self.ask(connection, "/v1/sandboxes")[0], 401)  # the certificate opens the connection and does not replace a key
            else:
                self.assertRaises((OSError, http.client.HTTPException), self.ask, connection)
        self.stop()


class Harm(Tls):
    def test_garbage_and_broken_handshakes_leave_no_resources(self):
        self.serve()
        with self.shake():
            pass
        for data in (b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"\x01" * 70000, b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x03\x01" + b"a" * 60,
                     b"\x15\x03\x03\x00\x02\x02\x28", b"\n", b""):
            with self.raw() as s:
                try:
                    s.sendall(data)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(4096):
                        pass
                except OSError:
                    pass
        self.assertEqual(self.ask(self.talk())[0], 200)
        wait_for(lambda: self.figure("connections") <= 1)
        self.assertEqual(self.figure("handshakes_failed_total"), 7)
        self.stop()

    def test_records_of_one_byte_are_accepted(self):
        self.serve()
        hello, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.trust().wrap_bio(hello, outgoing, server_hostname="localhost")
        with self.raw() as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def step(fn):
                while True:
                    try:
                        value = fn()
                        break
                    except ssl.SSLWantReadError:
                        for byte in outgoing.read():
                            s.sendall(bytes([byte]))
                        hello.write(s.recv(1 << 16))
                for byte in outgoing.read():
                    s.sendall(bytes([byte]))
                return value

            step(tls.do_handshake)
            for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
                step(lambda b=byte: tls.write(bytes([b])))
            self.assertIn(b"200 OK", step(lambda: tls.read(4096)))
        self.stop()

    def test_a_stalled_handshake_is_closed(self):
        self.serve("--tls-handshake-timeout", "1s")
        began, silent, half = time.monotonic(), self.raw(), self.raw()
        half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        for s in (silent, half):
            self.assertEqual(s.recv(1), b"")
            s.close()
        self.assertGreaterEqual(time.monotonic() - began, 1)
        self.assertEqual(self.figure("handshakes_late_total"), 2)
        self.stop()

    def test_a_flood_of_half_open_handshakes_blocks_no_client(self):
        self.serve("--http-max-connections", "64")
        flood = []
        for _ in range(HANDSHAKES_MAX * 2):
            s = self.raw()
            s.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
            flood.append(s)
        self.assertEqual(self.ask(self.talk())[0], 200)
        self.assertLessEqual(self.figure("connections"), HANDSHAKES_MAX)
        self.assertGreater(self.figure("handshakes_late_total"), 0)
        for s in flood:
            s.close()
        self.assertEqual(self.ask(self.talk())[0], 200)
        self.stop()

    def test_a_flood_from_one_address_loses_only_its_own_handshakes(self):
        self.serve("--tls-handshake-timeout", "10m")
        slow = self.raw()
        slow.sendall(b"\x16")
        flood = []
        for _ in range(HANDSHAKES_MAX + 16):
            s = socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=("127.0.0.2", 0))
            s.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
            flood.append(s)
        wait_for(lambda: self.figure("handshakes_late_total") > 0)
        slow.settimeout(0.5)
        with self.assertRaises(socket.timeout):
            slow.recv(1)  # still open
        for s in [slow, *flood]:
            s.close()
        self.stop()

    def test_idle_connections_are_closed_for_new_clients(self):
        self.serve("--http-max-connections", "8")
        idle = [self.shake() for _ in range(12)]
        self.assertEqual(self.ask(self.talk())[0], 200)
        for s in idle:
            s.close()
        self.stop()

    def test_a_client_that_vanishes_ends_its_request(self):
        self.serve()
        status, body = self.ask(self.talk(), "/v1/sandboxes", "POST", '{"runtime": "sh"}', self.secret, [("Content-Type", "application/json")])
        self.assertEqual(status, 201, body)
        for before, clean in enumerate((True, False)):
            text = json.dumps({"command": ["sleep", "600"], "timeoutMs": 600000})
            s = self.shake()
            s.sendall(f"POST /v1/sandboxes/{json.loads(body)['id']}/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      f"Authorization: Bearer {self.secret}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
            wait_for(lambda: self.running() > before)
            if clean:
                try:
                    s.settimeout(0.2)
                    s.unwrap()
                except OSError:
                    pass
            s.close()
        wait_for(lambda: len(re.findall("POST /v1/sandboxes/[^ ]*/executions 0 ", self.logged())) == 2)
        wait_for(lambda: self.figure("connections") <= 1)
        self.stop()
