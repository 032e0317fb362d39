#!/usr/bin/env python3
"""check.py - holds the tree against arrows.txt: which room of src/ may include which.

    tests/layers/check.py              checks the tree this file lies in
    tests/layers/check.py --self-test  plants one violation of each rule and demands that it is found

Prints TAP. The rules: every room is in the picture; an #include points along an arrow; the privileged and the static
rooms use nothing but libc and the kernel's headers; every other library has one room that knows it; the privileged code
stays small enough to read; no file hides a second module; no struct tag and no external function exists twice; ARCHITECTURE.md shows the same picture; every fuzz target is
run and described.
"""
import glob
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PRIVILEGED = ("isolate", "jailer", "rootless", "systemd")
PRIVILEGED_NAMES = " + ".join(f"src/{room}" for room in PRIVILEGED)
PRIVILEGED_LINES_MAX = 8500
FILE_LINES_WARN, FILE_LINES_MAX = 600, 800

# Rooms that end up in a privileged or a static program: libc and kernel headers only.
PLAIN = ("base", "ev", "wire", "policy", "systemd", "isolate", "rootless", "jailer", "runtime", "engine", "cli", "doctor")
# Every library is known to one room, so that replacing it is a one-room job. jansson is allowed wherever PLAIN is not.
OWNERS = {
    "microhttpd": ("http",), "wslay": ("http",), "curl": ("fetch",), "sqlite3": ("store",), "libpq-fe": ("store",),
    "hiredis": ("store",), "archive": ("layer",), "yaml": ("doc",), "tree_sitter": ("api",),
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
TAG = re.compile(r"\b(struct|union|enum)\s+(\w+)\s*\{")
FUNCTION = re.compile(r"^(?!typedef\b)((?:[A-Za-z_]\w*[ \t*]+)+)(\w+)\([^;{}]*\)\n\{", re.M)  # `{` stands alone: clang-format


def read_arrows(path):
    """{room: set of rooms it may include, or None for all of them}"""
    arrows = {"base": set()}
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if not line:
                continue
            room, arrow, targets = line.partition("──>")
            if not arrow or not room.strip().isidentifier() and not room.strip().isalnum():
                raise SystemExit(f"{path}:{number}: not of the form 'room ──> rooms'")
            targets = targets.strip()
            if targets == "(everything)":
                arrows[room.strip()] = None
            else:
                arrows[room.strip()] = set() if targets == "(base only)" else set(targets.split())
    for room, targets in arrows.items():
        for target in targets or ():
            if target not in arrows:
                raise SystemExit(f"{path}: {room} points at {target}, which is no room")
    return arrows


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


def check_include(arrows, where, room, form, target):
    """The complaint about one #include, or None."""
    if form == '"':
        if "/" not in target:
            return None if target == "cove_version.h" else f'{where}: "{target}" does not name its room'
        other = target.split("/")[0]
        if other not in arrows:
            return f"{where}: {target} is in no room of the picture"
        if other == "main" and room != "main":
            return f"{where}: nothing includes main"
        allowed = arrows[room]
        if other in ("base", room) or allowed is None or other in allowed:
            return None
        return f"{where}: {room} may not include {target} (no arrow {room} ──> {other})"
    if room in PLAIN and not libc_header(target):
        return f"{where}: <{target}> is neither libc nor kernel, and {room} uses nothing else"
    for library, owners in OWNERS.items():
        if re.match(rf"{library}[./]", target) and room not in owners:
            return f"{where}: <{target}> belongs in src/{owners[0]} alone"
    return None


def check(root, arrows_path):
    """[(rule, [complaints], note)]"""
    arrows = read_arrows(arrows_path)
    rooms, includes, long, notes = [], [], [], []
    privileged = 0
    for path in sources(root):
        parts = path.split(os.sep)
        room = parts[1] if len(parts) > 2 else ""
        if room not in arrows:
            rooms.append(f"{path}: src/{room} is no room of {os.path.basename(arrows_path)}")
            continue
        with open(os.path.join(root, path), encoding="utf-8") as f:
            lines = f.readlines()
        if room in PRIVILEGED:
            privileged += len(lines)
        if len(lines) > FILE_LINES_MAX:
            long.append(f"{path}: {len(lines)} lines; a second module is hiding in it (at most {FILE_LINES_MAX})")
        elif len(lines) > FILE_LINES_WARN:
            notes.append(f"{path} has {len(lines)} lines, look for a second module")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match:
                complaint = check_include(arrows, f"{path}:{number}", room, *match.groups())
                if complaint:
                    includes.append(complaint)
    large = []
    if privileged > PRIVILEGED_LINES_MAX:
        large.append(f"{PRIVILEGED_NAMES}: {privileged} lines, more than {PRIVILEGED_LINES_MAX}")
    return [
        ("every source lies in a room of the picture", rooms, ""),
        ("every #include follows an arrow", includes, ""),
        ("no file hides a second module", long, "; ".join(notes)),
        ("privileged code can be read in an afternoon", large,
         f"{PRIVILEGED_NAMES}: {privileged} of {PRIVILEGED_LINES_MAX} lines"),
        *check_names(root),
        check_picture(root, arrows_path),
        check_fuzz(root),
    ]


def names_defined(text):
    """(tags of structs, unions and enums, external functions, static functions) that a source defines"""
    text = COMMENT.sub("", text)
    tags = {match.group(2) for match in TAG.finditer(text)}
    functions = [(match.group(1), match.group(2)) for match in FUNCTION.finditer(text)]
    static = {name for kind, name in functions if "static" in kind.split()}
    return tags, {name for _, name in functions} - static, static


def check_names(root):
    """Every tag and every external function has one definition; a static function's name has at least two words."""
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
        return (rule, None, "ARCHITECTURE.md is not there")
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
    # what is planted, where, and a word of the complaint it must cause
    ("a file in an unknown room", "src/attic/a.c", "int a;\n", "no room"),
    ("a file outside every room", "src/a.c", "int a;\n", "no room"),
    ("an include against the arrows", "src/base/a.c", '#include "sandbox/engine.h"\n', "no arrow base ──> engine"),
    ("runtime including policy", "src/runtime/a.c", '#include "policy/limits.h"\n', "no arrow runtime ──> policy"),
    ("an include of main", "src/cli/a.c", '#include "main/cove.h"\n', "nothing includes main"),
    ("an indented include", "src/wire/a.c", '  #  include "host/jailer/jailer.h"\n', "no arrow wire ──> jailer"),
    ("an include without its room", "src/ev/a.c", '#include "ev.h"\n', "does not name its room"),
    ("jansson in the jailer", "src/jailer/a.c", "#include <jansson.h>\n", "neither libc nor kernel"),
    ("curl outside its room", "src/api/a.c", "#include <curl/curl.h>\n", "belongs in src/remote/fetch"),
    ("a file too long", "src/http/a.c", "int a;\n" * 801, "second module"),
    ("too much privileged code", "src/host/isolate/{}.c", "int a;\n" * 851, "more than 8500"),
    ("privileged code outside isolate and jailer", "src/host/rootless/{}.c", "int a;\n" * 851, "more than 8500"),
    ("a struct tag that exists twice", "src/server/http/{}.h", "struct frame {\n    int a;\n};\n", "enum frame is defined in"),
    ("an external function that exists twice", "src/sandbox/{}.c", "int frame_open(struct frame *f,\n               int a)\n{\n}\n", "frame_open() is defined in"),
    ("a static function without a noun", "src/pool/a.c", "static void tell(void)\n{\n}\n", "static tell()"),
    ("a fuzz target without a row", "tests/fuzz/a_fuzz.c", "int a;\n", "has no row"),
    ("a fuzz target that is not built", "tests/fuzz/a_fuzz.c", "int a;\n", "is not in fuzz_targets"),
    ("a row without its fuzz target", "tests/fuzz/README.md", "| `a` | b | c |\n", "there is no target a"),
    ("an arrow missing in ARCHITECTURE.md", "ARCHITECTURE.md", "nothing here\n", "does not show"),
]


def self_test():
    arrows = os.path.join(HERE, "arrows.txt")
    for what, where, text, expected in PLANTS:
        with tempfile.TemporaryDirectory() as root:
            for i in range(10 if "{}" in where else 1):
                path = os.path.join(root, where.format(i))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
            found = [c for _, complaints, _ in check(root, arrows) for c in complaints or ()]
        yield (f"finds {what}", [] if any(expected in c for c in found) else [f"not found; complaints were {found}"], "")
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "src/sandbox"))
        with open(os.path.join(root, "src/engine/a.c"), "w", encoding="utf-8") as f:
            f.write('#include "engine/a.h"\n#include "core/wire/rt.h"\n#include "core/base/base.h"\n#include <linux/bpf.h>\n')
        found = [c for _, complaints, _ in check(root, arrows) for c in complaints or ()]
    yield ("accepts what the arrows allow", found, "")


def main():
    results = list(self_test()) if sys.argv[1:] == ["--self-test"] else check(
        os.path.dirname(os.path.dirname(HERE)), os.path.join(HERE, "arrows.txt"))
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
