"""The request for a picture of a step, and the file that is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from tensortide.errors import ExitStatus
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

    GROUP = "Output"

    target: Annotated[str, Arg(TARGET)]
    output: Annotated[
        Path,
        Opt(
            "Picture to write: NAME.svg, or NAME.dot for Graphviz.",
            "--output -o",
            read=picture_file,
            writes=True,
            common=True,
            value="FILE",
        ),
    ]
    capture: CaptureRequest = field(default_factory=CaptureRequest)


class Drawn(NamedTuple):
    """A picture of a step, and the file that it was written to."""

    picture: Picture
    path: Path

    @property
    def status(self) -> ExitStatus:
        """HOLDS: nothing is asked of a picture."""
        return ExitStatus.HOLDS

    def __str__(self) -> str:
        return f"{self.picture.caption} -> {self.path}"

    def __repr__(self) -> str:
        return f"<Drawn {self}>"

    def _repr_svg_(self) -> str:
        return render_svg(self.picture)


def answer(asked: DrawRequest, say: Say = silent) -> Drawn:
    """The picture of the step, written. Raises GraphError for one that is too large."""
    shown = picture(graph_of(asked.target, asked.capture, say))
    return Drawn(shown, write_picture(asked.output, shown))


def write_picture(path: Path, shown: Picture) -> Path:
    """Write the picture in the format of the suffix, and return the path."""
    text = render_svg(shown) if path.suffix == ".svg" else render_dot(shown)
    return write_file(path, text.encode())
