"""peers.py - the programs that cove is compared with, and how each of them is called. A peer that
cannot run here has `absent`, which says why.
"""
import io
import json
import os
import shutil
import subprocess
import tarfile
import time

from host import say

BWRAP = ("bwrap --ro-bind /usr /usr --ro-bind /etc/alternatives /etc/alternatives --symlink usr/bin /bin "
         "--symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --unshare-all "
         "--die-with-parent").split()


class Runner:
    """One way to start a program. `wrap` turns the name of a workload into the argv that is
    timed."""

    def __init__(self, name, title, walls, wrap, every=1, kind="run", version="", absent=None):
        self.name, self.title, self.walls, self.wrap = name, title, walls, wrap
        self.every, self.kind, self.version, self.absent = every, kind, version, absent

    def plan(self, work):
        return "\t".join([self.kind, self.name, str(self.every)] + self.wrap(work))


def first_line(argv):
    out = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    return out.splitlines()[0] if out else ""


def without_unified(argv):
    """crun, podman and dockerd refuse hosts that have controllers on both cgroup versions. The
    workaround is a private mount namespace without the v2 mount; it is set up around the whole
    loop, so it adds nothing to a run."""
    return ["unshare", "-m", "--propagation", "private", "sh", "-c",
            "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\"", "sh"] + argv


def bare(works):
    return Runner("bare", "bare process", "none", lambda work: works[work])


def bubblewrap(works):
    absent = None if shutil.which("bwrap") else "bwrap is not installed"
    return Runner("bwrap", "bubblewrap", "namespaces, tmpfs root; no seccomp filter, no limits", lambda work: BWRAP + works[work],
                  version="" if absent else first_line(["bwrap", "--version"]), absent=absent)


def empty_root(path):
    """A root of links into a /usr that the runtime bind-mounts."""
    os.makedirs(path + "/usr")
    for name in ("bin", "lib", "lib64"):
        os.symlink("usr/" + name, path + "/" + name)
    for name in ("proc", "dev", "sys", "tmp", "etc/alternatives"):
        os.makedirs(path + "/" + name)
    return path


