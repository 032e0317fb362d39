"""The driver of a sandbox, as a user chooses it and sees it: options, policy files, operator limits."""
from cove import Case, run


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
