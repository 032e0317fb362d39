"""cove files and cove template."""
import json
import os

from served import OwnServer, Served


class Files(Served):
    def setUp(self):
        super().setUp()
        self.box = self.cove("sandbox", "create", "-q").out.strip()
        self.cove("exec", self.box, "--", "sh", "-c", "mkdir -p d/e; printf abc > d/f; ln -s f d/link")

    def test_a_directory_is_listed_as_a_table_as_names_and_as_json(self):
        table = self.cove("files", "ls", f"{self.box[:10]}:d").out
        self.assertRegex(table, r"^MODE +KIND +SIZE +MODIFIED +NAME\n")
        self.assertRegex(table, r"\n0644  file +3 ?B? .* f\n")
        self.assertIn(" e/\n", table)
        self.assertIn(" link -> f\n", table)
        self.assertEqual(self.cove("files", "ls", "-q", self.box, "d").out.split(), ["e", "f", "link"])
        self.assertEqual(self.cove("files", "ls", "-q", f"{self.box}:/workspace/d/").out.split(), ["e", "f", "link"])
        items = self.cove("files", "ls", "--json", self.box).json["items"]
        self.assertEqual([(e["name"], e["kind"]) for e in items], [("d", "directory")])

    def test_a_directory_of_many_entries_is_listed_to_its_end(self):
        self.cove("exec", self.box, "--", "sh", "-c", "mkdir many; cd many; for i in $(seq 250); do : > $i; done")
        self.assertEqual(len(self.cove("files", "ls", "-q", f"{self.box}:many").out.split()), 250)

    def test_files_are_printed_and_described(self):
        self.assertEqual(self.cove("files", "cat", f"{self.box}:d/f", "/workspace/d/f").out, "abcabc")
        self.assertEqual(self.cove("files", "stat", "--json", f"{self.box}:d/f").json["sizeBytes"], 3)
        self.assertRegex(self.cove("files", "stat", self.box, "d/link").out, r"kind +link\n(.*\n)*target +f\n")
        self.assertIn("not_found", self.cove("files", "cat", f"{self.box}:none", code=125).err)

    def test_directories_are_made_and_files_moved_and_removed(self):
        self.cove("files", "mkdir", f"{self.box}:a/b/c", "x")
        self.cove("files", "mv", f"{self.box}:d/f", "new/parent/g")
        self.assertEqual(self.cove("files", "cat", f"{self.box}:new/parent/g").out, "abc")
        self.assertNotEqual(self.cove("files", "rm", f"{self.box}:a", code=125).err, "")
        self.cove("files", "rm", "-r", f"{self.box}:a", "new", "d", "x")
        self.assertEqual(self.cove("files", "ls", "-q", self.box).out, "")

    def test_missing_and_superfluous_arguments_show_the_usage(self):
        for words in (("ls",), ("cat", self.box), ("mv", f"{self.box}:d"), ("stat", self.box, "a", "b")):
            self.assertIn("usage: cove files", self.cove("files", *words, code=2).err)


class Templates(OwnServer):
    def test_a_template_is_set_shown_used_and_removed(self):
        self.assertIn("python-data", self.cove("template", "ls", "-q").out.split())
        self.assertRegex(self.cove("template", "ls").out, r"\npython +python .*built in +yes\n")
        shown = self.cove("template", "set", "--runtime", "python", "--memory", "200M", "--cpus", "0.5", "--lifetime", "15m",
                          "-e", "WHO=you", "-m", "team=a", "--preload", "json", "--preload", "csv", "mine").out
        self.assertIn('"memoryBytes":209715200', shown)
        spec = self.cove("template", "show", "--json", "mine").json["spec"]
        self.assertEqual((spec["preload"], spec["lifetimeMs"], spec["resources"]["cpuMillis"]), (["json", "csv"], 900000, 500))
        box = self.cove("sandbox", "create", "-q", "--template", "mine").out.strip()
        self.assertEqual(self.cove("exec", box, "--", "sh", "-c", "echo $WHO").out, "you\n")
        self.assertEqual(self.cove("sandbox", "info", "--json", box).json["resources"]["memoryBytes"], 200 << 20)
        self.assertEqual(self.cove("template", "rm", "mine").out, "mine\n")
        self.assertIn("not_found", self.cove("template", "show", "mine", code=125).err)

    def test_a_specification_is_read_from_a_file_and_flags_override_it(self):
        path = os.path.join(self.dir, "spec.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"runtime": "sh", "resources": {"pids": 20, "memoryBytes": 64 << 20}, "lifetimeMs": 60000}, f)
        self.cove("template", "set", "-q", "--spec", path, "--lifetime", "2m", "--memory", "80M", "small")
        spec = self.cove("template", "show", "--json", "small").json["spec"]
        self.assertEqual((spec["resources"]["pids"], spec["resources"]["memoryBytes"], spec["lifetimeMs"]), (20, 80 << 20, 120000))
        self.cove("template", "set", "-q", "--spec", "-", "other", stdin='{"runtime": "node"}')
        self.assertEqual(self.cove("template", "show", "--json", "other").json["spec"]["runtime"], "node")
        self.assertIn("--spec", self.cove("template", "set", "--spec", "-", "bad", stdin="[1]", code=2).err)
        self.assertIn("invalid_request", self.cove("template", "set", "--spec", "-", "bad", stdin='{"none": 1}', code=2).err)

    def test_a_template_whose_modules_are_missing_is_reported_when_it_is_set(self):
        done = self.cove("template", "set", "--runtime", "python", "--preload", "no_such_module", "incomplete")
        self.assertIn("no_such_module", done.err)
        self.assertIn("available      no", done.out)
