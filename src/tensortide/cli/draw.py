"""``tensortide draw``: a picture of a small step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tensortide.cli.show import tell
from tensortide.cli.source import CaptureOptions, OutputOptions, Target, graph_of, option
from tensortide.errors import OutputError
from tensortide.write import check_writable, write_file


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
    from tensortide.reports.drawing import picture, render_dot, render_svg

    if output.suffix not in (".svg", ".dot"):
        raise OutputError(f"{output}: a picture is a file .svg or .dot")
    check_writable(output)
    shown = picture(graph_of(target, options, quiet=out.quiet))
    text = render_svg(shown) if output.suffix == ".svg" else render_dot(shown)
    written = write_file(output, text.encode())
    tell({"picture": str(written), "caption": shown.caption}, [f"{shown.caption} -> {written}"], out)
