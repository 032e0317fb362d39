#!/usr/bin/env python3
"""check.py - checks the tree of src/ against arrows.txt: which component may use which.

    tests/layers/check.py [--build DIR]  checks the tree of this file; DIR (build) holds its objects
    tests/layers/check.py --self-test    plants one violation of each rule, which must be found

Prints TAP. The rules: every source belongs to a component; an arrow never points at a lower layer;
an #include and a call follow an arrow; privileged and static components use libc and the kernel's
headers only; every other library has one component that includes it; privileged code stays within
its budget of lines; no file is longer than 800 lines; no struct tag and no external function exists
twice; ARCHITECTURE.md shows the same arrows; every fuzz target is built and described. A call is
found by symbol in the objects, so that an #include of an #include cannot hide it.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# (directories and files, their lines at most)
BUDGETS = [
    (("src/host/isolate", "src/host/bwrap", "src/inside/confine", "src/host/jailer", "src/host/rootless", "src/host/systemd"), 8500),
    (("src/main/serve", "src/main/serve.c"), 1500),
]
FILE_LINES_WARN, FILE_LINES_MAX = 600, 800

# Components of a privileged or a static program: libc and kernel headers only.
PLAIN = ("core/base", "core/ev", "core/wire", "policy", "inside/confine", "inside/runtime", "inside/doctor", "host/systemd", "host/isolate", "host/bwrap",
         "host/rootless", "host/jailer", "sandbox", "client/cli")
# Every library is used by one component, so that replacing it changes one. jansson is allowed
# wherever PLAIN is not.
OWNERS = {
    "microhttpd": "server/http", "wslay": "server/http", "curl": "remote/fetch", "sqlite3": "store", "libpq-fe": "store",
    "hiredis": "store", "archive": "host/layer", "yaml": "core/doc", "gmp": "core/calc", "mpfr": "core/calc", "ares": "host/egress", "tree_sitter": "server/api",
}
INTERPOSED = {"recv"}  # src/server/http/recv_shim.c defines it in place of libc's
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
TAG = re.compile(r"\b(struct|union|enum)\s+(\w+)\s*\{")
FUNCTION = re.compile(r"^(?!typedef\b)((?:[A-Za-z_]\w*[ \t*]+)+)(\w+)\([^;{}]*\)\n\{", re.M)  # `{` stands alone: clang-format


class Picture:
    """The layers, first to last, and {component: components it may use, or None for all of
    them}."""

    def __init__(self, path):
        self.layers, self.arrows = [], {}
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                line = line.strip()
                if line.startswith("layers:"):
                    self.layers = line.split()[1:]
                elif line:
                    component, arrow, targets = (part.strip() for part in line.partition("──>"))
                    if not arrow:
                        raise SystemExit(f"{path}:{number}: not of the form 'component ──> components'")
                    if targets == "(everything)":
                        self.arrows[component] = None
                    else:
                        self.arrows[component] = set() if targets.startswith("(") else set(targets.split())

    def complaints(self):
        """Arrows to unknown components, and arrows that point at a lower layer."""
        found = []
        for component, targets in self.arrows.items():
            layer = component.split("/")[0]
            if layer not in self.layers:
                found.append(f"{component}: there is no layer {layer}")
                continue
            for target in sorted(targets or ()):
                if target not in self.arrows:
                    found.append(f"{component} points at {target}, which is not a component")
                elif self.layers.index(target.split("/")[0]) > self.layers.index(layer):
                    found.append(f"{component} points at {target}, which is in a lower layer")
        return found

    def component_of(self, path):
        """The component of a path below src/: the longest directory that has arrows. None without
        one."""
        directory = os.path.dirname(path)
        while directory and directory not in self.arrows:
            directory = os.path.dirname(directory)
        return directory or None

    def allows(self, component, other):
        allowed = self.arrows[component]
        return other in ("core/base", component) or allowed is None or other in allowed


def read_exceptions(path):
    """{(file, component)}"""
    with open(path, encoding="utf-8") as f:
        return {tuple(line.split()) for line in f if line.strip() and not line.startswith("#")}


def libc_header(name):
    if name.startswith(("linux/", "asm/", "asm-generic/")):
        return True
    musl = glob.glob("/usr/include/*-linux-musl*")
    if musl:
        return any(os.path.exists(os.path.join(d, name)) for d in musl)
    return name.split("/")[0].split(".")[0] not in set(OWNERS) | {"jansson", "openssl", "seccomp", "zstd", "zlib"}


def sources(root):
    for directory, _, names in os.walk(os.path.join(root, "src")):
        for name in sorted(names):
            if name.endswith((".c", ".h", ".def")):
                yield os.path.relpath(os.path.join(directory, name), root)


def check_include(picture, where, component, form, target):
    """The complaint about one #include, or None."""
    if form == '"':
        if "/" not in target:
            return None if target == "cove_version.h" else f'{where}: "{target}" does not name its component'
        other = picture.component_of(target)
        if other is None:
            return f"{where}: {target} belongs to no component of the picture"
        if other.split("/")[0] == "main" and component.split("/")[0] != "main":
            return f"{where}: nothing includes main"
        if picture.allows(component, other):
            return None
        return f"{where}: {component} may not include {target} (no arrow {component} ──> {other})"
    if component in PLAIN and not libc_header(target):
        return f"{where}: <{target}> is neither libc nor kernel, and {component} uses nothing else"
    for library, owner in OWNERS.items():
        if re.match(rf"{library}[./]", target) and component != owner:
            return f"{where}: <{target}> belongs in src/{owner} alone"
    return None


