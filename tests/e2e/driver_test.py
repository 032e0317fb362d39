"""The driver of a sandbox, as a user chooses it and sees it."""
import json
import os
import shutil
import signal
import subprocess
import unittest

from cove import COVE, Case, Done, run
from rootless_test import RootlessCase
from served import OwnServer, Served, wait_for

NEEDS_BWRAP = unittest.skipUnless(os.access("/usr/bin/bwrap", os.X_OK), "Bubblewrap is not installed")


class Choice(Case):
    def plan(self, *args, **options):
        done = run("run", "--dry-run", "--json", *args, "--", "true", **options)
        self.assertCode(done, 0)
        return done.json

    def policy(self, text):
        return self.file("policy.yaml", "version: 1\n" + text)

    def floor(self, text):
        return {"COVE_FLOOR": self.file("floor.yaml", "version: 1\n" + text)}

    def test_the_plan_names_driver_and_network_with_their_sources(self):
        plan = self.plan()
        self.assertEqual((plan["driver"], plan["sources"]["driver"]), ("native", "standard"))
        self.assertEqual((plan["network"], plan["sources"]["network"]), ("none", "standard"))
        path = self.policy("network: none\ndriver: bwrap\n")
        plan = self.plan("--policy", path)
        self.assertEqual((plan["driver"], plan["sources"]["driver"]), ("bwrap", f"{path}:3"))
        self.assertEqual((plan["network"], plan["sources"]["network"]), ("none", f"{path}:2"))
        text = run("run", "--dry-run", "--driver", "bwrap", "--", "true").out
        self.assertRegex(text, r"Driver\n  bwrap +.*Bubblewrap \(--driver\)\n")
        self.assertRegex(text, r"Network\n  none +loopback only.* \(standard\)\n")

    def test_the_plan_says_whether_this_host_has_the_driver(self):
        self.assertNotIn("bwrap", self.plan()["host"])
        fact = self.plan("--driver", "bwrap")["host"]["bwrap"]
        self.assertEqual(fact["available"], os.access("/usr/bin/bwrap", os.X_OK), fact)
        self.assertIn("/usr/bin/bwrap", fact["detail"])

    def test_the_option_overrides_the_policy(self):
        path = self.policy("driver: bwrap\n")
        plan = self.plan("--policy", path, "--driver", "native")
        self.assertEqual((plan["driver"], plan["sources"]["driver"]), ("native", "--driver"))

    def test_an_unknown_driver_is_refused_with_the_nearest_name(self):
        done = run("run", "--driver", "bwarp", "--", "true")
        self.assertErrorCode(done, 2, "driver_not_found")
        self.assertIn("did you mean bwrap?", done.err)
        done = run("run", "--json", "--driver", "qemu", "--", "true")
        self.assertEqual(done.json["error"]["code"], "driver_not_found")
        self.assertIn("native, bwrap", done.json["error"]["message"])
        path = self.policy("limits: {}\ndriver: nativ\n")
        done = run("run", "--policy", path, "--", "true")
        self.assertErrorCode(done, 2, "driver_not_found")
        self.assertIn("policy.yaml:3:9: driver: unknown driver 'nativ'; did you mean native?", done.err)

    def test_operator_limits_restrict_the_drivers(self):
        only_native = self.floor("drivers: {allowed: [native]}\n")
        done = run("run", "--driver", "bwrap", "--", "true", env=only_native)
        self.assertErrorCode(done, 125, "driver_not_allowed")
        self.assertIn("does not allow driver bwrap; it allows native", done.err)
        path = self.policy("driver: bwrap\n")
        self.assertErrorCode(run("run", "--policy", path, "--", "true", env=only_native), 125, "driver_not_allowed")
        self.assertErrorCode(run("policy", "check", path, env=only_native), 125, "driver_not_allowed")
        only_bwrap = self.floor("drivers: {allowed: [bwrap]}\n")
        plan = self.plan(env=only_bwrap)
        self.assertEqual((plan["driver"], plan["sources"]["driver"]), ("bwrap", only_bwrap["COVE_FLOOR"]))

    def test_the_plan_shows_rules_in_their_order(self):
        path = self.policy("network: {allow: [b.example]}\n")
        words = ["run", "--dry-run", "--policy", path, "--deny", "a.example:*", "--allow", "*.example"]
        done = run(*words, "--", "true")
        self.assertIn("\n  deny a.example:*\n  allow *.example\n  allow b.example\n", done.out)
        plan = run(*words, "--json", "--", "true").json
        self.assertEqual(plan["network"]["egress"][0], "deny a.example:*")
        self.assertEqual(plan["sources"]["network"], "--deny")
        env = {"KEY_OF_TEST": "not-for-the-plan"}
        done = run("run", "--dry-run", "--json", "--secret", "k=KEY_OF_TEST@c.example", "--", "true", env=env)
        self.assertEqual(done.json["network"]["secrets"],
                         [{"name": "k", "host": "c.example", "header": "Authorization", "format": "Bearer {}"}])
        self.assertNotIn("not-for-the-plan", done.out + done.err)

    def test_a_policy_is_shown_with_driver_and_network(self):
        path = self.policy("driver: bwrap\n")
        shown = run("policy", "show", path).out
        self.assertRegex(shown, rf"\n  driver +bwrap +{path}:2\n  network +none +standard\n")
        document = run("policy", "show", "--json", path).json["policy"]
        self.assertEqual((document["driver"], document["network"]), ("bwrap", "none"))
        self.assertIn("+ driver", run("policy", "diff", "standard", path).out)


