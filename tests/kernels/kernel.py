"""kernel.py - drives one language kernel as the runtime of a sandbox does: a socket on its fd 3,
pipes on its fd 1 and 2.

Every line of a language kernel is checked against the protocol: ASCII JSON of at most 1 MiB, nested
at most 32 deep, without a number or text that a strict reader refuses. Waits are for conditions,
with a bound that only a hang reaches.
"""
import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PATIENCE = int(os.environ.get("KERNEL_PATIENCE", "120"))  # seconds; a loaded machine may need many
LINE_MAX = 1 << 20
PYTHON = "/usr/bin/python3"
# As a zygote does it: the session is created and rehearsed before the fork.
MEMBER = f"""
import os, sys
sys.path.insert(0, {os.path.join(ROOT, 'runtimes/python')!r})
import covekernel
del sys.path[0]
covekernel.prepare()
session = covekernel.member(3)
if os.fork():
    os.close(3)
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
session.forked()
session.serve()
"""
NODE = os.environ.get("COVE_NODE_KERNEL", os.path.join(ROOT, "build/runtimes/node"))
COMMANDS = {
    "python": [PYTHON, "-I", os.path.join(ROOT, "runtimes/python/kernel.py")],
    "python-member": [PYTHON, "-I", "-c", MEMBER],
    "node": [os.path.join(NODE, "start"), shutil.which("node") or "node", os.path.join(NODE, "kernel.mjs")],
    "bash": [os.environ.get("COVE_BASH_KERNEL", os.path.join(ROOT, "build/runtimes/bash/kernel"))],
}


class Broken(Exception):
    """The language kernel broke the protocol, ended, or hung."""


def refuse_constant(name):
    raise Broken(f"{name} is not JSON")