def check_calls(root, build, picture, exceptions):
    """Every symbol that an object of src/ takes from another component follows an arrow."""
    rule = "every call follows an arrow"
    objects = sorted(glob.glob(os.path.join(build, "libcove-*.a.p", "*.o")))
    if not objects:
        return (rule, None, f"{build} holds no objects: build first")
    by_object = {path.replace("/", "_"): path for path in sources(root)}
    defined, wanted = {}, []
    listing = subprocess.run(["nm", "-A", "-g", "--", *objects], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in listing.splitlines():
        path, _, rest = line.partition(":")
        source = by_object.get(os.path.basename(path)[:-len(".o")])
        words = rest.split()
        if source is None or words[-1] in INTERPOSED:
            continue
        if words[0] == "U":
            wanted.append((source, words[1]))
        elif len(words) == 3:
            defined[words[2]] = source
    wrong, used = {}, set()
    for source, symbol in wanted:
        if symbol not in defined:
            continue
        component, other = (picture.component_of(path[len("src/"):]) for path in (source, defined[symbol]))
        if component is None or other is None or picture.allows(component, other):
            continue
        if (source, other) in exceptions:
            used.add((source, other))
        else:
            wrong.setdefault(f"{source}: no arrow {component} ──> {other} for its call of", set()).add(symbol)
    complaints = [f"{where} {', '.join(sorted(symbols))}" for where, symbols in sorted(wrong.items())]
    complaints += [f"exceptions.txt: {source} uses nothing of {other} any more: remove the line" for source, other in sorted(exceptions - used)]
    return (rule, complaints, f"{len(objects)} objects, {len(used)} exceptions")


def check(root, arrows_path, build=None, exceptions=frozenset()):
    """[(rule, [complaints], note)]"""
    picture = Picture(arrows_path)
    homeless, includes, long, notes = [], [], [], []
    lines_of = {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            lines = f.readlines()
        lines_of[path] = len(lines)
        component = picture.component_of(path[len("src/"):])
        if component is None:
            homeless.append(f"{path}: {os.path.dirname(path)} is not a component of {os.path.basename(arrows_path)}")
            continue
        if len(lines) > FILE_LINES_MAX:
            long.append(f"{path}: {len(lines)} lines; split off its second module (at most {FILE_LINES_MAX})")
        elif len(lines) > FILE_LINES_WARN:
            notes.append(f"{path} has {len(lines)} lines, look for a second module")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match:
                complaint = check_include(picture, f"{path}:{number}", component, *match.groups())
                if complaint and (path, picture.component_of(match.group(2))) not in exceptions:
                    includes.append(complaint)
    budgets = []
    for places, limit in BUDGETS:
        total = sum(count for path, count in lines_of.items() if any(path == p or path.startswith(p + "/") for p in places))
        name = " + ".join(places)
        budgets.append((f"the lines of {name} stay within their budget",
                        [f"{name}: {total} lines, more than {limit}"] if total > limit else [], f"{total} of {limit} lines"))
    return [
        ("every source belongs to a component", homeless, ""),
        ("an arrow points at the same or a higher layer", picture.complaints(), ""),
        ("every #include follows an arrow", includes, ""),
        *([check_calls(root, build, picture, exceptions)] if build else []),
        ("no file is longer than 800 lines", long, "; ".join(notes)),
        *budgets,
        *check_names(root),
        check_picture(root, arrows_path),
        check_fuzz(root),
    ]


def names_defined(text):
    """(tags of structs, unions and enums, external functions, static functions) that a source
    defines"""
    text = COMMENT.sub("", text)
    tags = {match.group(2) for match in TAG.finditer(text)}
    functions = [(match.group(1), match.group(2)) for match in FUNCTION.finditer(text)]
    static = {name for kind, name in functions if "static" in kind.split()}
    return tags, {name for _, name in functions} - static, static


def check_names(root):
    """Every tag and every external function has one definition; a static function's name has at
    least two words."""
    tags, externals, bare = {}, {}, []
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            defined_tags, defined_externals, defined_statics = names_defined(f.read())
        for name in defined_tags:
            tags.setdefault(name, []).append(path)
        for name in defined_externals - {"main"}:
            externals.setdefault(name, []).append(path)
        bare += [f"{path}: static {name}() does not name what it acts on" for name in sorted(defined_statics) if "_" not in name]
    twice = [f"struct, union or enum {name} is defined in {' and '.join(paths)}" for name, paths in sorted(tags.items()) if len(paths) > 1]
    twice += [f"{name}() is defined in {' and '.join(paths)}" for name, paths in sorted(externals.items()) if len(paths) > 1]
    return [("no struct tag and no external function exists twice", twice, f"{len(tags)} tags, {len(externals)} external functions"),
            ("the name of a static function has at least two words", bare, "")]


def check_picture(root, arrows_path):
    rule = "ARCHITECTURE.md shows the same arrows"
    try:
        with open(os.path.join(root, "ARCHITECTURE.md"), encoding="utf-8") as f:
            shown = {" ".join(line.split()) for line in f}
    except FileNotFoundError:
        return (rule, None, "ARCHITECTURE.md does not exist")
    with open(arrows_path, encoding="utf-8") as f:
        missing = [line.strip() for line in f if line.strip() and " ".join(line.split()) not in shown]
    return (rule, [f"ARCHITECTURE.md does not show: {line}" for line in missing], "")


def check_fuzz(root):
    here = os.path.join(root, "tests", "fuzz")

    def names(path, pattern):
        if not os.path.exists(os.path.join(here, path)):
            return set()
        with open(os.path.join(here, path), encoding="utf-8") as f:
            return set(re.findall(pattern, f.read(), re.M))

    targets = {os.path.basename(p)[:-len("_fuzz.c")] for p in glob.glob(os.path.join(here, "*_fuzz.c"))}
    built, told = names("meson.build", r"^  '(\w+)',$"), names("README.md", r"^\| `(\w+)` \|")
    wrong = [f"tests/fuzz/{t}_fuzz.c is not in fuzz_targets of its meson.build" for t in sorted(targets - built)]
    wrong += [f"tests/fuzz/{t}_fuzz.c has no row in the table of its README.md" for t in sorted(targets - told)]
    wrong += [f"tests/fuzz/README.md: there is no target {t}" for t in sorted(told - targets)]
    return ("every fuzz target is run and described", wrong, "")


PLANTS = [
    # the planted violation, its file, and a part of the complaint that it must cause
    ("a file in an unknown component", "src/attic/a.c", "int a;\n", "is not a component"),
    ("a file outside every component", "src/a.c", "int a;\n", "is not a component"),
    ("an include against the arrows", "src/core/base/a.c", '#include "sandbox/engine.h"\n', "no arrow core/base ──> sandbox"),
    ("the runtime including policy", "src/inside/runtime/a.c", '#include "policy/limits.h"\n', "no arrow inside/runtime ──> policy"),
    ("an include of main", "src/client/cli/a.c", '#include "main/cove.h"\n', "nothing includes main"),
    ("an include of a part of main", "src/client/cli/a.c", '#include "main/conf/conf.h"\n', "nothing includes main"),
    ("an indented include", "src/core/wire/a.c", '  #  include "host/jailer/jailer.h"\n', "no arrow core/wire ──> host/jailer"),
    ("an include without its component", "src/core/ev/a.c", '#include "ev.h"\n', "does not name its component"),
    ("a file of a subdirectory of a component", "src/store/sqlite/a.c", '#include "service/manager.h"\n', "no arrow store ──> service"),
    ("jansson in the jailer", "src/host/jailer/a.c", "#include <jansson.h>\n", "neither libc nor kernel"),
    ("curl outside its component", "src/server/api/a.c", "#include <curl/curl.h>\n", "belongs in src/remote/fetch"),
    ("a file too long", "src/server/http/a.c", "int a;\n" * 801, "second module"),
    ("too much privileged code", "src/host/isolate/{}.c", "int a;\n" * 851, "more than 8500"),
    ("privileged code outside isolate and jailer", "src/host/rootless/{}.c", "int a;\n" * 851, "more than 8500"),
    ("a supervisor that is too large", "src/main/serve/{}.c", "int a;\n" * 151, "more than 1500"),
    ("a struct tag that exists twice", "src/server/http/{}.h", "struct frame {\n    int a;\n};\n", "enum frame is defined in"),
    ("an external function that exists twice", "src/sandbox/{}.c", "int frame_open(struct frame *f,\n               int a)\n{\n}\n", "frame_open() is defined in"),
    ("a static function without a noun", "src/sandbox/pool/a.c", "static void tell(void)\n{\n}\n", "static tell()"),
    ("a fuzz target without a row", "tests/fuzz/a_fuzz.c", "int a;\n", "has no row"),
    ("a fuzz target that is not built", "tests/fuzz/a_fuzz.c", "int a;\n", "is not in fuzz_targets"),
    ("a row without its fuzz target", "tests/fuzz/README.md", "| `a` | b | c |\n", "there is no target a"),
    ("an arrow missing in ARCHITECTURE.md", "ARCHITECTURE.md", "nothing here\n", "does not show"),
]
ARROWS = """layers: core policy inside host sandbox store remote service server client main
core/base ──> (libc only)
server/api ──> {}
sandbox ──> (core/base only)
"""


def write(root, path, text):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def compile_into(root, build, library, path, text):
    """Compiles text as the source `path` of a static library, with the object's name that Meson
    would give it."""
    source = write(root, path, text)
    folder = os.path.join(build, f"libcove-{library}.a.p")
    os.makedirs(folder, exist_ok=True)
    subprocess.run(["cc", "-c", source, "-o", os.path.join(folder, path.replace("/", "_") + ".o")], check=True)


def calls_found(arrow, exceptions=frozenset()):
    """The complaints about a call from server/api to sandbox, which no #include shows."""
    with tempfile.TemporaryDirectory() as root:
        build = os.path.join(root, "build")
        compile_into(root, build, "api", "src/server/api/a.c", "int b_open(void);\nint a_open(void)\n{\n    return b_open();\n}\n")
        compile_into(root, build, "sandbox", "src/sandbox/b.c", "int b_open(void);\nint b_open(void)\n{\n    return 0;\n}\n")
        picture = Picture(write(root, "arrows.txt", ARROWS.format(arrow)))
        return check_calls(root, build, picture, exceptions)[1]


def self_test():
    arrows = os.path.join(HERE, "arrows.txt")
    for what, where, text, expected in PLANTS:
        with tempfile.TemporaryDirectory() as root:
            for i in range(10 if "{}" in where else 1):
                write(root, where.format(i), text)
            found = [c for _, complaints, _ in check(root, arrows) for c in complaints or ()]
        yield (f"finds {what}", [] if any(expected in c for c in found) else [f"not found; complaints were {found}"], "")
    with tempfile.TemporaryDirectory() as root:
        write(root, "src/sandbox/a.c", '#include "sandbox/a.h"\n#include "core/wire/rt.h"\n#include "core/base/base.h"\n#include <linux/bpf.h>\n')
        found = [c for _, complaints, _ in check(root, arrows) for c in complaints or ()]
        yield ("accepts what the arrows allow", found, "")
        down = Picture(write(root, "arrows.txt", ARROWS.format("sandbox") + "host/jailer ──> server/api\n")).complaints()
        yield ("finds an arrow to a lower layer", [] if down == ["host/jailer points at server/api, which is in a lower layer"] else [str(down)], "")
    line = {("src/server/api/a.c", "sandbox")}
    for what, expected, found in [
            ("finds a call that no #include shows", ["src/server/api/a.c: no arrow server/api ──> sandbox for its call of b_open"], calls_found("(core/base only)")),
            ("accepts a call along an arrow", [], calls_found("sandbox")),
            ("accepts a call that exceptions.txt lists", [], calls_found("(core/base only)", line)),
            ("finds an exception that is no longer needed", ["exceptions.txt: src/server/api/a.c uses nothing of sandbox any more: remove the line"], calls_found("sandbox", line))]:
        yield (what, [] if found == expected else [f"complaints were {found}"], "")


def main():
    root = os.path.dirname(os.path.dirname(HERE))
    if sys.argv[1:] == ["--self-test"]:
        results = list(self_test())
    else:
        build = sys.argv[2] if sys.argv[1:2] == ["--build"] else os.path.join(root, "build")
        results = check(root, os.path.join(HERE, "arrows.txt"), build, read_exceptions(os.path.join(HERE, "exceptions.txt")))
    print(f"1..{len(results)}")
    failed = False
    for number, (name, complaints, note) in enumerate(results, 1):
        if complaints is None:
            print(f"ok {number} - {name} # SKIP {note}")
            continue
        failed |= bool(complaints)
        print(f"{'not ok' if complaints else 'ok'} {number} - {name}")
        for line in complaints:
            print(f"# {line}")
        if note:
            print(f"# {note}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
