"""A shared server: tenants, users, roles, budgets, usage, the audit trail, and the events of all
sandboxes.
"""
from __future__ import annotations

import csv
import datetime
import http.client
import io
import json
import os
import subprocess
import uuid
from typing import List, Optional, Union

from cove import BudgetBounds, Cove, EventGap, Quota, Sandbox, ServerEvent
from cove.errors import BudgetExceededError, ConflictError, ForbiddenError, NotFoundError, QuotaExceededError, TenantSuspendedError, UnauthorizedError

from support import COVE, Case, wait_for


def a_name() -> str:
    return "t" + uuid.uuid4().hex[:12]


class Team(Case):
    def tenant(self, quota: Optional[Quota] = None) -> str:
        name = self.client.tenants.create(a_name(), quota=quota).name
        self.addCleanup(self.client.tenants.remove, name)
        return name

    def member(self, tenant: str, role: str = "developer") -> Cove:
        """A client with the key of a user of the tenant."""
        user = self.client.users.create(a_name(), role, tenant=tenant)
        return self.with_key(self.client.keys.create("k", user=user.id, tenant=tenant).key)

    def with_key(self, key: str) -> Cove:
        client = Cove(self.server.url, key)
        self.addCleanup(client.close)
        return client


class Tenancy(Team):
    def test_a_tenant_hits_its_quota_and_the_quota_can_be_raised(self) -> None:
        tenant = self.tenant(Quota(sandboxes=1, memory_bytes=8 << 30))
        anna = self.member(tenant)
        Sandbox.create("sh", client=anna, lifetime=600)
        with self.assertRaises(QuotaExceededError) as met:
            Sandbox.create("sh", client=anna, lifetime=600)
        self.assertIn(1, met.exception.details.values())
        mine = anna.tenant()
        self.assertEqual((mine.name, mine.used.sandboxes, mine.quota), (tenant, 1, Quota(sandboxes=1, memory_bytes=8 << 30)))
        changed = self.client.tenants.update(tenant, quota=Quota(sandboxes=2), unbound=["memory_bytes"])
        self.assertEqual(changed.quota, Quota(sandboxes=2))
        self.assertEqual(Sandbox.create("sh", client=anna, lifetime=600).info.state, "running")

    def test_a_suspended_tenant_is_refused_until_it_is_resumed(self) -> None:
        tenant = self.tenant()
        anna = self.member(tenant)
        self.assertTrue(self.client.tenants.update(tenant, suspended=True).suspended)
        with self.assertRaises(TenantSuspendedError):
            anna.tenant()
        self.assertFalse(self.client.tenants.update(tenant, suspended=False).suspended)
        self.assertEqual(anna.tenant().name, tenant)

    def test_a_removed_tenant_is_listed_and_its_keys_are_revoked(self) -> None:
        name = self.client.tenants.create(a_name()).name
        anna = self.member(name)
        self.client.tenants.remove(name)
        with self.assertRaises((UnauthorizedError, ForbiddenError)):
            anna.tenant()
        found = {t.name: t for t in self.client.tenants.list()}
        self.assertIsNotNone(found[name].removed_at)
        self.assertIsNone(found["local"].removed_at)
        self.assertEqual(self.client.tenants.get("local").name, "local")
        with self.assertRaises(ConflictError):
            self.client.tenants.create(name)

    def test_users_and_roles_decide_the_permissions_of_a_key(self) -> None:
        tenant = self.tenant()
        role = self.client.roles.create("looker", ["sandboxes:read"], tenant=tenant)
        self.assertEqual((role.permissions, role.built_in, role.tenant), (["sandboxes:read"], False, tenant))
        self.assertIn("looker", [r.name for r in self.client.roles.list(tenant=tenant)])
        self.assertTrue(self.client.roles.get("viewer").built_in)
        user = self.client.users.create("ada", "looker", tenant=tenant)
        self.assertEqual([u.id for u in self.client.users.list(tenant=tenant)], [user.id])
        ada = self.with_key(self.client.keys.create("laptop", user=user.id, tenant=tenant).key)
        self.assertEqual(list(Sandbox.list(client=ada)), [])
        with self.assertRaises(ForbiddenError):
            Sandbox.create("sh", client=ada)
        with self.assertRaises(ConflictError):
            self.client.roles.remove("looker", tenant=tenant)
        self.assertEqual(self.client.users.update(user.id, role="developer", name="ada.l").role, "developer")
        Sandbox.create("sh", client=ada, lifetime=600)
        self.client.roles.remove("looker", tenant=tenant)
        with self.assertRaises(NotFoundError):
            self.client.roles.get("looker", tenant=tenant)
        self.assertTrue(self.client.users.update(user.id, disabled=True).disabled)
        with self.assertRaises((UnauthorizedError, ForbiddenError)):
            ada.tenant()
        self.client.users.remove(user.id)
        with self.assertRaises(NotFoundError):
            self.client.users.get(user.id)

    def test_revoking_all_tokens_takes_effect_at_once(self) -> None:
        box = self.sandbox()
        token = self.with_key(box.create_token().token)
        self.assertEqual(token.whoami().sandbox_id, box.id)
        self.client.revoke_tokens()
        with self.assertRaises(UnauthorizedError):
            token.whoami()

    def test_a_server_without_an_issuer_has_no_login_info(self) -> None:
        self.assertIsNone(self.client.login().issuer)


