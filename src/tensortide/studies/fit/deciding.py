"""Sentences that say what decides whether a step fits, where the verdict is unsure."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.studies.fit.largest import Largest
from tensortide.studies.fit.margins import DOUBTFUL, WHERE
from tensortide.studies.fit.verdict import Verdict
from tensortide.units import format_bytes


def deciding(found: Verdict, largest: Largest | None = None) -> Iterator[str]:
    """Yield what decides, the cheapest first; nothing unless it is unsure whether the step fits what was asked for."""
    own = found.asked
    if own is None or own.fits != "unsure":
        return
    if largest is not None and largest.batch:
        yield f"--set {largest.name}={largest.batch} is sure to fit"
    if found.card is not None and found.card.of_size and _differ(found):
        yield f"the card, as --machine {found.card.example}: those of a size leave different amounts of memory"
    joined = found.expandable_bytes
    if joined is not None and joined < found.reserved_bytes:
        so = "; it fits then" if found.judged(found.peak_bytes, joined) == "fits" else ""
        less = f"{format_bytes(joined)} in place of {format_bytes(found.reserved_bytes)}"
        yield f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: the allocator reserves {less}{so}"
    if found.cut_off:
        yield "a recording, or a capture, of a whole step"
    elif not found.on_gpu:
        yield "a capture of the step for the GPU, with its kernels: tensortide fit FILE.py:FUNCTION --machine h100"
    pool = found.margin.pool_bytes(own.usable_bytes)
    yield (
        "two steps on that GPU or a larger one, and after them, in Python: "
        f"print(torch.cuda.max_memory_reserved() <= {pool}), which is True if it fits"
    )


def _differ(found: Verdict) -> bool:
    return found.asked is not None and found.asked.usable_bytes < found.asked.most_usable_bytes


def doubt(found: Verdict) -> str:
    """The reason why the figures may be off; else what is to spare, where they were off by more in measurements."""
    own = found.asked
    if found.margin.why or own is None or own.fits != "fits" or not found.on_gpu:
        return found.margin.why
    spare = format_bytes(found.margin.pool_bytes(own.usable_bytes) - found.reserved_bytes)
    off = if_off(found, found.reserved_bytes)
    return f"It fits with {spare} to spare; {off}." if off else ""


def if_off(found: Verdict, reserved_bytes: int) -> str:
    """The most that a step may reserve in place of ``reserved_bytes``, if predictions are off by as much as they were
    in measurements; empty if it fits then, too."""
    at_most = DOUBTFUL._replace(beside=found.margin.beside).most_bytes(reserved_bytes)
    fits = found.asked is None or at_most is None or at_most <= found.asked.usable_bytes
    if fits or found.margin.why or not found.on_gpu:
        return ""
    return f"up to {format_bytes(at_most or 0)} if this is off by as much as {WHERE}"
