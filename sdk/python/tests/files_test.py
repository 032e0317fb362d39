"""Transfer of single files and of trees; a file appears complete or not at all."""
from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from typing import Iterator, List

from cove import CoveError, FileEvent, Sandbox
from cove._archive import pack, unpack
from cove.errors import ConflictError, NotFoundError, PreconditionFailedError, SandboxEndedError

from support import Case


class Files(Case):
    def setUp(self) -> None:
        super().setUp()
        self.box = self.sandbox()
        self.files = self.box.files

    def test_write_and_read(self) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"one "
            yield b"two"

        for content, want in (("täxt", "täxt".encode()), (b"\0\xff", b"\0\xff"), (io.BytesIO(b"file"), b"file"), (pieces(), b"one two"),
                              ([b"a", b"b"], b"ab"), (b"", b"")):
            self.assertEqual(self.files.write("/workspace/f", content).size_bytes, len(want))
            self.assertEqual(self.files.read_bytes("/workspace/f"), want)
        self.files.write("digits", "0123456789")
        self.assertEqual(self.files.read_bytes("digits", offset=3, length=4), b"3456")
        self.assertEqual(self.files.read_bytes("/workspace/digits", offset=8), b"89")
        self.assertEqual(self.files.read_bytes("digits", length=0), b"")
        self.assertEqual(self.files.read("digits"), "0123456789")

    def test_a_file_is_read_as_text_with_a_bound(self) -> None:
        self.files.write("latin", "t\u00e4xt".encode("latin-1"))
        with self.assertRaises(UnicodeDecodeError):
            self.files.read("latin")
        self.assertEqual((self.files.read("latin", encoding="latin-1"), self.files.read("latin", errors="replace")), ("t\u00e4xt", "t\ufffdxt"))
        self.box.run_command("truncate -s 65M large").check()
        with self.assertRaisesRegex(ValueError, "^large: has more than 67108864 bytes; use files.stream"):
            self.files.read("large")
        with self.assertRaisesRegex(ValueError, "more than 3 bytes"):
            self.files.read_bytes("latin", max_bytes=3)
        self.assertEqual(len(self.files.read_bytes("latin", max_bytes=4)), 4)
        self.assertEqual(sum(len(piece) for piece in self.files.stream("large")), 65 << 20)

    def test_write_options(self) -> None:
        with self.assertRaises(NotFoundError):
            self.files.write("a/b/c", "", parents=False)
        self.files.write("a/b/c", "#!/bin/sh\necho ran", mode=0o755)
        self.assertEqual(self.box.run_command(["a/b/c"]).stdout, "ran\n")
        with self.assertRaises(ConflictError):
            self.files.write("/workspace/a/b/c", "", exclusive=True)

    def test_a_list_has_all_pages(self) -> None:
        self.box.run_command("mkdir many; cd many; seq -w 2500 | xargs touch").check()
        names = [entry.name for entry in self.files.list("many")]
        self.assertEqual(names, [f"{n:04d}" for n in range(1, 2501)])

    def test_list_stat_move_and_remove(self) -> None:
        with self.assertRaises(NotFoundError):
            self.files.mkdir("d/e", parents=False)
        self.files.mkdir("d/e")
        self.files.mkdir("/workspace/d")
        with self.assertRaises(ConflictError):
            self.files.mkdir("/workspace/d", exclusive=True)
        self.files.write("/workspace/d/f", "abc")
        self.box.run_command("ln -s f d/l")
        found = {entry.name: entry for entry in self.files.list("/workspace/d")}
        self.assertEqual({n: e.kind for n, e in found.items()}, {"e": "directory", "f": "file", "l": "link"})
        self.assertEqual((found["f"].size_bytes, found["l"].target, found["e"].is_directory), (3, "f", True))
        self.assertEqual(self.files.stat("/workspace/d/f").mode, "0644")
        self.files.move("d/f", "x/g")
        self.assertEqual((self.files.exists("/workspace/d/f"), self.files.exists("/workspace/x/g")), (False, True))
        self.files.remove("/workspace/d", recursive=True)
        self.assertFalse(self.files.exists("/workspace/d"))
        with self.assertRaises(NotFoundError):
            self.files.remove("/workspace/d")

    def test_exists_raises_if_the_sandbox_is_gone(self) -> None:
        self.box.delete()
        with self.assertRaises(SandboxEndedError):
            self.files.exists("/workspace")

    def test_a_large_file_is_transferred_despite_cuts(self) -> None:
        data = os.urandom(1 << 16) * 100
        with open(self.path("big"), "wb") as f:
            f.write(data)
        files = Sandbox(self.through(0, 100, 300000, 2000000, 50), self.box.info).files
        self.assertEqual(files.upload(self.path("big"), "/workspace/big").size_bytes, len(data))
        self.assertEqual(self.box.run_command("sha256sum < big").stdout.split()[0], hashlib.sha256(data).hexdigest())
        told = files.download("/workspace/big", self.path("back"))
        self.assertGreater(self.proxy.connections, 3)
        self.assertEqual(told.size_bytes, len(data))
        with open(self.path("back"), "rb") as f:
            self.assertEqual(f.read(), data)

    def test_a_change_between_two_pieces_is_reported(self) -> None:
        self.files.write("/workspace/f", b"a" * 3000000)
        pieces = Sandbox(self.through(1000000), self.box.info).files.stream("/workspace/f")
        next(pieces)
        self.files.write("/workspace/f", b"b" * 3000001)
        with self.assertRaises(PreconditionFailedError):
            list(pieces)

    def test_a_failed_download_keeps_the_old_file(self) -> None:
        with open(self.path("old"), "w", encoding="utf-8") as f:
            f.write("old")
        with self.assertRaises(NotFoundError):
            self.files.download("/workspace/missing", self.path("old"))
        with open(self.path("old"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "old")
        self.assertEqual(os.listdir(self.dir), ["old"])

    def tree(self) -> str:
        top = self.path("tree")
        os.makedirs(os.path.join(top, "sub", "empty"))
        deep = os.path.join(top, *["d" * 60] * 4)
        os.makedirs(deep)
        for name, text in (("a.txt", "a"), ("sub/run", "#!/bin/sh\n"), (os.path.join(deep, "ü" * 50), "deep")):
            with open(os.path.join(top, name), "w", encoding="utf-8") as f:
                f.write(text)
        os.chmod(os.path.join(top, "sub/run"), 0o755)
        os.symlink("../a.txt", os.path.join(top, "sub/link"))
        os.mkfifo(os.path.join(top, "pipe"))
        return top

    def test_a_tree_makes_a_round_trip_despite_cuts(self) -> None:
        top = self.tree()
        files = Sandbox(self.through(0, 0, 700), self.box.info).files
        self.assertEqual(files.upload_directory(top, "/workspace/deep/tree").path, "/workspace/deep/tree")
        told = files.download_directory("/workspace/deep/tree", self.path("back"))
        self.assertEqual(told.skipped, [])
        os.unlink(os.path.join(top, "pipe"))
        for where, names, found in os.walk(top):
            twin = os.path.join(self.path("back"), os.path.relpath(where, top))
            self.assertEqual(sorted(os.listdir(twin)), sorted(names + found))
            for name in found:
                one, two = os.path.join(where, name), os.path.join(twin, name)
                self.assertEqual(os.lstat(one).st_mode, os.lstat(two).st_mode, name)
                with open(one, "rb") as f, open(two, "rb") as g:
                    self.assertEqual(f.read(), g.read())
        self.assertEqual(os.readlink(self.path("back/sub/link")), "../a.txt")
        self.assertTrue(os.path.isdir(self.path("back/sub/empty")))

    def test_links_that_point_out_are_omitted_and_reported(self) -> None:
        self.box.run_command("mkdir t; cd t; echo x > f; ln -s /etc/passwd a; ln -s ../../x b; ln -s f good").check()
        told = self.files.download_directory("/workspace/t", self.path("t"))
        self.assertEqual({os.path.basename(name) for name, _ in told.skipped}, {"a", "b"})
        self.assertEqual(sorted(os.listdir(self.path("t"))), ["f", "good"])


class Watching(Case):
    def setUp(self) -> None:
        super().setUp()
        self.box = self.sandbox()

    def test_changes_are_reported(self) -> None:
        self.box.files.mkdir("/workspace/d")
        with self.box.files.watch("/workspace", recursive=True) as events:
            self.box.run_command("echo > d/f; mv d/f d/g; rm d/g; mkdir e").check()
            seen: List[FileEvent] = []
            while not any(e.directory for e in seen):
                seen.append(next(events))
        self.assertEqual((seen[0], seen[-1]), (FileEvent("created", "/workspace/d/f"), FileEvent("created", "/workspace/e", directory=True)))
        moved = [e for e in seen if e.type == "moved"]
        self.assertEqual([(e.path, e.moved_from) for e in moved], [("/workspace/d/g", "/workspace/d/f")])
        self.assertIn(FileEvent("removed", "/workspace/d/g"), seen)
        with self.assertRaises(StopIteration):
            next(events)

    def test_changes_missed_during_a_cut_are_reported_as_overflow(self) -> None:
        client = self.through(10000)
        with Sandbox(client, self.box.info).files.watch() as events:
            self.box.run_command("for i in $(seq 300); do echo > f$i; done").check()
            while next(events).type != "overflow":
                pass
            self.box.files.write("/workspace/last", "")
            while next(events).path != "/workspace/last":
                pass

    def test_a_watch_ends_with_its_path_and_with_the_sandbox(self) -> None:
        self.box.files.mkdir("/workspace/gone")
        with self.box.files.watch("/workspace/gone") as events:
            self.box.files.remove("/workspace/gone")
            self.assertLess(len(list(events)), 10)
        with self.box.files.watch() as events:
            self.box.delete()
            with self.assertRaises(CoveError):
                list(events)
        with self.assertRaises(NotFoundError):
            list(self.box.files.watch("/workspace/nowhere/at/all"))


class Hostile(Case):
    """Archives not made by cove."""

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="cove-sdk-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name

    def unpack(self, *items: tarfile.TarInfo) -> List[str]:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for item in items:
                archive.addfile(item, io.BytesIO(b"x" * item.size))
        file.seek(0)
        return [name for name, _ in unpack(file, self.path("in")).skipped]

    def item(self, name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
        item = tarfile.TarInfo(name)
        item.type, item.linkname, item.mode, item.size = kind, link, mode, 1 if kind == tarfile.REGTYPE else 0
        return item

    def test_no_name_leads_out_of_the_directory(self) -> None:
        bad = ["../out", "/out", "a/../../out", "a/..", ".."]
        self.assertEqual(self.unpack(*(self.item(n) for n in bad), self.item("./good/./x")), bad)
        self.assertEqual((os.listdir(self.dir), os.listdir(self.path("in/good"))), (["in"], ["x"]))

    def test_no_link_is_followed(self) -> None:
        os.mkdir(self.path("outside"))
        os.mkdir(self.path("in"))
        os.symlink(self.path("outside"), self.path("in/mine"))
        skipped = self.unpack(self.item("d", tarfile.SYMTYPE, "."), self.item("d/x"), self.item("mine/x"), self.item("mine/sub", tarfile.DIRTYPE))
        self.assertEqual(skipped, ["d/x", "mine/x", "mine/sub"])
        self.assertEqual(os.listdir(self.path("outside")), [])

    def test_no_link_may_point_out_of_the_directory(self) -> None:
        bad = [("a", "/etc"), ("b", ".."), ("s/c", "../.."), ("d", "s/up/../.."), ("e", "")]
        skipped = self.unpack(self.item("s", tarfile.DIRTYPE), self.item("s/up", tarfile.SYMTYPE, ".."),
                              *(self.item(n, tarfile.SYMTYPE, t) for n, t in bad))
        self.assertEqual(skipped, [n for n, _ in bad])
        self.assertEqual(os.readlink(self.path("in/s/up")), "..")

    def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(self) -> None:
        with open(self.path("outside"), "w", encoding="utf-8") as f:
            f.write("safe")
        os.mkdir(self.path("in"))
        os.symlink(self.path("outside"), self.path("in/f"))
        self.assertEqual(self.unpack(self.item("f")), [])
        with open(self.path("outside"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "safe")
        self.assertFalse(os.path.islink(self.path("in/f")))

    def test_no_devices_no_hard_links_no_special_bits(self) -> None:
        skipped = self.unpack(self.item("dev", tarfile.CHRTYPE), self.item("fifo", tarfile.FIFOTYPE), self.item("f", mode=0o6755),
                              self.item("hard", tarfile.LNKTYPE, "/etc/passwd"), self.item("f", tarfile.DIRTYPE))
        self.assertEqual(skipped, ["dev", "fifo", "hard", "f"])
        self.assertEqual(os.stat(self.path("in/f")).st_mode & 0o7777, 0o755)

    def test_packed_archives_are_readable_by_tar(self) -> None:
        with open(self.path("f"), "wb") as f:
            f.write(b"y" * 1000)
        with tarfile.open(fileobj=io.BytesIO(b"".join(pack(self.dir)))) as archive:
            self.assertEqual([(m.name, m.size) for m in archive], [("f", 1000)])
