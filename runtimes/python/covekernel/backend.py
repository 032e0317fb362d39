"""backend.py - the backend of matplotlib in a cell: draws as Agg does, and show() displays."""
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas  # noqa: F401


def show(*args, **kwargs):
    from covekernel import session
    if session.current is not None:
        session.current.show_figures()
