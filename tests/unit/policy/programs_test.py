#!/usr/bin/env python3
"""programs_test.py UNDERFILTER - runs real programs under the real filter, without the rest of a
sandbox; prints TAP.

A failure here is caused by the system call policy. A program that is not installed is skipped by
name. Each case is a shell command with its exact expected output; WORKS cases run under every
listed profile, REFUSED cases show the policy as a program sees it.
"""
import os
import shutil
import subprocess
import sys
import tempfile

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
EVERY = ("base", "python", "node", "shell")

# (name, profiles, programs it needs, command, output)
WORKS = [
    ("coreutils", EVERY, ["tar"], """
        mkdir a && echo x >a/f && cp -a a b && ln -s f b/l && mkfifo b/p && mv b c && touch -d @0 c/f && chmod 600 c/f
        stat -c %Y:%a c/f; tar cf - c | tar tf - | sort | tr '\\n' ' '; df . >/dev/null && du -s . >/dev/null
        nice true; timeout 5 true; seq 20000 | sort -R --parallel=2 | sort -n | tail -n1; dd if=/dev/zero bs=1k count=1 2>/dev/null | wc -c
        """, "0:600\nc/ c/f c/l c/p 20000\n1024\n"),
    ("shell with jobs, traps and process substitution", EVERY, ["bash"], """
        bash -c 'set -m; trap "echo got" USR1; kill -USR1 $$; sleep 0.01 & wait; diff <(echo a) <(echo a); ulimit -n >/dev/null
        coproc cat; echo hi >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x; kill $!; echo done | (read v; echo $v)' 2>/dev/null
        """, "got\nhi\ndone\n"),
    ("a terminal of its own", EVERY, ["script", "bash"], """
        script -qec "bash -c 'test -t 0 && stty size >/dev/null && tty >/dev/null && stty -echo && echo terminal'" /dev/null </dev/null | tr -d '\\r'
        """, "terminal\n"),
    ("git", EVERY, ["git"], """
        export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q r && cd r && echo 1 >f && git add f &&
        git -c user.name=a -c user.email=a@b commit -qm one && git clone -q . ../s && git -C ../s log --format=%s && git gc -q
        """, "one\n"),
    ("a compiler and what it makes", ("base", "shell", "python"), ["gcc"], """
        cat >t.c <<'X'
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        static void *f(void *p) { return p; }
        int main(void) { for (int i = 0; i < 20; i++) { pthread_t t; if (pthread_create(&t, 0, f, 0)) abort(); pthread_join(t, 0); }
            FILE *p = popen("echo popen", "r"); char b[9]; fgets(b, 9, p); pclose(p); fputs(b, stdout); return system("exit 3") >> 8; }
X
        gcc -pthread -o t t.c && ./t; echo $?
        """, "popen\n3\n"),
    ("a static program of another C library", ("base",), ["musl-gcc"], """
        printf '#include <stdio.h>\\nint main(void){puts("musl");return 0;}' >m.c && musl-gcc -static -o m m.c && ./m
        """, "musl\n"),
    ("a program made by Go", EVERY, ["go"], "HOME=$PWD go env GOARCH", "amd64\n"),
    ("make", ("base", "shell"), ["make"], "printf 'a b:\\n\\t@echo $@\\n' >Makefile; make -j2 a b | sort", "a\nb\n"),
    ("perl", ("base", "shell"), ["perl"], "perl -e 'my $p = fork; if (!$p) { exit 4 } waitpid $p, 0; print $? >> 8, \"\\n\"'", "4\n"),
    ("sqlite with a journal and with WAL", EVERY, ["sqlite3"], """
        sqlite3 d 'create table t(x); insert into t values(1),(2); pragma journal_mode=wal; insert into t values(3); select sum(x) from t;'
        """, "wal\n6\n"),
    ("openssl", ("base", "python"), ["openssl"], "openssl rand -hex 4 | wc -c; echo a | openssl sha256 | tail -c 9", "9\nc4cf25c7\n"),
    ("python starts and imports", EVERY, [PYTHON], f"""
        {PYTHON} -I -c 'import ssl, sqlite3, json, ctypes, hashlib, decimal, random, uuid, subprocess, socket, mmap; print(len(ssl.RAND_bytes(4)))'
        """, "4\n"),
    ("python multiprocessing, pools and shared memory", ("base", "python", "shell"), [PYTHON], f"""
        cat >m.py <<'X'
import multiprocessing as mp, concurrent.futures as cf
from multiprocessing import shared_memory
def sq(x): return x * x
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with mp.get_context(how).Pool(2) as pool: print(how, sum(pool.map(sq, range(10))))
    with cf.ProcessPoolExecutor(2) as ex: print(sum(ex.map(sq, range(4))))
    with cf.ThreadPoolExecutor(4) as ex: print(sum(ex.map(sq, range(4))))
    s = shared_memory.SharedMemory(create=True, size=64); s.buf[0] = 7; print(s.buf[0]); s.close(); s.unlink()
    q = mp.Queue(); p = mp.Process(target=q.put, args=(5,)); p.start(); print(q.get()); p.join()
    m = mp.Manager(); d = m.dict(); d["a"] = 1; print(d["a"])
X
        {PYTHON} m.py
        """, "fork 285\nspawn 285\nforkserver 285\n14\n14\n7\n5\n1\n"),
    ("python asyncio: servers, subprocesses, signals, timers", ("base", "python"), [PYTHON], f"""
        cat >a.py <<'X'
import asyncio, os, signal, socket
async def main():
    async def serve(r, w): w.write(await r.readline()); await w.drain(); w.close()
    for make, connect in ((lambda: asyncio.start_server(serve, "127.0.0.1", 0), None), (lambda: asyncio.start_unix_server(serve, "sock"), "sock")):
        srv = await make()
        r, w = await (asyncio.open_unix_connection(connect) if connect else asyncio.open_connection(*srv.sockets[0].getsockname()))
        w.write(b"echo\\n"); print((await r.readline()).decode().strip()); w.close(); srv.close()
    p = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE); print((await p.communicate())[0].decode().strip())
    got = asyncio.Event(); asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set); os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(got.wait(), 5); print("signal")
    print(await asyncio.get_running_loop().run_in_executor(None, lambda: 3))
asyncio.run(main())
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); u.sendto(b"udp", u.getsockname()); print(u.recv(9).decode())
print(socket.if_nameindex()[0][1], bool(socket.getaddrinfo("localhost", 80)))
X
        {PYTHON} a.py
        """, "echo\necho\nchild\nsignal\n3\nudp\nlo True\n"),
    ("python: what the standard library does to the system", ("base", "python"), [PYTHON], f"""
        cat >s.py <<'X'
import fcntl, mmap, os, pty, resource, select, signal, struct, subprocess, tempfile, termios, threading, time
fd = os.memfd_create("x"); os.write(fd, b"abc"); print(mmap.mmap(fd, 3)[:])
f = tempfile.TemporaryFile(); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); os.posix_fallocate(f.fileno(), 0, 4096); os.fsync(f)
os.sched_yield(); os.sched_getaffinity(0); os.sched_setaffinity(0, os.sched_getaffinity(0)); os.getloadavg(); os.nice(1)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); resource.getrusage(resource.RUSAGE_CHILDREN)
signal.setitimer(signal.ITIMER_REAL, 0.01); signal.signal(signal.SIGALRM, lambda *a: print("alarm")); time.sleep(0.05)
p = os.pidfd_open(os.fork() or os._exit(6)); print(os.waitid(os.P_PIDFD, p, os.WEXITED).si_status)
m, s = pty.openpty(); fcntl.ioctl(s, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 7, 0, 0)); print(os.get_terminal_size(s).columns, os.ttyname(s)[:9])
e = select.epoll(); e.register(m); e.poll(0); os.eventfd(0); g = tempfile.TemporaryFile(); os.copy_file_range(f.fileno(), g.fileno(), 1); os.sendfile(f.fileno(), fd, 0, 1)
open("x", "w").close(); os.utime("x"); os.chmod("x", 0o600); os.mkfifo("y")
print(subprocess.run(["cat"], input=b"in", capture_output=True, preexec_fn=os.setsid).stdout, os.getrandom(2) is not None)
t = threading.Thread(target=lambda: print("thread", threading.get_native_id() != os.getpid())); t.start(); t.join()
os.setuid(os.getuid()); os.setgid(os.getgid()); os.umask(0o22); print(os.uname().sysname)
X
        {PYTHON} s.py
        """, "b'abc'\nalarm\n6\n7 /dev/pts/\nb'in' True\nthread True\nLinux\n"),
    ("numpy with its threads", ("base", "python"), [PYTHON, "module:numpy"], f"""
        {PYTHON} -c 'import numpy as n; a = n.ones((300, 300)); print(int((a @ a).sum()), n.linalg.svd(a)[1].shape, n.random.default_rng(1).integers(9))'
        """, "27000000 (300,) 4\n"),
    ("pip", ("python",), [PYTHON, "module:pip"], f"{PYTHON} -m pip --version | cut -d' ' -f1; {PYTHON} -m pip list >/dev/null 2>&1; echo $?", "pip\n0\n"),
    ("node: JIT, workers, children, servers, watching, compression", EVERY, ["node"], """
        echo 'process.send(1)' >f.js
        cat >n.js <<'X'
const { Worker, isMainThread, parentPort } = require('worker_threads'); const cp = require('child_process'), fs = require('fs'), http = require('http');
if (!isMainThread) { parentPort.postMessage(7); } else (async () => {
  let s = 0; for (let i = 0; i < 3e6; i++) s += i % 7; console.log(s);
  console.log(await new Promise(r => new Worker(__filename).on('message', r)));
  console.log(cp.execSync('echo child').toString().trim(), await new Promise(r => cp.fork('./f.js').on('message', r)));
  const srv = http.createServer((q, a) => a.end('web')).listen(0, '127.0.0.1', async () => {
    console.log(await (await fetch('http://127.0.0.1:' + srv.address().port)).text()); srv.close(); srv.closeAllConnections();
    const w = fs.watch('.', () => { w.close(); console.log('watched', Object.keys(require('os').networkInterfaces()).length > 0); });
    setTimeout(() => fs.writeFileSync('touched', ''), 20);
    console.log(require('zlib').gunzipSync(require('zlib').gzipSync('zip')).toString(), require('crypto').randomBytes(2).length);
  });
})();
X
        node n.js
        """, "8999994\n7\nchild 1\nweb\nzip 2\nwatched true\n"),
]

