"""served.py - a test with a server of its own: self.cove(...) is the command line as its owner."""
from cove import COVE, Case, run
from server import Launched, wait_for  # pylint: disable=unused-import


class Served(Case):
    """One server for a test; sandboxes are what costs little here."""

    settings = []  # more words for `cove serve`

    def setUp(self):
        super().setUp()
        self.launched = Launched(COVE, self.dir, *self.settings)
        self.server = self.launched.process
        self.env = {"COVE_URL": self.launched.url, "COVE_API_KEY": self.launched.key}

    def tearDown(self):
        self.launched.stop()
        super().tearDown()

    def cove(self, *args, code=0, **options):
        done = run(*args, env=self.env, **options)
        self.assertEqual(done.code, code, done)
        return done
