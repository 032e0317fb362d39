"""Completion of names that only a server knows: sandboxes, contexts, templates, pools, keys."""
import os
import shutil
import subprocess
import time

from cove import COVE, run
from served import Served


class Names(Served):
    def setUp(self):
        super().setUp()
        self.env["COVE_STATE_DIR"] = os.path.join(self.dir, "kept")
        self.box = self.cove("sandbox", "create", "-q").out.strip()

    def names(self, *words):
        return self.cove("__complete", *words).out.split()

    def test_arguments_are_completed_by_verb_and_position(self):
        ended = self.cove("sandbox", "create", "-q").out.strip()
        self.cove("rm", "-q", ended)
        context = self.cove("context", "create", self.box).out.strip()
        execution = self.cove("exec", "-d", self.box, "--", "sleep", "60").out.strip()
        for words in (["shell", ""], ["exec", "-e", "A=1", ""], ["rm", "x", "y", ""], ["sandbox", "rm", ""], ["logs", "-f", ""]):
            self.assertEqual(self.names(*words), [self.box], words)
        self.assertEqual(self.names("cp", ""), [self.box + ":"])
        named = self.cove("sandbox", "create", "-q", "--name", "build-1").out.strip()
        self.assertEqual(set(self.names("shell", "")), {self.box, named, "build-1"})
        self.cove("rm", "-q", named)
        self.assertEqual(self.names("context", "exec", self.box, ""), [context])
        self.assertIn(execution, self.names("logs", self.box[:9], ""))
        self.assertIn("python-data", self.names("sandbox", "create", "--template", ""))
        self.assertIn("python-data", self.names("template", "show", ""))
        script = self.cove("tool", "call", self.box, "run_sandbox", "--arg", "code=print(1)", "--json").json["result"]["script"]["id"]
        self.assertEqual(self.names("script", "show", ""), [script])
        self.assertEqual(self.names("script", "rm", "x", ""), [script])
        self.cove("key", "create", "-q", "ci")
        self.assertEqual([k for k in self.names("key", "revoke", "") if not k.startswith("ky")], ["ci"])  # one has blanks in its name
        for words in (["shell", self.box, ""], ["sandbox", "create", ""], ["run", ""], ["no-such", ""], ["shell"], []):
            self.assertEqual(self.names(*words), [], words)

    def test_kept_sandboxes_are_completed_too(self):
        self.addCleanup(run, "rm", "--all", "--local", "--yes", env=self.env)
        kept = self.cove("run", "--keep", "--json", "--", "true").json["sandboxId"]
        self.assertEqual(set(self.names("shell", "")), {kept, self.box})
        self.assertEqual(self.names("logs", ""), [self.box])

    def test_a_server_that_does_not_answer_is_silent_and_quick(self):
        began = time.monotonic()
        for url in ("http://127.0.0.1:1", "http://nowhere.invalid", "ftp://example.org"):
            done = run("__complete", "shell", "", env={"COVE_URL": url, "COVE_STATE_DIR": self.dir})
            self.assertEqual((done.code, done.out, done.err), (0, "", ""))
        self.assertLess(time.monotonic() - began, 15)

    def complete_in_bash(self, *words):
        script = run("completion", "bash").out
        probe = f"{script}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _cove; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        env = {**os.environ, **self.env, "PATH": os.path.dirname(COVE) + ":" + os.environ["PATH"]}
        return subprocess.run(["bash", "-c", probe], capture_output=True, text=True, env=env, cwd=self.dir).stdout.split()

    def test_bash_offers_names_flags_and_error_codes(self):
        self.assertEqual(self.complete_in_bash("cove", "shell", self.box[:5]), [self.box])
        self.assertEqual(self.complete_in_bash("cove", "sandbox", "create", "--template", "python-d"), ["python-data"])
        self.assertEqual(self.complete_in_bash("cove", "shell", "--cw"), ["--cwd"])
        self.assertEqual(self.complete_in_bash("cove", "errors", "program_not_f"), ["program_not_found"])
        self.assertEqual(self.complete_in_bash("cove", "mcp", "--loc"), ["--local"])
        self.assertEqual(self.complete_in_bash("cove", "mcp", "sess"), ["sessions"])
        self.assertEqual(self.complete_in_bash("cove", "policy", "why", self.box[:5]), [self.box])
        self.file("sbfile")
        self.assertEqual(set(self.complete_in_bash("cove", "cp", "sb")), {self.box + ":", "sbfile"})

    def test_a_name_cannot_run_a_command_in_the_shell(self):
        hostile = ["$(touch${IFS}ran)", "`touch${IFS}ran`", "x;touch${IFS}ran", "--all", "\x1b]0;title\x07", "~", "{a,b}", "*"]
        made = [self.ask("POST", "/v1/keys", 201, {"name": name, "scopes": ["files"]}, key=self.key)["id"] for name in hostile]
        offered = self.complete_in_bash("cove", "key", "revoke", "''")
        self.assertEqual([word for word in offered if not word.startswith("ky")], [])
        self.assertLessEqual(set(made), set(offered))
        self.assertFalse(os.path.exists(os.path.join(self.dir, "ran")))

    def test_zsh_offers_names(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        env = {**os.environ, **self.env, "PATH": os.path.dirname(COVE) + ":" + os.environ["PATH"]}
        functions = run("completion", "zsh").out.replace('_cove "$@"', "")
        probe = functions + "compadd() { print -l $names }\nwords=(shell sb); CURRENT=2\n_cove_names\n"
        done = subprocess.run(["zsh", "-fc", probe], capture_output=True, text=True, env=env)
        self.assertEqual(done.stdout.split(), [self.box], done)

    def test_fish_offers_names(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        env = {**os.environ, **self.env, "PATH": os.path.dirname(COVE) + ":" + os.environ["PATH"]}
        script = self.file("cove.fish", run("completion", "fish").out)
        done = subprocess.run(["fish", "-c", f"source {script}; complete -C 'cove shell sb'"], capture_output=True, text=True, env=env)
        self.assertIn(self.box, done.stdout)
