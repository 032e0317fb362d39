"""Maintenance of a server's data: cove gc, backup and restore, against a real server that starts
and stops.
"""
import json
import os
import shutil
import signal
import sqlite3

from cove import COVE, Case, run
from server import Launched


class Upkeep(Case):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.place = os.path.join(self.dir, "place")
        self.db = os.path.join(self.place, "state", "cove.db")
        self.server = None
        self.addCleanup(self.stop)

    def start(self, *flags):
        launched = self.launched = Launched(COVE, self.dir, *flags)
        self.server = launched.process
        self.env = {"COVE_URL": launched.url, "COVE_API_KEY": launched.key or self.env["COVE_API_KEY"]}

    def stop(self):
        if self.server and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(60)

    def here(self, *args, code=0):
        """As the owner on this machine, without a key."""
        done = run(*args, env={"COVE_URL": "", "COVE_API_KEY": ""})
        self.assertEqual(done.code, code, done)
        return done

    def there(self, *args, code=0):
        done = run(*args, env=self.env)
        self.assertEqual(done.code, code, done)
        return done

    def names(self):
        return {k["name"] for k in self.there("key", "ls", "--json").json["items"]}

    def test_a_server_is_restored_from_its_backup(self):
        self.start()
        first, second = os.path.join(self.dir, "first.db"), os.path.join(self.dir, "second.db")
        sandbox = self.there("sandbox", "create", "-q").out.strip()
        self.there("key", "create", "-q", "before")
        told = self.here("backup", "--state-dir", self.place, "--json", first).json  # through its socket, while it runs
        self.assertEqual((told["from"], told["sizeBytes"]), ("server", os.path.getsize(first)))
        self.assertEqual(os.stat(first).st_mode & 0o777, 0o600)
        self.there("backup", second)  # through its address, with a key
        self.assertIn("conflict", self.there("backup", second, code=125).err)  # an existing file is never replaced
        self.there("key", "create", "-q", "after")
        self.assertIn("server_running", self.here("restore", "--state-dir", self.place, first, code=125).err)
        self.assertEqual(self.there("exec", sandbox, "--", "echo", "on").out, "on\n")  # the server continues
        self.stop()

        told = self.here("restore", "--state-dir", self.place, "--json", first).json
        self.assertEqual(told["kept"], self.db + ".before-restore")
        self.start()
        self.assertIn("before", self.names())
        self.assertNotIn("after", self.names())
        info = self.there("sandbox", "info", "--json", sandbox).json
        self.assertEqual((info["state"], info["endedBy"]), ("ended", "lost"))  # it was alive in the backup
        self.stop()

        self.here("restore", "--state-dir", self.place, told["kept"])  # and back again
        self.start()
        self.assertIn("after", self.names())

    def test_a_database_is_copied_while_no_server_runs(self):
        copy = os.path.join(self.dir, "copy.db")
        self.assertIn("not_found", self.here("backup", "--state-dir", self.place, copy, code=125).err)
        self.assertFalse(os.path.exists(copy))
        self.start()
        self.there("key", "create", "-q", "one")
        self.stop()
        told = self.here("backup", "--state-dir", self.place, "--json", copy).json
        self.assertEqual(told["from"], "database")
        db = sqlite3.connect(copy)
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        self.assertEqual(db.execute("SELECT count(*) FROM keys WHERE name = 'one'").fetchone(), (1,))
        db.close()
        self.start()  # leftover files there do not prevent the start
        self.assertIn("one", self.names())
        self.stop()
        shutil.rmtree(self.place)
        self.here("restore", "--state-dir", self.place, copy)  # a new machine
        self.start()
        self.assertIn("one", self.names())

    def test_a_database_in_another_place_is_served_copied_and_restored(self):
        db = os.path.join(self.dir, "elsewhere", "deep", "my.db")
        store = ("--store-url", f"sqlite:{db}")
        live, copy = os.path.join(self.dir, "live.db"), os.path.join(self.dir, "copy.db")
        self.start(*store)
        self.there("key", "create", "-q", "one")
        self.assertEqual(os.stat(db).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(db)).st_mode & 0o777, 0o700)
        self.assertFalse(os.path.exists(self.db))
        self.assertEqual(self.here("backup", "--state-dir", self.place, "--json", live).json["from"], "server")
        self.assertIn("server_running", self.here("backup", "--state-dir", self.place, *store, copy, code=125).err)
        self.there("key", "create", "-q", "two")
        self.stop()

        missing = self.here("backup", "--state-dir", self.place, copy, code=125)
        self.assertIn("not_found", missing.err)
        self.assertIn(f"there is no database at {self.db}", missing.err)
        self.assertEqual(self.here("backup", "--state-dir", self.place, "--json", *store, copy).json["from"], "database")
        both = self.here("backup", "--url", "http://127.0.0.1:1", *store, copy + "2", code=2)
        self.assertIn("use one of them", both.err)
        told = self.here("restore", "--state-dir", self.place, "--json", *store, live).json
        self.assertEqual(told["kept"], db + ".before-restore")
        self.start(*store)
        self.assertIn("one", self.names())
        self.assertNotIn("two", self.names())
        self.stop()

        config = os.path.join(self.dir, "cove.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write("store: sqlite:moved/new.db\n")  # below the state directory
        told = self.here("restore", "--state-dir", self.place, "--config", config, "--json", copy).json
        self.assertIsNone(told["kept"])
        self.start("--config", config)
        self.assertLessEqual({"one", "two"}, self.names())
        self.assertTrue(os.path.exists(os.path.join(self.place, "state", "moved", "new.db")))
        self.assertFalse(os.path.exists(self.db))

    def test_an_unknown_store_is_an_error_at_its_line_and_starts_nothing(self):
        config = os.path.join(self.dir, "cove.yaml")
        for text, code, says in (("store: oracle:x", 2, "unknown scheme 'oracle'; use sqlite:PATH"),
                                 ("store:\n  url: /srv/x.db", 2, "'/srv/x.db' has no scheme"),
                                 ("store: postgres://u:secret@h/d", 125, "no PostgreSQL support yet")):
            with open(config, "w", encoding="utf-8") as f:
                f.write(text + "\n")
            for command in (("serve", "--listen", "127.0.0.1:0"), ("restore", config), ("backup", self.db)):
                refused = self.here(command[0], "--config", config, "--state-dir", self.place, *command[1:], code=code)
                self.assertIn(says, refused.err)
                self.assertNotIn("secret", refused.err)
                if command[0] == "serve":
                    self.assertIn(f"cove.yaml:{text.count(chr(10)) + 1}", refused.err)
            self.assertFalse(os.path.exists(self.place))

    def test_a_damaged_backup_changes_nothing(self):
        self.start()
        self.there("key", "create", "-q", "one")
        copy = os.path.join(self.dir, "copy.db")
        self.there("backup", "-q", copy)
        self.stop()
        with open(copy, "rb") as f:
            data = bytearray(f.read())
        cases = {"short": bytes(data[:len(data) // 2]), "empty": b"", "text": b"this is no database\n" * 1000}
        half = len(data) // 2 // 4096 * 4096
        data[half:half + 4096] = b"\xa5" * 4096
        cases["bitten"] = bytes(data)
        for name, content in cases.items():
            path = os.path.join(self.dir, name)
            with open(path, "wb") as f:
                f.write(content)
            refused = self.here("restore", "--state-dir", self.place, path, code=125)
            self.assertIn("store_corrupt", refused.err, name)
        self.assertIn("not_found", self.here("restore", "--state-dir", self.place, "/none.db", code=125).err)
        self.assertFalse(os.path.exists(self.db + ".before-restore"))
        self.start()
        self.assertIn("one", self.names())

    def test_rows_past_their_retention_are_removed_and_younger_ones_stay(self):
        """By the wall clock: rows are dated back as if the server had been running all the time."""
        day = 86400000
        self.start()
        ids = {}
        for age in (6.9, 7.1, 29, 31):  # executions are kept for 7 days, sandboxes for 30
            sandbox = self.there("sandbox", "create", "-q").out.strip()
            execution = self.there("exec", "-d", sandbox, "--", "echo", str(age)).out.strip()
            self.assertEqual(self.there("logs", "-f", sandbox, execution).out, f"{age}\n")
            self.there("sandbox", "rm", sandbox)
            ids[age] = (sandbox, execution)
        self.stop()
        with sqlite3.connect(self.db) as db:
            for age, (sandbox, execution) in ids.items():
                back = int(age * day)
                db.execute("UPDATE executions SET created_ms = created_ms - ?, started_ms = started_ms - ?, ended_ms = ended_ms - ? WHERE id = ?", (back,) * 3 + (execution,))
                db.execute("UPDATE sandboxes SET created_ms = created_ms - ?, expires_ms = expires_ms - ?, ended_ms = ended_ms - ? WHERE id = ?", (back,) * 3 + (sandbox,))
            db.execute("UPDATE usage SET hour_ms = hour_ms - ? WHERE sandbox = ?", (31 * day, ids[31][0]))
        db.close()
        self.start()

        def kept():
            return [(run("sandbox", "info", sandbox, env=self.env).code == 0, run("logs", sandbox, execution, env=self.env).code == 0)
                    for sandbox, execution in ids.values()]
        removed = self.there("gc", "--json").json
        self.assertEqual((removed["executions"], removed["sandboxes"]), (3, 1))
        self.assertIn(removed["usageRows"], (1, 2))  # one for each hour in which it lived
        self.assertEqual(kept(), [(True, True), (True, False), (True, False), (False, False)])
        output = os.path.join(self.place, "state", "output")
        self.assertEqual([any(n.startswith(execution) for n in os.listdir(output)) for _, execution in ids.values()], [True, False, False, False])

    def test_RC06_a_wall_clock_leap_during_downtime_is_reported_and_gc_still_works_on_request(self):
        """To a server this is the same as a clock that was last trusted long ago."""
        self.start()
        sandbox = self.there("sandbox", "create", "-q").out.strip()
        self.there("sandbox", "rm", sandbox)
        self.stop()
        self.assertNotIn("calendar", self.launched.logged())
        years = 1000 * 86400000

        def seen():
            db = sqlite3.connect(self.db)
            value = db.execute("SELECT value FROM meta WHERE name = 'server.calendar'").fetchone()[0]
            db.close()
            return int(value.split()[0])

        before = seen()
        with sqlite3.connect(self.db) as db:
            db.execute("UPDATE meta SET value = ? WHERE name = 'server.calendar'", (f"{before - years} 0",))
            db.execute("UPDATE sandboxes SET ended_ms = ended_ms - ?", (years,))
        db.close()
        for _ in range(2):  # a restart does not make the clock trusted
            self.start()
            self.assertIn("the wall clock is 1000 days ahead", self.launched.logged())
            self.assertEqual(self.there("sandbox", "info", "--json", sandbox).json["state"], "ended")
            self.stop()
            self.assertEqual(seen(), before - years)
        self.start()
        self.assertEqual(self.there("gc", "--json").json["sandboxes"], 1)

    def test_a_database_beyond_its_size_limit_loses_the_oldest_rows(self):
        self.start()
        sandbox = self.there("sandbox", "create", "-q").out.strip()
        made = [self.there("exec", "--json", sandbox, "--", "true").json["id"] for _ in range(14)]
        self.stop()
        with sqlite3.connect(self.db) as db:
            db.execute("UPDATE executions SET request_json = ? WHERE id = ?", (json.dumps({"pad": "x" * (3 << 20)}), made[0]))
        db.close()
        self.start("--retention-database", "2M")
        dry = self.there("gc", "--dry-run", "--json").json["executions"]
        self.assertIn(self.there("gc", "--json").json["executions"], range(1, 11))
        left = [e["id"] for e in self.there("ps", "-a", "--json", sandbox).json["items"]]
        self.assertEqual(sorted(left), sorted(made[dry:]))
        self.assertEqual(self.there("gc", "--json").json["executions"], 0)

    def test_gc_prints_what_it_removed(self):
        self.start()
        sandbox = self.there("sandbox", "create", "-q").out.strip()
        execution = self.there("exec", "-d", sandbox, "--", "true").out.strip()
        stray = os.path.join(self.place, "state", "output", "ex" + "b" * 20 + ".2")
        with open(stray, "w", encoding="ascii") as f:
            f.write("123")
        dry = self.there("gc", "--dry-run", "--json").json
        self.assertEqual((dry["executions"], dry["strayFiles"], dry["strayBytes"]), (0, 1, 3))
        self.assertTrue(os.path.exists(stray))
        table = self.there("gc").out
        self.assertRegex(table, r"orphaned output files +1 +3")
        self.assertRegex(table, r"usage rows +0 +-")
        self.assertFalse(os.path.exists(stray))
        self.assertEqual(self.there("logs", "-f", sandbox, execution).out, "")  # nothing young is removed
        key = self.there("key", "create", "-q", "--scope", "sandboxes:read", "looker").out.strip()
        refused = run("gc", env=dict(self.env, COVE_API_KEY=key))
        self.assertEqual(refused.code, 125)
        self.assertIn("forbidden", refused.err)
