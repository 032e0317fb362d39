#!/usr/bin/env python3
"""transfers_test.py API_TESTD RUNTIME - files that change while they are written, read and listed;
prints TAP.

Uses the same real server as api_test.py. A case whose name begins with FAnn is a case of the attack
catalogue. COVE_TEST_ENTRIES is the number of files in the large directory. Needs root.
"""
import http.client
import os
import sys
import threading
import time

import api_test

CASES = []
ENTRIES = int(os.environ.get("COVE_TEST_ENTRIES", "100000"))
PAGE = 10000


def case(function):
    CASES.append(function)
    return function


def names(s, sb):
    return [e["name"] for e in s.files(sb, verb="/list", path="/workspace").json["items"]]


def together(*work):
    """Runs the functions at the same time and raises the first exception."""
    wrong = []

    def one(function):
        try:
            function()
        except Exception as error:  # pylint: disable=broad-except
            wrong.append(error)
    threads = [threading.Thread(target=one, args=(function,)) for function in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise wrong[0]


@case
def FA06_an_upload_of_the_limit_fits_and_one_byte_more_leaves_nothing(s):
    size = 1 << 20
    sb = s.create({"runtime": "sh", "resources": {"storageBytes": size}})
    a = s.files(sb, "PUT", body=b"", path="/workspace/f")
    assert a.status == 200 and a.json["sizeBytes"] == 0 and s.files(sb, path="/workspace/f").body == b"", a.body
    a = s.files(sb, "PUT", body=b"x" * size, path="/workspace/f")
    assert a.status == 200 and a.json["sizeBytes"] == size, a.body
    assert s.files(sb, path="/workspace/f").body == b"x" * size
    assert s.files(sb, "DELETE", path="/workspace/f").status == 204
    for more in (1, 4096, size):
        a = s.files(sb, "PUT", body=b"x" * (size + more), path="/workspace/f")
        assert a.status == 507 and a.code == "sandbox_full", (more, a.status, a.body)
        assert names(s, sb) == [], names(s, sb)
    assert s.files(sb, "PUT", body=b"y" * size, path="/workspace/g").status == 200  # all of the space is free again
    s.delete(sb)
    # Bodies that are read completely: as long as allowed, and one byte more.
    sb = s.create({"runtime": "sh"})
    text = '{"path": "/workspace/d"%s}'
    for size, status in ((64 << 10, 204), ((64 << 10) + 1, 413)):
        a = s.files(sb, "POST", "/mkdir", (text % (" " * (size - len(text) + 2))).encode())
        assert a.status == status, (size, a.status, a.body)
    # Forms are not parsed: the body is the file, whatever its type claims.
    form = b'--b\r\nContent-Disposition: form-data; name="f"; filename="../../x"\r\n\r\nhi\r\n--b--\r\n'
    a = s.files(sb, "PUT", body=form, headers={"Content-Type": "multipart/form-data; boundary=b"}, path="/workspace/d/f")
    assert a.status == 200 and s.files(sb, path="/workspace/d/f").body == form, a.body
    assert names(s, sb) == ["d"]
    s.delete(sb)


@case
def an_entity_tag_is_unique_to_a_content_however_fast_a_file_is_replaced(s):
    """All contents have one size, and many are written within one tick of the kernel's clock."""
    sb, contents = s.create({"runtime": "sh"}), {}
    for i in range(200):
        assert s.files(sb, "PUT", body=b"%08d" % i, path="/workspace/f").status == 200
        a = s.files(sb, path="/workspace/f")
        assert a.status == 200 and a.body == b"%08d" % i and a.headers["ETag"], (a.status, a.body, a.headers)
        assert a.headers["ETag"] not in contents, (a.headers["ETag"], contents[a.headers["ETag"]], a.body)
        contents[a.headers["ETag"]] = a.body
    tag = a.headers["ETag"]
    assert s.files(sb, headers={"If-None-Match": tag}, path="/workspace/f").status == 304
    assert s.files(sb, headers={"If-Match": tag}, path="/workspace/f").status == 200
    s.delete(sb)


@case
def an_entity_tag_changes_although_size_and_time_are_restored(s):
    sb = s.create({"runtime": "sh"})
    assert s.files(sb, "PUT", body=b"old", path="/workspace/f").status == 200
    tag = s.files(sb, path="/workspace/f").headers["ETag"]
    again = "cp -p f was && printf new >f && touch -r was f"
    assert s.execute(sb, {"command": ["sh", "-c", again], "cwd": "/workspace"}).json["exitCode"] == 0
    a = s.files(sb, headers={"If-None-Match": tag}, path="/workspace/f")
    assert a.status == 200 and a.body == b"new" and a.headers["ETag"] != tag, (a.status, a.body, a.headers)
    assert s.files(sb, headers={"If-Match": tag}, path="/workspace/f").status == 412
    s.delete(sb)


@case
def a_file_that_is_always_being_written_has_no_entity_tag(s):
    sb = s.create({"runtime": "python"})
    loop = "f = open('/workspace/f', 'r+b', buffering=0)\nwhile True: f.seek(0); f.write(b'x')"
    assert s.files(sb, "PUT", body=b"x" * 8, path="/workspace/f").status == 200
    ex = s.execute(sb, {"code": loop, "background": True}).json["id"]
    untagged, end = 0, time.monotonic() + 60
    while not untagged:  # until the program has begun
        a = s.files(sb, path="/workspace/f")
        assert a.status == 200 and a.body == b"x" * 8, (a.status, a.body)
        untagged += a.headers["ETag"] is None
        assert time.monotonic() < end
    assert s.files(sb, headers={"If-Match": '"x"'}, path="/workspace/f").status == 412
    assert s.files(sb, headers={"If-Match": "*"}, path="/workspace/f").status == 200
    part = s.files(sb, headers={"Range": "bytes=2-3"}, path="/workspace/f")
    assert part.status in (206, 409), (part.status, part.body)
    whole = s.files(sb, headers={"Range": "bytes=2-3", "If-Range": '"x"'}, path="/workspace/f")
    assert whole.status == 200 and len(whole.body) == 8, (whole.status, whole.body)
    s.call("DELETE", f"/v1/sandboxes/{sb}/executions/{ex}")
    s.delete(sb)


@case
def FA07_of_concurrent_uploads_one_complete_file_wins_and_readers_see_no_mixture(s):
    """Each upload has another length, so that neither a beginning nor a mixture could pass for one
    of them."""
    sb = s.create({"runtime": "sh"})
    bodies = [bytes([65 + i]) * (150000 + 40000 * i) for i in range(4)]
    whole = set(bodies)
    assert s.files(sb, "PUT", body=bodies[0], path="/workspace/f").status == 200
    done, seen = threading.Event(), {"read": 0, "told": 0, "parts": 0}

    def writer(body):
        def work():
            end, n = time.monotonic() + 300, 0
            while n < 20 or ((seen["read"] < 20 or seen["parts"] < 10) and time.monotonic() < end):
                n += 1
                a = s.files(sb, "PUT", body=body, path="/workspace/f")
                assert a.status == 200 and a.json["sizeBytes"] == len(body), a.body
        return work

    def reader():
        while not done.is_set():
            try:
                a = s.files(sb, path="/workspace/f")
            except http.client.IncompleteRead:
                seen["told"] += 1
                continue
            if a.status == 409:
                seen["told"] += 1
                continue
            assert a.status == 200 and a.body in whole, (a.status, len(a.body), a.body[:1], a.headers["ETag"])
            seen["read"] += 1

    def ranges():
        while not done.is_set():
            try:
                a = s.files(sb, headers={"Range": "bytes=-100000"}, path="/workspace/f")
            except http.client.IncompleteRead:
                seen["told"] += 1
                continue
            if a.status == 409:
                continue
            total = int(a.headers["Content-Range"].split("/")[1])
            assert a.status == 206 and a.body == next(b for b in bodies if len(b) == total)[-100000:], (total, a.body[:1])
            seen["parts"] += 1

    def all_writers():
        try:
            together(*[writer(b) for b in bodies])
        finally:
            done.set()
    together(all_writers, reader, reader, ranges)
    assert seen["read"] >= 20 and seen["parts"] >= 10, seen
    assert s.files(sb, path="/workspace/f").body in whole and names(s, sb) == ["f"]
    # Of exclusive uploads, exactly one succeeds.
    got = []
    together(*[lambda b=b: got.append(s.files(sb, "PUT", body=b, headers={"If-None-Match": "*"}, path="/workspace/x").status)
               for b in bodies])
    assert sorted(got) == [200, 412, 412, 412], got
    assert s.files(sb, path="/workspace/x").body in whole and names(s, sb) == ["f", "x"]
    s.delete(sb)


def begin_read(s, sb, path, headers=None):
    """The head of an answer whose body is longer than all buffers on its way."""
    c, r = s.open("GET", f"/v1/sandboxes/{sb}/files?path={path}", headers=headers)
    assert r.status in (200, 206), r.read()
    return c, r


LARGE = 64 << 20


def large(s):
    sb = s.create({"runtime": "python", "resources": {"storageBytes": 200 << 20, "memoryBytes": 512 << 20}})
    make = f"f = open('f', 'wb')\nfor i in range({LARGE >> 20}): f.write(bytes([i % 251 + 1]) * (1 << 20))"
    assert s.execute(sb, {"code": make}).json["exitCode"] == 0
    return sb


@case
def FA08_a_growing_file_is_read_with_its_length_at_the_start(s):
    sb = s.create({"runtime": "python"})
    grow = ("import time\nf = open('log', 'ab', 0)\nfor n in range(40000):\n"
            "  f.write(b'%09d\\n' % n)\n  n % 10 or time.sleep(0.0005)")
    ex = s.execute(sb, {"code": grow, "background": True, "timeoutMs": 600000}).json["id"]
    api_test.until(lambda: s.files(sb, verb="/stat", path="/workspace/log").status == 200, "the file is not being written")
    last, good, parts, grows = 0, 0, 0, True
    while grows:
        grows = s.call("GET", f"/v1/sandboxes/{sb}/executions/{ex}").json["state"] == "running"
        a = s.files(sb, path="/workspace/log")
        assert a.status == 200 and len(a.body) == int(a.headers.get("Content-Length", len(a.body))) >= last, (a.status, last)
        lines = a.body.split(b"\n")
        assert all(line == b"%09d" % i for i, line in enumerate(lines[:-1])) and lines[-1] == b"", lines[-2:]
        last, good = len(a.body), good + 1
        a = s.files(sb, headers={"Range": "bytes=-20"}, path="/workspace/log")
        if a.status == 409:  # the file changes too fast for a tar archive, and that is reported
            continue
        total = int(a.headers["Content-Range"].split("/")[1])
        assert a.status == 206 and a.body == b"%09d\n%09d\n" % (total // 10 - 2, total // 10 - 1), (a.headers, a.body)
        parts += 1
    assert good > 2 and parts > 0 and last == 400000, (good, parts, last)
    s.delete(sb)


@case
def FA08_a_shrinking_file_is_aborted_and_a_removed_one_is_read_to_its_end(s):
    sb = large(s)
    c, r = begin_read(s, sb, "/workspace/f")
    assert int(r.headers["Content-Length"]) == LARGE
    got = r.read(1 << 20)
    assert s.execute(sb, {"code": "import os\nos.truncate('f', 3 << 20)"}).json["exitCode"] == 0
    try:
        got += r.read()
        raise AssertionError(f"a complete answer of {len(got)} bytes")
    except http.client.IncompleteRead as cut:
        got += cut.partial
    c.close()
    # Bytes that were not sent yet are dropped with the connection.
    assert (3 << 20) - (256 << 10) <= len(got) < LARGE, len(got)
    assert all(got[i << 20] == i % 251 + 1 for i in range(len(got) >> 20)), "the answer contains zeros that the file does not have"
    s.delete(sb)
    sb = large(s)
    c, r = begin_read(s, sb, "/workspace/f", {"Range": f"bytes=1048576-{LARGE - 1}"})
    assert r.status == 206 and r.headers["Content-Range"] == f"bytes 1048576-{LARGE - 1}/{LARGE}", r.headers
    assert s.execute(sb, {"command": ["sh", "-c", "echo new >g; mv g f"]}).json["exitCode"] == 0
    got = r.read()  # the bytes of the file that was opened, whichever file has its name now
    c.close()
    assert len(got) == LARGE - (1 << 20) and all(got[i << 20] == (i + 1) % 251 + 1 for i in range(len(got) >> 20))
    assert s.files(sb, path="/workspace/f").body == b"new\n"
    # A sparse file of a tebibyte: its length is reported as it is, and reading a part costs only
    # that part.
    s.execute(sb, {"code": "import os\nos.truncate(os.open('s', 65), (1 << 30) - 1)"})
    a = s.files(sb, headers={"Range": "bytes=-3"}, path="/workspace/s")
    assert a.status == 206 and a.body == b"\0\0\0" and a.headers["Content-Range"].endswith("/1073741823"), a.headers
    s.delete(sb)


@case
def FA09_a_huge_directory_is_paged_and_a_page_costs_bounded_memory(s):
    def resident():
        with open(f"/proc/{s.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * 4096
    limits = {"workspaceInodes": ENTRIES + 1000, "memoryBytes": "2G"}
    sb = s.create({"runtime": "python", "policy": {"version": 1, "limits": limits}})
    make = f"import os\nos.mkdir('d')\nfor i in range({ENTRIES}): os.close(os.open('d/%07d' % i, 65))"
    assert s.execute(sb, {"code": make, "timeoutMs": 600000}, timeout=660).json["exitCode"] == 0
    s.files(sb, verb="/list", path="/workspace/d", limit=PAGE)
    before, most, at, more = resident(), 0, 0, {}
    while more is not None:
        page = s.files(sb, verb="/list", path="/workspace/d", limit=PAGE, **more).json
        for e in page["items"]:
            assert e["name"] == f"{at:07d}", (e, at)
            at += 1
        assert (at < ENTRIES) == ("nextCursor" in page), at
        more = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
        most = max(most, resident() - before)
    assert at == ENTRIES, at
    with open(api_test.TESTD, "rb") as f:
        sanitized = b"__asan_init" in f.read()  # memory that a sanitized server has freed still counts as its own
    assert sanitized or most < 16 << 20, most
    if ENTRIES >= 1000000:  # the whole directory is read for each page, and that has a bound
        assert s.execute(sb, {"command": ["touch", "d/x"]}).json["exitCode"] == 0
        a = s.files(sb, verb="/list", path="/workspace/d", limit=1)
        assert a.status == 409 and a.code == "limit_reached", a.body
    assert s.files(sb, "DELETE", path="/workspace/d", recursive="true").status == 204
    s.delete(sb)


def main():
    api_test.CASES[:] = CASES
    return api_test.main()


if __name__ == "__main__":
    sys.exit(main())
