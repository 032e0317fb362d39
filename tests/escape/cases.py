"""cases.py - cases that need small limits, a second sandbox, or a check on the host. One function
for each id; it returns a sentence, or raises Escaped or Skip.
"""
import concurrent.futures
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time

from host import INSIDE, MIB, RUN, SLOW, SMALL, Escaped, Skip, Traces, nobody_left, processes, rounds, until

TIGHT = ["--memory", "64M", "--disk", "16M", "--tmp", "8M"]


def must(condition, *what):
    if not condition:
        raise Escaped(" ".join(str(w) for w in what))


def table(host, case, profile):
    """The live filter against the table, under the name by which cove chooses the profile."""
    name = {"base": "escape-probe", "python": "python3", "node": "node", "shell": "bash"}[profile]
    kit = host.kit(profile=profile)
    if name != "escape-probe":
        shutil.copy(os.path.join(kit, "escape-probe"), os.path.join(kit, name))
    done = host.cove(f"{INSIDE}/{name}", case, flags=[f"--bind-ro={kit}:{INSIDE}", "--timeout", f"{120 * SLOW}s"], timeout=150)
    must(done.receipt.get("profile") == profile, "the sandbox ran with profile", done.receipt.get("profile"), str(done))
    verdict, why = done.outcomes.get(case, ("BROKEN", str(done)))
    must(verdict == "HELD", why)
    return why


# --- NS, CP ---

def ns22(host):
    """A directory of a shared workspace is replaced by a link while another sandbox is being set up
    to mount below it."""
    shared, outside = tempfile.mkdtemp(dir=host.dir), tempfile.mkdtemp(dir=host.dir)
    for directory in (shared, outside):
        os.chmod(directory, 0o777)
    source = os.path.join(host.dir, "bound")
    with open(source, "w", encoding="utf-8") as f:
        f.write("bound")
    stop = threading.Event()

    def swap():
        place, aside = os.path.join(shared, "sub"), os.path.join(shared, "aside")
        while not stop.is_set():
            try:
                os.mkdir(place)
                os.rename(place, aside)
                os.symlink(outside, place)
                os.unlink(place)
                shutil.rmtree(aside, ignore_errors=True)
            except OSError:
                shutil.rmtree(place, ignore_errors=True)
                shutil.rmtree(aside, ignore_errors=True)

    swapper = threading.Thread(target=swap)
    swapper.start()
    started = 0
    try:
        for _ in range(rounds(15)):
            done = host.cove("cat", "/workspace/sub/target", timeout=60,
                             flags=["--workspace", shared, f"--bind-ro={source}:/workspace/sub/target"])
            must(not os.listdir(outside), "the mount created a file outside:", os.listdir(outside))
            must(done.code in (0, 1, 125), str(done))
            started += done.code == 0
    finally:
        stop.set()
        swapper.join()
    return f"{rounds(15)} starts while the directory was swapped, {started} mounted inside, the others refused"


def ns24(host):
    """A mount that the host makes after the start, in a namespace whose mounts are shared."""
    host.needs_root("the case itself mounts on the host")
    kit = host.kit(late_mount="/usr/local/cove-late")
    out = os.path.join(host.dir, "ns24")
    script = f"""
        set -e
        "$@" --bind-ro={kit}:{INSIDE} -- {INSIDE}/escape-probe NS24 >{out} 2>&1 &
        sleep 1
        mount -t tmpfs late /usr/local && touch /usr/local/cove-late
        wait $!
        """
    subprocess.run(["unshare", "-m", "--propagation", "shared", "sh", "-c", script, "sh", *RUN], timeout=60, check=False)
    with open(out, encoding="utf-8") as f:
        said = f.read()
    must("NS24 HELD" in said, said[-300:])
    return "a mount made on the host after the start did not show"


def sandbox_uids(pid):
    """Host uids of the processes below a cove that are not its own user."""
    from host import descendants
    found = set()
    for child in descendants(pid):
        try:
            found.add(os.stat(f"/proc/{child}").st_uid)
            with open(f"/proc/{child}/status", encoding="utf-8") as f:
                found.update(int(u) for line in f if line.startswith("Uid:") for u in line.split()[1:])
        except OSError:
            pass
    return {u for u in found if u >= 1_900_000_000 and u < 1_900_200_000}


