"""charts.py - the data of a figure, in the format that clients of E2B read.

A figure with one axes is a chart, with several a superchart. The type of a chart follows from its
artists: wedges are a pie, bars are bars, and so on; a drawing of no known type is `unknown` and
keeps its titles. Box plots leave only lines, from which their numbers could only be guessed; so
Axes.bxp is wrapped to record its arguments.
"""
import math
import re
import weakref

POINTS_MAX = 20000  # of one chart; more points are of no use to a reader of numbers
UNIT = re.compile(r"[(\[]\s*([^()\[\]]+?)\s*[)\]]\s*$")
boxes = weakref.WeakKeyDictionary()  # Axes: [(orientation, stats)]


def remember_boxes(axes_class):
    """Wraps Axes.bxp, which matplotlib, pandas and seaborn all use to draw boxes."""
    drawn = axes_class.bxp
    if getattr(drawn, "_cove", False):
        return

    def bxp(self, bxpstats, *args, **kwargs):
        result = drawn(self, bxpstats, *args, **kwargs)
        boxes.setdefault(self, []).extend(bxpstats)
        return result
    bxp.__doc__, bxp.__wrapped__, bxp._cove = drawn.__doc__, drawn, True
    axes_class.bxp = bxp


def number(value):
    """Converts a numpy number or text to a Python one; None if it is not a number."""
    if isinstance(value, str):
        return str(value)
    try:
        value = value.item() if hasattr(value, "item") else value
        return value if isinstance(value, int) and not isinstance(value, bool) else None if math.isnan(float(value)) else float(value)
    except (TypeError, ValueError):
        return str(value)


def unit_of(label):
    found = UNIT.search(label or "")
    return found.group(1) if found else None


def axis_kind(axis):
    """(scale, function that converts a drawn coordinate to the value that the author gave)"""
    converter = type(getattr(axis, "converter", None)).__name__
    if "Date" in converter or "Datetime" in converter:
        from matplotlib import dates
        return "datetime", lambda v: dates.num2date(v).replace(tzinfo=None).isoformat()
    if "StrCategory" in converter:
        names = {index: name for name, index in getattr(axis.units, "_mapping", {}).items()}
        return "categorical", lambda v: names.get(int(v), str(v)) if float(v).is_integer() else number(v)
    scale = axis.get_scale()
    known = ("linear", "log", "symlog", "logit", "function", "functionlog", "asinh")
    return (scale if scale in known else "unknown"), number


def written(convert, values):
    """Coordinates as the author gave them; None for one that cannot be converted."""
    found = []
    for value in values:
        try:
            found.append(convert(value))
        except (ValueError, OverflowError, TypeError):
            found.append(None)
    return found


def ticks(axis, convert):
    low, high = sorted(axis.get_view_interval())
    margin = (high - low) * 1e-9
    pairs = [(p, t.get_text()) for p, t in zip(axis.get_majorticklocs(), axis.get_majorticklabels()) if low - margin <= p <= high + margin]
    return written(convert, [p for p, _ in pairs]), [text for _, text in pairs]


def labels(ax):
    x, y = ax.get_xlabel(), ax.get_ylabel()
    return {"x_label": x or None, "y_label": y or None, "x_unit": unit_of(x), "y_unit": unit_of(y)}


def planar(ax, series):
    """A chart of points: its axes with ticks and scales, and the points of each series."""
    chart = labels(ax)
    convert = {}
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        scale, convert[name] = axis_kind(axis)
        places, texts = ticks(axis, convert[name])
        chart |= {f"{name}_ticks": places, f"{name}_tick_labels": texts, f"{name}_scale": scale}
    room = POINTS_MAX
    elements = []
    for label, xs, ys in series:
        xs, ys = list(xs[:room]), list(ys[:room])
        room -= len(xs)
        elements.append({"label": label, "points": [list(p) for p in zip(written(convert["x"], xs), written(convert["y"], ys))]})
    return chart | {"elements": elements}


def name_of(artist, index, kind):
    label = str(artist.get_label())
    return f"{kind} {index + 1}" if not label or label.startswith("_") else label


def drawn_lines(ax):
    """Lines of data; those of axhline and axvline have axes coordinates for x or y."""
    return [line for line in ax.get_lines() if line.get_transform() == ax.transData and len(line.get_xdata(orig=False))]


def line_chart(ax, lines):
    return planar(ax, [(name_of(line, i, "Line"), line.get_xdata(orig=False), line.get_ydata(orig=False)) for i, line in enumerate(lines)])


