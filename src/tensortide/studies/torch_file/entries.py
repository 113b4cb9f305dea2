"""Forward passes of modules that run several times in a row, told apart by a capture that marks where each begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tensortide.errors import TensortideError
from tensortide.graph.model import Graph
from tensortide.recorder.changes import Written
from tensortide.studies.torch_file.followed import followed
from tensortide.studies.torch_file.regions import Modules

if TYPE_CHECKING:
    from tensortide.studies.torch_file.result import Again

Starts: TypeAlias = Mapping[str, frozenset[int]]
"""By the path of a module, the first op of each of its forward passes."""

_MARK = "aten.alias.default"
_PROBE = f"""
import contextlib
import types

import torch


def apply(model, prefix):
    stack = contextlib.ExitStack()
    for name, module in model.named_modules(prefix=prefix):
        if name in NUMBERS:

            def mark(module, given, number=NUMBERS[name]):
                torch.ops.{_MARK}(torch.empty(0, number))

            stack.callback(module.register_forward_pre_hook(mark).remove)
    return types.SimpleNamespace(remove=stack.close)
"""


def starts(modules: Modules, again: Again) -> Starts:
    """Capture the step of ``modules`` with marks, if a module seems to run several times in a row; empty if none does,
    or if the step cannot be captured so."""
    paths = [path for path in modules.every if any(map(modules.repeats, modules.runs(path)))]
    if not paths:
        return {}
    numbers = {path: number for number, path in enumerate(paths, 1)}
    try:
        marked = again([Written(f"NUMBERS = {numbers!r}\n{_PROBE}", modules.roots)])
        base = followed(modules.graph, marked, {}, {}).base
    except TensortideError:
        return {}
    return {path: frozenset(_begun(marked, base, number)) for path, number in numbers.items()}


def _begun(marked: Graph, base: Sequence[int], number: int) -> list[int]:
    """Ops of the step that are the first after a mark of that number."""
    found = []
    for at, op in enumerate(marked.ops):
        is_mark = marked.calls[op.call].op == _MARK and base[at] < 0
        if is_mark and marked.tensors[op.inputs[0]].shape == (0, number):
            found.append(next((one for one in base[at:] if one >= 0), -1))
    return found
