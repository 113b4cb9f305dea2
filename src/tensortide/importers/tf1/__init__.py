"""TensorFlow 1 MetaGraphs, read with protocol buffers alone."""

from __future__ import annotations

from tensortide.importers.tf1.program import OUTSIDE, Constant, Loop, Node, Program, Ref, Spec
from tensortide.importers.tf1.read import read_program

__all__ = ["OUTSIDE", "Constant", "Loop", "Node", "Program", "Ref", "Spec", "read_program"]
