#!/usr/bin/env python3
"""rich_test.py - checks that a table of objects is displayed as IPython displays them, and that
figures carry their data; prints TAP.

    tests/kernels/rich_test.py              against the recording, and IPython where it is installed
    tests/kernels/rich_test.py --record     writes rich_expected.json with Debian's python3-ipython

The output of IPython is recorded because installing it for every check is slow; the recording is of
Debian 12's versions. Additional representations are allowed where they are named below: JSON of
tables and the data of charts.
"""
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kernel import HERE, PYTHON, Kernel, collect, equal, holds, main  # noqa: E402

EXPECTED = os.path.join(HERE, "rich_expected.json")
OURS = {"application/json", "application/vnd.cove.chart+json"}

SHARED = """
import collections, dataclasses, datetime, decimal, enum, fractions, io, pathlib, re, types, uuid
import numpy as np, pandas as pd
import matplotlib
matplotlib.rcParams['figure.dpi'] = 72
from matplotlib.figure import Figure
class Rich:
    def __init__(self, **forms): self.forms = forms
    def __repr__(self): return 'Rich()'
def offers(**forms):
    return type('Rich', (), {**{f'_repr_{n}_': (lambda self, v=v: v) for n, v in forms.items()}, '__repr__': lambda self: 'Rich()'})()
@dataclasses.dataclass
class Point:
    x: int
    y: float = 2.5
class Colour(enum.Enum):
    RED = 1
Named = collections.namedtuple('Named', 'a b')
class Bare:
    pass
def function(a, *rest, key=None, **options):
    pass
"""
TABLE = [
    ("an int", "12345678901234567890"), ("a float", "0.1 + 0.2"), ("a complex", "3 - 4j"), ("a bool", "True"), ("a str", "'it\\'s \"so\"\\n\\t\\u00e9\\x00'"),
    ("bytes", "b'\\x00abc\\xff'"), ("an empty list", "[]"), ("a short list", "[1, 'two', 3.0, None]"), ("a long list", "list(range(60))"),
    ("a list past a thousand", "list(range(1500))"), ("nested lists", "[[i * 1000 + j for j in range(12)] for i in range(12)]"), ("a tuple of one", "(1,)"), ("a tuple", "tuple('abcdef')"),
    ("a dict", "{'name': 'x', 2: [1, 2]}"), ("a wide dict", "{f'key_{i}': {'value': i, 'text': 'x' * i} for i in range(12)}"), ("a set", "{5, 3, 9, 1}"), ("a frozenset", "frozenset('cab')"),
    ("an empty set", "set()"), ("a range", "range(3, 9)"), ("a defaultdict", "collections.defaultdict(list, {'a': [1]})"), ("an OrderedDict", "collections.OrderedDict([('a', 1), ('b', 2)])"),
    ("a Counter", "collections.Counter('abracadabra')"), ("a deque", "collections.deque([1, 2, 3], maxlen=5)"), ("a namedtuple", "Named(1, 'b')"), ("a dataclass", "Point(1)"), ("an enum", "Colour.RED"),
    ("a date", "datetime.datetime(2024, 5, 17, 12, 30)"), ("a Decimal", "decimal.Decimal('1.10')"), ("a Fraction", "fractions.Fraction(3, 4)"), ("a path", "pathlib.PurePosixPath('/a/b')"),
    ("a UUID", "uuid.UUID(int=5)"), ("a regular expression", "re.compile(r'a\\d+', re.I)"), ("an exception", "KeyError('gone')"), ("a class", "Bare"), ("a builtin class", "dict"), ("a function", "function"),
    ("a builtin function", "len"), ("a module's function", "json_dumps"), ("a list that holds itself", "loop"), ("html", "offers(html='<b>x</b>')"), ("markdown", "offers(markdown='# x')"),
    ("svg", "offers(svg='<svg></svg>')"), ("png", "offers(png=b'\\x89PNG\\r\\n')"), ("jpeg with metadata", "offers(jpeg=(b'\\xff\\xd8', {'width': 10}))"), ("pdf", "offers(pdf=b'%PDF-1.4')"),
    ("latex", "offers(latex='$x^2$')"), ("json", "offers(json={'a': [1, 2, None]})"), ("javascript", "offers(javascript='alert(1)')"), ("several forms", "offers(html='<i>', markdown='*i*', latex='i')"),
    ("a mimebundle", "bundle"), ("an ndarray", "np.arange(12).reshape(3, 4)"), ("a large ndarray", "np.zeros((200, 200))"), ("a numpy scalar", "np.float64(1.5)"), ("a DataFrame", "frame"),
    ("a long DataFrame", "pd.DataFrame({'n': range(500), 'sq': [i * i for i in range(500)]})"), ("a Series", "frame['b']"), ("an Index", "frame.index"), ("a groupby mean", "frame.groupby('b').mean(numeric_only=True)"),
    ("a figure", "figure"), ("an ellipsis", "..."), ("a slice", "slice(1, 5, 2)"), ("a bytearray", "bytearray(b'ab')"), ("a type of numpy", "np.dtype('float64')"),
    ("long strings in a list", "['x' * 50, 'y' * 50]"), ("a SimpleNamespace", "types.SimpleNamespace(a=1, b='two')"), ("a mapping proxy", "types.MappingProxyType({'a': 1})"),
]
MORE = """
from json import dumps as json_dumps
loop = [1]
loop.append(loop)
class _B:
    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/html': '<p>', 'application/x-y': 'own'}
    def __repr__(self): return 'B()'
bundle = _B()
frame = pd.DataFrame({'a': [1, 2, 3], 'b': ['x', 'y', 'x'], 'c': [0.5, None, 1.5]}, index=['r1', 'r2', 'r3'])
figure = Figure(figsize=(3, 2))
figure.subplots().plot([1, 2, 3])
"""
RECORDER = r"""
import base64, json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
shell = InteractiveShell.instance()
given = json.load(sys.stdin)
import __main__
space = __main__.__dict__
exec(given["setup"], space)
select_figure_formats(shell, {"png"})
answer = {}
for name, code in given["table"]:
    data, meta = shell.display_formatter.format(eval(code, space))
    answer[name] = {"data": {m: base64.b64encode(v).decode() if isinstance(v, bytes) else v for m, v in data.items()}, "meta": {m: v for m, v in meta.items() if v}}
print(json.dumps(answer))
"""


