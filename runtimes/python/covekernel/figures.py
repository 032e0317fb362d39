"""figures.py - displays the figures of matplotlib.

When matplotlib is imported, an import finder in front of the others sets our backend. It only
handles that one name. An environment variable would also reach child processes of user code, which
do not have this backend. A backend that user code chose with MPLBACKEND or matplotlib.use() stays;
open figures are still displayed at the end of a cell.
"""
import importlib.util
import io
import os
import sys

BACKEND = "module://covekernel.backend"


class Finder:
    """Lets the other finders find a wanted module, and sets it up after it was imported."""

    def __init__(self, wanted):
        self.wanted = dict(wanted)

    def find_spec(self, name, path=None, target=None):
        after = self.wanted.pop(name, None)  # popped first: the search below calls this finder again
        if after is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self.wanted[name] = after
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            after(module)
        spec.loader.exec_module = exec_module
        return spec


def choose_backend(matplotlib):
    if "MPLBACKEND" not in os.environ:
        matplotlib.rcParams["backend"] = BACKEND


def remember_boxes(axes):
    from covekernel import charts
    charts.remember_boxes(axes.Axes)


def install():
    wanted = {"matplotlib": choose_backend, "matplotlib.axes._axes": remember_boxes}
    for name in [name for name in wanted if name in sys.modules]:
        wanted.pop(name)(sys.modules[name])
    if wanted and not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, Finder(wanted))


def png(figure):
    out = io.BytesIO()
    canvas = figure.canvas
    try:
        figure.savefig(out, format="png", bbox_inches="tight", dpi="figure")
    finally:
        figure.set_canvas(canvas)
    return out.getvalue()


def open_figures():
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return []
    return [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]


def close(figure):
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)


def close_all():
    for figure in open_figures():
        close(figure)
