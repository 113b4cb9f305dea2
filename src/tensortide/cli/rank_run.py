"""Workloads that ``--run`` of ``place`` and ``scale`` runs in processes of this machine."""

from __future__ import annotations

from tensortide.errors import WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.recorder.target import Workload

_RUNS = (
    "--run takes a workload, which every process builds anew: a built-in example, file.py:function or "
    "package.module:function"
)


def workload_of(target: str) -> Workload:
    """The workload that ``target`` names. Raises WorkloadError for anything else: there is nothing to build."""
    found = resolve(target) if target else None
    if isinstance(found, Workload):
        return found
    raise WorkloadError(f"{_RUNS}; {found}" if isinstance(found, File) else _RUNS)
