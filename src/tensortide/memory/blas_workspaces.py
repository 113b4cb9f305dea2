"""Workspaces of BLAS, which stay in PyTorch's pool from step to step.

cuBLAS has a workspace per handle and stream, allocated at the first product. Each thread has a handle of its own: the
program's thread, and that of the autograd engine.
"""

from __future__ import annotations

import re

from tensortide.graph.model import Graph, Phase

_BY_BLAS = re.compile(r"aten\.(addbmm|addmm|addmv|baddbmm|bmm|dot|mm|mv|vdot|_addmm_activation|_scaled_mm)\.")
_KIB = 1024
NAMES = tuple(f"BLAS workspace of the {thread} thread" for thread in ("main", "autograd"))
"""Names of the storages of a Graph that are the workspaces of BLAS, by number of the handle."""


def default_bytes(vendor: str, arch: str) -> int:
    """Bytes of the workspace of one handle: PyTorch's default for a GPU of NVIDIA or AMD."""
    if vendor != "NVIDIA":
        return (128 if arch.startswith(("CDNA3", "CDNA4")) else 32) * _KIB * _KIB
    major = re.search(r"sm(\d+)\d$", arch)
    return 32 * _KIB * _KIB if major is None or int(major[1]) in (9, 10, 12) else (2 * 4096 + 8 * 16) * _KIB


def handles(graph: Graph) -> list[int | None]:
    """For each op the number of the handle of BLAS that it computes with; None for ops that are no products."""
    products = [_BY_BLAS.match(call.op) is not None for call in graph.calls]
    return [int(op.phase is Phase.BACKWARD) if products[op.call] else None for op in graph.ops]
