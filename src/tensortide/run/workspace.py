"""Workspace of a call's kernel, by the rules for a Graph of that one op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensortide.graph.model import Graph, Op, Phase, Role, Storage
from tensortide.memory.workspace import WORKSPACE_RULES, workspace_of
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import schema_of


def workspace_of_call(func: Any, args: Sequence[Any], kwargs: dict[str, Any], device: str) -> int:
    """Bytes that the kernel of ``func`` holds on ``device`` while it runs on tensors like these, which need no memory;
    0 where no rule is known (``memory.workspace``). It is run on these to know its results."""
    schema = schema_of(func)
    if schema.name not in WORKSPACE_RULES:
        return 0
    recorder = Recorder(lambda index: Phase.OTHER)
    recorder.record(func, schema, args, kwargs)
    (op,) = recorder.ops
    graph = Graph(
        ops=(Op(op.call, tuple(op.inputs), tuple(op.outputs), op.context),),
        calls=tuple(recorder.calls),
        tensors=tuple(recorder.tensors),
        storages=tuple(Storage(s.nbytes, device, Role.TEMPORARY, None, None) for s in recorder.storages),
    )
    return workspace_of(graph, 0, device)