def crun(works, tmp):
    walls = "namespaces but user, read-only root; no seccomp filter in its default spec"
    if shutil.which("crun") is None:
        return Runner("crun", "crun", walls, None, absent="crun is not installed")
    for work, argv in works.items():
        bundle = f"{tmp}/crun-{work}"
        empty_root(bundle + "/rootfs")
        subprocess.run(["crun", "spec"], cwd=bundle, check=True)
        with open(bundle + "/config.json", encoding="utf-8") as f:
            spec = json.load(f)
        spec["process"]["terminal"] = False
        spec["process"]["args"] = argv
        for path in ("/usr", "/etc/alternatives"):
            spec["mounts"].append({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
        with open(bundle + "/config.json", "w", encoding="utf-8") as f:
            json.dump(spec, f)
    return Runner("crun", "crun", walls, lambda work: ["crun", "run", "--bundle", f"{tmp}/crun-{work}", "{n}"], version=first_line(["crun", "--version"]))


PODMAN_CONF = """[containers]
default_ulimits=["nofile=1024:1024","nproc=1024:1024"]
netns="none"
[engine]
cgroup_manager="cgroupfs"
events_logger="file"
runtime="crun"
"""


def podman(works, tmp):
    walls = "container: namespaces but user, seccomp deny list, cgroup limits"
    if shutil.which("podman") is None and os.environ.get("BENCH_PODMAN") == "1":
        install("podman")
    if shutil.which("podman") is None:
        return Runner("podman", "podman", walls, None, absent="podman is not installed; BENCH_PODMAN=1 installs it")
    root = empty_root(tmp + "/podman-root")
    with open(tmp + "/containers.conf", "w", encoding="utf-8") as f:
        f.write(PODMAN_CONF)
    front = ["env", f"CONTAINERS_CONF={tmp}/containers.conf", "podman", "--root", tmp + "/podman", "--runroot",
             tmp + "/podman-run", "run", "--rm", "--network", "none", "-v", "/usr:/usr:ro", "--rootfs", root]
    return Runner("podman", "podman", walls, lambda work: front + works[work], every=5, version=first_line(["podman", "--version"]))


def podman_sweep():
    """podman leaves one empty cgroup on every controller."""
    for controller in os.listdir("/sys/fs/cgroup"):
        for name in ("libpod_parent/conmon", "libpod_parent"):
            try:
                os.rmdir(f"/sys/fs/cgroup/{controller}/{name}")
            except OSError:
                pass


def install(package):
    say(f"installing {package}")
    return subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Docker:
    """A private Docker Engine, with an image that holds links into /usr, which is bind-mounted: the
    difference to the others is the engine and not the files. Its client is started for every run,
    as users do."""

    WALLS = "container: namespaces but user, seccomp deny list, capabilities dropped, cgroup"
    PATIENCE = 60

    def __init__(self, tmp, wanted=True):
        self.dir, self.process, self.absent = tmp + "/docker", None, None
        if not wanted:
            return
        if shutil.which("dockerd") is None and os.environ.get("BENCH_DOCKER") != "0":
            install("docker.io")
        if shutil.which("dockerd") is None:
            self.absent = "docker.io is not installed, and could not be installed" if os.environ.get("BENCH_DOCKER") != "0" else "omitted by BENCH_DOCKER=0"
            return
        os.mkdir(self.dir)
        self.client = ["/usr/bin/docker" if os.path.exists("/usr/bin/docker") else "docker", "-H", f"unix://{self.dir}/sock"]
        self.start()

    def start(self):
        with open(self.dir + "/log", "wb") as log:
            self.process = subprocess.Popen(without_unified([
                "dockerd", "-H", f"unix://{self.dir}/sock", "--data-root", self.dir + "/data", "--exec-root", self.dir + "/exec", "-p", self.dir + "/pid",
                "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
                "--exec-opt", "native.cgroupdriver=cgroupfs", "--default-ulimit", "nofile=1024:1024", "--storage-driver", "overlay2"]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + self.PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            if subprocess.run(self.client + ["info"], capture_output=True, check=False).returncode == 0:
                self.absent = self.image()
                return
            time.sleep(0.2)
        with open(self.dir + "/log", encoding="utf-8", errors="replace") as f:
            said = f.read().strip().splitlines()
        self.absent = f"dockerd does not start: {said[-1][-300:] if said else 'it prints nothing'}"

    def image(self):
        text = io.BytesIO()
        with tarfile.open(fileobj=text, mode="w") as tar:
            for name in ("bin", "lib", "lib64"):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, "usr/" + name
                tar.addfile(link)
            for name in ("usr", "proc", "dev", "sys", "tmp", "etc", "etc/alternatives"):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(folder)
        p = subprocess.run(self.client + ["import", "-", "bench"], input=text.getvalue(), capture_output=True, check=False)
        return None if p.returncode == 0 else f"cannot make an image: {p.stderr.decode(errors='replace').strip()[-300:]}"

    def runner(self, works, every):
        if self.absent:
            return Runner("docker", "Docker Engine", self.WALLS, None, absent=self.absent)
        front = self.client + ["run", "--rm", "--network", "none", "-v", "/usr:/usr:ro", "-v", "/etc/alternatives:/etc/alternatives:ro", "bench"]
        version = subprocess.run(self.client + ["version", "--format", "{{.Server.Version}}"], capture_output=True, text=True, check=False).stdout.strip()
        return Runner("docker", "Docker Engine", self.WALLS, lambda work: front + works[work], every=every, version=version)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        docker_sweep()


def docker_sweep():
    """dockerd leaves its empty cgroup."""
    for controller in os.listdir("/sys/fs/cgroup"):
        try:
            os.rmdir(f"/sys/fs/cgroup/{controller}/docker")
        except OSError:
            pass


def works(runner, work, words, expected):
    """A first run: why it does not work here, or None. A runner that does not work is reported and
    omitted instead of measured."""
    argv = [word.replace("{n}", f"bench-first-{os.getpid()}") for word in runner.wrap(work)]
    p = subprocess.run(without_unified(argv), input=words, capture_output=True, text=True, check=False)
    if p.returncode == 0 and (expected is None or p.stdout.strip() == expected):
        return None
    return f"exit {p.returncode}: {(p.stderr or p.stdout).strip()[-300:]}"
