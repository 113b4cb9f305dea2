"""A call in a dump as a Call of a Graph: argument names and tags come from PyTorch, where it is installed."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tensortide.graph.model import Call, Value

if TYPE_CHECKING:
    from tensortide.recorder.schema import Schema

__all__ = ["call_of"]

_OP = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?", re.ASCII)


def call_of(name: str, values: tuple[Value, ...], named: tuple[tuple[str, Value], ...], returns: Value) -> Call:
    """The Call of what a dump calls ``name``.

    An op that the installed PyTorch knows is named and has its arguments named as if it had been captured, so that
    cost rules apply. Any other is in the namespace ``fx``, its arguments numbered: no rule can mistake it.
    """
    schema = _schema(name)
    if schema is not None and len(values) <= len(schema.names):
        taken = schema.names[: len(values)]
        if all(key in schema.names and key not in taken for key, _ in named):
            return schema.call(values, named, returns)
    arguments = (*((f"x{index}", value) for index, value in enumerate(values)), *named)
    return Call(f"fx.{name.removeprefix('torch.ops.')}", arguments, len(values), (), returns)


@functools.cache
def _schema(name: str) -> Schema | None:
    found = _OP.fullmatch(name)
    if found is None or find_spec("torch") is None:
        return None
    import torch

    from tensortide.recorder.schema import schema_of

    part: object = torch.ops
    for word in (found[1], found[2], found[3] or "default"):
        part = getattr(part, word, None)
    return schema_of(part) if isinstance(part, torch._ops.OpOverload) else None