def strict(line):
    if len(line) > LINE_MAX:
        raise Broken(f"a line of {len(line)} bytes")
    text = line.decode("ascii")
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    depth = deepest = 0
    for c in re.findall(r"[\[\]{}]", bare):
        depth += 1 if c in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > 32:
        raise Broken(f"a line nested {deepest} deep")
    if re.search(r"\\u0000", text.replace("\\\\", "")):
        raise Broken("a NUL in a line")
    for number in re.findall(r"-?\d+(?![\d.eE])", bare):
        if not -(1 << 63) <= int(number) < 1 << 63:
            raise Broken(f"an integer of {len(number)} digits")
    event = json.loads(text, parse_constant=refuse_constant)
    json.dumps(event, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair would not encode
    return event


class Orphan:
    """A fork of a language kernel, which is a child of this process because this process reaps
    orphans, as PID 1 does."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def send_signal(self, signo):
        os.kill(self.pid, signo)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout=PATIENCE):
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("fork", timeout)
            else:
                time.sleep(0.005)
        return self.returncode


class Kernel:
    def __init__(self, language, env=None, cwd=None, place=NODE, command=None, early=b""):
        """`early` is written before the kernel can read it."""
        self.sock, theirs = socket.socketpair()
        self.sock.sendall(early)
        out, self.child_out = os.pipe()
        err, self.child_err = os.pipe()
        self.fds = {"stdout": out, "stderr": err}
        self.text = {"stdout": b"", "stderr": b""}
        self.buffer = b""
        self.events = []
        self.number = 0

        def connect():
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
        # close_fds would close the descriptors that connect() made
        for fd in (self.sock.fileno(), out, err):
            os.set_inheritable(fd, False)
        while theirs.fileno() == 3:
            theirs = theirs.dup()
        command = command or [word.replace(NODE, place) for word in COMMANDS[language]]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.child_out, stderr=self.child_err,
                                        preexec_fn=connect, close_fds=False, cwd=cwd, env=env, start_new_session=True)
        theirs.close()
        os.close(self.child_out)
        os.close(self.child_err)
        self.ready = self.until(lambda e: e["event"] == "ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for fd in self.fds.values():
            os.close(fd)
        self.fds = {}

    # --- its output ---

    def pump(self, timeout):
        """Reads the available data; False when nothing arrived in time."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        for fd in self.fds.values():
            poll.register(fd, select.POLLIN)
        ready = poll.poll(timeout * 1000)
        # Output that was written before an event is read before it, as the runtime does.
        for name, fd in list(self.fds.items()):
            while select.select([fd], [], [], 0)[0]:
                data = os.read(fd, 65536)
                if not data:
                    os.close(self.fds.pop(name))
                    break
                self.text[name] += data
        if any(fd == self.sock.fileno() for fd, _ in ready):
            data = self.sock.recv(65536)
            if not data:
                raise Broken(f"the kernel closed its socket; stderr: {self.text['stderr'][-2000:].decode(errors='replace')}")
            *lines, self.buffer = (self.buffer + data).split(b"\n")
            self.events += [strict(line) for line in lines]
            if len(self.buffer) > LINE_MAX:
                raise Broken("a line without a newline")
        return bool(ready)

    def until(self, wanted, patience=PATIENCE):
        """The first wanted event; those before it stay in self.events."""
        deadline = time.monotonic() + patience
        seen = 0
        while True:
            for event in self.events[seen:]:
                seen += 1
                if wanted(event):
                    for _ in range(2):
                        self.pump(0)
                    return event
            if time.monotonic() > deadline:
                raise Broken(f"nothing within {patience} s; events: {self.events[-5:]}")
            self.pump(1)

    # --- requests ---

    def send(self, line):
        self.sock.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")

    def new_id(self):
        self.number += 1
        return f"x{self.number}"

    def begin(self, code, **overrides):
        self.events, self.text = [], {"stdout": b"", "stderr": b""}
        id = self.new_id()
        self.send({"op": "execute", "id": id, "code": code, **overrides})
        return id

    def end(self, id):
        self.until(lambda e: e["event"] == "finished" and e["id"] == id)
        return Execution(id, self.events, self.text)

    def run(self, code, **overrides):
        return self.end(self.begin(code, **overrides))

    def ask(self, op, answer, **fields):
        id = self.new_id()
        self.events = []
        self.send({"op": op, "id": id, **fields})
        return self.until(lambda e: e["event"] in (answer, "refused") and e["id"] == id)

    def complete(self, code, cursor=None):
        return self.ask("complete", "completions", code=code, cursor=len(code) if cursor is None else cursor)

    def inspect(self, code, cursor=None):
        return self.ask("inspect", "inspection", code=code, cursor=len(code) if cursor is None else cursor)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def fork(self):
        """A language kernel that is a fork of this one; or the bytes that say why there is none."""
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        twin = Kernel.__new__(Kernel)
        twin.sock, theirs = socket.socketpair()
        twin.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        out, child_out = os.pipe()
        err, child_err = os.pipe()
        socket.send_fds(self.sock, [b'{"op":"fork","id":"fork"}\n'], [theirs.fileno(), child_out, child_err])
        theirs.close()
        os.close(child_out)
        os.close(child_err)
        twin.sock.settimeout(PATIENCE)
        word, stamp, _, _ = twin.sock.recvmsg(1, socket.CMSG_SPACE(12))
        if word != b"j":
            why = word + (twin.sock.recv(4096) if word else b"")
            twin.sock.close()
            os.close(out)
            os.close(err)
            return why
        twin.sock.settimeout(None)
        twin.fds, twin.text = {"stdout": out, "stderr": err}, {"stdout": b"", "stderr": b""}
        twin.buffer, twin.events, twin.number = b"", [], 1000
        twin.process = Orphan(struct.unpack("iII", stamp[0][2])[0])
        twin.ready = twin.until(lambda e: e["event"] == "ready")
        return twin

    def wait_output(self, text, stream="stdout"):
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.text[stream]:
            if time.monotonic() > deadline:
                raise Broken(f"{text!r} was not written: {self.text}")
            self.pump(1)

    def interrupted(self, code, mark="go"):
        """Interrupts a cell that has written `mark`, and returns the finished execution."""
        id = self.begin(code)
        self.wait_output(mark)
        self.interrupt()
        return self.end(id)


class Execution:
    """The events of one cell; their order is checked against the protocol."""

    def __init__(self, id, events, text):
        self.events = [e for e in events if e.get("id") == id]
        self.stdout, self.stderr = (text[n].decode(errors="replace") for n in ("stdout", "stderr"))
        kinds = [e["event"] for e in self.events]
        if kinds[0] != "started" or kinds[-1] != "finished" or kinds.count("finished") != 1 or kinds.count("result") > 1:
            raise Broken(f"events in a wrong order: {kinds}")
        self.status = self.events[-1]["status"]
        self.count = self.events[0]["count"]
        self.displays = [e for e in self.events if e["event"] == "display"]
        self.result = next((e for e in self.events if e["event"] == "result"), None)
        self.error = next((e for e in self.events if e["event"] == "error"), None)

    @property
    def data(self):
        return self.result["data"] if self.result else {}

    @property
    def value(self):
        return self.data.get("text/plain")


# --- TAP ---

def equal(got, expected, what=""):
    if got != expected:
        raise AssertionError(f"{what + ': ' if what else ''}{str(got)[:1500]!r}, expected {str(expected)[:1500]!r}")


def holds(condition, what):
    if not condition:
        raise AssertionError(str(what)[:3000])


def main(cases):
    """Runs (title, function) pairs and prints TAP; words of the command line choose among them,
    --only TITLE exactly one."""
    words = sys.argv[1:]
    if words[:1] == ["--only"]:
        chosen = [c for c in cases if c[0] in words[1:]]
        if len(chosen) != 1 or len(words) != 2:
            print(f"Bail out! {len(chosen)} tests have the title {' '.join(words[1:])!r}")
            return 1
    else:
        chosen = [c for c in cases if not words or any(w in c[0] for w in words)]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    for number, (title, function) in enumerate(chosen, 1):
        try:
            function()
            print(f"ok {number} - {title}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {title}")
            for line in traceback.format_exc().splitlines()[-25:]:
                print("# " + line)
            sys.stdout.flush()
    return 1 if failed else 0


def collect(namespace):
    """The test_ functions of a module in the order of the file, with their titles."""
    return [(name[5:].replace("_", " "), function) for name, function in namespace.items() if name.startswith("test_")]
