"""suites.py - the suites of tests/check as tasks. A suite's docstring is its description."""
import glob
import json
import os
import re
import subprocess
import sys

from runner import selftest, tidy
from runner.tap import Result, parse_exitcode, parse_tap
from runner.task import CPU, ROOT, SANDBOX, Task

BUILD, ASAN = os.path.join(ROOT, "build"), os.path.join(ROOT, "build-asan")
COVE = os.path.join(BUILD, "src/main/cove")
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:strict_string_checks=1",
              "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
NICE = 10  # of compilers and checkers: a test that waits for an answer has priority
GCC, CLANG, MUTATE = "build: build with gcc", "build: build with clang, sanitized", "mutation: build"
SETUP_GCC, SETUP_CLANG = "build: set up gcc", "build: set up clang, sanitized"
NO_ROOT = "needs root, as the native driver does"
# Parts that a long script is split into; each is a task. A script without the option --shard stays
# whole.
SHARDS = {"e2e": 4, "docs": 2, "escape": 2, "escape/born": 2, "escape/bwrap": 2, "rootless": 2, "mutation": 2,
          "api/api": 3, "api/contexts": 2, "api/execute": 2, "api/pools": 2, "api/stream": 2, "api/tenants": 2, "api/tokens": 2,
          "api/transfers": 2, "http/http": 3, "http/ws": 2}
WITHOUT_WORDS = ("api/schema", "catalogue", "core/calc_reference", "policy/programs", "policy/syscalls_doc", "tools/deps")  # Python programs that can only be run as a whole


def skipped(suite, reason, name=None):
    return [Task(suite, name or suite, work=lambda run: [Result(name or suite, "skipped", reason)])]


# --- repeating a failed test: title -> (arguments, environment), None for the whole program ---

def first_word(title):
    """The name of a test; cmocka appends a message when its teardown failed."""
    return title.partition(" ")[0]


def by_filter(title):
    return [], {"COVE_TEST_ONLY": first_word(title)}


def by_title(title):
    return [title], {}


def by_only(title):
    return ["--only", title], {}


def by_case(title):
    """A case of the catalogue, printed as `RS01: why it held`."""
    found = re.match(r"[A-Z]{2}\d\d\b|TABLE-\w+", title)
    return ([found.group()], {}) if found else None


def by_revision(title):
    """A revision of MCP."""
    found = re.search(r"\d{4}-\d\d-\d\d", title)
    return ([found.group()], {}) if found else None


def by_wall(title):
    found = re.search(r"(?:without|the check of) ([a-z0-9-]+)", title)
    return ([found.group(1)], {}) if found else None


def before_colon(title):
    return title.partition(": ")[0]


# --- builds ---

def set_up(name, where, cc, options, expands, then):
    """Configures a build directory, or again when a meson.build has changed; afterwards its tests
    are known."""
    there = os.path.exists(os.path.join(where, "build.ninja"))
    command = ["ninja", "-C", where, "build.ninja"] if there else ["meson", "setup", where, ROOT, *options]
    return Task("build", f"set up {name}", command, env={"CC": cc}, quiet=True, nice=NICE, expands=expands, then=then)


def builds(wanted, jobs):
    """The tasks of the suite build and, after them, of all suites whose tests Meson lists."""
    found = []
    gcc_lists = [s for s in ("unit",) if s in wanted]
    clang_lists = [s for s in ("unit", "contract", "fuzz") if s in wanted]
    statics = ["static"] if "static" in wanted else []
    built = wanted & {"build", "layers", "contract", "kernels", "e2e", "mcp", "sdk", "docs", "escape", "rootless", "mutation", "crash", "soak"}
    if gcc_lists or built:
        found.append(set_up("gcc", BUILD, os.environ.get("CC", "gcc"), [], gcc_lists,
                            lambda: [t for s in gcc_lists for t in meson_tests(s, "gcc", BUILD, [GCC])]))
        found.append(Task("build", "build with gcc", work=lambda run: [build_gcc(run, jobs)], needs=[SETUP_GCC], weight=jobs, nice=NICE,
                          timeout=1800))
    if clang_lists or statics or wanted & {"build", "crash"}:
        found.append(set_up("clang, sanitized", ASAN, "clang", ["-Db_sanitize=address,undefined", "-Db_lundef=false"],
                            clang_lists + statics,
                            lambda: [t for s in clang_lists for t in meson_tests(s, "asan", ASAN, [CLANG])] +
                            (tidy_tasks() if statics else [])))
        if clang_lists or wanted & {"build", "crash"}:
            found.append(Task("build", "build with clang, sanitized", ["ninja", "-j", str(jobs), "-C", ASAN], needs=[SETUP_CLANG],
                              nice=NICE, timeout=1800))
    return found


