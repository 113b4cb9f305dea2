"""``tensortide draw``: a picture of a small step."""

from __future__ import annotations

from tensortide.cli.console import progress
from tensortide.cli.show import OutputRequest, tell
from tensortide.cli.verb import verb
from tensortide.reports.drawing.request import DrawRequest, answer


@verb
def draw(asked: DrawRequest, out: OutputRequest) -> None:
    """Draw one step: ops as boxes, tensors as lines with their shapes, in frames of modules, loops and branches.

    A large step is folded by module.
    """
    with progress(out.quiet) as say:
        found = answer(asked, say)
    tell({"picture": str(found.path), "caption": found.picture.caption}, [str(found)], out)
