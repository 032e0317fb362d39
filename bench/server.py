"""server.py - a server of cove for the benchmarks: `cove serve` in its own directory."""
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile

from host import children_of


def fail(text):
    sys.exit(f"bench/{os.path.basename(sys.argv[0])}: {text}")


class Server:
    """A server with high rate limits, so that they do not affect the figures."""

    def __init__(self, build, tmp, *flags):
        self.place = tempfile.mkdtemp(prefix="place-", dir=tmp)
        os.chmod(self.place, 0o755)
        tmp, self.place = self.place, self.place + "/server"
        self.log = tmp + "/log"
        limits = [word for name in ("default", "create", "execute") for word in (f"--rate-limit-{name}", "1000000/s")]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([build + "/src/main/cove", "serve", "--state-dir", self.place, "--listen", "127.0.0.1:0", *limits, *flags],
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self.port = self.key = None
        while self.key is None:
            line = self.process.stdout.readline()
            if not line:
                with open(self.log, encoding="utf-8") as f:
                    fail(f"the server does not start: {f.read().strip()}")
            found = re.match(r"\s+(address|key)\s+(\S+)", line)
            if found and found[1] == "address":
                self.port = found[2].rpartition(":")[2]
            elif found:
                self.key = found[2]

    def ask(self, method, path, body=None):
        """(status, decoded answer)"""
        c = http.client.HTTPConnection("127.0.0.1", int(self.port), timeout=120)
        c.request(method, path, body and json.dumps(body), {"Authorization": "Bearer " + self.key, "Content-Type": "application/json"})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, json.loads(text) if text else None

    def call(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        if status >= 300:
            fail(f"{method} {path}: {json.dumps(answer)}")
        return answer

    def sandbox(self, **fields):
        return self.call("POST", "/v1/sandboxes", {"runtime": "sh", "lifetimeMs": 3600000, **fields})["id"]

    def processes(self):
        return [self.process.pid] + children_of(self.process.pid)

    def stop(self):
        self.process.terminate()
        self.process.wait(120)
