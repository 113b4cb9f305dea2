"""A picture as SVG: one file that needs nothing else, on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from tensortide.reports.drawing.layout import CHAR, LINE, PAD, Laid, Point, laid_out
from tensortide.reports.drawing.tree import Box, Picture

_STYLE = """
text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1d232b}
.page{fill:#fff}.op{fill:#e8eef7;stroke:#5c7fb8}.view{fill:#f6f7f9;stroke:#a9b4c2;stroke-dasharray:3 2}
.input{fill:#e3f2e6;stroke:#4f9a63}.box.module{fill:#f0eafa;stroke:#8f76c2}
.frame{fill:#000;fill-opacity:.025;stroke:#b9c1cc}.frame.phase{stroke:#79828f}
.frame.loop{stroke:#c2702f;stroke-width:1.6;stroke-dasharray:6 3}.frame.branch{stroke:#b04a5a;stroke-dasharray:2 3}
.title{fill:#5a6472;paint-order:stroke;stroke:#fff;stroke-width:3px}.small{fill:#5a6472;font-size:10px}.label{fill:#444c57;font-size:10px}
.wire{fill:none;stroke:#6b7684;stroke-width:1.1}.wire.across{stroke:#c2422f;stroke-width:1.6;stroke-dasharray:5 3}
.device0{fill:#cfe3f3;stroke:#0072b2}.device1{fill:#fbdcc4;stroke:#d55e00}.device2{fill:#c5ebdf;stroke:#009e73}
.device3{fill:#f3dbe8;stroke:#cc79a7}.device4{fill:#fbe8bd;stroke:#b87a00}.device5{fill:#d9f0fb;stroke:#3fa0d8}
.device6{fill:#e3e3e3;stroke:#555}.device7{fill:#f6f3b8;stroke:#a39b00}
@media(prefers-color-scheme:dark){.page{fill:#15191f}text{fill:#e6eaf0}.op{fill:#22314a}.view{fill:#1d222a}
.input{fill:#1d3626}.box.module{fill:#2c2440}.frame{fill:#fff;stroke:#4a5462}.title,.small,.label{fill:#a9b4c2}
.title{stroke:#15191f}.wire{stroke:#8b96a5}.wire.across{stroke:#ef7f6d}
.device0{fill:#0b3a57}.device1{fill:#5e2c08}.device2{fill:#0a4a39}.device3{fill:#553044}.device4{fill:#4f3708}
.device5{fill:#1d4a63}.device6{fill:#3a3a3a}.device7{fill:#454208}}
"""
_MARGIN = 16


def render_svg(picture: Picture) -> str:
    """Draw the picture."""
    laid = laid_out(picture)
    width = max(laid.width, len(picture.caption) * CHAR) + 2 * _MARGIN
    height = laid.height + 2 * _MARGIN + LINE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><title>{escape(picture.caption)}</title><style>{_STYLE}</style>'
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 1 L7 4 L0 7z" fill="#6b7684"/></marker></defs>'
        f'<rect class="page" width="100%" height="100%"/><text x="{_MARGIN}" y="{_MARGIN + 4}">'
        f'{escape(picture.caption)}</text><g transform="translate({_MARGIN} {_MARGIN + LINE})">'
    )
    return (
        "\n".join([head, *_frames(laid), *_lines(laid), *_titles(laid), *_boxes(laid), *_labels(laid), "</g></svg>"])
        + "\n"
    )


def _frames(laid: Laid) -> Iterator[str]:
    for frame, x, y, width, height in laid.frames:
        yield (
            f'<rect class="frame {frame.kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="6"/>'
        )


def _titles(laid: Laid) -> Iterator[str]:
    for frame, x, y, _, _ in laid.frames:
        yield f'<text class="title" x="{x + 7:.1f}" y="{y + 14:.1f}">{escape(frame.title)}</text>'


def _lines(laid: Laid) -> Iterator[str]:
    for wire, points, ends in laid.lines:
        if len(points) > 1:
            end = ' marker-end="url(#a)"' if ends else ""
            yield f'<path class="{f"wire {wire.kind}".rstrip()}" d="{_path(points)}"{end}/>'


def _path(points: tuple[Point, ...]) -> str:
    """A line through points, with a bend where it goes sideways."""
    (x, y), *others = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in others:
        if abs(to_x - x) < 0.5 or abs(to_y - y) < 0.5:
            parts.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            half = (y + to_y) / 2
            parts.append(f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(parts)


def _boxes(laid: Laid) -> Iterator[str]:
    for box, x, y, width, height in laid.boxes:
        radius = 12 if box.kind == "input" else 4
        yield (
            f'<rect class="box {box.kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{radius}"/>{"".join(_texts(box, x + width / 2, y))}'
        )


def _texts(box: Box, middle: float, y: float) -> Iterator[str]:
    for i, text in enumerate((box.title, *box.lines)):
        small = ' class="small"' if i else ""
        yield (
            f'<text{small} text-anchor="middle" x="{middle:.1f}" y="{y + PAD / 2 + LINE * (i + 1) - 4:.1f}">'
            f"{escape(text)}</text>"
        )


def _labels(laid: Laid) -> Iterator[str]:
    for text, x, y in laid.labels:
        yield f'<text class="label" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