def own_uid(host):
    """A plain user has only one uid: the sandbox must run as that user, and not as one with more
    rights."""
    process = subprocess.Popen([*RUN, "-q", "--", "sleep", "20"], stdin=subprocess.DEVNULL)
    try:
        must(until(lambda: any(b"sleep" in comm for comm, _ in people(process.pid)), 10), "no program started")
        uids = set().union(*(uids for _, uids in people(process.pid)))
        must(uids == {os.geteuid()}, "processes run as", uids)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return f"every process of it runs as user {os.geteuid()}, the user that started it"


def people(pid):
    """[(name, {host uids})] of the processes below one."""
    from host import descendants
    found = []
    for child in descendants(pid):
        try:
            with open(f"/proc/{child}/comm", "rb") as name, open(f"/proc/{child}/status", encoding="utf-8") as status:
                found.append((name.read(), {int(u) for line in status if line.startswith("Uid:") for u in line.split()[1:]}))
        except OSError:
            pass
    return found


def cp18(host):
    if host.plain_user:
        return own_uid(host)
    running = [subprocess.Popen([*RUN, "--", "sleep", "20"], stdin=subprocess.DEVNULL) for _ in range(4)]
    try:
        must(until(lambda: all(sandbox_uids(p.pid) for p in running), 10), "a sandbox has no uid of its own:",
             [sandbox_uids(p.pid) for p in running])
        uids = [sandbox_uids(p.pid) for p in running]
        must(len(set.union(*uids)) == len(running), "sandboxes that live at the same time share a uid:", uids)
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait()
    return f"four at the same time, four uids: {sorted(set.union(*uids))}"


def cp12_inherited(host):
    """A caller with a high scheduling priority and protection from the out-of-memory killer, as
    services have."""
    def preferred():
        for privilege in (lambda: os.nice(-5), lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)), spared):
            try:
                privilege()
            except OSError:
                pass  # this host does not allow it

    def spared():
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as f:
            f.write(b"-500")

    done = subprocess.run([*RUN, "--", "sh", "-c", "nice; chrt -p $$ | grep -c RR; cat /proc/self/oom_score_adj"], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=preferred, timeout=60, check=False)
    must(done.returncode == 0, done.stderr)
    nice, realtime, score = map(int, done.stdout.split())
    must(nice >= 0 and realtime == 0 and score >= 0, f"nice {nice}, real-time {realtime}, out-of-memory score {score} inside")
    return f"the sandbox of a privileged caller is ordinary: nice {nice}, not real-time, out-of-memory score {score}"


# --- FS ---

def fs19(host):
    script = r"""
        cd /workspace
        touch -- -rf '*' ' ' "$(printf 'new\nline')" "$(printf 'esc\033[2Jape')" "$(printf '\377\376')" "$(printf '\342\200\256rtl')"
        touch "$(head -c 255 /dev/zero | tr '\0' n)"; mkdir '...' ; echo done
        """
    done = host.cove("sh", "-c", script)
    must(done.code == 0, str(done))
    must("changes" in done.receipt, "the receipt is not JSON or lists no changes:", str(done.receipt)[:200])
    must(done.receipt["changes"]["added"] >= 9, done.receipt["changes"])
    shown = host.cove("sh", "-c", script, flags=["--json"])
    json.loads(shown.out)
    must("\033[2J" not in done.err + shown.out, "a file name reaches the terminal unescaped")
    return f"{done.receipt['changes']['added']} hostile names listed as JSON"


DEEP = r"""
import os
os.chdir('/workspace')
n = 0
try:
    while n < 3000:
        os.mkdir('d' * 8); os.chdir('d' * 8); n += 1
except OSError as e:
    print(e)
print(n)
"""


def fs20(host):
    traces = Traces()
    done = host.cove("/usr/bin/python3", "-c", DEEP, timeout=90)
    must(done.code == 0, str(done))
    depth = int(done.out.split()[-1])
    must(depth == 3000, "only", depth, "levels were created", str(done))
    traces.must_be_gone()
    return f"{depth} levels, counted and removed in {done.seconds:.1f} s"