def scatter_chart(ax, clouds):
    series = []
    for i, cloud in enumerate(clouds):
        points = cloud.get_offsets()
        series.append((name_of(cloud, i, "Series"), points[:, 0], points[:, 1]))
    return planar(ax, series)


def bar_chart(ax, groups):
    chart, elements = labels(ax), []
    for i, bars in enumerate(groups):
        lying = getattr(bars, "orientation", None) == "horizontal"
        axis = ax.yaxis if lying else ax.xaxis
        _, convert = axis_kind(axis)
        texts = {round(float(p), 9): t.get_text() for p, t in zip(axis.get_majorticklocs(), axis.get_majorticklabels())}
        group = name_of(bars, i, "Group")
        widths = [abs(b.get_height() if lying else b.get_width()) for b in bars.patches[:POINTS_MAX]]
        whole = isinstance(convert, type(number)) and axis_kind(axis)[0] == "linear" and histogram(bars, lying)
        for bar, width in zip(bars.patches, widths):
            start = bar.get_y() if lying else bar.get_x()
            middle = start + width / 2
            if whole:
                label = f"{number(start):.6g} - {number(start + width):.6g}"
            else:
                text = texts.get(round(float(middle), 9)) or texts.get(round(float(start), 9))
                label = text or str(written(convert, [middle])[0])
            elements.append({"label": label, "group": group, "value": number(bar.get_width() if lying else bar.get_height())})
    return chart | {"elements": elements}


def histogram(bars, lying):
    """Whether the bars touch each other: then they are the bins of a histogram, described by their
    edges."""
    edges = [(b.get_y(), b.get_height()) if lying else (b.get_x(), b.get_width()) for b in bars.patches]
    return len(edges) > 1 and all(abs(a + w - b) <= 1e-6 * abs(w) for (a, w), (b, _) in zip(edges, edges[1:]))


def pie_chart(ax, wedges):
    texts = [t.get_text() for t in ax.texts]
    elements = []
    for i, wedge in enumerate(wedges):
        label = str(wedge.get_label())
        if not label or label.startswith("_"):
            label = texts[i] if i < len(texts) and texts[i] else f"Slice {i + 1}"
        elements.append({"label": label, "angle": number(abs(wedge.theta2 - wedge.theta1)), "radius": number(wedge.r)})
    return {"elements": elements}


def box_chart(ax, stats):
    elements = []
    texts = [t.get_text() for t in ax.get_xticklabels()]
    for i, box in enumerate(stats):
        label = box.get("label")
        label = str(label) if label not in (None, "") else texts[i] if i < len(texts) and texts[i] else str(i + 1)
        elements.append({
            "label": label, "min": number(box["whislo"]), "first_quartile": number(box["q1"]), "median": number(box["med"]),
            "third_quartile": number(box["q3"]), "max": number(box["whishi"]),
            "outliers": [number(v) for v in list(box.get("fliers", ()))[:POINTS_MAX]]})
    return labels(ax) | {"elements": elements}


def of_axes(ax):
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer
    from matplotlib.patches import Wedge
    wedges = [p for p in ax.patches if isinstance(p, Wedge)]
    bars = [c for c in ax.containers if isinstance(c, BarContainer) and c.patches]
    clouds = [c for c in ax.collections if isinstance(c, PathCollection)]
    lines = drawn_lines(ax)
    stats = boxes.get(ax)
    chart = {"type": "unknown", "title": ax.get_title() or None}
    if wedges:
        return chart | {"type": "pie"} | pie_chart(ax, wedges)
    if stats:
        return chart | {"type": "box_and_whisker"} | box_chart(ax, stats)
    if bars:
        return chart | {"type": "bar"} | bar_chart(ax, bars)
    if clouds:
        return chart | {"type": "scatter"} | scatter_chart(ax, clouds)
    if lines:
        return chart | {"type": "line"} | line_chart(ax, lines)
    return chart | {"elements": []}


def of_figure(figure):
    """The chart of a figure, or None if nothing is drawn. Colour bars do not count as axes."""
    every = [ax for ax in figure.get_axes() if ax.get_label() != "<colorbar>"]
    if not every:
        return None
    if len(every) == 1:
        chart = of_axes(every[0])
        title = getattr(figure, "_suptitle", None)
        if chart["title"] is None and title is not None:
            chart["title"] = title.get_text() or None
        return chart
    title = getattr(figure, "_suptitle", None)
    return {"type": "superchart", "title": title.get_text() or None if title is not None else None,
            "elements": [of_axes(ax) for ax in every]}
