#!/usr/bin/env python3
"""check_test.py - the check of code by the Python kernel: its reports, the code that it leaves
alone, and that nothing of the code runs; prints TAP.

    tests/kernels/check_test.py [WORD...]     those whose title contains a word
"""
import ast
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kernel import ROOT, Kernel, collect, equal, holds, main  # noqa: E402

kernels = {}


def shared():
    if "python" not in kernels or kernels["python"].process.poll() is not None:
        kernels["python"] = Kernel("python-member")
    return kernels["python"]


def check(code, data=False, kernel=None):
    k = kernel or shared()
    id = k.new_id()
    k.send({"op": "check", "id": id, "code": code, "data": data})
    event = k.until(lambda e: e.get("id") == id)
    equal(event["event"], "report", f"{code[:80]!r}: {event}")
    return event["report"]


def rules(code, data=False):
    return [v["rule"] for v in check(code, data)["violations"]]


# Each evades a list of substrings, or is a usual way around one.
BYPASSES = [
    ("import  os", "import_process"),
    ("import\tos", "import_process"),
    ("import math, os", "import_process"),
    ("from subprocess import run", "import_process"),
    ("from os import system as s; s('id')", "import_process"),
    ("import os.path as p; p.os.system('id')", "import_process"),
    ("import importlib; importlib.import_module('o' + 's')", "import_dynamic"),
    ("__import__('o' + 's').system('id')", "import_process"),
    ("f = __import__\nf('os')", "call_import"),
    ("__import__(''.join(['o', 's']))", "import_process"),
    ("import ctypes", "import_native"),
    ("import http.client", "import_network"),
    ("from urllib import request", "import_network"),
    ("import urllib", "import_network"),
    ("from pathlib import Path; Path('/etc/passwd').read_text()", "import_files"),
    ("e = eval; e('1')", "call_eval"),
    ("(eval,)[0]('1')", "call_eval"),
    ("getattr(__builtins__, 'ev' + 'al')('1')", "call_eval"),
    ("__builtins__['eval']('1')", "call_eval"),
    ("import builtins; builtins.exec('1')", "call_eval"),
    ("globals()['__builtins__']", "interpreter_state"),
    ("vars()['x']", "call_namespace"),
    ("import sys; sys.modules['os'].system('id')", "import_process"),
    ("import io as q; q.open('/etc/passwd')", "call_open"),
    ("import io; io.FileIO('/etc/passwd')", "call_open"),
    ("with open('x') as f: pass", "call_open"),
    ("().__class__.__bases__[0].__subclasses__()", "dunder_walk"),
    ("getattr((), '__cl' + 'ass__').__base__", "dunder_walk"),
    ("'{0.__class__.__mro__}'.format(1)", "dunder_walk"),
    ("import operator; operator.attrgetter('__class__.__bases__')(1)", "dunder_walk"),
    ("(lambda: 0).__globals__", "dunder_walk"),
    ("print.__self__.eval('1')", "dunder_walk"),
    ("try: 1/0\nexcept Exception as e: e.__traceback__.tb_frame.f_globals", "dunder_walk"),
    ("import random; random._os.system('id')", "module_internal"),
    ("import uuid; uuid.os.system('id')", "module_internal"),
    ("from random import _os as o; o.system('id')", "module_internal"),
    ("from uuid import os; os.system('id')", "module_internal"),
    ("import json; json.codecs.open('x')", "call_open"),
    ("import json; json.decoder.scanner.re.enum.sys.modules['os'].system('id')", "interpreter_state"),
    ("import sys; vars(sys)['modules']['os'].system('id')", "interpreter_state"),
    ("import sys; sys.__dict__['modules']['os'].system('id')", "import_process"),
    ("import io; vars(io)['open']('x')", "call_open"),
    ("import random; vars(random)['_os'].system('id')", "module_internal"),
    ("import timeit; timeit.main(['import os'])", "call_eval"),
    ("def f(): pass\nstr.format('{0.__globals__}', f)", "dunder_walk"),
    ("p = '{0.__globals__[x]}'\np.format(1)", "dunder_walk"),
    ("p = '{0[__globals__]}'\np.format_map([1])", "dunder_walk"),
    ("import string; string.Formatter().vformat('{0.__globals__}', [1], {})", "dunder_walk"),
    ("import string; string.Formatter().get_field('0.__globals__', [1], {})", "dunder_walk"),
    ("match print:\n    case object(__self__=b): b.eval('1')", "dunder_walk"),
    ("def f(n): return getattr(1, n)", "dynamic_attribute"),
    ("import types; types.FunctionType", "call_eval"),
    ("import typing; typing.get_type_hints", "call_eval"),
    ("eval = 1 if 0 else eval\neval('1')", "call_eval"),
    ("if 0:\n    def eval(x): pass\neval('1')", "call_eval"),
    ("class A:\n    def eval(self): return eval('1')", "call_eval"),
    ("def f():\n    global eval\n    if 0: eval = 1\n    return eval('1')", "call_eval"),
    ("@eval\ndef f(): pass", "call_eval"),
    ("def f(x=eval('1')): pass", "call_eval"),
    ("f'{eval(1)}'", "call_eval"),
    ("from . import x", "import_other"),
    ("import unknown_module", "import_other"),
    ("import pip", "import_install"),
    ("!pip install x", "shell_magic"),
    ("breakpoint()", "call_debugger"),
    ("while True: pass", "infinite_loop"),
    ("while 1:\n    def f(): return 1", "infinite_loop"),
    ("'a' * 10 ** 9", "large_value"),
    ("9 ** 9 ** 9", "large_value"),
    ("import time; time.sleep(1)", "call_sleep"),
    ("input()", "call_input"),
    ("f(", "syntax_error"),
    ("x\0", "syntax_error"),
    ("(" * 500, "too_complex"),
    ("-" * 60000 + "1", "too_complex"),
    ("+".join(["1"] * 30000), "too_complex"),
    ("a" + ".a" * 30000, "too_complex"),
    ("[" * 150 + "]" * 150 + "\n" + "x" + "[0]" * 20000, "too_complex"),
    ("1" + "0" * 5000, "syntax_error"),
]


