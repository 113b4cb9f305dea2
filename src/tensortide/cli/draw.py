"""``tensortide draw``: a picture of a small step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tensortide.cli.show import tell
from tensortide.cli.source import CaptureOptions, OutputOptions, Target, graph_of, option
from tensortide.errors import OutputError
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from tensortide.reports.drawing import Picture


def draw(
    target: Target,
    /,
    *,
    output: Annotated[Path, option("--output -o", "The picture to write: NAME.svg, or NAME.dot for Graphviz.")],
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Draw one step: ops as boxes, tensors as lines with their shapes, in frames of modules, loops and branches.

    A large step is folded by module.
    """
    from tensortide.reports.drawing import picture

    check_picture(output)
    shown = picture(graph_of(target, options, quiet=out.quiet))
    written = write_picture(output, shown)
    tell({"picture": str(written), "caption": shown.caption}, [f"{shown.caption} -> {written}"], out)


def check_picture(path: Path) -> None:
    """Raise OutputError if no picture can be written to ``path``."""
    if path.suffix not in (".svg", ".dot"):
        raise OutputError(f"{path}: a picture is a file .svg or .dot")
    check_writable(path)


def write_picture(path: Path, shown: Picture) -> Path:
    """Write the picture in the format of the suffix, and return the path."""
    from tensortide.reports.drawing import render_dot, render_svg

    text = render_svg(shown) if path.suffix == ".svg" else render_dot(shown)
    return write_file(path, text.encode())
