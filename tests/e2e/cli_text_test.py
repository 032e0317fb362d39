"""The texts of cove: help, manual, completion, documentation pages, and the dry run."""
import os
import re
import shutil
import subprocess
import unittest

from cove import COVE, ROOT, Case, run

VERBS = re.findall(r"^  ([a-z]+) {2,}", run("help").out, re.MULTILINE)


class Help(Case):
    def test_every_verb_has_help_with_usage_examples_and_flags(self):
        for verb in VERBS:
            with self.subTest(verb):
                done = run(verb, "--help")
                self.assertCode(done, 0)
                self.assertTrue(done.out.startswith(run("help", verb).out), verb)  # serve lists its settings below
                for word in ("Usage: cove", "Examples:", "--help"):
                    self.assertIn(word, done.out)

    def test_h_is_a_summary_and_help_is_complete(self):
        for words in (["run"], ["exec"], ["sandbox", "create"], ["serve"], ["doctor"], ["shell", "sbx"]):
            short, whole = run(*words, "-h"), run(*words, "--help")
            self.assertEqual((short.code, whole.code), (0, 0), short)
            self.assertIn(f"'cove {words[0]} --help' explains the flags", short.out)
            self.assertLess(short.out.count("\n"), 25, words)
            self.assertLess(short.out.count("\n"), whole.out.count("\n"), words)
        self.assertNotIn("explains the flags", run("run", "--", "ls", "-h").out)

    def test_cove_alone_shows_the_verbs_and_is_a_usage_error(self):
        self.assertGreater(len(VERBS), 18)
        done = run()
        self.assertEqual((done.code, done.out), (2, ""))
        for verb in VERBS:
            self.assertIn(f"  {verb}", done.err)
        self.assertEqual(run("--help").out, done.err)

    def test_the_version_is_that_of_the_tree(self):
        with open(os.path.join(ROOT, "VERSION")) as f:
            self.assertEqual(run("--version").out, f"cove {f.read().strip()}\n")

    def test_typing_errors_get_a_suggestion(self):
        for words, hint in [(("rnu",), "'run'"), (("run", "--memroy", "1"), "'--memory'"), (("errors", "timeuot"), "'timeout'")]:
            with self.subTest(words):
                self.assertIn(f"did you mean {hint}?", run(*words).err)

    def test_verbs_of_other_tools_get_an_equivalent_and_no_random_suggestion(self):
        self.assertIn("'cove rm ID' ends a sandbox", run("stop").err)
        self.assertNotIn("did you mean", run("mcp").err)
        for typed, ours in [("sandbox list", "sandbox ls"), ("sandbox inspect", "sandbox info"), ("sandbox delete", "sandbox rm"),
                            ("pool create", "pool set"), ("template get", "template show"), ("template create", "template set"),
                            ("files read", "files cat"), ("files rename", "files mv"), ("key add", "key create")]:
            self.assertIn(f"did you mean 'cove {ours}'?", run(*typed.split()).err)

    def test_a_refused_workspace_is_named_as_it_was_given(self):
        self.assertIn("--workspace /: it is the root of the host", run("run", "--workspace", "/", "--", "ls").err)

    def test_hostile_words_cannot_steer_the_terminal(self):
        evil = "\x1b[31m\u009bm\nx"
        for words in [(evil,), ("run", "--runtime", evil, "-"), ("run", "--" + evil), ("errors", evil), ("run", "--", evil),
                      ("run", "--dry-run", "--", "echo", evil, "it's")]:
            with self.subTest(words):
                done = run(*words)
                self.assertNotRegex(done.out + done.err, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        plan = run("run", "--dry-run", "--", "echo", "a\nb", "it's").out
        self.assertIn("echo $'a\\nb' 'it'\\''s'\n", plan)

    def test_an_error_is_one_line_unless_cause_and_fix_are_specific(self):
        done = run("run", "--memroy", "64M", "--", "true")
        self.assertEqual(done.err, "cove: 'cove run' has no flag '--memroy'; did you mean '--memory'? [bad_usage]\n")
        done = run("run", "--runtime", "ruby", "-c", "1")
        self.assertEqual(done.err, "cove: --runtime: unknown runtime 'ruby'; use python, node, bash or sh [runtime_not_found]\n")
        done = run("run", "--", "no-such-program")
        self.assertRegex(done.err, r"^cove: .*no-such-program.* \[program_not_found\]\n  cause: .*\n  fix:   .*\n$")
        done = run("policy", "check")
        self.assertEqual(done.err, "cove: check needs one file; usage: cove policy check FILE [bad_usage]\n")

    def test_every_error_code_is_explained(self):
        codes = [e["code"] for e in run("errors", "--json").json["errors"]]
        self.assertGreater(len(codes), 20)
        for code in codes:
            self.assertTrue(run("errors", code).out.startswith(f"{code}\n  cause: "), code)
        self.assertCode(run("errors", "no_such_code_at_all"), 125)

    def test_a_closed_reader_is_not_an_error(self):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", f'"{COVE}" help run | head -1 >/dev/null'], timeout=120)
        self.assertIn(done.returncode, (0, 141))


class Manual(Case):
    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_the_pages_are_clean_mdoc(self):
        for verb in ["", *VERBS]:
            with self.subTest(verb):
                page = run("__man", *([verb] if verb else [])).out
                lint = subprocess.run(["mandoc", "-Tlint", "-Wstyle"], input=page, capture_output=True, text=True).stdout
                real = [line for line in lint.splitlines() if "referenced manual not found" not in line]
                self.assertEqual(real, [])


    def test_every_verb_has_a_page_that_is_installed(self):
        with open(os.path.join(ROOT, "man", "meson.build"), encoding="utf-8") as f:
            listed = re.search(r"foreach verb : \[(.*?)\]", f.read(), re.DOTALL).group(1)
        self.assertEqual(sorted(re.findall(r"'([a-z]+)'", listed)), sorted(VERBS))


class Completion(Case):
    def test_bash_completes_verbs_flags_and_values(self):
        script = run("completion", "bash").out
        def complete(*words):
            probe = (script + f"\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _cove; echo \"${{COMPREPLY[@]}}\"")
            return subprocess.run(["bash", "-c", probe], capture_output=True, text=True).stdout.split()
        self.assertEqual(complete("cove", "comp"), ["completion"])
        self.assertEqual(complete("cove", "run", "--mem"), ["--memory"])
        self.assertEqual(complete("cove", "run", "--runtime", "p"), ["python"])
        self.assertEqual(complete("cove", "run", "--level", "''"), ["standard", "high"])
        self.assertEqual(complete("cove", "sandbox", "cr"), ["create"])
        self.assertEqual(complete("cove", "serve", "--log-l"), ["--log-level"])  # the settings of the server too
        self.assertEqual(complete("cove", "key", "r"), ["revoke", "rotate"])
        self.assertEqual(complete("cove", "sandbox", "create", "--life"), ["--lifetime"])
        self.assertEqual(complete("cove", "serve", "--conf"), ["--config"])

    def test_the_completion_scripts_are_valid_where_the_shell_is_installed(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                with self.subTest(shell):
                    done = subprocess.run([shell, "-n"], input=run("completion", shell).out, capture_output=True, text=True)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_an_unknown_shell_is_a_usage_error(self):
        self.assertErrorCode(run("completion", "tcsh"), 2, "bad_usage")


class Pages(Case):
    def test_the_pages_in_docs_are_those_that_cove_writes(self):
        for name in ("cli", "errors"):
            with open(os.path.join(ROOT, "docs", name + ".md"), encoding="utf-8") as f:
                self.assertEqual(f.read(), run("__docs", name).out, f"run: cove __docs {name} > docs/{name}.md")

    def test_every_error_code_in_the_docs_exists(self):
        codes = {e["code"] for e in run("errors", "--json").json["errors"]}
        with open(os.path.join(ROOT, "docs", "run.md"), encoding="utf-8") as f:
            for code in re.findall(r"code:\s+([a-z_]+)", f.read()):
                self.assertIn(code, codes)


class DryRun(Case):
    def test_a_dry_run_prints_what_would_be_enforced_and_starts_nothing(self):
        done = run("run", "--dry-run", "--memory", "64M", "-e", "A=1", "-w", self.dir, "--", "touch", "x")
        self.assertCode(done, 0)
        for word in ("touch x", "seccomp", "landlock", "--memory               64M", "A=1", self.dir, "/workspace"):
            self.assertIn(word, done.out)
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_dry_run_with_json_is_an_object(self):
        plan = run("run", "--dry-run", "--json", "--memory", "64M", "--runtime", "python", "-c", "print(1)").json
        self.assertEqual(plan["limits"]["memoryBytes"], 64 << 20)
        self.assertEqual(plan["argv"][1:], ["-c", "print(1)"])
        self.assertEqual((plan["profile"], plan["level"], plan["network"]), ("python", "standard", "none"))
        self.assertIn("seccomp", plan["walls"])

    def test_a_dry_run_names_the_source_of_profile_workspace_and_environment(self):
        policy = self.file("own.yaml", "version: 1\nname: own\nextends: standard\nprofile: node\nenvironment:\n  set:\n    B: '2'\n"
                                       "filesystem:\n  workspace: {mode: copyOnWrite, path: " + self.dir + "}\n")
        plain = run("run", "--dry-run", "--json", "-e", "A=1", "-w", self.dir, "--", "python3").json
        self.assertEqual((plain["sources"]["profile"], plain["sources"]["workspace"]), ("the program", "--workspace"))
        self.assertEqual(dict(zip(plain["env"], plain["sources"]["env"]))["A=1"], "--env")
        self.assertEqual(dict(zip(plain["env"], plain["sources"]["env"]))["HOME=/workspace"], "standard")
        text = run("run", "--dry-run", "--policy", policy, "--", "true").out
        self.assertRegex(text, rf"profile +node, \d+ system calls allowed \({policy}:4\)")
        self.assertIn(f"B=2 ({policy}:7)\n", text)
        self.assertRegex(text, rf"/workspace +{self.dir}, copy on write: your directory stays unchanged \({policy}:\d+\)")
        self.assertRegex(run("run", "--dry-run", "--", "true").out, r"/workspace +new, 256M in memory \(standard\)")

    def test_a_dry_run_shows_what_the_host_has_and_lacks(self):
        host = run("run", "--dry-run", "--json", "--", "true").json["host"]
        self.assertEqual(set(host), {"privilege", "kernel", "userNamespaces", "seccomp", "landlock", "cgroups",
                                     "diskRates"})
        self.assertTrue(host["seccomp"]["available"])
        self.assertIn(os.uname().release, host["kernel"]["detail"])

    def test_a_dry_run_needs_no_privilege(self):
        done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all",
                               COVE, "run", "--dry-run", "--", "true"], capture_output=True, text=True)
        if "Permission denied" in done.stderr and "setpriv" in done.stderr:
            self.skipTest("the build directory is not open to other users")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("an unprivileged user", done.stdout)

    def test_a_dry_run_refuses_what_a_run_would_refuse(self):
        self.assertErrorCode(run("run", "--dry-run", "--level", "high", "--", "true"), 125, "level_unavailable")
        self.assertErrorCode(run("run", "--dry-run", "no-such-script.py"), 127, "script_not_found")
