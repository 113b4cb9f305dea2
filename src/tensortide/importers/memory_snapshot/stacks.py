"""What a stack says about an allocation: the op that asked for it, the phase of the step, the user's line, a role."""

from __future__ import annotations

import functools
import re
from pathlib import PurePath
from typing import NamedTuple

from tensortide.graph.model import Phase, Source
from tensortide.importers.memory_snapshot.records import Stack

_OP = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)\(")
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::(?:apply|add)\(")
_LIBRARY = re.compile(r"[wW]orkspace|cublas|cudnn|NCCL|nccl")
_ENGINE = "torch::autograd::Engine::"
_INITIALIZING = ("__init__", "reset_parameters", "_apply", "empty_parameters")


class Asked(NamedTuple):
    """Who asked for memory: the ``op`` (or empty), the autograd ``node`` it ran in, the phase, the user's line.

    ``building``: while a module was made or moved; ``library``: for a workspace of a library; ``calls``: the functions
    of the user's own frames, outermost first.
    """

    op: str
    node: str
    phase: Phase
    source: Source | None
    building: bool
    library: bool
    calls: tuple[str, ...]


@functools.lru_cache(maxsize=1 << 16)
def asked(stack: Stack) -> Asked:
    """Read a stack."""
    python = [frame for frame in stack if frame.file.endswith(".py")]
    own = [frame for frame in python if "site-packages" not in frame.file and "/torch/" not in frame.file]
    ops = [found[1] for frame in stack if (found := _OP.match(frame.function))]
    nodes = [found[1] for frame in stack if (found := _NODE.match(frame.function))]
    optimizer = any("torch/optim/" in frame.file for frame in python)
    backward = bool(nodes) or any(frame.function.startswith(_ENGINE) for frame in stack)
    source = Source(own[0].file, own[0].line, own[0].function) if own else None
    if source is None and nodes:
        source = Source(nodes[-1], 0, nodes[-1])
    return Asked(
        ops[-1] if ops else "",
        nodes[-1] if nodes else "",
        Phase.OPTIMIZER if optimizer else Phase.BACKWARD if backward else Phase.FORWARD,
        source,
        any(frame.function in _INITIALIZING for frame in python),
        any(_LIBRARY.search(frame.function) for frame in stack if not frame.file.endswith(".py")),
        tuple(frame.function for frame in reversed(own)),
    )


def holder(source: Source | None) -> str:
    """Name a place that holds memory: a line with its function, or a node of the backward pass."""
    if source is None:
        return "no stack"
    return (
        f"{PurePath(source.file).name}:{source.line} {source.function}"
        if source.line
        else f"{source.function} (autograd)"
    )
