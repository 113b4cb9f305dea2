"""The workspaces of BLAS in a captured step (``memory.blas_workspaces``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from msgspec.structs import replace

from tensortide.graph.model import Graph, Role, Storage
from tensortide.memory import blas_workspaces
from tensortide.recorder.pretended import Gpu
from tensortide.recorder.pretended_devices import CUDA
from tensortide.timing import device


def captured_bytes(gpu: Gpu) -> int:
    """Bytes of the workspace of one handle: as in ``CUBLAS_WORKSPACE_CONFIG``, else PyTorch's default for the GPU."""
    pairs = re.findall(r":([0-9]+):([0-9]+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if pairs:
        return sum(int(size) * int(count) for size, count in pairs) * 1024
    return blas_workspaces.default_bytes("NVIDIA" if gpu.nvidia else "AMD", gpu.arch)


def with_blas_workspaces(graph: Graph) -> Graph:
    """``graph`` with the workspaces that BLAS has during the step; none unless it was captured for a GPU."""
    if not graph.meta.machine:
        return graph
    gpu = Gpu.of(device(graph.meta.machine))
    return replace(graph, storages=(*graph.storages, *_workspaces(graph, gpu)))


def _workspaces(graph: Graph, gpu: Gpu) -> Iterator[Storage]:
    nbytes = captured_bytes(gpu)
    place = next((one.device for one in graph.storages if one.device.startswith("cuda")), str(CUDA))
    for handle in sorted({one for one in blas_workspaces.handles(graph) if one is not None}) if nbytes else ():
        yield Storage(nbytes, place, Role.LIBRARY, None, None, blas_workspaces.NAMES[handle])
