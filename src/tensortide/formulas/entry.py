"""The entry: formulas of a workload."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tensortide.cost.evaluate import Resolver
from tensortide.formulas.derive import derive
from tensortide.formulas.result import Symbolic
from tensortide.formulas.space import Scalar

__all__ = ["symbolic"]


def symbolic(
    workload: Callable[..., Any] | str,
    *,
    over: Sequence[str],
    hyperparameters: Mapping[str, Scalar] | None = None,
    where: Sequence[str] = (),
    values: Mapping[str, Sequence[int]] | None = None,
    name: str = "",
    resolver: Resolver | None = None,
    progress: Callable[[str], None] | None = None,
) -> Symbolic:
    """Derive the cost of one step of ``workload`` as exact expressions in its hyperparameters ``over``.

    The workload is captured at a few settings of small, generic values, every size of the step is solved as an
    expression, and the cost rules run on these. Hyperparameters that change the number of ops (layers) are found and
    fitted over several structures. Each formula reproduces every capture it was fitted to, and further ones.

    ``hyperparameters`` overrides defaults of the workload. ``where`` are conditions of legal settings
    (``"hidden % heads == 0"``), ``values`` the candidates of single hyperparameters; a workload may declare both in
    attributes ``where`` and ``values``. Without them illegal settings are found by trial. ``resolver`` is asked
    for ops without a cost rule.

    Raises WorkloadError if a name is no integer hyperparameter or no legal settings are found, CaptureError if the
    workload cannot be captured.
    """
    if isinstance(workload, str):
        from tensortide.recorder.target import workload as named

        name, workload = name or workload, named(workload).function
    with _heap_set_aside():
        return derive(
            workload,
            over,
            dict(hyperparameters or {}),
            where=where,
            values=values or {},
            name=name or getattr(workload, "__name__", ""),
            resolver=resolver,
            progress=progress or (lambda message: None),
        )


@contextlib.contextmanager
def _heap_set_aside() -> Iterator[None]:
    """Many captures cause garbage collections of everything: spare these what was there before, as the framework."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
