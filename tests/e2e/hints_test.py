"""Hints after a failed `cove run`: in --json always, on a terminal as one line."""
import os
import pty
import subprocess
import time

from cove import COVE, Case, run


def on_a_terminal(*args):
    """The lines that a person sees."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([COVE, *args], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                data = os.read(ours, 65536)
            except OSError:
                break
            if not data:
                break
            text += data
        os.close(ours)
        process.wait(60)
    return text.decode().replace("\r\n", "\n").splitlines()


class Hints(Case):
    def test_json_has_the_hint_of_a_failed_program(self):
        result = run("run", "--json", "--runtime", "python", "-c", "import nosuch_module_at_all").json
        self.assertIn("module nosuch_module_at_all is not installed", result["hint"])
        self.assertIn("exit code 3", run("run", "--json", "--", "sh", "-c", "exit 3").json["hint"])
        self.assertNotIn("hint", run("run", "--json", "--", "true").json)

    def test_a_terminal_shows_one_line(self):
        lines = on_a_terminal("run", "--runtime", "python", "-c", "open('data.csv')")
        hints = [line for line in lines if line.startswith("cove: ")]
        self.assertEqual(len(hints), 1, lines)
        self.assertTrue(hints[0].startswith("cove: hint: data.csv does not exist"), hints)
        self.assertIn("--workspace", hints[0])

    def test_the_hint_of_an_end_replaces_its_note(self):
        lines = on_a_terminal("run", "--timeout", "300ms", "--", "sleep", "60")
        self.assertEqual([line.split(":")[1] for line in lines if line.startswith("cove: ")], [" hint"], lines)
        self.assertIn("300ms", lines[-1])

    def test_an_exit_code_alone_is_not_explained_on_a_terminal(self):
        self.assertEqual(on_a_terminal("run", "--", "false"), [])

    def test_without_a_terminal_there_is_no_hint(self):
        done = run("run", "--", "cat", "nosuch.txt")
        self.assertNotIn("cove:", done.err)

    def test_installers_fail_at_once(self):
        begun = time.monotonic()
        result = run("run", "--json", "--", "pip", "download", "requests").json
        self.assertLess(time.monotonic() - begun, 30)
        self.assertNotIn("Temporary failure", result["stderr"])
        self.assertIn("Nothing can be installed", result["hint"])