class Receipts(Case):
    def test_a_receipt_names_driver_and_network(self):
        receipt = run("run", "--json", "--driver", "native", "--", "true").json["receipt"]
        self.assertEqual((receipt["driver"], receipt["network"]), ("native", "none"))
        done = run("run", "--receipt", "--", "true")
        self.assertIn("driver native, network none, ", done.err)


class Doctor(Case):
    def test_each_driver_has_a_row(self):
        found = run("doctor", "--json").json
        self.assertEqual(found["driver"], "native")
        drivers = {d["name"]: d for d in found["drivers"]}
        self.assertEqual(drivers["native"], {"name": "native", "allowed": True, "available": True, "tested": True, "zygote": True,
                                             "weaker": []})
        bwrap = drivers["bwrap"]
        self.assertEqual(bwrap["available"], os.access("/usr/bin/bwrap", os.X_OK), bwrap)
        self.assertEqual([w["name"] for w in bwrap["weaker"]], ["zygote", "pids", "trusted_program"])
        self.assertTrue(bwrap["version"] if bwrap["available"] else bwrap["reason"] and bwrap["fix"], bwrap)

    def test_the_doctor_attacks_the_chosen_driver(self):
        self.assertErrorCode(run("doctor", "--driver", "bwarp"), 2, "driver_not_found")
        floor = {"COVE_FLOOR": self.file("floor.yaml", "version: 1\ndrivers: {allowed: [native]}\n")}
        self.assertErrorCode(run("doctor", "--driver", "bwrap", env=floor), 125, "driver_not_allowed")
        done = run("doctor", "--driver", "bwrap")
        if os.access("/usr/bin/bwrap", os.X_OK):
            self.assertCode(done, 0)
            self.assertRegex(done.out, r"(?m)^also +driver bwrap +available: bubblewrap [0-9.]+; tested above\n +weaker: zygote: each context ")
        else:
            self.assertErrorCode(done, 125, "driver_unavailable")


