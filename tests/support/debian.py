"""debian.py - a minimal Debian in a directory, made with debootstrap from this machine's own
package sources.

The first time takes a minute or two; the result is kept as a tar file for the next time. The
package sources of the machine are not written into the repository.
"""
import os
import shutil
import subprocess

SUITE = "bookworm"


class Missing(Exception):
    """This machine cannot make one; the message says what to do."""


def need(*tools):
    """Raises Missing when a program is not installed; {program: package} where the names differ."""
    packages = {"qemu-system-x86_64": "qemu-system-x86", "mke2fs": "e2fsprogs", "dpkg-deb": "dpkg"}
    for tool in tools:
        if not shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            raise Missing(f"{tool} is not installed: apt-get install {packages.get(tool, tool)}")
    if os.geteuid() != 0:
        raise Missing("needs root")


def mirror():
    out = subprocess.check_output(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"],
                                  text=True)
    for line in out.splitlines():
        uri, codename = line.split()
        if codename == SUITE:
            return uri
    raise Missing(f"this machine's package sources have no {SUITE}")


def make_tree(tree, cache, include=(), say=print):
    """Fills a directory, from the cache if it exists."""
    if os.path.exists(cache):
        subprocess.check_call(["tar", "-xpf", cache, "-C", tree])
        return
    say("debootstrap, once")
    options = [f"--include={','.join(include)}"] if include else []
    log = cache + ".log"
    os.makedirs(os.path.dirname(cache), exist_ok=True)
    with open(log, "wb") as f:
        if subprocess.call(["debootstrap", "--variant=minbase", *options, SUITE, tree, mirror()], stdout=f, stderr=f) != 0:
            raise Missing(f"debootstrap failed; its words are in {log}")
    subprocess.check_call(["tar", "-cf", cache + ".new", "-C", tree, "."])
    os.rename(cache + ".new", cache)