# (name, programs it needs, command, output)
REFUSED = [
    ("ns01 a user namespace", ["unshare"], "unshare -U true 2>&1 | grep -o 'Operation not permitted'", "Operation not permitted\n"),
    ("ns08 a mount", ["mount"], "mount -t tmpfs none . 2>&1 | grep -ciE 'permi|superuser'", "1\n"),
    ("sc27 no address randomisation", ["setarch"], "setarch -R true 2>&1 | grep -o 'Operation not permitted'", "Operation not permitted\n"),
    ("cp13 a real-time scheduler", ["chrt"], "chrt -f 1 true 2>&1 | grep -o 'Operation not permitted' | head -n1", "Operation not permitted\n"),
    ("fs09 a device node", ["mknod"], "mknod n c 1 3 2>&1 | grep -o 'Operation not permitted'", "Operation not permitted\n"),
    ("sc29 tracing one's own child", ["strace"], "strace true 2>&1 | grep -o -m1 'Operation not permitted'", "Operation not permitted\n"),
    ("sc05 key rings, sc30 and sc31 odd sockets, in python", [PYTHON], f"""
        cat >r.py <<'X'
import ctypes, errno, fcntl, pty, socket, termios
libc = ctypes.CDLL(None, use_errno=True)
def call(*a): libc.syscall(*a); return errno.errorcode[ctypes.get_errno()]
print(call(250, 0, 0), call(425, 1, 0), call(321, 0, 0, 0), call(323, 0), call(999))
for family, kind, proto in ((40, 1, 0), (38, 5, 0), (17, 3, 0), (2, 3, 1), (2, 1, 262), (2, 1, 132), (2, 6, 33), (16, 3, 12), (16, 3, 9)):
    try: socket.socket(family, kind, proto); print("open", family)
    except OSError as e: print(errno.errorcode[e.errno], end=" ")
print()
m, s = pty.openpty()
for request in (termios.TIOCSTI, 0x541c, 0x5423, 0x40086602, 0xb703, 0x1234):
    try: fcntl.ioctl(s, request, b"\\0" * 8); print("done", request)
    except OSError as e: print(errno.errorcode[e.errno], end=" ")
print()
X
        {PYTHON} r.py
        """, "EPERM ENOSYS EPERM EPERM ENOSYS\n"
             "EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EPERM EPROTONOSUPPORT EPROTONOSUPPORT ESOCKTNOSUPPORT EPROTONOSUPPORT EPROTONOSUPPORT \n"
             "EPERM EPERM EPERM EPERM EPERM ENOTTY \n"),
]