def build_gcc(run, jobs):
    done = run(["ninja", "-j", str(jobs), "-C", BUILD])
    link = os.path.join(BUILD, "cove")
    if done.code == 0 and not os.path.lexists(link):
        os.symlink("src/main/cove", link)
    return Result("build with gcc", "failed" if done.code else "passed", "\n".join(done.output.splitlines()[-80:]) if done.code else "")


def suite_build(wanted):
    """both compilers: gcc as shipped, clang with ASan and UBSan"""
    return []  # added by builds(), since other suites need them too


# --- tests that Meson lists ---

def meson_tests(suite, label, build, needs):
    """The tests of this suite that Meson lists, run by this runner so that each of their cases is
    counted."""
    known = json.loads(subprocess.check_output(["meson", "introspect", build, "--tests"], text=True))
    if suite == "contract" and os.geteuid() != 0:
        return skipped(suite, NO_ROOT)
    mine = [t for t in known if any(s.split(":")[-1] == suite for s in t["suite"])]
    if not mine:
        return skipped(suite, f"{os.path.basename(build)} lists no test of this suite")
    return [task for test in mine for task in meson_test(suite, label, build, test, needs)]


def meson_test(suite, label, build, test, needs):
    env = {**test["env"], **(SANITIZERS if build == ASAN else {}), "COVE": COVE}
    script, name = next((word for word in test["cmd"] if word.endswith(".py")), None), re.sub(r"-\d+$", "", test["name"])
    select = by_filter if "CMOCKA_MESSAGE_OUTPUT" in test["env"] else by_title if script and name not in WITHOUT_WORDS else None
    common = {"parse": parse_tap if test["protocol"] == "tap" else parse_exitcode, "label": f"{label} {test['name']}", "env": env,
              "timeout": max(test["timeout"], 60) * 2, "cwd": test["workdir"] or build, "needs": needs,
              "lane": SANDBOX if suite == "contract" else CPU, "select": select, "key": first_word if select is by_filter else str}
    if "--shard" in test["cmd"]:  # Meson lists its shards
        at = test["cmd"].index("--shard")
        return [Task(suite, common["label"], test["cmd"], whole=test["cmd"][:at] + test["cmd"][at + 2:], **common)]
    return shards(suite, common["label"], test["cmd"], SHARDS.get(name, 1) if script and shardable(script) else 1, common)


def shards(suite, name, command, count, common):
    if count == 1:
        return [Task(suite, name, command, **common)]
    return [Task(suite, f"{name} {i}/{count}", [*command, "--shard", f"{i}/{count}"], whole=command, **common) for i in range(1, count + 1)]


