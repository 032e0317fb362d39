"""chart.py - draws results as an SVG of horizontal bars.

One picture for light and dark pages: colours are classes, and a media query swaps them. Bars start
at zero and share one scale within a panel. A bar longer than the panel (podman next to a process)
is cut, marked as cut, and still labelled with its figure, so that the short bars stay readable.
"""
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 760, 130, 100
ROW, BAR, GAP = 26, 16, 44

STYLE = """
    text { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328; }
    .title { font-weight: 600; }
    .note { font-size: 11px; fill: #59636e; }
    .value { font-variant-numeric: tabular-nums; }
    .axis { stroke: #d1d9e0; }
    .peer { fill: #8c959f; }
    .ours { fill: #0969da; }
    .cut { fill: #ffffff; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .note { fill: #9198a1; }
      .axis { stroke: #3d444d; }
      .peer { fill: #656c76; }
      .ours { fill: #4493f8; }
      .cut { fill: #0d1117; }
    }
"""


class Panel:
    """A title, the unit of its figures, and rows of (label, figure, whether it is cove's)."""

    def __init__(self, title, note, rows):
        self.title, self.note, self.rows = title, note, rows


def bars(panel, top):
    """The bars of one panel, and the y at which the next may begin."""
    room = WIDTH - LEFT - RIGHT
    values = sorted(value for _, value, _ in panel.rows)
    # The scale ends at the longest bar that is not several times longer than the next shorter one.
    full = values[-1]
    if len(values) > 1 and values[-1] > 4 * values[-2]:
        full = values[-2] * 1.35
    out = [f'<text class="title" x="0" y="{top}">{escape(panel.title)}</text>',
           f'<text class="note" x="{WIDTH}" y="{top}" text-anchor="end">{escape(panel.note)}</text>']
    y = top + 14
    for label, value, ours in panel.rows:
        cut = value > full
        length = room if cut else max(1.0, value / full * room)
        middle = y + BAR - 4
        out.append(f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{escape(label)}</text>')
        out.append(f'<rect class="{"ours" if ours else "peer"}" x="{LEFT}" y="{y}" width="{length:.1f}" '
                   f'height="{BAR}" rx="2"/>')
        if cut:
            x = LEFT + room - 26
            out.append(f'<path class="cut" d="M{x} {y + BAR + 1} l8 -{BAR + 2} h5 l-8 {BAR + 2} z"/>')
        out.append(f'<text class="value" x="{LEFT + length + 6:.1f}" y="{middle}">{value:.2f}</text>')
        y += ROW
    out.append(f'<line class="axis" x1="{LEFT}" y1="{top + 10}" x2="{LEFT}" y2="{y - ROW + BAR + 4}"/>')
    return out, y


def draw(panels, result, name, label):
    body, y = [], 20
    for panel in panels:
        lines, y = bars(panel, y)
        body += lines
        y += GAP - ROW + 8
    host = result["host"]
    body.append(f'<text class="note" x="0" y="{y - 6}">{host["cores"]} cores, Linux {escape(host["kernel"])}, cgroup '
                f'{host["cgroup"]}, {result["date"]}. bench/{name} repeats it; bench/results/{name}.md has p95, p99 and steal.</text>')
    height = y + 4
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-label="{escape(label)}">\n  <style>{STYLE}  </style>\n  ' + "\n  ".join(body) + "\n</svg>\n")
