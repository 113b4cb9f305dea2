"""The table of actions: what makes a step need less memory, as settings and changes to capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from tensortide.dtypes import is_half
from tensortide.graph.model import Phase, Role
from tensortide.graph.module_paths import ranged
from tensortide.recorder.changes import (
    Accumulated,
    Autocast,
    Change,
    Checkpointed,
    ChunkedLoss,
    EightBit,
    Fused,
    NotApplicable,
    SavedOnHost,
    Sharded,
)
from tensortide.shown import Show
from tensortide.studies.fit.subject import Subject
from tensortide.units import format_bytes

DEVICES = 8
"""Devices that share out the optimizer's state."""
CHUNKS = 8
"""Chunks of a loss."""
_PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.convolution")
LEAST_LOSS = 0.02
"""Share of the peak from which on logits are worth a loss by chunks."""


@dataclass(frozen=True)
class Action:
    """Something to do: ``line`` is the code or the option that does it; ``slot`` is shared by what excludes each other.

    ``samples`` is the part of the step's samples that a step then takes. ``turns``: its gradients are accumulated.
    ``devices``: how many it needs.
    """

    key: str
    title: Annotated[str, Show("Action", fold=True)]
    line: str
    slot: str
    changes: tuple[Change, ...] = ()
    settings: dict[str, int] = field(default_factory=dict)
    samples: float = 1.0
    turns: int = 1
    devices: int = 1


@dataclass(frozen=True)
class Refused:
    """An action that cannot be taken, and why."""

    key: str
    title: str
    reason: str


def _half(subject: Subject) -> Iterator[Action]:
    """Autocast to bfloat16, or to float16 with a scaled loss on a GPU that computes in no other half precision."""
    row, device = subject.row, subject.graph.index.main_device.partition(":")[0]
    products = (op for op in subject.graph if op.name.startswith(_PRODUCTS))
    if subject.again is None and any(is_half(out.dtype) for op in products for out in op.outputs):
        raise NotApplicable("the step computes in half precision")
    around = "around forward and loss, or turn yours on"
    if row.kind != "gpu" or row.bf16_tflops is not None:
        line = f'with torch.autocast("{device}", dtype=torch.bfloat16):  # {around}'
        yield Action("bf16", "bf16 autocast", line, "precision", (Autocast(),))
        return
    if row.fp16_tflops is None:
        raise NotApplicable(f"{row.name} computes in neither bfloat16 nor float16")
    scaled = "; scaler = torch.amp.GradScaler(): scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update()"
    line = f'with torch.autocast("{device}", dtype=torch.float16):  # {around}{scaled if subject.trains else ""}'
    yield Action("fp16", "fp16 autocast", line, "precision", (Autocast("float16"),))


def _blocks(subject: Subject) -> tuple[tuple[str, ...], ...]:
    if not subject.trains:
        raise NotApplicable("the step has no backward pass, for which anything is kept")
    if not subject.blocks:
        raise NotApplicable("no modules with modules of their own repeat")
    return subject.blocks


def _checkpoint(subject: Subject) -> Iterator[Action]:
    for number, paths in enumerate(_blocks(subject)):
        blocks = ", ".join(ranged(paths))
        line = f"x = checkpoint(block, x, use_reentrant=False)  # each of {blocks}; torch.utils.checkpoint"
        key = "checkpoint" if not number else "checkpoint_inner"
        yield Action(key, f"checkpoint {blocks}", line, "kept", (Checkpointed(paths),))


def _offload(subject: Subject) -> Iterator[Action]:
    if subject.graph.index.main_device.startswith("cpu"):
        raise NotApplicable("the step runs on the CPU, whose memory is the host's")
    paths = _blocks(subject)[0]
    blocks = ", ".join(ranged(paths))
    line = f"with torch.autograd.graph.save_on_cpu(pin_memory=True):  # around each of {blocks}"
    yield Action("offload", f"offload what {blocks} save", line, "kept", (SavedOnHost(paths),))


