"""``--run`` of ``place`` and ``scale``: which workloads run in processes of this machine, and with which options."""

from __future__ import annotations

from collections.abc import Mapping

from tensortide.errors import RequestError
from tensortide.importers.door import File, resolve
from tensortide.recorder.target import Workload

_RUNS = (
    "--run takes a workload, which every process builds anew: a built-in example, file.py:function or "
    "package.module:function"
)


def workload_of(target: str) -> Workload:
    """The workload that ``target`` names. Raises RequestError for anything else: there is nothing to build."""
    found = resolve(target) if target else None
    if isinstance(found, Workload):
        return found
    raise RequestError(f"{_RUNS}; {found}" if isinstance(found, File) else _RUNS)


def refuse_predicted(given: Mapping[str, bool], instead: str) -> None:
    """Raise RequestError for the first option of ``given`` that is True; ``instead`` says what ``--run`` does run."""
    for name, is_given in given.items():
        if is_given:
            raise RequestError(f"{name} is predicted and does not run: {instead}")
