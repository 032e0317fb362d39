"""check.py - reports what code would use, from its syntax tree. The code is not executed.

The report lists facts: rule, place, subject. The server decides what follows from it and has the
texts (src/service/validate). It treats the report as hostile input, because a defect of the parser
may give the code control of this process. The check gives an early and friendly answer; it is not
a wall, and code that evades it meets the walls of the sandbox.

Names are resolved without regard to the order of statements: a name that the code binds to
`os.system` anywhere counts as that everywhere. A name of a builtin that the code binds itself is
the code's own, except that this is reported too (`shadowed_builtin`).
"""
import ast
import builtins
import re

from covekernel import check_rules

VIOLATIONS_MAX = 50
IMPORTS_MAX = 100
SUBJECT_MAX = 120
ORIGINS_MAX = 8
POWER_BITS_MAX = 1 << 20
REPEAT_MAX = 50_000_000

ALLOWED = frozenset(check_rules.ALLOWED.split())
DATA = frozenset(check_rules.DATA.split())
IMPURE = frozenset(check_rules.IMPURE.split())
IMPURE_NAMES = frozenset(check_rules.IMPURE_NAMES.split())
WALKS = frozenset(check_rules.WALKS.split())
WALK_FIELD = re.compile(r"\{[^{}]*[.\[](" + "|".join(sorted(WALKS)) + r")\b")  # in the pattern of str.format
NOT_MODULES = frozenset(check_rules.NOT_MODULES.split())
PLAIN_INTERNALS = frozenset(check_rules.PLAIN_INTERNALS.split())
MODULES = {name: rule for rule, names in check_rules.REFUSED.items() for name in names.split()}
NAMES = {name: rule for rule, names in check_rules.NAMES.items() for name in names.split()}
SCOPES = {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp}
BRANCHES = {ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.Assert}
BINDERS = {ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.ExceptHandler, ast.MatchAs, ast.MatchStar}
WORDS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)  # nodes without content
LOOP_ENDS = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)
NAMESPACES = ("sys.modules", "__builtins__", "globals()", "locals()", "vars()")
IMPORTERS = ("__import__", "importlib.import_module", "importlib.__import__")


def subclasses(kind):
    """A class and all classes that are derived from it."""
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


NODES = frozenset(subclasses(ast.AST).difference(*map(subclasses, WORDS)))


def link(tree):
    """All nodes; each gets a list of its children, which is faster than to look for them again."""
    found = [tree]
    for node in found:
        inside = []
        for value in vars(node).values():
            kind = type(value)
            if kind in NODES:
                inside.append(value)
            elif kind is list:
                inside += [v for v in value if type(v) in NODES]
        node.inside = inside
        found += inside
    return found


def names_in(node):
    found = [node]
    for inner in found:
        found += inner.inside
    return {inner.id for inner in found if type(inner) is ast.Name}


def module_rule(name, data):
    """The rule that refuses this module, or None."""
    for part in (name, ".".join(name.split(".")[:2]), name.split(".")[0]):
        if part in ALLOWED:
            return None
        if part in MODULES:
            return MODULES[part]
        if part in DATA:
            return None if data else "import_data"
    return "import_other"


def plain(name):
    return name.removeprefix("builtins.").removeprefix("__builtins__.")


def text_of(node):
    """The constant string of an expression, if it is one; `+`, join and f-strings of constants
    count."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None or right is None else (left + right)[:200]
    if isinstance(node, ast.JoinedStr):
        parts = [text_of(v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]
        return None if None in parts else "".join(parts)[:200]
    if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join" and
            len(node.args) == 1 and isinstance(node.args[0], (ast.List, ast.Tuple))):
        glue, parts = text_of(node.func.value), [text_of(e) for e in node.args[0].elts]
        return None if glue is None or None in parts else glue.join(parts)[:200]
    return None


def number_of(node):
    """The value of a constant integer, of powers of two of them at most; otherwise None."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.Mult)):
        left, right = number_of(node.left), number_of(node.right)
        if left is None or right is None or right < 0 or left.bit_length() > 64 or right.bit_length() > 64:
            return None
        if isinstance(node.op, ast.Mult):
            return left * right
        return left ** right if left.bit_length() * right <= 1024 else None
    return None


