"""The request for a picture of a step, and the file that is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tensortide.progress import Say, silent
from tensortide.reports.drawing.dot import render_dot
from tensortide.reports.drawing.svg import render_svg
from tensortide.reports.drawing.tree import Picture, picture
from tensortide.request import Arg, Opt, Request
from tensortide.targets.opening import graph_of
from tensortide.targets.requests import TARGET, CaptureRequest
from tensortide.write import write_file


def picture_file(text: str) -> Path:
    """The file of a picture. Raises ValueError if its suffix is that of none."""
    path = Path(text)
    if path.suffix not in (".svg", ".dot"):
        raise ValueError("a picture is a file .svg or .dot")
    return path


@dataclass(frozen=True, kw_only=True)
class DrawRequest(Request):
    """A picture of a small step."""

    target: Annotated[str, Arg(TARGET)]
    output: Annotated[
        Path,
        Opt(
            "The picture to write: NAME.svg, or NAME.dot for Graphviz.",
            "--output -o",
            read=picture_file,
            writes=True,
        ),
    ]
    capture: CaptureRequest = field(default_factory=CaptureRequest)


def answer(asked: DrawRequest, say: Say = silent) -> Picture:
    """The picture of the step. Raises GraphError for one that is too large."""
    return picture(graph_of(asked.target, asked.capture, say))


def write_picture(path: Path, shown: Picture) -> Path:
    """Write the picture in the format of the suffix, and return the path."""
    text = render_svg(shown) if path.suffix == ".svg" else render_dot(shown)
    return write_file(path, text.encode())
