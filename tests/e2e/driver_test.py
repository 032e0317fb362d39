"""The driver of a sandbox, as a user chooses it and sees it."""
import json
import os

from cove import Case, run
from served import OwnServer, Served


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
        self.assertEqual(drivers["native"], {"name": "native", "allowed": True, "available": True, "tested": True})
        bwrap = drivers["bwrap"]
        self.assertEqual(bwrap["available"], os.access("/usr/bin/bwrap", os.X_OK), bwrap)
        self.assertTrue(bwrap["version"] if bwrap["available"] else bwrap["reason"] and bwrap["fix"], bwrap)

    def test_the_doctor_attacks_the_chosen_driver(self):
        self.assertErrorCode(run("doctor", "--driver", "bwarp"), 2, "driver_not_found")
        floor = {"COVE_FLOOR": self.file("floor.yaml", "version: 1\ndrivers: {allowed: [native]}\n")}
        self.assertErrorCode(run("doctor", "--driver", "bwrap", env=floor), 125, "driver_not_allowed")
        done = run("doctor", "--driver", "bwrap")
        if os.access("/usr/bin/bwrap", os.X_OK):
            self.assertCode(done, 0)
            self.assertRegex(done.out, r"(?m)^also +driver bwrap +available: bubblewrap [0-9.]+; tested above$")
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