class OfAServer(Served):
    def test_driver_and_network_of_a_sandbox_are_shown(self):
        sandbox = self.cove("sandbox", "create", "-q", "--driver", "native").out.strip()
        info = self.cove("sandbox", "info", "--json", sandbox).json
        self.assertEqual((info["driver"], info["network"]), ("native", "none"))
        self.assertRegex(self.cove("sandbox", "info", sandbox).out, r"(?m)^driver +native$")
        for program in (["--", "true"], ["-c", "6 * 7"]):
            path = os.path.join(self.dir, "receipt.json")
            self.cove("exec", f"--receipt={path}", sandbox, *program)
            with open(path, encoding="utf-8") as f:
                receipt = json.load(f)
            self.assertEqual((receipt["driver"], receipt["network"]), ("native", "none"), receipt)

    def test_the_api_refuses_an_unknown_driver_with_the_nearest_name(self):
        answer = self.ask("POST", "/v1/sandboxes", 404, {"driver": "bwarp"}, self.key)
        self.assertEqual(answer["error"]["code"], "driver_not_found")
        self.assertIn("did you mean bwrap?", answer["error"]["message"])
        answer = self.ask("POST", "/v1/execute", 404, {"code": "1", "driver": "qemu"}, self.key)
        self.assertEqual(answer["error"]["code"], "driver_not_found")
        policy = {"version": 1, "driver": "nativ"}
        answer = self.ask("POST", "/v1/sandboxes", 404, {"policy": policy, "level": "custom"}, self.key)
        self.assertEqual(answer["error"]["details"]["errors"][0]["path"], "policy.driver")
        self.assertEqual(answer["error"]["details"]["errors"][0]["code"], "driver_not_found")

    def test_a_template_has_a_driver(self):
        made = self.operator("template", "set", "with-bwrap", "--runtime", "sh", "--driver", "bwrap", "--json").json
        self.assertEqual(made["spec"]["driver"], "bwrap")
        sandbox = self.cove("sandbox", "create", "-q", "--template", "with-bwrap", "--driver", "native").out.strip()
        self.assertEqual(self.cove("sandbox", "info", "--json", sandbox).json["driver"], "native")

    def test_capabilities_list_the_drivers(self):
        drivers = {d["name"]: d for d in self.ask("GET", "/v1/capabilities", 200)["drivers"]}
        self.assertEqual([d["default"] for d in drivers.values()], [True, False])
        self.assertTrue(drivers["native"]["available"])
        self.assertEqual(drivers["bwrap"]["available"], "reason" not in drivers["bwrap"])
        self.assertEqual((drivers["native"]["capabilities"]["zygote"], drivers["bwrap"]["capabilities"]["zygote"]), (True, False))
        self.assertEqual([w["name"] for d in drivers.values() for w in d["weaker"]], ["zygote", "pids", "trusted_program"])
        self.assertTrue(drivers["bwrap"]["capabilities"]["pool"] and drivers["bwrap"]["capabilities"]["pause"])


class OnlyNative(OwnServer):
    settings = ["--drivers-allowed", "native"]

    def test_a_driver_that_is_not_allowed_is_refused_everywhere(self):
        done = self.cove("sandbox", "create", "--driver", "bwrap", code=125)
        self.assertIn("does not allow driver bwrap; it allows native [driver_not_allowed]", done.err)
        done = self.cove("template", "set", "t", "--runtime", "sh", "--driver", "bwrap", code=125)
        self.assertIn("driver_not_allowed", done.err)
        self.cove("sandbox", "create", "-q")

    def test_a_driver_that_does_not_exist_cannot_be_allowed(self):
        done = run("serve", "--drivers-allowed", "native,bwarp", "--state-dir", self.dir + "/state")
        self.assertNotEqual(done.code, 0)
        self.assertIn("drivers.allowed: unknown driver 'bwarp'; did you mean bwrap?", done.err)


