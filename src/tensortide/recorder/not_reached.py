"""Why a training step was not reached, by what a loop was seen to do."""

from __future__ import annotations

from tensortide.recorder.periods import Periods


def not_reached(periods: Periods, step: int, forwards: int, backwards: int) -> str:
    """Explain why the ``step`` was not reached, after so many forward and backward passes."""
    steps, count = sum(periods.steps.values()), periods.count
    if not steps:
        seen = f"{times(forwards, 'forward pass', 'es')}, {times(backwards, 'backward pass', 'es')}"
        advice = _instead(forwards, backwards)
        return f"no training step was seen: {seen}, and no step of an optimizer of torch.optim{advice}"
    skipped = f", {periods.skipped} skipped by the gradient scaler" if periods.skipped else ""
    seen = f"{times(count, 'training step')} ended ({times(steps, 'optimizer step')}{skipped})"
    hint = f": --step {count} (step={count}) records the last" if count else ""
    return f"step {step} was not reached: {seen}{hint}"


def _instead(forwards: int, backwards: int) -> str:
    """Advice where no optimizer steps: the thing to record instead."""
    if not (forwards or backwards):
        return ""
    what = "that updates parameters itself" if backwards else "without training"
    return (
        f". A loop {what} is recorded by function: decorate one that runs a single step with @tensortide.record, "
        "or report it as FILE.py:FUNCTION"
    )


def times(number: int, what: str, plural: str = "s") -> str:
    """A number of things in words."""
    return f"{number} {what}" if number == 1 else f"{number or 'no'} {what}{plural}"