def fs21(host):
    traces = Traces()
    work = tempfile.mkdtemp(dir=host.dir)
    os.chmod(work, 0o777)
    done = host.cove("sh", "-c", "mkdir -p a/b c; touch a/b/f c/g; chmod 000 a/b c a; chmod 4755 /tmp 2>/dev/null; echo ok",
                     flags=["--workspace", work + ":cow"])
    must(done.code == 0 and "ok" in done.out, str(done))
    must(not os.listdir(work), "the directory itself changed:", os.listdir(work))
    traces.must_be_gone()
    return "closed directories of a copy-on-write workspace are removed"


def fs23(host):
    script = "cd /workspace; mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; echo made"
    done = host.cove("sh", "-c", script, timeout=30)
    must(done.code == 0 and "made" in done.out, str(done))
    kinds = {c["path"]: c["kind"] for c in done.receipt.get("changes", {}).get("files", [])}
    must({"pipe", "sock"} <= set(kinds), "listed were", kinds)
    return f"listed without being opened: {kinds}"


def fs24(host):
    work = tempfile.mkdtemp(dir=host.dir)
    os.chmod(work, 0o777)
    script = (f"ln -s /etc/shadow shadow; ln -s /proc/self/environ env; ln -s {host.host_file} out; ln -s ../../.. up; "
              "echo x >> out; chmod 777 out; cat shadow env/x up/root 2>/dev/null; ls up/")
    done = host.cove("sh", "-c", script, flags=["--workspace", work])
    with open(host.host_file, encoding="utf-8") as f:
        must(f.read() == host.secret, "the host's file was written")
    must(stat.S_IMODE(os.stat(host.host_file).st_mode) != 0o777, "the host's file got other rights")
    must(host.secret not in done.out and "root:" not in done.out, done.out)
    links = {c["path"]: c["kind"] for c in done.receipt.get("changes", {}).get("files", [])}
    must(all("link" in kind for kind in links.values()) and len(links) >= 3, "the receipt followed a link:", links)
    return f"links lead inside only, and are listed as links: {sorted(links)}"


def fs28(host):
    """A workspace with a link where cove would write a script."""
    work, target = tempfile.mkdtemp(dir=host.dir), os.path.join(host.dir, "victim")
    script = os.path.join(host.dir, "script.py")
    with open(target, "w", encoding="utf-8") as f:
        f.write("untouched")
    with open(script, "w", encoding="utf-8") as f:
        f.write("print('ran')\n")
    os.chmod(work, 0o777)
    for name in ("script.py", ".cove", "main.py", "stdin", ".script"):
        os.symlink(target, os.path.join(work, name))
    done = subprocess.run([*RUN, "--workspace", work, script], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, check=False)
    with open(target, encoding="utf-8") as f:
        must(f.read() == "untouched", "the link was followed out of the workspace")
    must(done.returncode in (0, 125, 1, 2), done.returncode, done.stderr)
    return f"links planted in place of a script are not followed (status {done.returncode})"


# --- LK, NT ---

def lk12(host):
    places = "/workspace/residue /tmp/residue /dev/shm/residue"
    done = host.cove("sh", "-c", f"for f in {places}; do echo {host.secret} >$f; done; echo ok")
    must("ok" in done.out, str(done))
    again = host.cove("sh", "-c", "ls -A /workspace /tmp /dev/shm; cat /workspace/* /tmp/* /dev/shm/* 2>/dev/null")
    must("residue" not in again.out and host.secret not in again.out, again.out)
    return "no file of the previous run is visible"


def lk16(host):
    """The program prints everything that the engine could parse."""
    fake = json.dumps({"exitCode": 0, "endedBy": "exit", "final": True, "sandbox": "sbaaaaaaaaaaaaaaaaaaaa"})
    script = f"printf '%s\\n' '{fake}'; printf '\\014\\000\\000\\000\\020\\000\\000\\000\\002\\000\\000\\000\\000\\000\\000\\000'; printf 'exit 0\\n' >&2; exit 7"
    done = host.cove("sh", "-c", script)
    must(done.code == 7 and done.receipt.get("exitCode") == 7, str(done))
    must(fake in done.out, "the output was misinterpreted")
    return "status 7 stays status 7, whatever is printed"


