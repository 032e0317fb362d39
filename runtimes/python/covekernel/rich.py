"""rich.py - the representations of a value: a map of MIME types.

A value offers them with the methods that notebooks have agreed on: _repr_mimebundle_ for several at
once, _repr_html_ and similar methods for one each. Figures and tables also get their data. If a
method raises, only its entry is missing; the traceback goes to stderr, where the author of the
class sees it.
"""
import base64
import inspect
import json
import sys

from covekernel import wire
from covekernel.pretty import pretty

CHART = "application/vnd.cove.chart+json"
BINARY = ("image/png", "image/jpeg", "application/pdf")
METHODS = {
    "text/html": "_repr_html_", "text/markdown": "_repr_markdown_", "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_", "image/jpeg": "_repr_jpeg_", "application/pdf": "_repr_pdf_",
    "text/latex": "_repr_latex_", "application/json": "_repr_json_", "application/javascript": "_repr_javascript_",
}
CANARY = "_ipython_canary_method_should_not_exist_"
CELLS_MAX = 50000  # maximum number of table cells that are sent as JSON


def method_of(obj, name):
    """A method that the object really has: not a method of a class that is itself the value, nor of
    an object that accepts any name."""
    try:
        if inspect.isclass(obj) or getattr(obj, CANARY, None) is not None:
            return None
        found = getattr(obj, name, None)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
    return found if callable(found) else None


def complain(obj, name):
    """The traceback of a method that raised, without frames of the kernel."""
    from covekernel import cell
    kind, error, _ = sys.exc_info()
    if not isinstance(error, NotImplementedError):
        print("\n".join(cell.traceback_lines(error)), file=sys.stderr)


def call(obj, name, *args, **options):
    method = method_of(obj, name)
    if method is None:
        return None
    try:
        return method(*args, **options)
    except KeyboardInterrupt:
        raise
    except BaseException:
        complain(obj, name)
        return None


def is_json(mime):
    return mime == "application/json" or mime.endswith("+json")


def entry(mime, value):
    """Converts a value to its form in the line."""
    if is_json(mime):
        return wire.clean(json.loads(value) if isinstance(value, str) else value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        if mime in BINARY or not mime.startswith("text/"):
            return base64.b64encode(value).decode("ascii")
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, (dict, list, tuple)):
        return wire.clean(value)
    return wire.clean_text(value if type(value) is str else str(value))


class Bundle:
    def __init__(self):
        self.data, self.meta, self.omitted = {}, {}, {}

    def add(self, mime, value, meta=None):
        if value is None or not isinstance(mime, str) or not 0 < len(mime) <= 128:
            return
        try:
            self.data[wire.clean_text(mime)] = entry(mime, value)
            if meta:
                self.meta[mime] = wire.clean(meta)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.omitted[mime] = wire.clean_text(str(error))[:500] or type(error).__name__

    def fields(self):
        found = {"data": self.data, "meta": self.meta}
        return dict(found, omitted=self.omitted) if self.omitted else found


def split(answer):
    """(data, metadata) from the return value of a method."""
    return answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)


def add_table(bundle, obj):
    """A pandas table as {column: values}, so that programs need not parse the HTML."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(obj, (getattr(pandas, "DataFrame", ()), getattr(pandas, "Series", ()))):
        return
    try:
        frame = obj.to_frame() if isinstance(obj, pandas.Series) else obj
        rows, columns = frame.shape
        shown = min(rows, CELLS_MAX // max(columns, 1))
        values = {}
        for i, name in enumerate(frame.columns):
            text = json.loads(frame.iloc[:shown, i].to_json(orient="values", date_format="iso", default_handler=str))
            key = str(name)
            while key in values:
                key += "_"
            values[key] = text
        bundle.add("application/json", values, {"kind": "dataframe", "rows": rows, "columns": columns, "shown": shown})
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        bundle.omitted["application/json"] = wire.clean_text(f"{type(error).__name__}: {error}")[:500]


def add_figure(bundle, obj):
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if figure is None or not isinstance(obj, figure):
        return
    from covekernel import charts, figures
    try:
        bundle.add("image/png", figures.png(obj))
    except KeyboardInterrupt:
        raise
    except BaseException:
        complain(obj, "savefig")
        return
    try:
        chart = charts.of_figure(obj)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        bundle.omitted[CHART] = wire.clean_text(f"{type(error).__name__}: {error}")[:500]
        return
    if chart is not None:
        bundle.add(CHART, chart)


def bundle_of(obj):
    """All representations of a value; empty if the value displayed itself."""
    bundle = Bundle()
    show = method_of(obj, "_ipython_display_")
    if show is not None:
        try:
            show()
            return bundle
        except KeyboardInterrupt:
            raise
        except BaseException:
            complain(obj, "_ipython_display_")
    data, meta = split(call(obj, "_repr_mimebundle_", include=None, exclude=None))
    if isinstance(data, dict):
        for mime, value in data.items():
            bundle.add(mime, value, (meta or {}).get(mime) if isinstance(meta, dict) else None)
    add_figure(bundle, obj)
    for mime, name in METHODS.items():
        if mime not in bundle.data:
            data, meta = split(call(obj, name))
            bundle.add(mime, data, meta if isinstance(meta, dict) else None)
    if "application/json" not in bundle.data:
        add_table(bundle, obj)
    if "text/plain" not in bundle.data:
        bundle.add("text/plain", pretty(obj))
    return bundle


def raw_bundle(data, meta):
    bundle = Bundle()
    for mime, value in data.items():
        bundle.add(mime, value, (meta or {}).get(mime))
    return bundle