class Figures(Team):
    def test_usage_is_reported_by_sandbox_and_in_sum(self) -> None:
        tenant = self.tenant()
        anna = self.member(tenant)
        box = Sandbox.create("sh", client=anna, lifetime=600)
        box.run_command("echo hello")
        begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=2)
        report = wait_for(lambda: next((r for r in [anna.usage.report(begin=begin, group=["tenant", "sandbox"])] if r.total.executions), None))
        self.assertEqual([(r.tenant, r.sandbox_id, r.executions, r.output_bytes) for r in report.rows], [(tenant, box.id, 1, 6)])
        self.assertGreaterEqual(report.total.sandbox_ms, 0)
        self.assertLessEqual(report.begin, begin)
        rows = list(csv.DictReader(io.StringIO(anna.usage.csv(begin=begin.date(), group=["sandbox"]))))
        self.assertEqual(rows[0]["executions"], "1")
        live = {s.id: s for s in anna.usage.live().sandboxes}
        self.assertEqual((list(live), live[box.id].state, live[box.id].tenant), ([box.id], "running", tenant))

    def test_an_exceeded_budget_stops_work_and_reports_usage(self) -> None:
        tenant = self.tenant()
        anna = self.member(tenant)
        self.assertIsNone(self.client.tenants.budget(tenant).day.executions)
        box = Sandbox.create("sh", client=anna, lifetime=600)
        told = self.client.tenants.set_budget(tenant, day=BudgetBounds(executions=1), month=BudgetBounds(cpu_ms=100000))
        self.assertEqual((told.day.executions, told.month.cpu_ms, told.day.cpu_ms), (1, 100000, None))
        box.run_command("true")
        with self.assertRaises(BudgetExceededError):
            wait_for(lambda: box.run_command("true") and None)
        day = self.client.tenants.budget(tenant).day
        assert day.used is not None and day.renews_at is not None
        self.assertGreaterEqual(day.used.executions or 0, 1)
        self.assertIsNone(self.client.tenants.set_budget(tenant).day.executions)
        self.assertEqual(box.run_command("echo on").stdout, "on\n")


class Records(Team):
    def test_the_audit_trail_is_read_exported_and_verified(self) -> None:
        key = self.client.keys.create("audited", ["files"])
        record = wait_for(lambda: next((r for r in self.client.audit.records(action="key.", latest=50) if key.id in r.target.values()), None))
        self.assertEqual((record.action, record.outcome, record.tenant), ("key.create", "success", "local"))
        self.assertTrue(record.actor.kind)
        self.assertEqual(record.raw["hash"], record.hash)
        seqs = [r.seq for r in self.client.audit.records()]
        self.assertEqual(seqs, sorted(set(seqs)))
        self.assertIn(record.seq, seqs)
        about = self.client.audit.key()
        self.assertEqual(about.algorithm, "Ed25519")
        self.assertGreaterEqual(about.head.seq, record.seq)
        log, pem = self.path("audit.jsonl"), self.path("audit.pem")
        self.client.audit.export(log)
        with open(log, encoding="utf-8") as f:
            self.assertIn(record.hash, [json.loads(line)["hash"] for line in f])
        with open(pem, "w", encoding="utf-8") as f:
            f.write(about.public_key)
        done = subprocess.run([COVE, "audit", "verify", "--key", pem, log], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_repeated_failures_are_reported_as_an_attack(self) -> None:
        def strange() -> List[str]:
            for _ in range(20):  # from another address, because repeated failures block an address for a while
                guess = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60, source_address=("127.0.0.77", 0))
                guess.request("GET", "/v1/whoami", headers={"Authorization": "Bearer cove_" + os.urandom(32).hex()})
                self.assertIn(guess.getresponse().status, (401, 429))
                guess.close()
            return [r.action for r in self.client.audit.security(latest=100)]

        found = wait_for(strange)
        self.assertTrue(all(action.startswith("security.") for action in found), found)

    def test_events_are_listed_and_followed(self) -> None:
        box = self.sandbox()
        with self.client.events.follow(sandbox=box.id) as live:
            box.run_command("true")
            box.delete()
            kinds: List[str] = []
            while "sandbox_ended" not in kinds:
                kinds.append(next(live).kind)
        self.assertEqual(kinds, ["execution_started", "execution_ended", "sandbox_ended"])
        listed = list(self.client.events.list(sandbox=box.id))
        self.assertEqual([e.kind for e in listed], ["sandbox_created", *kinds])
        self.assertEqual({(e.tenant, e.sandbox_id) for e in listed}, {("local", box.id)})
        self.assertEqual([e.seq for e in self.client.events.list(sandbox=box.id, kinds=["sandbox_ended"], after=listed[0].seq)], [listed[-1].seq])

    def test_events_continue_through_cuts_and_a_killed_server(self) -> None:
        box = self.sandbox()
        for _ in range(10):
            box.run_command("true")
        wanted = [e.seq for e in self.client.events.list(sandbox=box.id)]
        client = self.through(0, 10, 300, 700, 1100, 1500)
        seen: List[Union[ServerEvent, EventGap]] = []
        with client.events.follow(sandbox=box.id, after=0) as live:
            while len(seen) < len(wanted):
                seen.append(next(live))
            self.assertGreater(self.proxy.connections, 4)
            self.server.kill_coved()
            box.delete()
            last = next(live)
        self.assertEqual([e.seq for e in seen if isinstance(e, ServerEvent)], wanted)
        self.assertEqual(last.kind, "sandbox_ended")
