"""A picture of a small Graph: ops as boxes, tensors as lines with shapes; modules, loops and branches as frames. And of
a placement: layers or units as boxes in the colour of their device."""

from __future__ import annotations

from tensortide.reports.drawing.dot import render_dot
from tensortide.reports.drawing.placed import check_count, picture_of
from tensortide.reports.drawing.svg import render_svg
from tensortide.reports.drawing.tree import Picture, picture

__all__ = ["Picture", "check_count", "picture", "picture_of", "render_dot", "render_svg"]
