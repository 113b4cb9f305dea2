"""Where costs go, as rows: one per module, one per group of like ops."""

from __future__ import annotations

import msgspec


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One module, in depth-first order. Everything includes its submodules except what is named ``own``.

    ``parent`` is the row of the enclosing module. ``share`` is its part of the step's FLOPs. ``saved_bytes`` are
    activations that its ops make and backward waits for; ``peak_bytes`` are what of its tensors (parameters,
    gradients, optimizer state, activations, temporaries) is alive at the peak of the step. ``retained_bytes`` is how
    much more is resident after its forward calls than before them; ``transient_bytes`` the most that any of its calls,
    forward or backward, adds while it runs.
    """

    path: str
    name: str
    type: str
    depth: int
    parent: int
    ops: int
    own_ops: int
    unknown_ops: int
    flops: int
    own_flops: int
    macs: int
    accessed_bytes: int
    own_accessed_bytes: int
    parameters: int
    parameter_bytes: int
    saved_bytes: int
    retained_bytes: int
    transient_bytes: int
    peak_bytes: int
    share: float


class OpGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ops of one name, phase and shapes in modules that differ only by number: ``transformer.h.*.mlp.c_fc``."""

    op: str
    shapes: str
    modules: str
    phase: str
    count: int
    flops: int
    macs: int
    accessed_bytes: int
    first_op: int
    source: int