def test_every_known_bypass_is_reported():
    for code, rule in BYPASSES:
        found = rules(code)
        holds(rule in found, f"{code[:80]!r}: {found}, without {rule}")


# A list of substrings refuses each of these, and none does any harm.
PLAIN = [
    "def profile(x): return x\nprofile(1)",
    "def reopen(): pass\nreopen()",
    "x = 1  # eval() is not used here",
    "s = 'import os; eval(open(x))'",
    '"""exec, compile and __import__ are words in a text"""',
    "result = sum([1, 2, 3, 4, 5])",
    "data = {'name': 'test', 'value': 42}\nprocessed = [x * 2 for x in range(10)]",
    "import re\npattern = re.compile('a+')\npattern.match('aa')",
    "import math, json, statistics\njson.dumps([math.pi, statistics.mean([1, 2])])",
    "from urllib.parse import quote\nquote('a b')",
    "from urllib import parse",
    "import collections.abc",
    "class A:\n    def open(self): return self.eval()\n    def eval(self): return 1\nA().open()",
    "def f(open): return open(1)\nf(print)",
    "x.__class__.__name__",
    "class A:\n    def __init__(self): super().__init__()",
    "isinstance(1, int), list(map(str, enumerate([1]))), type(1), hasattr(1, 'real'), getattr(1, 'real')",
    "while True:\n    if f(): break",
    "def f():\n    while True:\n        yield 1",
    "import collections\ncollections.namedtuple('P', 'x y')(1, 2)._asdict()",
    "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 0",
    "import datetime\ndatetime.datetime.now()",
    "match x:\n    case {'a': y}: pass",
    "x = [y := 1, y ** 2]",
    "import sys\nsys.exit(3)",
    "from io import StringIO\nStringIO('a').read()",
    "'{0.name} {1}'.format(a, b)",
    "2 ** 100, 'ab' * 100",
    "import sys, math\nsys.platform, math.__name__, math.__doc__",
    "x = '{0.__globals__}'  # as a text\nprint(x, '{}'.format(x))",
    "class A: pass\nvars(A), A.__dict__.get('x'), vars(A).get('y')",
]


