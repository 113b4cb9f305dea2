"""Op types by what they do for others: control flow, variables, feeds, updates, and what passes a tensor on."""

from __future__ import annotations

import re

ENTERS = frozenset({"Enter", "RefEnter"})
EXITS = frozenset({"Exit", "RefExit"})
MERGES = frozenset({"Merge", "RefMerge"})
SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
NEXT = frozenset({"NextIteration", "RefNextIteration"})

VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp", "TemporaryVariable"})
READERS = ENTERS | EXITS | SWITCHES | {"Identity", "ReadVariableOp"}
"""Ops that hand on the value of a variable."""

CARRIERS = ENTERS | EXITS | MERGES | SWITCHES | NEXT | {"Identity", "StopGradient"}
"""Ops that hand on the handle of a stack, list or array."""

_PASSES = (
    "StopGradient PreventGradient CheckNumerics PlaceholderWithDefault Snapshot EnsureShape RefIdentity Identity "
    "LoopCond Reshape Squeeze ExpandDims Bitcast ReadVariableOp"
)
PASSES = ENTERS | EXITS | MERGES | SWITCHES | NEXT | frozenset(_PASSES.split())
"""Ops whose outputs share the memory of their first input."""

_FEEDS = (
    "Placeholder PlaceholderV2 IteratorGetNext IteratorGetNextSync DatasetToSingleElement QueueDequeue QueueDequeueV2 "
    "QueueDequeueMany QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2 ReaderRead ReaderReadV2"
)
FEEDS = frozenset(_FEEDS.split())
"""Ops whose outputs come from outside of the step."""

QUESTIONS = frozenset({"Shape", "ShapeN", "Size", "Rank"})
"""Ops that read the shape of their inputs only."""

_UPDATES = re.compile(
    r"(?:Resource)?(?:Sparse)?Apply\w+|Assign(?:Add|Sub)?(?:VariableOp)?"
    r"|(?:Resource)?Scatter(?:Nd)?(?:Add|Sub|Update|Mul|Div|Min|Max)"
)


def updates(op: str) -> bool:
    """Tell whether ops of type ``op`` write a variable, their first input."""
    return _UPDATES.fullmatch(op) is not None
