"""pretty.py - the text of a value as a notebook shows it.

Containers are laid out to 79 columns: a container that does not fit on its line is broken at each
of its commas, outer containers first. Long containers end in dots, so a list of a million takes as
long as one of a thousand. Objects with their own repr are shown by it. Nothing here trusts a repr:
it may raise, return another type, or never end (then an interrupt ends it).
"""
import collections
import inspect
import re
import types

WIDTH = 79
ITEMS_MAX = 1000
STRING_MAX = 256 << 10
TOTAL_MAX = 1 << 20
DEPTH_MAX = 60


class Group:
    """`open item, item close`; if broken, one item per line."""
    __slots__ = ("open", "items", "close", "width")

    def __init__(self, open, items, close):
        self.open, self.items, self.close = open, items, close
        self.width = len(open) + len(close) + sum(width_of(i) for i in items) + 2 * max(len(items) - 1, 0)


def width_of(doc):
    if isinstance(doc, Group):
        return doc.width
    if isinstance(doc, tuple):
        return sum(width_of(d) for d in doc)
    return 10 ** 6 if "\n" in doc else len(doc)


def unprintable(obj, error):
    try:
        why = f"{type(error).__name__}: {error}"
    except Exception:
        why = type(error).__name__
    return f"<{type(obj).__name__} object whose repr raised {why[:500]}>"


def safe_repr(obj):
    try:
        text = repr(obj)
        if len(text) > TOTAL_MAX:
            text = f"{text[:STRING_MAX]}... cut here: {len(text)} characters"
        return str.__str__(text)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return unprintable(obj, error)


def long_string(obj):
    rest = len(obj) - STRING_MAX
    return f"{obj[:STRING_MAX]!r}... {rest} more {'characters' if isinstance(obj, str) else 'bytes'}"


def qualified(cls):
    module, name = cls.__dict__.get("__module__"), cls.__dict__.get("__qualname__", cls.__name__)
    if not isinstance(name, str):
        name = type.__name__.__get__(cls)
    if not isinstance(module, str) or module in ("builtins", "exceptions", "__builtin__"):
        return name
    return f"{module}.{name}"


def text_of_function(obj):
    name = getattr(obj, "__qualname__", obj.__name__)
    module = obj.__module__
    if module and module not in ("__builtin__", "builtins", "exceptions"):
        name = f"{module}.{name}"
    try:
        name += str(inspect.signature(obj))
    except (ValueError, TypeError):
        pass
    return f"<function {name}>"


def text_of_regex(obj):
    flags = [name for name in ("TEMPLATE", "IGNORECASE", "LOCALE", "MULTILINE", "DOTALL", "UNICODE", "VERBOSE", "DEBUG")
             if obj.flags & getattr(re, name, 0)]
    text = repr(obj.pattern)
    text = ("r" + text.replace("\\\\", "\\")) if isinstance(obj.pattern, str) else text
    return f"re.compile({text}{', ' + '|'.join('re.' + f for f in flags) if flags else ''})"


