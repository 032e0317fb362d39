"""backend.py - the matplotlib backend of a cell: draws like Agg; show() displays the figures."""
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas  # noqa: F401


def show(*args, **kwargs):
    from covekernel import session
    if session.current is not None:
        session.current.show_figures()