def targets_of(node):
    """The names that a statement or expression binds in its scope."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name


def parameters_of(node):
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            yield argument.arg


def bound_in(scope):
    """The names bound in a scope itself, not in the scopes inside it. In a function, such a name is
    never a builtin."""
    found, shared = set(), set()
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        found.update(parameters_of(scope))
    rest = list(scope.inside)
    while rest:
        node = rest.pop()
        kind = type(node)
        if kind in BINDERS:
            found.update(targets_of(node))
        elif kind is ast.Global or kind is ast.Nonlocal:
            shared.update(node.names)
        if kind not in SCOPES:
            rest += node.inside
    return found - shared


def bound_first(body):
    """The names that the statements of a module or class surely bind. There, a name that is bound
    only under a condition may still be the builtin."""
    found = set()
    for node in body:
        if isinstance(node, ast.Assign):
            loaded = names_in(node.value)
            found.update(t.id for t in node.targets if isinstance(t, ast.Name) and t.id not in loaded)
        else:
            found.update(targets_of(node))
    return found


class Check:
    def __init__(self, data):
        self.data = data
        self.violations, self.places, self.omitted = [], set(), 0
        self.imports, self.imported = [], set()  # modules; the first parts of their names
        self.origins = {}  # name -> the dotted names that the code binds to it
        self.walk_fields = []  # attributes that a text of the code names as str.format reads them
        self.scopes = []  # (type, names that it binds) of the scopes around a node
        self.complexity = 1
        self.pure = True

    def add(self, rule, node, subject=""):
        place = (rule, getattr(node, "lineno", 0), getattr(node, "col_offset", -1))
        if place in self.places:
            return
        self.places.add(place)
        self.pure = False
        if len(self.violations) == VIOLATIONS_MAX:
            self.omitted += 1
            return
        self.violations.append({"rule": rule, "line": max(place[1], 0), "column": place[2] + 1, "subject": subject[:SUBJECT_MAX]})

    # --- imports ---

    def use_module(self, name, node, subject=None):
        if name not in self.imports and len(self.imports) < IMPORTS_MAX:
            self.imports.append(name[:SUBJECT_MAX])
        self.imported.add(name.split(".")[0])
        rule = module_rule(name, self.data)
        if rule:
            self.add(rule, node, subject or name)
        if name.split(".")[0] in IMPURE:
            self.pure = False

    def bind(self, name, origin):
        known = self.origins.setdefault(name, set())
        if len(known) < ORIGINS_MAX:
            known.add(origin)

    def read_import(self, node):
        for alias in node.names:
            self.bind(alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0])

    def read_import_from(self, node):
        for alias in node.names:
            self.bind(alias.asname or alias.name, f"{node.module}.{alias.name}")

    def collect(self, tree):
        """Finds the origins of names. Assignments to names that only later stand for something are
        followed for a few rounds."""
        assignments = []
        for node in link(tree):
            kind = type(node)
            if kind is ast.Import:
                self.read_import(node)
            elif kind is ast.ImportFrom and node.level == 0 and node.module:
                self.read_import_from(node)
            elif kind is ast.Assign:
                for target in node.targets:
                    if isinstance(target, ast.Name) and isinstance(node.value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                        assignments.append((target.id, node.value))
            elif kind is ast.NamedExpr and isinstance(node.target, ast.Name):
                assignments.append((node.target.id, node.value))
            elif kind is ast.Constant and isinstance(node.value, str):
                self.walk_fields += WALK_FIELD.findall(node.value)
        for _ in range(3):
            before = sum(map(len, self.origins.values()))
            for name, value in assignments:
                for origin in self.resolve(value):
                    if origin != name:
                        self.bind(name, origin)
            if sum(map(len, self.origins.values())) == before:
                break

    # --- names ---

    def is_own(self, name):
        """Whether the code binds this name around the node, and to nothing that is known."""
        return name not in self.origins and (name in self.scopes[-1][1] or any(name in names for kind, names in self.scopes if kind is not ast.ClassDef))

    def resolve(self, node):
        """The dotted names that an expression may stand for."""
        parts = []
        while True:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Subscript) and text_of(node.slice) is not None:
                found = ".".join([text_of(node.slice), *reversed(parts)])
                names = set()
                for base in self.resolve(node.value):
                    if base in NAMESPACES:
                        names.add(found)
                    elif base.endswith(".__dict__"):
                        names.add(plain(base.removesuffix("__dict__") + found))
                return names
            elif isinstance(node, ast.Call):
                return {".".join([base, *reversed(parts)]) for base in self.resolve_call(node)}
            elif isinstance(node, ast.Name):
                bases = self.origins.get(node.id) or {node.id}
                return {plain(".".join([base, *reversed(parts)])) for base in bases}
            else:
                return set()

    def resolve_call(self, node):
        called = self.resolve(node.func) if not isinstance(node.func, ast.Call) else set()
        first = text_of(node.args[0]) if node.args else None
        if first is not None and called & set(IMPORTERS):
            return {first}
        if "getattr" in called and len(node.args) >= 2 and text_of(node.args[1]) is not None:
            return {plain(f"{base}.{text_of(node.args[1])}") for base in self.resolve(node.args[0])}
        if "vars" in called and node.args:
            return {f"{base}.__dict__" for base in self.resolve(node.args[0])}
        return {f"{name}()" for name in called & {"globals", "locals", "vars"}}

    def use_names(self, node, names):
        for name in names:
            rule = NAMES.get(name)
            if rule is None and name.count(".") > 1 and name.split(".")[0] in self.imported:  # json.codecs.open
                parts = name.split(".")
                rule = NAMES.get(".".join(parts[-2:])) or NAMES.get(".".join(parts[-3:]))
            if rule is None and "." in name:
                root = name.split(".")[0]
                if root in MODULES and name not in ALLOWED:
                    if root in self.imported:
                        self.name_use(root, name)
                    else:
                        rule = module_rule(name.rpartition(".")[0], self.data)
            if rule:
                self.add(rule, node, name)

    def name_use(self, module, name):
        """The first use of a refused module says more than its import."""
        for violation in self.violations:
            if violation["subject"] == module:
                violation["subject"] = name[:SUBJECT_MAX]

    def is_internal(self, module, name):
        """Whether an attribute of a module is another module, or not for its users."""
        if name.startswith("_"):
            return name not in PLAIN_INTERNALS
        return name in MODULES and f"{module}.{name}" not in NOT_MODULES

    def use_attribute(self, node, name):
        if name in WALKS:
            self.add("dunder_walk", node, name)

    # --- nodes ---

    def visit(self, node):
        kind = type(node)
        if kind in BRANCHES:
            self.complexity += 1
        elif kind is ast.BoolOp:
            self.complexity += len(node.values) - 1
        if kind in HANDLERS:
            HANDLERS[kind](self, node)
        if kind not in SCOPES:
            for child in node.inside:
                self.visit(child)
            return
        self.scopes.append((type(node), bound_first(node.body) if isinstance(node, ast.ClassDef) else bound_in(node)))
        for child in node.inside:
            self.visit(child)
        self.scopes.pop()

    def on_Import(self, node):
        for alias in node.names:
            self.use_module(alias.name, node)

    def on_ImportFrom(self, node):
        if node.level or not node.module:
            self.add("import_other", node, "." * node.level + (node.module or ""))
            return
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            self.use_module(full if full in ALLOWED else node.module, node, full)
            if alias.name == "*":
                self.add("import_star", node, node.module)
            elif full not in ALLOWED and module_rule(node.module, self.data) is None and self.is_internal(node.module, alias.name):
                self.add("module_internal", node, full)
            else:
                self.use_names(node, {full} & NAMES.keys())

    def on_Name(self, node):
        if not isinstance(node.ctx, ast.Load):
            self.use_binding(node, node.id)
            return
        if node.id in IMPURE_NAMES:
            self.pure = False
        if (node.id in NAMES or node.id in self.origins) and not self.is_own(node.id):
            self.use_names(node, self.resolve(node))

    def on_Attribute(self, node):
        self.use_attribute(node, node.attr)
        if isinstance(node.value, (ast.Name, ast.Attribute)):
            for name in self.resolve(node.value):
                if name in self.imports and self.is_internal(name, node.attr):
                    self.add("module_internal", node, f"{name}.{node.attr}")
        root = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if not (isinstance(root, ast.Name) and self.is_own(root.id)):
            self.use_names(node, self.resolve(node))

    def on_MatchClass(self, node):
        for name in node.kwd_attrs:
            self.use_attribute(node, name)

    def on_Subscript(self, node):
        key = text_of(node.slice)
        if key is not None:
            self.use_attribute(node, key)
            names = self.resolve(node)
            self.use_names(node, names)
            for module, _, last in (name.rpartition(".") for name in names):
                if module in self.imports and self.is_internal(module, last):
                    self.add("module_internal", node, f"{module}.{last}")

    def use_binding(self, node, name):
        if name in NAMES and name in builtins.__dict__ and self.scopes[-1][0] is not ast.ClassDef:
            self.add("shadowed_builtin", node, name)

    def on_FunctionDef(self, node):
        self.use_binding(node, node.name)

    on_AsyncFunctionDef = on_ClassDef = on_FunctionDef

    def on_Call(self, node):
        called = self.resolve(node.func)
        first = text_of(node.args[0]) if node.args else None
        if called & set(IMPORTERS):
            self.add("call_import", node, first or "")
            if first is not None:
                self.use_module(first, node)
        if called & {"getattr", "setattr", "delattr", "hasattr"} and len(node.args) >= 2:
            self.use_dynamic(node, text_of(node.args[1]))
            self.use_names(node, self.resolve(node))
        elif called & {"operator.attrgetter", "operator.methodcaller"} and node.args:
            for argument in node.args:
                self.use_dynamic(node, text_of(argument))
        elif isinstance(node.func, ast.Attribute):
            self.use_method(node, node.func)
        if called == {"vars"} and not node.args and not self.is_own("vars"):
            self.add("call_namespace", node, "vars")

    def use_method(self, node, method):
        """Methods that read attributes whose names are in a text. The text may be a variable, so
        any text of the code counts."""
        if method.attr in ("format", "format_map", "vformat"):
            pattern = text_of(method.value)
            for name in self.walk_fields if pattern is None else WALK_FIELD.findall(pattern):
                self.use_attribute(node, name)
        elif method.attr == "get_field" and node.args:
            self.use_dynamic(node, text_of(node.args[0]))

    def use_dynamic(self, node, name):
        if name is None:
            self.add("dynamic_attribute", node)
        else:
            for part in name.split("."):
                self.use_attribute(node, part)

    def on_While(self, node):
        if not isinstance(node.test, ast.Constant) or not node.test.value:
            return
        rest = list(node.body)
        while rest:
            inner = rest.pop()
            if isinstance(inner, LOOP_ENDS) or (isinstance(inner, ast.Call) and self.resolve(inner.func) & {"sys.exit", "exit", "quit", "input"}):
                return
            if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                rest += inner.inside
        self.add("infinite_loop", node)

    def on_BinOp(self, node):
        if isinstance(node.op, ast.Pow):
            base, exponent = number_of(node.left), number_of(node.right)
            if exponent is not None and exponent * (base.bit_length() if base is not None else 2) > POWER_BITS_MAX:
                self.add("large_value", node)
        elif isinstance(node.op, ast.Mult):
            for some, count in ((node.left, node.right), (node.right, node.left)):
                if isinstance(some, (ast.List, ast.Tuple, ast.JoinedStr)) or isinstance(some, ast.Constant) and isinstance(some.value, (str, bytes)):
                    if (number_of(count) or 0) > REPEAT_MAX:
                        self.add("large_value", node)


HANDLERS = {getattr(ast, name[3:]): handler for name, handler in vars(Check).items() if name.startswith("on_")}


def examine(code, data=False):
    """{violations, omitted, imports, complexity, pure} of code; data: it may import NumPy, pandas
    and matplotlib."""
    check = Check(data)
    try:
        tree = compile(code, "<check>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        check.collect(tree)
        check.scopes.append((ast.Module, bound_first(tree.body)))
        check.visit(tree)
    except SyntaxError as error:
        detail = str(error.msg)[:SUBJECT_MAX]
        place = ast.Pass(lineno=error.lineno or 0, col_offset=(error.offset or 0) - 1)
        rule = "too_complex" if "too many nested" in detail or "too complex" in detail else "syntax_error"
        line = (error.text or "").lstrip()
        check.add("shell_magic" if line.startswith(("!", "%")) else rule, place, line.split("\n")[0] if line.startswith(("!", "%")) else detail)
    except ValueError as error:  # NUL bytes, lone surrogates, integers with too many digits
        check.add("syntax_error", None, str(error))
    except (RecursionError, MemoryError):
        check = Check(data)
        check.add("too_complex", None)
    return {"violations": check.violations, "omitted": check.omitted, "imports": check.imports,
            "complexity": check.complexity, "pure": check.pure and not check.violations}
