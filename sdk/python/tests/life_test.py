"""The lifecycle of a sandbox, and the information about a server."""
from __future__ import annotations

import datetime
import os
import tempfile
from typing import Any, List

from cove import Cove, CoveError, ExecutionInfo, Network, PoolScaling, Resources, Sandbox, TemplateSpec
from cove._call import Call, path
from cove.errors import ConflictError, DriverNotFoundError, ForbiddenError, IdempotencyConflictError, InvalidRequestError, NotFoundError, SandboxEndedError, SandboxPausedError, TemplateUnavailableError, UnauthorizedError

from support import Case, wait_for


class Life(Case):
    def test_a_block_ends_its_sandbox_also_after_an_exception(self) -> None:
        with Sandbox.create("sh", client=self.client) as box:
            self.assertEqual(box.info.state, "running")
        self.assertEqual((box.info.state, box.info.ended_by), ("ended", "killed"))
        with self.assertRaises(ZeroDivisionError):
            with Sandbox.create("sh", client=self.client) as box:
                raise ZeroDivisionError
        self.assertEqual(box.refresh().state, "ended")
        with self.assertRaises(SandboxEndedError) as met:
            box.run_command("true")
        self.assertEqual((met.exception.status, met.exception.code), (410, "sandbox_ended"))
        self.assertTrue(met.exception.fix and met.exception.cause and met.exception.request_id)

    def test_a_sandbox_has_the_requested_settings(self) -> None:
        with Sandbox.create("sh", client=self.client, resources=Resources(cpu_millis=500, memory_bytes=128 << 20, pids=64), env={"A": "b"},
                            metadata={"task": "42"}, timeout=2.5, lifetime=datetime.timedelta(minutes=10), idle_timeout=60, idle_action="pause") as box:
            info = box.info
            self.assertEqual((info.resources.cpu_millis, info.resources.memory_bytes, info.resources.pids), (500, 128 << 20, 64))
            self.assertEqual((info.timeout, info.lifetime, info.idle_timeout, info.idle_action), (2.5, 600.0, 60.0, "pause"))
            self.assertEqual((info.metadata, info.runtime), ({"task": "42"}, "sh"))
            self.assertEqual((info.driver, info.network), ("native", Network("none")))
            assert info.expires_at is not None and info.created_at is not None
            self.assertAlmostEqual((info.expires_at - info.created_at).total_seconds(), 600, delta=2)
            self.assertEqual(box.run_command("echo $A").stdout, "b\n")

    def test_an_own_policy_is_enforced_and_an_invalid_one_refused(self) -> None:
        with Sandbox.create("sh", client=self.client, policy={"version": 1, "extends": "standard", "limits": {"pids": 23}}) as box:
            self.assertEqual((box.info.level, box.info.resources.pids), ("custom", 23))
        with self.assertRaises(CoveError) as met:
            Sandbox.create("sh", client=self.client, policy={"version": 1, "limits": {"pidz": 23}})
        self.assertIn("pidz", str(met.exception))

    def test_a_driver_is_chosen_by_its_name(self) -> None:
        with Sandbox.create("sh", client=self.client, driver="native") as box:
            self.assertEqual(box.info.driver, "native")
        with self.assertRaises(DriverNotFoundError) as met:
            Sandbox.create("sh", client=self.client, driver="nativ")
        self.assertIn("did you mean native?", str(met.exception))
        self.assertEqual(self.client.execute("6 * 7", driver="native").text, "42")

    def test_built_in_policies_are_listed_and_shown(self) -> None:
        names = {p.name: p for p in self.client.policies()}
        self.assertTrue(names["standard"].available and names["standard"].policy is None)
        self.assertTrue(self.client.policy("standard").policy)
        with self.assertRaises(NotFoundError):
            self.client.policy("none")

    def test_backup_and_garbage_collection(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            name = os.path.join(place, "copy.db")
            self.client.backup(name)
            with open(name, "rb") as f:
                self.assertEqual(f.read(15), b"SQLite format 3")
        self.assertTrue(self.client.gc(dry_run=True).dry_run)

    def test_connecting_and_reading_do_not_reset_timeouts(self) -> None:
        box = self.sandbox()
        before = box.info.expires_at
        assert before is not None
        other = Sandbox.connect(box.id, client=self.client)
        other.refresh()
        self.assertEqual(other.info.expires_at, before)
        after = other.update(lifetime=5000).expires_at
        assert after is not None
        self.assertGreater(after, before)

    def test_pause_and_resume(self) -> None:
        box = self.sandbox()
        box.files.write("/workspace/kept", "x")
        self.assertEqual(box.pause().state, "paused")
        with self.assertRaises(SandboxPausedError):
            box.run_command("true")
        self.assertEqual(box.resume().state, "running")
        self.assertEqual(box.run_command("cat kept").stdout, "x")

    def test_usage_and_events(self) -> None:
        box = self.sandbox()
        box.run_command("true")
        self.assertEqual(box.usage().sandbox_id, box.id)
        kinds = [happening.kind for happening in box.events()]
        self.assertEqual(kinds[0], "sandbox_created")
        self.assertIn("execution_ended", kinds)

    def test_lists_continue_over_pages(self) -> None:
        box = self.sandbox(metadata={"page": "yes"})
        for _ in range(3):
            box.run_command("true")
        pages = self.client._http.pages(ExecutionInfo, Call("GET", path("v1", "sandboxes", box.id, "executions"), {"limit": 1}))
        self.assertEqual(len(list(pages)), 3)
        self.assertEqual([s.id for s in Sandbox.list(metadata={"page": "yes"}, state="running", client=self.client)], [box.id])
        self.assertEqual(list(Sandbox.list(metadata={"page": "yes", "c": "d"}, client=self.client)), [])

    def test_executions_of_all_sandboxes_are_listed_by_state_and_outcome(self) -> None:
        one, two = self.sandbox(), self.sandbox()
        fine = one.start_command("true")
        fine.wait()
        bad = two.start_command("exit 3")
        bad.wait()
        runs = two.start_command("sleep 60")

        def listed(**filters: Any) -> List[str]:
            return [info.id for info in self.client.executions.list(**filters) if info.sandbox_id in (one.id, two.id)]

        self.assertEqual(listed(), [runs.id, bad.id, fine.id])
        self.assertEqual(listed(state="!ended"), [runs.id])
        self.assertEqual(listed(outcome=["success", "error"]), [bad.id, fine.id])
        self.assertEqual(listed(outcome="!success"), [bad.id])
        self.assertEqual(listed(sandbox=two.id, state=["ended"]), [bad.id])
        runs.cancel()
        self.assertEqual(listed(outcome="killed"), [runs.id])
        with self.assertRaises(InvalidRequestError):
            listed(outcome="fine")

    def test_an_update_changes_only_what_is_given(self) -> None:
        box = self.sandbox(metadata={"a": "1", "b": "2"})
        before = box.info
        after = box.update(name=f"u{box.id[2:12]}", metadata={"a": None, "c": "3"}, idle_timeout=60, idle_action="pause")
        self.assertEqual((after.metadata, after.idle_timeout, after.idle_action), ({"b": "2", "c": "3"}, 60, "pause"))
        self.assertEqual((after.expires_at, after.lifetime), (before.expires_at, before.lifetime))
        self.assertEqual(Sandbox.connect(after.name or "", client=self.client).id, box.id)
        self.assertIsNone(box.update(name="").name)
        self.assertGreater(box.set_timeout("1h").lifetime, before.lifetime)
        with self.assertRaises(InvalidRequestError):
            box.update()

    def test_a_sandbox_is_found_by_its_name_and_by_several_filters(self) -> None:
        name = f"n-{self.id()[-20:].lower().replace('_', '-')}"
        box = Sandbox.create("sh", name=name, metadata={"a": name, "b": "2"}, client=self.client)
        self.addCleanup(box.delete)
        self.assertEqual(box.info.name, name)
        self.assertEqual(Sandbox.connect(name, client=self.client).id, box.id)
        with self.assertRaises(ConflictError):
            Sandbox.create("sh", name=name, client=self.client)
        for filters in ({"name": name}, {"metadata": {"a": name, "b": "2"}}, {"metadata": {"a": name}, "state": ["running", "paused"]},
                        {"name": name, "state": "!ended"}):
            self.assertEqual([s.id for s in Sandbox.list(client=self.client, **filters)], [box.id], filters)
        self.assertEqual(list(Sandbox.list(name=name, state=["ended", "paused"], client=self.client)), [])
        box.delete()
        with self.assertRaises(NotFoundError):
            Sandbox.connect(name, client=self.client)

    def test_the_same_idempotency_key_creates_one_sandbox(self) -> None:
        key = f"job-{self.id()[-40:]}"
        one = Sandbox.create("sh", client=self.client, idempotency_key=key)
        two = Sandbox.create("sh", client=self.client, idempotency_key=key)
        self.addCleanup(one.delete)
        self.assertEqual(one.id, two.id)
        with self.assertRaises(IdempotencyConflictError):
            Sandbox.create("python", client=self.client, idempotency_key=key)

    def test_invalid_requests_are_refused_with_a_reason(self) -> None:
        with self.assertRaises(NotFoundError) as gone:
            Sandbox.connect("sbaaaaaaaaaaaaaaaaaaaa", client=self.client)
        self.assertEqual(gone.exception.status, 404)
        with self.assertRaises(InvalidRequestError) as met:
            Sandbox.create("sh", client=self.client, resources=Resources(memory_bytes=1))
        self.assertIn("memoryBytes", met.exception.message)
        with self.assertRaises(CoveError):
            Sandbox.create("no-such-language", client=self.client)


class Catalogue(Case):
    def test_capabilities_of_the_server(self) -> None:
        told = self.client.capabilities()
        self.assertEqual(told.version, self.client.version())
        self.assertIn("standard", [level.name for level in told.levels])
        native = {driver.name: driver for driver in told.drivers}["native"]
        self.assertTrue(native.allowed and native.default and native.available and native.capabilities["zygote"])
        self.assertLessEqual(told.limits["memoryBytes"].min, told.limits["memoryBytes"].default)
        self.assertIn("python", [r.name for r in self.client.runtimes()])
        self.assertTrue(self.client.runtime("sh").available)
        self.assertTrue(self.client.ready().ready)
        self.assertIn("cove_", self.client.metrics())

    def test_templates(self) -> None:
        spec = TemplateSpec(runtime="sh", resources=Resources(pids=99), env={"FROM": "template"}, lifetime=700)
        made = self.client.templates.put("sdk-test", spec)
        self.assertEqual((made.spec.runtime, made.spec.lifetime), ("sh", 700.0))
        with Sandbox.create(template="sdk-test", client=self.client) as box:
            self.assertEqual((box.info.resources.pids, box.info.template, box.info.lifetime), (99, "sdk-test", 700.0))
            self.assertEqual(box.run_code("echo $FROM").stdout, "template\n")
        self.assertIn("sdk-test", [t.name for t in self.client.templates.list()])
        self.assertEqual(self.client.templates.get("sdk-test").generation, made.generation)
        self.client.templates.delete("sdk-test")
        with self.assertRaises(NotFoundError):
            self.client.templates.get("sdk-test")

    def test_templates_without_their_modules(self) -> None:
        made = self.client.templates.put("sdk-lacks", TemplateSpec(runtime="python", preload=["no_such_module"]))
        self.assertEqual((made.available, made.missing, made.fix), (False, ["no_such_module"], "apt-get install python3-no-such-module"))
        self.assertIn("no_such_module", made.reason or "")
        with self.assertRaises(TemplateUnavailableError) as caught:
            self.client.execute("1", template="sdk-lacks")
        self.assertEqual(caught.exception.details["missing"], ["no_such_module"])
        self.client.templates.delete("sdk-lacks")
        python = self.client.templates.get("python")
        self.assertEqual((python.available, python.missing, python.reason, python.fix), (True, [], None, None))

    def test_pools(self) -> None:
        self.client.templates.put("sdk-pooled", TemplateSpec(runtime="sh", resources=Resources(pids=97)))
        made = self.client.pools.create("sdk-pool", "sdk-pooled", min=1, max=2, ttl=60, autoscale=PoolScaling(enabled=False))
        self.assertEqual((made.template, made.min, made.max, made.ttl, made.autoscale.enabled), ("sdk-pooled", 1, 2, 60.0, False))
        self.assertEqual(made.autoscale.scale_down_delay, 300.0)
        wait_for(lambda: self.client.pools.status("sdk-pool").ready == 1)
        with Sandbox.create(template="sdk-pooled", client=self.client) as box:
            self.assertEqual(box.run_code("echo hello").stdout, "hello\n")
        told = self.client.pools.status("sdk-pool")
        self.assertEqual((told.claims, told.hits), (1, 1))
        self.assertEqual(self.client.pools.update("sdk-pool", max=3).max, 3)
        self.assertEqual(self.client.pools.put("sdk-pool", "sdk-pooled", max=4).min, 0)
        self.assertIn("sdk-pool", [pool.name for pool in self.client.pools.list()])
        with self.assertRaises(ConflictError):
            self.client.templates.delete("sdk-pooled")
        self.assertEqual(self.client.pools.get("sdk-pool").generation, 3)
        self.client.pools.delete("sdk-pool")
        with self.assertRaises(NotFoundError):
            self.client.pools.get("sdk-pool")
        self.client.templates.delete("sdk-pooled")

    def test_keys(self) -> None:
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        made = self.client.keys.create("reader", ["sandboxes:read"], expires_at=soon)
        self.assertNotIn(made.key, repr(made))
        self.assertAlmostEqual((made.expires_at or soon).timestamp(), soon.timestamp(), delta=1.5)
        with Cove(self.server.url, made.key) as reader:
            self.assertIsInstance(list(Sandbox.list(client=reader)), list)
            with self.assertRaises(ForbiddenError):
                Sandbox.create("sh", client=reader)
            fresh = self.client.keys.rotate(made.id)
            with self.assertRaises(UnauthorizedError):
                list(Sandbox.list(client=reader))
        self.assertNotEqual(fresh.key, made.key)
        self.client.keys.revoke(made.id)
        self.assertIsNotNone(self.client.keys.get(made.id).revoked_at)
        self.assertIn(made.id, [key.id for key in self.client.keys.list()])
