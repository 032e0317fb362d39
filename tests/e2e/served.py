"""served.py - a test with a server of its own: self.cove(...) is the command line as its owner."""
import os
import signal
import subprocess
import time

from cove import COVE, Case, run


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("waited in vain")


class Served(Case):
    """One server for a test; sandboxes are what costs little here."""

    settings = []  # more words for `cove serve`

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        out = os.path.join(self.dir, "said")
        with open(out, "wb") as said, open(os.path.join(self.dir, "log"), "wb") as log:
            self.server = subprocess.Popen(
                [COVE, "serve", "--state-dir", os.path.join(self.dir, "place"), "--listen", "127.0.0.1:0", *self.settings],
                stdin=subprocess.DEVNULL, stdout=said, stderr=log)
        words = wait_for(lambda: self.words(out))
        self.env = {"COVE_URL": words[words.index("address") + 1], "COVE_API_KEY": words[words.index("key") + 1]}

    def words(self, path):
        self.assertIsNone(self.server.poll(), "the server ended")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        return text.split() if "is ready" in text and "key " in text else None

    def tearDown(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(120)
        super().tearDown()

    def cove(self, *args, code=0, **options):
        done = run(*args, env=self.env, **options)
        self.assertEqual(done.code, code, done)
        return done