def shardable(path):
    """Whether a script takes --shard: by itself, or by the module in its directory that runs its
    cases."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        text = f.read()
    if "--shard" in text or re.search(r"^(import|from) choice\b", text, re.M):
        return True
    beside = re.search(r"^(?:import|from) (api_test|http_test)\b", text, re.M)
    return bool(beside) and shardable(os.path.join(os.path.dirname(path), beside.group(1) + ".py"))


def suite_unit(wanted):
    """every module of src/, as shipped and sanitized"""
    return []  # added when the builds are set up


def suite_contract(wanted):
    """every driver and store against the same contract, sanitized"""
    return []


def suite_fuzz(wanted):
    """the corpus of every fuzz target, sanitized"""
    return []


# --- scripts ---

def script(suite, name, path, words=(), env=None, needs=(GCC,), timeout=900, select=None, key=str, exclusive=False, root=True):
    if root and os.geteuid() != 0:
        return skipped(suite, NO_ROOT, name)
    if not os.path.exists(os.path.join(ROOT, path)):
        return skipped(suite, f"{path} does not exist", name)
    search = os.path.dirname(COVE) + os.pathsep + os.environ["PATH"]
    common = {"parse": parse_tap, "label": name, "env": {"COVE": COVE, "PATH": search, **(env or {})}, "timeout": timeout, "needs": needs,
              "lane": SANDBOX, "select": select, "key": key, "exclusive": exclusive}
    return shards(suite, name, [path, *words], SHARDS.get(name, 1) if shardable(path) else 1, common)


def suite_self(wanted):
    """this runner itself: unreported tests count as failures, and a test that fails twice fails"""
    return [Task("self", "self", work=selftest.results)]


def suite_layers(wanted):
    """the layers and arrows of ARCHITECTURE.md"""
    return [Task("layers", "layers", ["tests/layers/check.py"], parse=parse_tap, needs=[GCC]),
            Task("layers", "layers/self", ["tests/layers/check.py", "--self-test"], parse=parse_tap)]


def suite_kernels(wanted):
    """the language kernels of contexts, each over its socket and pipes, and their rich results"""
    return [Task("kernels", f"kernels/{os.path.basename(path)[:-len('_test.py')]}", [sys.executable, path], parse=parse_tap, timeout=1800,
                 needs=[GCC], select=by_only) for path in sorted(glob.glob(os.path.join(ROOT, "tests/kernels/*_test.py")))]


def suite_e2e(wanted):
    """the command line as a user sees it"""
    return script("e2e", "e2e", "tests/e2e/run.py", timeout=3600, select=by_only)


def suite_mcp(wanted):
    """the conformance suite of MCP against the server, where make check-mcp has installed it"""
    cache = os.environ.get("COVE_MCP_CACHE", os.path.join(ROOT, "build-mcp"))
    if not os.path.exists(os.path.join(cache, "node_modules/@modelcontextprotocol/conformance/dist/index.js")):
        return skipped("mcp", "the conformance suite needs Node.js 22 and is not installed; make check-mcp installs both")
    return script("mcp", "mcp", "tests/mcp/run.py", select=by_revision)


def suite_sdk(wanted):
    """the Python package: types, wheel, and a real server through it"""
    return script("sdk", "sdk", "tests/sdk/run.py", ["--jobs", "2"], select=by_only)


def suite_docs(wanted):
    """examples, links and names of sources in README.md and docs/; command lines of units"""
    return script("docs", "docs", "tests/docs/run.py", select=by_only) + [
        Task("docs", "docs/links", ["tests/docs/links.py"], parse=parse_tap),
        Task("docs", "docs/units", ["tests/docs/units.py"], parse=parse_tap, needs=[GCC]),
        Task("docs", "docs/source_names", ["tests/docs/source_names.py"], parse=parse_tap),
        Task("docs", "docs/source_names/self", ["tests/docs/source_names.py", "--self-test"], parse=parse_tap)]


def suite_escape(wanted):
    """the attack catalogue, from inside a real sandbox"""
    attack = {"timeout": 1200, "select": by_case, "key": before_colon}
    return (script("escape", "escape", "tests/escape/run.py", **attack) +
            script("escape", "escape/born", "tests/escape/run.py", ["--born"], {"COVE_KILL_ROUNDS": "20", "COVE_INJECT_SECONDS": "0"}, **attack) +
            script("escape", "escape/bwrap", "tests/escape/run.py", ["--driver", "bwrap"], {"COVE_KILL_ROUNDS": "10", "COVE_INJECT_SECONDS": "0"},
                   **attack) +
            script("escape", "escape/storm", "tests/storm/run.py", ["--seed", "1", "--rounds", "3"], exclusive=True, root=False) +
            script("escape", "escape/canary", "tests/storm/run.py", ["--self-test"], exclusive=True, root=False))


def suite_rootless(wanted):
    """the attack catalogue as a plain user; make check-vm tests delegated cgroups"""
    return (script("rootless", "rootless", "tests/escape/run.py", ["--as-user"], {"COVE_KILL_ROUNDS": "10", "COVE_INJECT_SECONDS": "0"},
                   select=by_case, key=before_colon) +
            script("rootless", "rootless/bwrap", "tests/escape/run.py",
                   ["--driver", "bwrap", "--as-user", "NS", "PR", "SC", "CP", "FS", "LK", "NT", "LC10"], select=by_case, key=before_colon) +
            script("rootless", "rootless/storm", "tests/storm/run.py", ["--as-user", "--seed", "1", "--rounds", "3"], exclusive=True))


def suite_mutation(wanted):
    """each wall omitted in turn: a check must notice"""
    path = "tests/mutation/run.py"
    made = [Task("mutation", "build", [path, "--build"], needs=[GCC], quiet=True, nice=NICE)] if os.geteuid() == 0 else []
    return made + script("mutation", "mutation", path, needs=[MUTATE, GCC], timeout=1200, select=by_wall,
                         key=before_colon)


def suite_crash(wanted):
    """a server under load whose processes are killed 10 times (make soak: 200)"""
    sanitized = {"COVE": os.path.join(ASAN, "src/main/cove"), **SANITIZERS}  # leaks are reported when its processes end
    return (script("crash", "crash", "tests/crash/run.py", exclusive=True) +
            script("crash", "crash/sanitized", "tests/crash/run.py", ["--kills", "3"], sanitized, needs=[CLANG, GCC], exclusive=True))


def suite_soak(wanted):
    """300 runs and 300 executions that must leave nothing behind (make soak: 10,000 and 100,000)"""
    return (script("soak", "soak", "tests/soak/run.py", env={"SOAK_RUNS": os.environ.get("SOAK_RUNS", "300")}, exclusive=True) +
            script("soak", "soak/executions", "tests/soak/executions.py", env={"SOAK_EXECUTIONS": os.environ.get("SOAK_EXECUTIONS", "300")},
                   exclusive=True))


# --- static ---

def tracked(*patterns):
    """Files of the tree, including those not yet added."""
    out = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, text=True)
    return [p for p in sorted(set(out.splitlines())) if os.path.exists(os.path.join(ROOT, p))]


def first_line(path):
    try:
        with open(os.path.join(ROOT, path), "rb") as f:
            return f.readline(120)
    except (OSError, IsADirectoryError):
        return b""


def is_shell(path):
    return path.endswith(".sh") or re.match(rb"#!\s*/bin/(ba)?sh|#!/usr/bin/env (ba)?sh", first_line(path)) is not None


def is_python(path):
    return path.endswith(".py") or re.match(rb"#!/usr/bin/env python3", first_line(path)) is not None


def formatted(output, code, name):
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: warning", output, re.M)))
    if code or wrong:
        return [Result(name, "failed", f"not formatted; clang-format -i {' '.join(wrong)}" if wrong else output[-4000:])]
    return [Result(name, "passed")]


def cppcheck(where):
    """One component: files are analysed independently, and unchanged files are not analysed
    again."""
    kept = os.path.join(BUILD, "logs/cppcheck", where.replace("/", "-"))
    command = ["cppcheck", "-q", "--std=c11", "--enable=warning,portability", "--inline-suppr", "--error-exitcode=1",
               "--suppress=missingIncludeSystem", "--suppress=normalCheckLevelMaxBranches", "--suppress=unknownMacro",
               "--suppress=internalAstError", "-D_GNU_SOURCE", "-I", "src", f"--cppcheck-build-dir={kept}", where]

    def work(run):
        os.makedirs(kept, exist_ok=True)
        done = run(command)
        return [Result(f"cppcheck {where}", "failed" if done.code else "passed", done.output[-6000:] if done.code else "")]

    return Task("static", f"cppcheck {where}", work=work, nice=NICE)


def tidy_tasks():
    return tidy.tasks(ASAN, [p for p in tracked("*.c") if p.startswith("src/")])


def suite_static(wanted):
    """clang-format, clang-tidy, cppcheck, shellcheck, python syntax, plain prose"""
    c_files, everything = tracked("*.c"), tracked()
    components = sorted({os.path.dirname(p) for p in c_files if p.startswith("src/")} | {"runtimes"})
    components = [c for c in components if not any(c.startswith(other + "/") for other in components)]
    syntax = "import ast,sys\nfor p in sys.argv[1:]: ast.parse(open(p).read(), p)"
    return [
        Task("static", "clang-format", ["clang-format", "--dry-run", *c_files, *tracked("*.h")], parse=formatted, nice=NICE),
        Task("static", "shellcheck", ["shellcheck", *filter(is_shell, everything)], nice=NICE),
        Task("static", "python compiles", [sys.executable, "-c", syntax, *filter(is_python, everything)], nice=NICE),
        Task("static", "tables of docs/ match the source", ["tools/doctables", "--check"], nice=NICE),
        Task("static", "prose", ["tests/prose/check.py"], parse=parse_tap, nice=NICE),
        Task("static", "prose/self", ["tests/prose/check.py", "--self-test"], parse=parse_tap, nice=NICE),
    ] + [cppcheck(component) for component in components]  # clang-tidy is added when its build is set up


# --- all of them ---

SUITES = {name[len("suite_"):]: function for name, function in list(globals().items()) if name.startswith("suite_")}
ORDER = ["self", "build", "layers", "unit", "contract", "fuzz", "kernels", "e2e", "mcp", "sdk", "docs", "escape", "rootless", "mutation",
         "crash", "soak", "static"]


def tasks(wanted, jobs):
    """The tasks of these suites and the builds that they need."""
    wanted, found = set(wanted), []
    found += builds(wanted, jobs)
    for suite in [s for s in ORDER if s in wanted]:
        found += SUITES[suite](wanted)
    return found
