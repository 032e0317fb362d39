"""figures.py - figures of matplotlib are shown, not lost.

matplotlib is told of our backend when it is imported, by a finder that stands in front of the others and only looks
for that one name: an environment variable would reach the children of user code, which know nothing of us.
Whoever chose a backend by MPLBACKEND or matplotlib.use() keeps it; open figures are shown at the end of a cell all
the same.
"""
import importlib.util
import io
import os
import sys

BACKEND = "module://covekernel.backend"


class Finder:
    """Lets the others find a module that is wanted, and sets it up after it has run."""

    def __init__(self, wanted):
        self.wanted = dict(wanted)

    def find_spec(self, name, path=None, target=None):
        after = self.wanted.pop(name, None)  # popped first: the search below comes here again
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
