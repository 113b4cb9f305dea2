"""Costs of ops that have no rule: the framework's own registered formula, else the parts they decompose into."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from tensortide.cost import Cost, count
from tensortide.cost.evaluate import How
from tensortide.errors import GraphError
from tensortide.graph.model import Graph, OpView, Tensor
from tensortide.recorder.execute import arguments, function
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.torch_compat import FakeTensorMode, OpOverload, decomposition_table
from tensortide.recorder.torch_dtypes import torch_dtype


def fallback(op: OpView) -> tuple[Cost, How] | None:
    """Cost of ``op`` and where it comes from, or None. Give it to ``tensortide.count`` as ``resolver``."""
    try:
        func = function(op.call)
        mode = FakeTensorMode()
        with mode:
            args, kwargs = arguments(op, _empty)
    except (GraphError, RuntimeError):
        return None
    if not isinstance(func, OpOverload):
        return None
    formula = flop_registry.get(func._overloadpacket)
    if formula is not None:
        flops = _formula_flops(formula, op, args, kwargs)
        if flops is not None:
            return Cost(
                macs=flops // 2, active_macs=flops // 2, exact=False, reason="the framework's formula"
            ), "framework"
    parts = _parts(func, mode, args, kwargs)
    if parts is None:
        return None
    counted = count(parts)
    if any(item.cost is None for item in counted.costs):
        return None
    return counted.total.cost, "decomposition"


def _empty(tensor: Tensor) -> torch.Tensor:
    return torch.empty_strided(
        tensor.shape, tensor.strides, dtype=torch_dtype(tensor.dtype), device=torch.device("cpu")
    )


def _formula_flops(formula: Any, op: OpView, args: list[Any], kwargs: dict[str, Any]) -> int | None:
    outputs = [torch.Size(t.shape) for t in op.outputs]
    shaped = [a.shape if isinstance(a, torch.Tensor) else a for a in args]
    named = {k: v.shape if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    inner = getattr(formula, "__wrapped__", formula)
    try:
        return int(inner(*shaped, **named, out_shape=outputs[0] if len(outputs) == 1 else outputs))
    except (TypeError, ValueError, AssertionError, LookupError, AttributeError):
        return None


def _parts(func: Any, mode: FakeTensorMode, args: list[Any], kwargs: dict[str, Any]) -> Graph | None:
    decompose = decomposition_table.get(func)
    recorder = Recorder()
    try:
        with mode, recorder:
            result = decompose(*args, **kwargs) if decompose else func.decompose(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, AssertionError):
        return None
    if result is NotImplemented or not recorder.ops:
        return None
    if any(recorder.calls[op.call].op == str(func) for op in recorder.ops):
        return None
    return recorder.graph()