def _loss(subject: Subject) -> Iterator[Action]:
    if not subject.trains:
        raise NotApplicable("the step has no backward pass")
    found = subject.classifier
    if found is None:
        raise NotApplicable("no cross entropy takes the product of a parameter")
    weight, nbytes = found
    if nbytes < LEAST_LOSS * subject.limit_bytes and nbytes < LEAST_LOSS * _peak(subject):
        raise NotApplicable(f"the logits are {format_bytes(nbytes)}")
    line = (
        "loss = sum(checkpoint(head_loss, h, y, use_reentrant=False) for h, y in "
        f"zip(hidden.chunk({CHUNKS}), labels.chunk({CHUNKS}))) / labels.numel()  # head_loss: sum over rows, {weight}"
    )
    yield Action("loss", f"loss by {CHUNKS} chunks", line, "loss", (ChunkedLoss(weight, CHUNKS),))


def _peak(subject: Subject) -> int:
    from tensortide.timelines import timeline

    return timeline(subject.graph).peak_bytes


def _require_state(subject: Subject) -> None:
    if not any(storage.role is Role.OPTIMIZER_STATE for storage in subject.graph.storages):
        raise NotApplicable("the optimizer has no state")


def _eight_bit(subject: Subject) -> Iterator[Action]:
    _require_state(subject)
    names = {each.name.rpartition(".")[2] for each in subject.graph.named if each.role is Role.OPTIMIZER_STATE}
    kind = "SGD8bit" if "momentum_buffer" in names else "AdamW8bit"
    line = f"optimizer = bitsandbytes.optim.{kind}(...)  # in place of that of torch.optim"
    yield Action("eight_bit", "optimizer state in 8 bits", line, "optimizer", (EightBit(),))


def _fused(subject: Subject) -> Iterator[Action]:
    names = [op.name for op in subject.graph if op.phase is Phase.OPTIMIZER]
    if subject.again is None and (not names or any("_fused_" in name for name in names)):
        raise NotApplicable("the optimizer is fused" if names else "the step has no optimizer")
    yield Action("fused", "fused optimizer", "optimizer = ...(..., fused=True)", "optimizer", (Fused(),))


def _sharded(subject: Subject) -> Iterator[Action]:
    _require_state(subject)
    line = "optimizer = ZeroRedundancyOptimizer(..., optimizer_class=...)  # torch.distributed.optim"
    title = f"optimizer state over {DEVICES} devices"
    yield Action("sharded", title, line, "sharded", (Sharded(DEVICES),), devices=DEVICES)


def accumulation(subject: Subject, turns: int) -> Action:
    """The action that takes the samples of a step in ``turns``."""
    assert subject.batch is not None
    name, batch = subject.batch
    line = (
        f"--set {name}={batch // turns}, (loss / {turns}).backward(), and optimizer.step() every {turns} batches  # "
        "not with BatchNorm"
    )
    title = f"accumulate {turns} x {batch // turns}"
    changes = (Accumulated(min(turns, 2)),)
    return Action("accumulate", title, line, "batch", changes, {name: batch // turns}, 1.0, turns)


def smaller(subject: Subject, batch: int) -> Action:
    """The action that takes fewer samples in a step."""
    assert subject.batch is not None
    name, before = subject.batch
    line = f"--set {name}={batch}"
    return Action("smaller", f"{name} of {batch}", line, "batch", (), {name: batch}, batch / before)


def unmeasured(subject: Subject) -> Iterator[Action]:
    """The same, of a step whose batch is not known."""
    every = "(loss / 2).backward(), and optimizer.step() every 2 batches of half the samples  # not with BatchNorm"
    if subject.trains:
        yield Action("accumulate", "accumulated gradients", every, "batch")
    yield Action("smaller", "smaller batch", "half the samples in a batch", "batch")


TABLE: dict[str, tuple[str, Callable[[Subject], Iterator[Action]]]] = {
    "bf16": ("bf16 or fp16 autocast", _half),
    "checkpoint": ("checkpoint repeated modules", _checkpoint),
    "loss": ("loss by chunks", _loss),
    "eight_bit": ("optimizer state in 8 bits", _eight_bit),
    "fused": ("fused optimizer", _fused),
    "sharded": ("optimizer state over several devices", _sharded),
    "offload": ("offload what modules save", _offload),
}
"""Actions that do not depend on how much memory there is: a title, and what makes them for a step.

A row raises NotApplicable for a step that cannot have it. Accumulated gradients and smaller batches are searched for.
"""


def actions(subject: Subject) -> Iterator[Action | Refused]:
    """Every action of the table that ``subject`` may take, and those that it cannot."""
    for key, (title, make) in TABLE.items():
        try:
            yield from make(subject)
        except NotApplicable as error:
            yield Refused(key, title, str(error))
