"""A picture of a small Graph: ops as boxes, tensors as lines with shapes; modules, loops and branches as frames."""

from __future__ import annotations

from tensortide.reports.drawing.dot import render_dot
from tensortide.reports.drawing.svg import render_svg
from tensortide.reports.drawing.tree import picture

__all__ = ["picture", "render_dot", "render_svg"]