class Layout:
    def __init__(self):
        self.open = set()  # ids of containers that are being laid out
        self.budget = TOTAL_MAX

    def items(self, values, one):
        docs = []
        for i, value in enumerate(values):
            if i >= ITEMS_MAX or self.budget <= 0:
                docs.append("...")
                break
            docs.append(one(value))
        return docs

    def pairs(self, mapping):
        return self.items(mapping.items(), lambda kv: (self.doc(kv[0]), ": ", self.doc(kv[1])))

    def sequence(self, obj, open, close):
        docs = self.items(obj, self.doc)
        if type(obj) is tuple and len(docs) == 1:
            close = "," + close
        return Group(open, docs, close)

    def set(self, obj, open, close):
        values = list(obj)
        if len(values) < ITEMS_MAX:
            try:
                values = sorted(values)
            except KeyboardInterrupt:
                raise
            except BaseException:
                try:
                    values = sorted(values, key=lambda v: (type(v).__name__, str(v)))
                except Exception:
                    pass
        return Group(open, self.items(values, self.doc), close)

    def container(self, obj):
        """A layout for objects with the repr of a built-in container, and None for all others."""
        show = type(obj).__repr__
        if show is list.__repr__:
            return self.sequence(obj, "[", "]"), "[...]"
        if show is tuple.__repr__ and not hasattr(obj, "_fields"):
            return self.sequence(obj, "(", ")"), "(...)"
        if show is dict.__repr__:
            return Group("{", self.pairs(obj), "}"), "{...}"
        if show in (set.__repr__, frozenset.__repr__):
            name = "" if type(obj) is set else type(obj).__name__
            if not obj:
                return f"{name or 'set'}()", ""
            return self.set(obj, name + "({" if name else "{", "})" if name else "}"), ""
        if show is collections.defaultdict.__repr__:
            inner = Group("{", self.pairs(obj), "}")
            return Group("defaultdict(", [self.doc(obj.default_factory), inner], ")"), "defaultdict(...)"
        if show is collections.OrderedDict.__repr__:
            pairs = self.items(obj.items(), lambda kv: Group("(", [self.doc(kv[0]), self.doc(kv[1])], ")"))
            return Group("OrderedDict(", [Group("[", pairs, "]")] if pairs else [], ")"), "OrderedDict(...)"
        if show is collections.Counter.__repr__:
            pairs = self.items(obj.most_common(), lambda kv: (self.doc(kv[0]), ": ", self.doc(kv[1])))
            return Group("Counter(", [Group("{", pairs, "}")] if pairs else [], ")"), "Counter(...)"
        if show is collections.deque.__repr__:
            docs = [Group("[", self.items(obj, self.doc), "]")]
            if obj.maxlen is not None:
                docs.append(f"maxlen={obj.maxlen}")
            return Group("deque(", docs, ")"), "deque(...)"
        return None

    def doc(self, obj):
        if id(obj) in self.open or len(self.open) > DEPTH_MAX:
            return {list: "[...]", tuple: "(...)", dict: "{...}", set: "{...}"}.get(type(obj), f"{type(obj).__name__}(...)")
        self.open.add(id(obj))
        try:
            found = self.container(obj)
            if found is not None:
                return found[0]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return unprintable(obj, error)
        finally:
            self.open.discard(id(obj))
        text = plain(obj)
        self.budget -= len(text)
        return text


def plain(obj):
    """The text of an object that is not a container."""
    try:
        if type(obj) in (str, bytes) and len(obj) > STRING_MAX:
            return long_string(obj)
        if isinstance(obj, type):
            if type(obj).__repr__ is type.__repr__:
                return qualified(obj)
        elif isinstance(obj, (types.FunctionType, types.BuiltinFunctionType)):
            return text_of_function(obj)
        elif isinstance(obj, re.Pattern):
            return text_of_regex(obj)
        elif isinstance(obj, BaseException) and type(obj).__repr__ is BaseException.__repr__:
            return f"{qualified(type(obj))}({', '.join(safe_repr(a) for a in obj.args)})"
        elif type(obj).__repr__ is object.__repr__:
            return f"<{qualified(type(obj))} at 0x{id(obj):x}>"
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass
    return safe_repr(obj)


def render(doc, column, after, out):
    """Writes a layout from `column` on, with `after` characters following it on its last line;
    returns the new column."""
    if isinstance(doc, str):
        out.append(doc)
        return len(doc) - doc.rfind("\n") - 1 if "\n" in doc else column + len(doc)
    if isinstance(doc, tuple):
        for i, part in enumerate(doc):
            column = render(part, column, sum(width_of(d) for d in doc[i + 1:]) + after, out)
        return column
    fits = column + doc.width + after <= WIDTH
    out.append(doc.open)
    column += len(doc.open)
    indent = column
    for i, item in enumerate(doc.items):
        last = i == len(doc.items) - 1
        column = render(item, column, len(doc.close) + after if last else 1, out)
        if not last:
            out.append(", " if fits else ",\n" + " " * indent)
            column = column + 2 if fits else indent
    out.append(doc.close)
    return column + len(doc.close)


def pretty(obj):
    try:
        out = []
        render(Layout().doc(obj), 0, 0, out)
        return "".join(out)
    except RecursionError:
        return safe_repr(obj)