def size_of_png(text):
    return struct.unpack(">II", base64.b64decode(text)[16:24])


def comparable(forms):
    """Images are compared by their size: their pixels depend on matplotlib."""
    data = dict(forms["data"])
    if len(data.get("image/png", "")) > 1000:
        data["image/png"] = list(size_of_png(data["image/png"]))
    return {"data": {m: v.replace("\r\n", "\n") if isinstance(v, str) and not m.startswith("image/") else v for m, v in data.items()}, "meta": forms["meta"]}


def recorded_by_ipython():
    given = json.dumps({"setup": SHARED + MORE, "table": TABLE})
    with tempfile.TemporaryDirectory() as home:  # both leave caches there
        done = subprocess.run([PYTHON, "-c", RECORDER], input=given, capture_output=True, text=True, timeout=300,
                              env={"PATH": os.environ["PATH"], "HOME": home, "IPYTHONDIR": home, "MPLBACKEND": "agg"})
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    return {name: comparable(forms) for name, forms in json.loads(done.stdout.splitlines()[-1]).items()}


def has(module):
    return subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, timeout=120).returncode == 0


def shown(k, code):
    done = k.run(code)
    equal(done.status, "ok", f"{code}: {done.error}")
    result = done.result or {"data": {}, "meta": {}}
    return comparable({"data": result["data"], "meta": result["meta"]})


def compare(expected, k):
    for name, code in TABLE:
        got, want = shown(k, code), expected[name]
        extra = set(got["data"]) - set(want["data"])
        holds(extra <= OURS, f"{name}: {extra} is not in IPython's output")
        for mime in want["data"]:
            got_value = got["data"].get(mime)
            want_value = want["data"][mime].replace("\0", "\ufffd") if isinstance(want["data"][mime], str) else want["data"][mime]
            equal(got_value, want_value, f"{name}, {mime}")
        equal({m: v for m, v in got["meta"].items() if m not in OURS}, want["meta"], f"{name}, metadata")


kernels = {}


def kernel():
    if not kernels:
        kernels["one"] = Kernel("python")
        done = kernels["one"].run(SHARED + MORE)
        equal(done.status, "ok", done.error)
    return kernels["one"]


