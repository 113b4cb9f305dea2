"""Memory that CUDA libraries hold in PyTorch's pool from step to step.

cuBLAS has a workspace per handle and stream, allocated at the first product. Each thread has a handle of its own: the
program's thread, and that of the autograd engine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from msgspec.structs import replace

from tensortide.graph.model import Graph, Phase, Role, Storage
from tensortide.recorder.pretended import CUDA, Gpu
from tensortide.timing import device

_BY_BLAS = re.compile(r"aten\.(addbmm|addmm|addmv|baddbmm|bmm|dot|mm|mv|vdot|_addmm_activation|_scaled_mm)\.")
_KIB = 1024


def blas_workspace_bytes(gpu: Gpu) -> int:
    """Bytes of the workspace of one handle: as in ``CUBLAS_WORKSPACE_CONFIG``, else PyTorch's default for the GPU."""
    pairs = re.findall(r":([0-9]+):([0-9]+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if pairs:
        return sum(int(size) * int(count) for size, count in pairs) * _KIB
    if not gpu.nvidia:
        return (128 if gpu.arch.startswith(("CDNA3", "CDNA4")) else 32) * _KIB * _KIB
    return 32 * _KIB * _KIB if gpu.capability[0] in (9, 10, 12) else (2 * 4096 + 8 * 16) * _KIB


def with_libraries(graph: Graph) -> Graph:
    """``graph`` with the storages that libraries hold during the step; none unless it was captured for a GPU."""
    if not graph.meta.machine:
        return graph
    gpu = Gpu.of(device(graph.meta.machine))
    return replace(graph, storages=(*graph.storages, *_workspaces(graph, gpu)))


def _workspaces(graph: Graph, gpu: Gpu) -> Iterator[Storage]:
    products = [_BY_BLAS.match(call.op) is not None for call in graph.calls]
    threads = {op.phase is Phase.BACKWARD for op in graph.ops if products[op.call]}
    nbytes = blas_workspace_bytes(gpu)
    for engine in sorted(threads) if nbytes else ():
        name = f"BLAS workspace of the {'autograd' if engine else 'main'} thread"
        yield Storage(nbytes, str(CUDA), Role.LIBRARY, None, None, name)