def nt15(host):
    serve = ("import socket,time\ns=socket.socket(); s.setsockopt(1,2,1); s.bind(('0.0.0.0',4711)); s.listen()\n"
             "u=socket.socket(socket.AF_UNIX); u.bind('\\0cove-peer'); u.listen()\nprint('ready',flush=True)\ntime.sleep(20)")
    ask = ("import socket\nfor f,a in ((socket.AF_INET,('127.0.0.1',4711)),(socket.AF_UNIX,'\\0cove-peer')):\n"
           "  s=socket.socket(f)\n  try:\n    s.connect(a); print('REACHED',a)\n  except OSError as e: print(e)")
    server = subprocess.Popen([*RUN, "--", "/usr/bin/python3", "-c", serve], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True)
    try:
        must(server.stdout.readline().strip() == "ready", "the first sandbox cannot listen")
        done = host.cove("/usr/bin/python3", "-c", ask)
        must(done.code == 0 and "REACHED" not in done.out, done.out)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        server.stdout.close()
    return f"the other sandbox cannot be reached: {' / '.join(done.out.split(chr(10))[:2])}"


# --- RS ---

def rs01(host):
    return host.expect("RS01", flags=SMALL, pids=64)


def rs02(host):
    return host.expect("RS02", nofile=1024)


def rs03(host):
    return host.expect("RS03", flags=SMALL, tmp_bytes=8 * MIB, workspace_bytes=16 * MIB)


def rs04(host):
    return host.expect("RS04", shm_bytes=64 * MIB)


def rs05(host):
    return host.expect("RS05", tmp_inodes=8192, workspace_inodes=16384)


def rs06(host):
    host.needs_limit("cpuMillis")
    done = host.probe("RS06", flags=["--cpus", "0.5"])
    must(done.outcomes.get("RS06", ("?",))[0] == "HELD", str(done))
    used = done.receipt["used"]["cpuMs"] / 1e3
    must(used < done.seconds * 0.5 * 1.25 + 0.2, f"{used:.2f} s of CPU in {done.seconds:.2f} s with half a CPU")
    return f"{used:.2f} s of CPU in {done.seconds:.2f} s with half a CPU"


def ended(done, code, why):
    must(done.code == code and done.ended_by == why, f"expected status {code} and endedBy {why}:", str(done))


def rs07(host):
    host.needs_limit("memoryBytes")
    done = host.probe("RS07", flags=TIGHT, memory=64 * MIB)
    ended(done, 123, "memory")
    peak = done.receipt.get("used", {}).get("memoryPeakBytes", 0)
    must(peak <= 64 * MIB, "peak", peak)
    return f"ended by memory, peak {peak / MIB:.1f} MiB of 64"


def rs08(host):
    return host.expect("RS08")


def rs09(host):
    traces = Traces()
    done = host.probe("RS09", flags=["--pids", "200", "--timeout", "3s"])
    ended(done, 124, "timeout")
    nobody_left()
    traces.must_be_gone()
    must(done.seconds < 8 * SLOW, f"it took {done.seconds:.1f} s")
    return f"a bomb of 200 processes is gone after {done.seconds:.2f} s, with its cgroups"


def available():
    with open("/proc/meminfo", encoding="utf-8") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))


def rs10(host):
    said = []
    for road in ("tmpfs", "memfd", "pipes", "sockets", "sysv", "mappings", "epoll"):
        for attempt in range(10):  # other processes use memory of this host too; memory that a sandbox leaks is missing each time
            before = available()
            done = host.probe("RS10", flags=TIGHT, memory=64 * MIB, road=road)
            held = done.outcomes.get("RS10", ("",))[0] == "HELD"
            must(held or (done.code == 123 and done.ended_by == "memory"), road, str(done))
            peak = done.receipt.get("used", {}).get("memoryPeakBytes", 0)
            must(peak <= 64 * MIB, road, "took", peak)
            if until(lambda floor=before - 64 * MIB: available() > floor, 3 if attempt < 9 else 30):
                break
        else:
            raise Escaped(f"{road}: the host's memory was not released")
        said.append(f"{road} {'refused' if held else 'ended'} at {peak / MIB:.0f}")
    return "MiB charged of 64: " + ", ".join(said)