def test_the_table_has_at_least_forty_objects():
    holds(len(TABLE) >= 40 and len({name for name, _ in TABLE}) == len(TABLE), len(TABLE))


def test_objects_are_displayed_as_ipython_displayed_them():
    with open(EXPECTED, encoding="utf-8") as f:
        compare(json.load(f), kernel())


def test_the_recording_matches_the_installed_ipython():
    with open(EXPECTED, encoding="utf-8") as f:
        recorded = json.load(f)
    equal(sorted(recorded), sorted(name for name, _ in TABLE))
    if has("IPython"):
        equal(json.loads(json.dumps(recorded_by_ipython())), recorded)


def test_a_table_is_sent_as_json_too():
    done = kernel().run("frame")
    equal(done.data["application/json"], {"a": [1, 2, 3], "b": ["x", "y", "x"], "c": [0.5, None, 1.5]})
    equal(done.result["meta"]["application/json"], {"kind": "dataframe", "rows": 3, "columns": 3, "shown": 3})
    done = kernel().run("pd.DataFrame({'n': range(200_000), 't': pd.Timestamp('2024-01-02')})")
    equal((done.result["meta"]["application/json"]["rows"], len(done.data.get("application/json", {"n": []})["n"]) <= 50000), (200000, True))
    done = kernel().run("pd.DataFrame([[1, 2]], columns=['d', 'd'])")
    equal(done.data["application/json"], {"d": [1], "d_": [2]})
    holds("2024-01-02T" in kernel().run("pd.DataFrame({'t': [pd.Timestamp('2024-01-02')]})").data["application/json"]["t"][0], "times must be ISO 8601")


# --- charts ---

def chart(code):
    done = kernel().run("import matplotlib.pyplot as plt, numpy as np\n" + code)
    equal(done.status, "ok", done.error)
    equal(len(done.displays), 1, done.events)
    data = done.displays[0]["data"]
    holds(base64.b64decode(data["image/png"]).startswith(b"\x89PNG"), "a picture")
    return data["application/vnd.cove.chart+json"]


def test_lines_have_points_labels_units_scales_and_ticks():
    found = chart("plt.plot([1, 2, 3], [10, 100, 1000], label='growth'); plt.plot([1, 2], [5, 6])\nplt.title('T'); plt.xlabel('time (s)'); plt.ylabel('size [MB]'); plt.yscale('log'); plt.axhline(50)\nplt.show()")
    equal({k: found[k] for k in ("type", "title", "x_label", "y_label", "x_unit", "y_unit", "x_scale", "y_scale")},
          {"type": "line", "title": "T", "x_label": "time (s)", "y_label": "size [MB]", "x_unit": "s", "y_unit": "MB", "x_scale": "linear", "y_scale": "log"})
    equal(found["elements"], [{"label": "growth", "points": [[1, 10], [2, 100], [3, 1000]]}, {"label": "Line 2", "points": [[1, 5], [2, 6]]}])
    equal(len(found["x_ticks"]), len(found["x_tick_labels"]))


def test_dates_and_words_on_an_axis_are_kept():
    found = chart("import datetime as dt\nplt.plot([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)], [1, 2]);")
    equal((found["x_scale"], found["elements"][0]["points"][0]), ("datetime", ["2024-01-01T00:00:00", 1]))
    found = chart("plt.plot(['a', 'b'], [1, 2]);")
    equal((found["x_scale"], found["elements"][0]["points"]), ("categorical", [["a", 1], ["b", 2]]))


def test_scatter():
    found = chart("plt.scatter([1, 2], [3, 4], label='s'); plt.scatter(np.array([5.5]), [6]);")
    equal((found["type"], found["elements"]), ("scatter", [{"label": "s", "points": [[1, 3], [2, 4]]}, {"label": "Series 2", "points": [[5.5, 6]]}]))