def missing(programs):
    for program in programs:
        if program.startswith("module:"):
            if subprocess.run([PYTHON, "-c", f"import {program[7:]}"], capture_output=True).returncode:
                return f"python has no {program[7:]}"
        elif not shutil.which(program):
            return f"{program} is not installed"
    return None


def run(underfilter, profile, command):
    """(standard output, standard error)"""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch: # daemons of a tool may still write
        env = {"PATH": os.environ["PATH"], "HOME": scratch, "LANG": "C.UTF-8", "TMPDIR": scratch}
        try:
            done = subprocess.run([underfilter, profile, "sh", "-c", command], cwd=scratch, env=env, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
            return done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            return "", f"stopped after 60 s\n{late.stdout}\n{late.stderr}"


def main():
    underfilter = os.path.abspath(sys.argv[1])
    cases = [(name, profile, needs, command, output) for name, profiles, needs, command, output in WORKS
             for profile in profiles]
    cases += [(name, "shell", needs, command, output) for name, needs, command, output in REFUSED]
    failed = 0
    print(f"1..{len(cases)}")
    for number, (name, profile, needs, command, output) in enumerate(cases, 1):
        reason = missing(needs)
        if reason:
            print(f"ok {number} - {profile}: {name} # SKIP {reason}")
            continue
        got, said = run(underfilter, profile, command)
        good = got == output
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {profile}: {name}", flush=True)
        if not good:
            for line in f"expected {output!r}\ngot {got!r}\n{said}".splitlines():
                print(f"# {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