def rs11(host):
    host.needs_limit("memoryBytes", "swapBytes")
    def swapped():
        with open("/proc/meminfo", encoding="utf-8") as f:
            facts = dict(line.split(":") for line in f)
        return int(facts["SwapTotal"].split()[0]) - int(facts["SwapFree"].split()[0])
    before = swapped()
    done = host.probe("RS07", flags=TIGHT, memory=64 * MIB)
    ended(done, 123, "memory")
    must(swapped() - before < 16 * 1024, "swap grew by", swapped() - before, "KiB")
    state = done.receipt.get("limits", {}).get("swapBytes", {})
    return f"no swap beyond the memory limit ({state or 'the host has no swap'})"


def rs12(host):
    said = []
    for name, script in (("zeros", f"head -c {300000000 // SLOW} /dev/zero"), ("lines", f"yes | head -c {20000000 // SLOW}"),
                         ("one line", f"head -c {50000000 // SLOW} /dev/zero | tr '\\0' x"),
                         ("binary", f"head -c {20000000 // SLOW} /dev/urandom")):
        done = host.cove("sh", "-c", script, flags=["--max-output", "1M"], timeout=90)
        must(done.code == 0, name, str(done)[:300])
        must(len(done.out.encode(errors="replace")) <= 3 * MIB + 4096, name, "gave", len(done.out))
        must(done.receipt.get("droppedBytes", 0) > 15_000_000 // SLOW - MIB * (SLOW > 1), name, "dropped", done.receipt.get("droppedBytes"))
        must(done.maxrss < 96 * MIB, name, "made cove grow to", done.maxrss)
        said.append(f"{name} {done.seconds:.1f} s")
    half = host.cove("sh", "-c", "printf 'a\\342\\202'; printf '\\033[2J' >&2", flags=["--json"])
    json.loads(half.out)
    return f"capped at 1 MiB, the rest counted ({', '.join(said)}), cove at {done.maxrss / MIB:.0f} MiB"


def rs13(host):
    with open(os.path.join(host.dir, "input"), "wb") as f:
        f.truncate(512 * MIB)
    with open(os.path.join(host.dir, "input"), "rb") as f:
        done = host.cove("sh", "-c", "yes | head -c 4000000; exec sleep 60", stdin=f, flags=["--timeout", "2s"])
    os.unlink(os.path.join(host.dir, "input"))
    ended(done, 124, "timeout")
    must(done.maxrss < 96 * MIB, "cove grew to", done.maxrss)
    return f"512 MiB of unread output: ended after {done.seconds:.1f} s, cove at {done.maxrss / MIB:.0f} MiB"


def rs14(host):
    done = host.probe("RS14", flags=["--timeout", "1s"])
    ended(done, 124, "timeout")
    nobody_left()
    return f"closed streams do not hide the program: ended after {done.seconds:.2f} s"


def rs15(host):
    done = host.probe("RS15", flags=["--timeout", "1s"])
    ended(done, 124, "timeout")
    must(done.seconds < 5 * SLOW, f"it took {done.seconds:.1f} s")
    nobody_left()
    return f"ignored signals, stopped and vfork children: gone after {done.seconds:.2f} s"


def rs16(host):
    traces = Traces()
    done = host.probe("RS16")
    must(done.outcomes.get("RS16", ("?",))[0] == "HELD" and done.code == 0, str(done))
    nobody_left()
    traces.must_be_gone()
    return "ten daemons are gone with their sandbox"


def rs17(host):
    return host.expect("RS17", flags=["--pids", "64", "--timeout", f"{60 * SLOW}s"])


def rs18(host):
    traces = Traces()
    for _ in range(rounds(40)):
        done = host.cove("true")
        must(done.code == 0, str(done))
    traces.must_be_gone()
    return f"{rounds(40)} quick runs left no cgroup, mount or file (make soak: 10,000)"


def rs19(host):
    return host.expect("RS19")


def rs20(host):
    host.needs_limit("cpuMillis")  # without it the CPU time of a whole process tree is not counted
    asleep = host.cove("sleep", "60", flags=["--timeout", "700ms"])
    ended(asleep, 124, "timeout")
    must(0.6 < asleep.seconds < 3 * SLOW, f"{asleep.seconds:.2f} s")
    busy = host.cove("sh", "-c", "while :; do :; done", flags=["--cpu-time", "600ms", "--timeout", "20s"])
    ended(busy, 124, "cpu")
    used = busy.receipt["used"]["cpuMs"] / 1e3
    must(0.55 < used < 0.9, f"{used:.3f} s of CPU with a budget of 0.6")
    storm = host.cove("sh", "-c", "while :; do /bin/true; sleep 0.001; done", flags=["--cpu-time", "400ms", "--timeout", "30s"])
    ended(storm, 124, "cpu")
    return f"sleep ended after {asleep.seconds:.2f} s of elapsed time, a loop after {used:.2f} s of CPU, a storm of children as well"


def rs21(host):
    return host.expect("RS21")


def rs22(host):
    traces = Traces()
    for _ in range(5):
        done = host.probe("RS22", flags=["--timeout", "500ms", "--pids", "128"])
        ended(done, 124, "timeout")
        nobody_left()
    traces.must_be_gone()
    return "five fork storms killed while they forked, nothing left"


def rs23(host):
    return host.expect("RS23")


def rs25(host):
    host.needs_root("inotify instances are counted per user of the host, and all sandboxes of a plain user are one user")
    kit = host.kit(hold=1)
    hog = subprocess.Popen([*RUN, f"--bind-ro={kit}:{INSIDE}", "--", f"{INSIDE}/escape-probe", "RS25"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    time.sleep(0.7)
    try:
        must(processes(f"{INSIDE}/escape-probe\0RS25"), "the first sandbox has already ended")
        return "next to a sandbox that takes all:" + host.expect("RS25")
    finally:
        hog.communicate()


def rs26(host):
    return host.expect("RS26")


# --- LC, BK ---

def lc01(host):
    return host.expect("LC01")


def lc05(host):
    """Many at the same time, each of which must find its own nonce and no other."""
    wrong = []

    def worker(n):
        for i in range(rounds(15)):
            nonce = f"nonce-{n}-{i}"
            done = host.cove("sh", "-c", "echo $NONCE >/workspace/n; echo $NONCE >/tmp/n; cat /workspace/* /tmp/*; ls -A /workspace",
                             flags=["--env", f"NONCE={nonce}"])
            if done.code != 0 or done.out != f"{nonce}\n{nonce}\nn\n":
                wrong.append(str(done))

    traces = Traces()
    threads = [threading.Thread(target=worker, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    must(not wrong, len(wrong), f"of {8 * rounds(15)}:", wrong[:1])
    traces.must_be_gone()
    return f"{8 * rounds(15)} sandboxes, eight at a time, each with its own nonce; nothing left"


def lc06(host):
    seen = {}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda i: host.cove("sleep", "0.25", flags=["--timeout", f"{235 + i}ms"]), range(30)))
    for done in runs:
        pair = (done.code, done.ended_by)
        must(pair in ((0, "exit"), (124, "timeout")), "two stories:", str(done))
        seen[pair] = seen.get(pair, 0) + 1
    return f"one status each: {seen}"


def lc10(host):
    """Hooks for the next run, in a workspace that is kept."""
    work = tempfile.mkdtemp(dir=host.dir)
    os.chmod(work, 0o777)
    plant = r"""
        for f in sitecustomize.py usercustomize.py json.py os.py; do echo 'import sys; sys.stderr.write("HOOKED\n")' >$f; done
        printf '#!/bin/sh\necho HOOKED\n' >ls; chmod +x ls; cp ls cove-runtime; cp ls true; echo 'echo HOOKED' >.profile; cp .profile .bashrc
        mkdir -p lib; echo junk >lib/libc.so.6; echo junk >preload.so; echo ok
        """
    done = host.cove("sh", "-c", plant, flags=["--workspace", work])
    must("ok" in done.out, str(done))
    for command in (["true"], ["ls", "/"], ["bash", "-c", "true"]):
        again = host.cove(*command, flags=["--workspace", work])
        must(again.code == 0 and "HOOKED" not in again.out + again.err, command, str(again))
    # Started in that directory, cove itself must not load any file from it either.
    again = host.cove("true", cwd=work)
    must(again.code == 0 and "HOOKED" not in again.out + again.err, str(again))
    return "programs planted in a workspace are not used by the next run"


def lc11(host):
    refused = 0
    for bad in ("=value", "A B=1", "NEW\nLINE=1", "1X=2"):
        done = host.cove("true", flags=["--env", bad])
        refused += done.code in (2, 125)
        must(done.code in (0, 2, 125), bad, str(done))
    must(refused >= 2, "only", refused, "of 4 malformed names were refused")
    hostile = ["LD_PRELOAD=/workspace/x.so", "LD_LIBRARY_PATH=/workspace", "PATH=/workspace:/usr/bin:/bin", "BASH_ENV=/workspace/x",
               "IFS=/", "PYTHONPATH=/workspace"]
    done = host.cove("env", flags=[f for v in hostile for f in ("--env", v)])
    must(done.code == 0, str(done))
    must(all(v in done.out for v in hostile), "the program does not see them:", done.out)
    outside = host.cove("sh", "-c", "echo $LD_LIBRARY_PATH.$COVE_PLANTED_TOKEN", env={"LD_LIBRARY_PATH": "/nonexistent-host"})
    must(outside.out == ".\n", "the host's variables came in:", outside.out)
    return f"{refused} of 4 malformed names refused; hostile ones reach only the program"


def lc12(host):
    said = []
    for cwd in ("../../..", "/proc/self/fd/7", "/proc/self/fd/3", "/nonexistent", "/proc/1/root", "/workspace/../../..", "relative",
                "/proc/1/cwd"):
        done = host.cove("sh", "-c", "pwd -P; ls -d $PWD/var/tmp/cove-escape-* 2>/dev/null", flags=["--cwd", cwd], timeout=30)
        must("cove-escape" not in done.out, cwd, "leads outside:", done.out)
        must(done.code in (0, 2, 125, 126, 127), cwd, str(done))
        must(done.code != 0 or done.out.startswith("/"), cwd, done.out)
        said.append(f"{cwd} {done.code}")
    return ", ".join(said)


def bk01(host):
    done = host.cove("true", flags=["--level", "high"])
    must(done.code == 125 and "level_unavailable" in done.err, str(done))
    return "an unavailable level is refused, not lowered"


def bk09(host):
    """The driver bwrap closes every hole that a plain bubblewrap leaves open."""
    if not os.path.exists("/usr/bin/bwrap"):
        raise Skip("bubblewrap is not installed")
    if "COVE_BORN" in os.environ:
        raise Skip("the driver bwrap has no zygotes")
    open_in_plain_bwrap = ["LK01", "LK02", "NS01", "NS02", "NS03", "PR01", "PR02", "PR03", "PR04", "SC02", "SC05", "FS01", "CP01"]
    done = host.probe(*open_in_plain_bwrap, flags=["--driver", "bwrap"])
    wrong = {case: done.outcomes.get(case) for case in open_in_plain_bwrap if done.outcomes.get(case, ("",))[0] != "HELD"}
    must(done.ended and not wrong, f"{wrong} {done}")
    must(done.receipt.get("driver") == "bwrap", f"the receipt names the driver {done.receipt.get('driver')}")
    limits = [name for name in ("memoryBytes", "pids", "workspaceBytes") if done.receipt.get("limits", {}).get(name, {}).get("state") != "enforced"]
    must(host.plain_user or not limits, f"not enforced: {limits}")
    return f"{len(open_in_plain_bwrap)} cases"
