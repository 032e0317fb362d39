"""A pool that recycles, on a real server with its monitor: a second run finds nothing of the first,
other tenants never get the sandbox, and a suspicious run destroys it.
"""
import json
import os
import urllib.error
import urllib.request

from served import OwnServer, wait_for

LEAVES = """
import ctypes, os
for place in ("/workspace", "/tmp", "/dev/shm"):
    os.makedirs(place + "/a/b/c")
    with open(place + "/a/b/c/secret", "w") as f:
        f.write("secret")
    os.chmod(place + "/a/b", 0)
    os.symlink("/etc/passwd", place + "/link")
    os.mkfifo(place + "/fifo")
os.chmod("/tmp", 0o700)
os.utime("/tmp", ns=(4_000_000_000_123_456_789, 1_234_567_890))
with open("/tmp/gone", "w") as kept:
    kept.write("x" * 100000)
keep = open("/tmp/gone")
os.unlink("/tmp/gone")
os.environ["LEFT"] = "secret"
left = "secret"
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0x1234, 1 << 16, 0o1666) >= 0, libc.semget(0x1234, 1, 0o1666) >= 0)
import socket
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0left")
abstract.listen()
"""
LOOKS = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
other = socket.socket(socket.AF_UNIX)
tmp = os.stat("/tmp")
print(0 < tmp.st_mtime - 1.6e9 < 2e9, 0 < tmp.st_atime - 1.6e9 < 2e9)
print([os.listdir(place) for place in ("/workspace", "/tmp", "/dev/shm")], oct(tmp.st_mode),
      sorted(name for name in os.environ if name in ("LEFT", "GIVEN")), "left" in globals(),
      libc.shmget(0x1234, 0, 0), libc.semget(0x1234, 0, 0), other.connect_ex("\\0left") != 0,
      [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())])
"""
NOTHING = "True True\n[[], [], []] 0o41777 [] False -1 -1 True []\n"
REFUSED = "import ctypes; ctypes.CDLL(None).unshare(0x10000000)"
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(3600)
    os._exit(0)
"""
CONNECTED = """
import socket
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
d, _ = s.accept()
d.close()
c.close()
"""
FORKS = """
import os, time
try:
    while True:
        if os.fork() == 0:
            time.sleep(3600)
except OSError:
    pass
"""
DESTROYED = (  # (reason, request)
    ("processes", {"code": DAEMON}),
    ("processes", {"command": ["sh", "-c", "sleep 3600 & true"]}),
    ("refused_call", {"code": REFUSED}),
    ("limit", {"code": FORKS}),
    ("limit", {"command": ["sh", "-c", "head -c 1G /dev/zero > /dev/shm/full; true"]}),
    ("limit", {"code": "import os; os.system('head -c 1G /dev/zero > /dev/shm/full 2>/dev/null')"}),
    ("stopped", {"code": "while True: pass", "timeoutMs": 1000}),
    ("stopped", {"code": "import os; os.kill(os.getpid(), 9)"}),
    ("sockets", {"code": CONNECTED}),
    ("altered", {"code": "import os; os.setpriority(os.PRIO_PROCESS, 1, 5)"}),
)
if len(os.sched_getaffinity(0)) > 1:
    DESTROYED += (("altered", {"code": "import os; os.sched_setaffinity(1, {min(os.sched_getaffinity(1))})"}),)