@NEEDS_BWRAP
class OfBwrap(Case):
    """`cove run --driver bwrap`, as root."""

    def bwrap(self, *args, **options):
        return run("run", "--driver", "bwrap", *args, **options)

    def test_programs_run_with_their_output_input_and_status(self):
        done = self.bwrap("--", "sh", "-c", "cat; echo out; echo err >&2; exit 7", stdin="in ")
        self.assertEqual((done.code, done.out, done.err), (7, "in out\n", "err\n"))
        self.assertCode(self.bwrap("--", "sh", "-c", "kill -TERM $$"), 128 + 15)
        self.assertCode(self.bwrap("--", "no-such-program"), 127)
        self.assertEqual(self.bwrap("--runtime", "python", "-c", "import os; print(os.getpid() > 1, os.getuid())").out, "True 1000\n")

    def test_files_pass_in_and_out(self):
        self.file("work/given", "from the host")
        self.file("data/shown", "shown")
        work = os.path.join(self.dir, "work")
        done = self.bwrap("-w", work, "--bind-ro", os.path.join(self.dir, "data") + ":/mnt/data", "--", "sh", "-c",
                          "cat given /mnt/data/shown; echo made > made; touch /mnt/data/no; touch /etc/no")
        self.assertEqual(done.out, "from the hostshown")
        self.assertEqual(done.err.count("Read-only file system"), 2, done)
        with open(os.path.join(work, "made"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "made\n")
        self.assertCode(self.bwrap("-w", work + ":cow", "--", "rm", "given"), 0)
        self.assertTrue(os.path.exists(os.path.join(work, "given")))

    def test_limits_end_the_program_with_their_status(self):
        self.assertCode(self.bwrap("--timeout", "300ms", "--", "sleep", "20"), 124)
        self.assertCode(self.bwrap("--memory", "64M", "--runtime", "python", "-c", "x = bytearray(300 << 20)"), 123)
        done = self.bwrap("--json", "--pids", "10", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done")
        self.assertIn("pids", [hit["limit"] for hit in done.json["receipt"]["limitHits"]], done)
        self.assertIn("No space left", self.bwrap("--disk", "1M", "--", "sh", "-c", "head -c 5M /dev/zero > x").err)

    def test_the_receipt_has_the_walls_of_native(self):
        native = run("run", "--json", "--", "true").json["receipt"]
        receipt = self.bwrap("--json", "--", "true").json["receipt"]
        self.assertEqual((receipt["driver"], receipt["network"], receipt["level"]), ("bwrap", "none", "standard"))
        self.assertEqual(receipt["walls"], native["walls"])
        self.assertEqual(([w["name"] for w in receipt["weaker"]], native["weaker"]), (["zygote", "pids", "trusted_program"], []))
        self.assertIn("weaker   pids: Bubblewrap counts", self.bwrap("--receipt", "--", "true").err)
        states = {name: limit["state"] for name, limit in receipt["limits"].items()}
        self.assertEqual(states, {name: limit["state"] for name, limit in native["limits"].items()})

    def test_no_lent_file_runs_before_the_walls_are_up(self):
        """Bubblewrap and its libraries are read from the root over which a bind may lie."""
        for lent in ("/usr/bin/bwrap", "/usr/bin/env"):
            script = self.file("lent", "#!/bin/sh\necho lent; grep Seccomp: /proc/self/status >&2\n")
            os.chmod(script, 0o755)
            done = self.bwrap("--bind-ro", f"{script}:{lent}", "--", lent)
            self.assertEqual((done.code, done.out, done.err), (0, "lent\n", "Seccomp:\t2\n"), done)
        # The loader of Bubblewrap would warn about this entry in its own name.
        etc = self.file("etc/ld.so.preload", "/no/such/library.so\n")
        done = self.bwrap("--json", "--bind-ro", os.path.dirname(etc) + ":/etc", "--", "/usr/bin/true")
        self.assertEqual((done.code, done.json["exitCode"]), (0, 0), done)
        self.assertNotIn("bwrap", done.json["stderr"] + done.err)
        policy = self.file("policy.yaml", "version: 1\ndriver: bwrap\nfilesystem: {hide: [/usr/bin/bwrap]}\n")
        self.assertCode(run("run", "--policy", policy, "--", "true"), 0)

    def test_a_namespace_that_bubblewrap_did_not_make_is_a_missing_wall(self):
        real, partial = os.path.join(self.dir, "real"), self.file("partial", "")
        shutil.copy("/usr/bin/bwrap", real)
        for option, name in (("--unshare-ipc", "ipc"), ("--unshare-cgroup", "cgroup")):
            with open(partial, "w", encoding="utf-8") as f:
                f.write('#!/bin/sh\nfor word; do shift; [ "$word" = %s ] || set -- "$@" "$word"; done\nexec /usr/bin/chfn "$@"\n' % option)
            os.chmod(partial, 0o755)
            done = self.without_bwrap(partial, "run", "--driver", "bwrap", "--", "true", also=(real, "/usr/bin/chfn"))
            self.assertErrorCode(done, 125, "wall_missing")
            self.assertIn(f"did not make a namespace of type {name};", done.err)

    def test_a_policy_file_may_choose_it(self):
        path = self.file("policy.yaml", "version: 1\ndriver: bwrap\nsyscalls: {deny: [inotify_init1]}\n")
        code = ("import ctypes, os; c = ctypes.CDLL(None, use_errno=True); r = c.inotify_init1(0); "
                "print(r < 0 and os.strerror(ctypes.get_errno()))")
        done = run("run", "--json", "--policy", path, "--runtime", "python", "-c", code).json
        self.assertEqual((done["stdout"], done["receipt"]["driver"]), ("Operation not permitted\n", "bwrap"))

    def test_a_kept_sandbox_is_used_and_removed(self):
        state = os.path.join(self.dir, "state")
        kept = self.bwrap("--keep", "--state-dir", state, "--", "sh", "-c", "echo kept > note")
        self.assertCode(kept, 0)
        sandbox = run("ls", "--local", "-q", "--state-dir", state).out.strip()
        self.addCleanup(run, "rm", "--state-dir", state, sandbox)
        self.assertEqual(run("exec", "--state-dir", state, sandbox, "--", "cat", "note").out, "kept\n")
        self.assertCode(run("rm", "--state-dir", state, sandbox), 0)
        self.assertEqual(run("ls", "--local", "-q", "--state-dir", state).out, "")

    def without_bwrap(self, stand_in, *args, also=("/dev/null", "/dev/null")):
        """Runs cove where another file hides Bubblewrap, in a mount namespace of its own."""
        script = 'mount --bind "$0" /usr/bin/bwrap && mount --bind "$1" "$2" && shift 2 && exec "$@"'
        done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, stand_in, *also, COVE, *args],
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        return Done(args, done.returncode, done.stdout, done.stderr)

    def test_without_bubblewrap_the_error_has_the_fix(self):
        nothing = self.file("nothing", "")
        done = self.without_bwrap(nothing, "run", "--driver", "bwrap", "--", "true")
        self.assertErrorCode(done, 125, "driver_unavailable")
        self.assertIn("driver bwrap: /usr/bin/bwrap: Permission denied; apt install bubblewrap", done.err)
        self.assertEqual(self.without_bwrap(nothing, "run", "--", "echo", "native").out, "native\n")
        row = {d["name"]: d for d in self.without_bwrap(nothing, "doctor", "--json").json["drivers"]}["bwrap"]
        self.assertEqual((row["available"], row["fix"]), (False, "apt install bubblewrap"))

    def test_bubblewrap_is_never_executed_as_root(self):
        """Not even for its version: the stand-in reports its uid and its descriptors."""
        stand_in = self.file("bwrap", "#!/bin/sh\necho bubblewrap uid $(id -u) groups $(id -G) fds $(ls /proc/$$/fd | tr '\\n' ' ')\n")
        os.chmod(stand_in, 0o755)
        row = {d["name"]: d for d in self.without_bwrap(stand_in, "doctor", "--json").json["drivers"]}["bwrap"]
        self.assertRegex(row["version"], r"^bubblewrap uid 65534 groups 65534 fds 0 1 (10 )?2 *$")
        reporting = self.file("reporting", "#!/bin/sh\nid -u >&2; exit 1\n")
        os.chmod(reporting, 0o755)
        done = self.without_bwrap(reporting, "run", "--driver", "bwrap", "--", "true")
        self.assertRegex(done.err, r"sandbox: 19[0-9]{8} \[driver_unavailable\]")

    def test_the_message_of_bubblewrap_is_reported(self):
        refusing = self.file("bwrap", "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
        os.chmod(refusing, 0o755)
        done = self.without_bwrap(refusing, "run", "--driver", "bwrap", "--", "true")
        self.assertErrorCode(done, 125, "driver_unavailable")
        self.assertIn("bwrap: No permissions to create new namespace", done.err)


@NEEDS_BWRAP
class OfBwrapOnAServer(Served):
    def test_a_sandbox_runs_commands_and_keeps_variables(self):
        sandbox = self.cove("sandbox", "create", "-q", "--driver", "bwrap").out.strip()
        self.cove("exec", sandbox, "-c", "x = 41")
        self.assertEqual(self.cove("exec", sandbox, "-c", "x + 1").out, "42\n")
        self.assertEqual(self.cove("exec", sandbox, "--", "id", "-u").out, "1000\n")
        here = self.file("given", "text")
        self.cove("cp", here, sandbox + ":into")
        self.assertEqual(self.cove("cp", sandbox + ":into", "-").out, "text")
        self.cove("sandbox", "pause", sandbox)
        self.cove("sandbox", "resume", sandbox)
        self.assertEqual(self.cove("exec", sandbox, "-c", "x").out, "41\n")
        self.assertEqual(self.cove("sandbox", "info", "--json", sandbox).json["driver"], "bwrap")

    def test_built_in_templates_and_single_executions_may_use_it(self):
        for template, code in (("python-data", "6 * 7"), ("node", "6 * 7"), ("bash", "echo 42")):
            sandbox = self.cove("sandbox", "create", "-q", "--driver", "bwrap", "--template", template).out.strip()
            self.assertEqual(self.cove("exec", sandbox, "-c", code).out, "42\n", template)
        answer = self.ask("POST", "/v1/execute", 200, {"code": "6 * 7", "driver": "bwrap", "receipt": "full"}, self.key)
        self.assertEqual((answer["value"], answer["receipt"]["driver"]), ("42", "bwrap"))

    def test_a_pool_prepares_sandboxes_of_its_driver(self):
        self.operator("template", "set", "pooled", "--runtime", "python", "--driver", "bwrap")
        self.operator("pool", "set", "pooled", "--template", "pooled", "--min", "1", "--max", "1", "--fixed")
        self.addCleanup(self.operator, "pool", "rm", "pooled")

        def status():
            return self.operator("pool", "info", "--json", "pooled").json["status"]

        wait_for(lambda: status()["ready"] == 1)
        self.assertEqual(status()["zygote"]["state"], "unsupported")
        native = self.cove("sandbox", "create", "-q", "--template", "pooled", "--driver", "native").out.strip()
        self.assertEqual(self.cove("sandbox", "info", "--json", native).json["driver"], "native")
        self.assertEqual(status()["hits"], 0)
        sandbox = self.cove("sandbox", "create", "-q", "--template", "pooled").out.strip()
        self.assertEqual(self.cove("exec", sandbox, "-c", "6 * 7").out, "42\n")
        self.assertEqual(self.cove("sandbox", "info", "--json", sandbox).json["driver"], "bwrap")
        self.assertEqual(status()["hits"], 1)


@NEEDS_BWRAP
class OfBwrapAfterARestart(OwnServer):
    def test_a_sandbox_survives_the_end_of_the_server_process(self):
        sandbox = self.cove("sandbox", "create", "-q", "--driver", "bwrap").out.strip()
        self.cove("exec", sandbox, "-c", "x = 41")
        coved = self.launched.processes()["coved"]
        os.kill(coved, signal.SIGKILL)
        wait_for(lambda: self.launched.processes().get("coved") not in (None, coved))
        wait_for(lambda: run("exec", sandbox, "-c", "x + 1", env=self.env).out == "42\n")
        self.assertEqual(self.cove("sandbox", "info", "--json", sandbox).json["driver"], "bwrap")


@NEEDS_BWRAP
class OfAPlainUser(RootlessCase):
    def test_bwrap_runs_programs_of_a_plain_user(self):
        done = self.run_as_user("run", "--driver", "bwrap", "-q", "--", "sh", "-c", "id -u; echo made > f; cat f; exit 3")
        self.assertEqual((done.code, done.out), (3, "1000\nmade\n"), done)
        self.assertCode(self.run_as_user("run", "--driver", "bwrap", "--timeout", "300ms", "--", "sleep", "20"), 124)
        receipt = self.run_as_user("run", "--json", "--driver", "bwrap", "--", "true").json["receipt"]
        native = self.run_as_user("run", "--json", "--", "true").json["receipt"]
        self.assertEqual((receipt["driver"], receipt["walls"]), ("bwrap", native["walls"]))
        self.assertTrue(receipt["walls"]["rootless"])
