"""complete.py - completions at the cursor, and information about the name there.

Names are looked up in the live namespace. No expression is evaluated: a chain of names is followed
through attributes, and only through those that can be read without running a property of user code.
"""
import builtins
import inspect
import keyword
import os
import re
import sys

from covekernel.pretty import pretty

MATCHES_MAX = 500
TEXT_MAX = 32 << 10
CHAIN = re.compile(r"(?:[^\W\d]\w*\s*\.\s*)*(?:[^\W\d]\w*)?$")
IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+(?:\(?[\w\s,]*?)?|from\s+|import\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*)([\w.]*)$")
KEY = re.compile(r"((?:[^\W\d]\w*\.)*[^\W\d]\w*)\[(['\"])([^'\"]*)$")
nothing = object()


def follow(names, namespace):
    """The object at the end of a chain of names, or `nothing`."""
    first, *rest = names
    obj = namespace.get(first, getattr(builtins, first, nothing) if first not in namespace else nothing)
    for name in rest:
        if obj is nothing:
            break
        obj = attribute(obj, name)
    return obj


def attribute(obj, name):
    """An attribute that can be read without running a property."""
    if inspect.ismodule(obj):
        return getattr(obj, name, nothing)
    try:
        found = inspect.getattr_static(obj, name)
    except AttributeError:
        return nothing
    if isinstance(found, (property,)) or (not inspect.isroutine(found) and not inspect.isclass(found) and hasattr(type(found), "__get__")
                                          and type(found).__module__ != "builtins"):
        return nothing
    return getattr(obj, name, nothing)


def names_of(obj):
    try:
        return [name for name in dir(obj) if isinstance(name, str)]
    except Exception:
        return []


def matching(names, prefix):
    """The names with this prefix; private names only if the prefix starts with an underscore."""
    found = {name for name in names if name.startswith(prefix)}
    if not prefix.startswith("_"):
        found = {name for name in found if not name.startswith("_")} or (found if prefix else set())
    return sorted(found)[:MATCHES_MAX]


def modules(prefix):
    import pkgutil
    parent, dot, last = prefix.rpartition(".")
    if not dot:
        names = set(sys.builtin_module_names) | set(sys.stdlib_module_names)
        names |= {module.name for module in pkgutil.iter_modules()}
        return matching(names, last)
    package = sys.modules.get(parent)
    path = getattr(package, "__path__", None)
    found = {module.name for module in pkgutil.iter_modules(path)} if path else set()
    return [f"{parent}.{name}" for name in matching(found, last)]


def open_string(text):
    """The text of a string that is not closed at the end of the line, or None."""
    quote, start, i = None, 0, 0
    while i < len(text):
        c = text[i]
        if quote is None:
            if c == "#":
                return None
            if c in "'\"":
                quote, start = c, i + 1
        elif c == "\\":
            i += 1
        elif c == quote:
            quote = None
        i += 1
    return text[start:] if quote is not None else None


def files(prefix):
    folder, name = os.path.split(prefix)
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            found = [e.name + ("/" if e.is_dir() else "") for e in entries if e.name.startswith(name)]
    except OSError:
        return []
    found = [f for f in found if name.startswith(".") or not f.startswith(".")]
    return sorted(os.path.join(folder, f) for f in found)[:MATCHES_MAX]


def call_at(text):
    """The name of the function whose parentheses are open at the end, or None."""
    depth = 0
    for i in range(len(text) - 1, max(-1, len(text) - 4000), -1):
        c = text[i]
        if c in ")]}":
            depth += 1
        elif c in "([{":
            if depth == 0:
                if c != "(":
                    return None
                found = CHAIN.search(text[:i].rstrip())
                return found.group().replace(" ", "") or None if found else None
            depth -= 1
    return None


def parameters(text, prefix, namespace):
    name = call_at(text)
    if not name or name.endswith("."):
        return []
    obj = follow(name.split("."), namespace)
    if obj is nothing:
        return []
    try:
        found = inspect.signature(obj).parameters.values()
    except (ValueError, TypeError):
        return []
    return [p.name + "=" for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name.startswith(prefix)]


def keys(line, namespace):
    found = KEY.search(line)
    if not found:
        return None
    obj = follow(found.group(1).split("."), namespace)
    begun = found.group(3)
    if isinstance(obj, dict):
        values = list(obj)[:10000]
    elif type(obj).__module__.startswith("pandas.") and hasattr(obj, "columns"):
        values = list(obj.columns)[:10000]
    else:
        return None
    return begun, sorted(k for k in values if isinstance(k, str) and k.startswith(begun))[:MATCHES_MAX]


def complete(code, cursor, namespace):
    text = code[:cursor]
    line = text.rsplit("\n", 1)[-1]
    found = keys(line, namespace)
    string = open_string(line)
    if found is not None:
        begun, matches = found
    elif string is not None:
        begun, matches = string, files(string)
    elif IMPORT.match(line):
        source, begun = IMPORT.match(line).groups()
        if source:
            module = sys.modules.get(source)
            inside = modules(source + "." + begun)
            matches = sorted(set(matching(names_of(module) if module else [], begun)) | {m[len(source) + 1:] for m in inside})
        else:
            matches = modules(begun)
    else:
        chain = CHAIN.search(text).group()
        head, dot, begun = chain.rpartition(".")
        begun = begun.lstrip()
        if dot:
            obj = follow([n.strip() for n in head.split(".")], namespace)
            matches = [] if obj is nothing else matching(names_of(obj), begun)
        else:
            names = set(namespace) | set(dir(builtins)) | set(keyword.kwlist) | set(keyword.softkwlist)
            matches = parameters(text[:len(text) - len(begun)], begun, namespace) + matching(names, begun)
    return {"matches": [str(m)[:1000] for m in matches[:MATCHES_MAX]], "start": cursor - len(begun), "end": cursor}


def describe(obj, name):
    lines = []
    try:
        if callable(obj):
            lines.append(f"Signature: {name}{inspect.signature(obj)}")
    except (ValueError, TypeError):
        pass
    lines.append(f"Type:      {type(obj).__name__}")
    if not callable(obj) and not inspect.ismodule(obj):
        text = pretty(obj)
        lines.append(f"Value:     {text if len(text) < 2000 else text[:2000] + '...'}")
    try:
        lines.append(f"File:      {inspect.getfile(obj)}")
    except (TypeError, OSError):
        pass
    document = inspect.getdoc(obj)
    if isinstance(document, str) and document:
        lines.append("Docstring:\n" + document)
    return "\n".join(lines)[:TEXT_MAX]


def inspect_at(code, cursor, namespace):
    """Describes the name at the cursor, or else the function whose arguments are being written."""
    after = re.match(r"\w*", code[cursor:]).group()
    chain = re.sub(r"\s", "", CHAIN.search(code[:cursor] + after).group())
    for name in (chain, call_at(code[:cursor])):
        if name and not name.endswith("."):
            obj = follow(name.split("."), namespace)
            if obj is not nothing:
                from covekernel.wire import clean_text
                return {"found": True, "data": {"text/plain": clean_text(describe(obj, name))}}
    return {"found": False, "data": {}}