class Recycling(OwnServer):
    """Claims and resets of a pool are counted from the start of its server, so each test has its
    own."""

    def ask(self, method, path, body=None, key=None):
        head = {"Authorization": "Bearer " + (key or self.launched.key), "Content-Type": "application/json"}
        request = urllib.request.Request(self.launched.url + path, method=method, headers=head,
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            self.fail(error.read())

    def call(self, method, path, body=None, key=None):
        return json.loads(self.ask(method, path, body, key))

    def pool(self):
        self.call("PUT", "/v1/templates/again", {"runtime": "python", "resources": {"pids": 37}})
        self.cove("pool", "set", "--template", "again", "--min", "1", "--max", "3", "--fixed", "--recycle", "again")

    def status(self):
        return self.call("GET", "/v1/pools/again/status")

    def full(self):
        """Waits for one fresh member with its interpreter."""
        wait_for(lambda: (lambda t: t.get("ready") == 1 and t["starting"] == 0 and t["zygote"]["state"] == "ready")(self.status()))

    def decided(self):
        told = self.status()["recycled"]
        return told["total"] + sum(told["destroyed"].values())

    def execute(self, key=None, **body):
        """The answer, after the pool has decided whether the sandbox is recycled."""
        self.full()
        before = self.decided()
        answer = self.call("POST", "/v1/execute", {"template": "again", **body}, key)
        wait_for(lambda: self.decided() > before)
        return answer

    def test_a_second_run_of_the_tenant_finds_nothing_of_the_first(self):
        self.pool()
        first = self.execute(code=LEAVES, env={"GIVEN": "secret"}, files=[{"path": "in", "content": "secret"}])
        self.assertEqual((first["pool"], first["stdout"]), ("hit", "True True\n"), first)
        second = self.execute(code=LOOKS)
        self.assertEqual((second["pool"], second["sandboxId"]), ("recycled", first["sandboxId"]), second)
        self.assertEqual(second["stdout"], NOTHING)
        third = self.execute(command=["sh", "-c", "ls -A /workspace /tmp /dev/shm; env | grep -c -e GIVEN -e LEFT"])
        self.assertEqual((third["pool"], third["stdout"]), ("recycled", "/dev/shm:\n\n/tmp:\n\n/workspace:\n0\n"))
        self.assertEqual(self.status()["recycled"], {"ready": 1, "claims": 2, "total": 3, "destroyed": {}})
        told = self.ask("GET", "/metrics").decode()
        self.assertIn('cove_pool_recycle_total{pool="again",outcome="recycled"} 3\n', told)
        self.assertIn('cove_pool_recycled{pool="again"} 1\n', told)
        self.assertIn("1 wait for their tenants; 3 recycled", self.cove("pool", "info", "again").out)

    def test_another_tenant_never_gets_it(self):
        self.pool()
        self.cove("tenant", "create", "other")
        key = self.cove("key", "create", "-q", "--tenant", "other", "theirs").out.strip()
        mine = self.execute(code="print(1)")
        theirs = [self.execute(key=key, code=LOOKS) for _ in range(2)]
        self.assertEqual([t["pool"] for t in theirs], ["hit", "recycled"])  # the second is their own
        self.assertNotIn(mine["sandboxId"], [t["sandboxId"] for t in theirs])
        self.assertEqual(theirs[1]["stdout"], NOTHING)
        again = self.execute(code=LOOKS)
        self.assertEqual((again["pool"], again["sandboxId"]), ("recycled", mine["sandboxId"]))

    def test_a_sandbox_that_is_created_explicitly_is_always_fresh(self):
        self.pool()
        used = self.execute(code="print(1)")["sandboxId"]
        for _ in range(2):
            self.assertNotEqual(self.cove("sandbox", "create", "-q", "--template", "again").out.strip(), used)
        self.assertEqual(self.status()["recycled"]["claims"], 0)

    def test_each_kind_of_suspicious_run_destroys_its_sandbox_with_its_reason(self):
        self.pool()
        counts = {}
        for reason, body in DESTROYED:
            answer = self.execute(**body)
            counts[reason] = counts.get(reason, 0) + 1
            self.assertEqual(self.status()["recycled"]["destroyed"], counts, (reason, body, answer))
        self.assertEqual(self.status()["recycled"]["ready"], 0)
        self.assertEqual(self.execute(code=LOOKS)["stdout"], NOTHING)

    def test_a_sandbox_is_destroyed_after_ten_uses(self):
        self.pool()
        seen = [self.execute(code="print(1)")["sandboxId"] for _ in range(11)]
        self.assertEqual([seen.count(seen[0]), seen[9], len(set(seen))], [10, seen[0], 2], self.status())
        self.assertEqual(self.status()["recycled"]["destroyed"], {"uses": 1})

    def test_recycling_is_off_by_default(self):
        self.pool()
        used = self.execute(code="print(1)")["sandboxId"]
        self.cove("pool", "set", "--no-recycle", "again")
        wait_for(lambda: "recycled" not in self.status())
        for _ in range(2):
            self.full()
            answer = self.call("POST", "/v1/execute", {"template": "again", "code": "print(1)"})
            self.assertEqual((answer["pool"], answer["sandboxId"] == used), ("hit", False))