def test_code_that_only_looks_dangerous_is_left_alone():
    for code in PLAIN:
        equal(rules(code), [], f"{code!r}")


def test_numpy_needs_the_template_that_has_it():
    equal(rules("import numpy as np"), ["import_data"])
    equal(rules("import numpy as np\nnp.arange(3), np.trace(a), np.select(b, c), np.__version__", data=True), [])
    equal(rules("import numpy as np\nnp.os", data=True), ["module_internal"])
    equal(rules("import pandas as pd\npd.read_csv('x')", data=True), ["call_open"])
    equal(rules("import matplotlib.pyplot as plt\nplt.show()", data=True), ["call_show"])


def test_the_first_use_of_a_module_is_the_subject():
    report = check("import os\nx = 1\nprint(os.listdir('.'))")
    equal([(v["rule"], v["line"], v["subject"]) for v in report["violations"]], [("import_process", 1, "os.listdir")])
    equal(report["imports"], ["os"])


def test_pure_code_has_no_clock_chance_or_input():
    for code, pure in (("sum([1])", True), ("import math\nmath.sqrt(2)", True), ("import random", False), ("from datetime import date", False),
                       ("id(1)", False), ("hash('a')", False), ("input()", False), ("import sys", False), ("object()", False), ("import os", False)):
        equal(check(code)["pure"], pure, code)


def test_complexity_counts_branches():
    equal(check("x = 1")["complexity"], 1)
    equal(check("for x in y:\n    if x and z: pass")["complexity"], 4)


def test_nothing_of_checked_code_runs_and_no_state_stays():
    with Kernel("python") as k:
        k.run("x = 'before'")
        check("x = 'after'\nimport sys\nsys.stdout.write('ran')\nraise SystemExit", kernel=k)
        check("f(", kernel=k)
        done = k.run("x, _ if '_' in globals() else None")
        equal((done.status, done.value, done.stdout), ("ok", "('before', None)", ""))
        equal(k.run("1").count, 3)


def test_a_report_is_bounded():
    report = check("".join(f"import os{n}\n" for n in range(500)) + "eval" * 3)
    equal((len(report["violations"]), len(report["imports"]), report["omitted"]), (50, 100, 450))
    report = check("import " + "a" * 10000)
    holds(max(len(v["subject"]) for v in report["violations"]) <= 120, report)


def test_a_request_without_code_is_refused():
    k = shared()
    k.send({"op": "check", "id": "x"})
    equal(k.until(lambda e: e["event"] == "refused")["why"], "code is not a string")


def test_the_server_knows_every_rule():
    with open(os.path.join(ROOT, "src/service/validate/rules.def"), encoding="utf-8") as f:
        known = set(re.findall(r'^RULE\(\w+, +"(\w+)"', f.read(), re.M))
    with open(os.path.join(ROOT, "runtimes/python/covekernel/check.py"), encoding="utf-8") as f:
        tree = ast.parse(f.read())
    sys.path.insert(0, os.path.join(ROOT, "runtimes/python"))
    from covekernel import check_rules
    used = {*check_rules.REFUSED, *check_rules.NAMES, "import_data", "import_other"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add" and node.args and isinstance(node.args[0], ast.Constant):
            used.add(node.args[0].value)
    holds(len(used) > 20 and used <= known, used - known)


def test_no_module_is_allowed_and_refused():
    sys.path.insert(0, os.path.join(ROOT, "runtimes/python"))
    from covekernel import check_rules
    refused = [name for names in check_rules.REFUSED.values() for name in names.split()]
    equal(len(refused), len(set(refused)))
    equal(set(refused) & {*check_rules.ALLOWED.split(), *check_rules.DATA.split()}, set())


if __name__ == "__main__":
    code = main(collect(globals()))
    for kernel in kernels.values():
        kernel.close()
    sys.exit(code)