def test_bars_vertical_horizontal_grouped_and_histograms():
    found = chart("plt.bar(['a', 'b'], [3, 4], label='g'); plt.ylabel('n');")
    equal((found["type"], found["elements"]), ("bar", [{"label": "a", "group": "g", "value": 3}, {"label": "b", "group": "g", "value": 4}]))
    found = chart("plt.barh(['a', 'b'], [3, 4]);")
    equal([(e["label"], e["value"]) for e in found["elements"]], [("a", 3), ("b", 4)])
    found = chart("x = np.arange(2)\nplt.bar(x - .2, [1, 2], .4, label='m'); plt.bar(x + .2, [3, 4], .4, label='f'); plt.xticks(x, ['A', 'B']);")
    equal([(e["group"], e["value"]) for e in found["elements"]], [("m", 1), ("m", 2), ("f", 3), ("f", 4)])
    found = chart("plt.hist([1, 1, 2, 3], bins=[0, 2, 4]);")
    equal([(e["label"], e["value"]) for e in found["elements"]], [("0 - 2", 2), ("2 - 4", 2)])


def test_pie():
    found = chart("plt.pie([1, 3], labels=['x', 'y'], autopct='%d');")
    equal((found["type"], [(e["label"], round(e["angle"]), e["radius"]) for e in found["elements"]]), ("pie", [("x", 90, 1), ("y", 270, 1)]))


def test_box_plots():
    found = chart("plt.boxplot([[1, 2, 3, 4, 5, 100], [2, 2, 2]], labels=['one', 'two']);")
    first = found["elements"][0]
    equal((found["type"], first["label"], first["min"], first["first_quartile"], first["median"], first["third_quartile"], first["max"], first["outliers"]),
          ("box_and_whisker", "one", 1, 2.25, 3.5, 4.75, 5, [100]))


def test_several_axes_are_a_superchart():
    found = chart("f, (a, b) = plt.subplots(1, 2)\na.plot([1, 2]); b.bar(['x'], [1]); f.suptitle('both')\nNone")
    equal((found["type"], found["title"], [c["type"] for c in found["elements"]]), ("superchart", "both", ["line", "bar"]))
    found = chart("plt.scatter([1, 2], [1, 2], c=[1, 2]); plt.colorbar();")
    equal(found["type"], "scatter", "a colour bar is not a chart")


def test_other_drawings_have_the_type_unknown():
    found = chart("plt.imshow([[1, 2], [3, 4]]); plt.title('im');")
    equal((found["type"], found["title"], found["elements"]), ("unknown", "im", []))


def test_a_chart_with_gaps_and_many_points_is_bounded():
    found = chart("plt.plot([1, 2, 3], [1, float('nan'), float('inf')]);")
    equal(found["elements"][0]["points"][1], [2, None])
    done = kernel().run("plt.plot(np.random.rand(500_000));")
    data = done.displays[0]
    holds("image/png" in data["data"], "the image is missing")
    points = data["data"].get("application/vnd.cove.chart+json", {"elements": [{"points": []}]})["elements"][0]["points"]
    holds(len(points) <= 20000, len(points))


def test_figures_are_displayed_once_by_show_result_or_the_end():
    k = kernel()
    done = k.run("plt.plot([1]); plt.show(); print('after'); plt.plot([2]);")
    equal(len(done.displays), 2)
    done = k.run("f, a = plt.subplots(); a.plot([1, 2]); f")
    equal((len(done.displays), "image/png" in done.data), (0, True))
    done = k.run("f = plt.figure(); f.gca().plot([1]); display(f)")
    equal(len(done.displays), 1)
    equal(len(k.run("1").displays), 0, "a figure must be closed after it was displayed")
    done = k.run("plt.plot([1, 2]); 1/0")
    equal((len(done.displays), done.error["name"]), (1, "ZeroDivisionError"))


def test_the_choice_of_a_backend_is_kept():
    with Kernel("python") as k:
        done = k.run("import matplotlib; matplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nmatplotlib.get_backend()")
        equal((done.value.lower(), len(done.displays)), ("'agg'", 1))
        done = k.run("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import matplotlib.pyplot as p; p.plot([1]); print(p.get_backend())'], capture_output=True, text=True).stdout.strip().lower()")
        equal(done.value, "'agg'", "child processes must not inherit our backend")


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        with open(EXPECTED, "w", encoding="utf-8") as f:
            json.dump(recorded_by_ipython(), f, indent=1, sort_keys=True)
            f.write("\n")
        sys.exit(0)
    if not has("matplotlib.pyplot, pandas"):
        print("1..0 # SKIP python3-matplotlib and python3-pandas are not installed")
        sys.exit(0)
    code = main(collect(globals()))
    for one in kernels.values():
        one.close()
    sys.exit(code)
