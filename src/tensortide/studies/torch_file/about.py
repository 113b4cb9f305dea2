"""Docstring of a written file: the step, its budget and peak, the machine of its times, how to check."""

from __future__ import annotations

import textwrap

from tensortide.studies.torch_file.choice import pool_bytes
from tensortide.studies.torch_file.result import Asked, Form
from tensortide.units import format_bytes, format_seconds

_WIDTH = 100
_CHECK = "tensortide memory COPY.py:FUNCTION"


def headline(asked: Asked, form: Form) -> str:
    """The first sentence."""
    peak = form.peak_bytes or 0
    text = (
        f"Changes of {_name(asked)} by which a step takes {peak:,} bytes ({format_bytes(peak)}) of a budget of "
        f"{format_bytes(asked.planned.budget_bytes)}: {', '.join(form.choice.forms)}."
    )
    return _quoted(text)


def details(asked: Asked, form: Form) -> tuple[str, ...]:
    """Lines about the target and its settings, the times, and a check."""
    settings = ", ".join(f"{key}={value}" for key, value in asked.graph.meta.hyperparameters.items())
    before, after = (format_seconds((ns or 0) / 1e9) for ns in (asked.planned.base_ns, form.step_ns))
    pool = pool_bytes(form.choice)
    source = asked.recording.source or "as given"
    together = f", on a CPU with the pool of {format_bytes(pool)}" if pool else ""
    ranks = len(next(iter(asked.graph.meta.groups.values()), ()))
    several = (
        f"The peak is that of one of {ranks} processes, whose model is wrapped as in the target." if ranks > 1 else ""
    )
    eager = "What torch.compile has compiled is counted as it runs without." if asked.graph.meta.compiled else ""
    lines = [
        f"Target: {_name(asked)}{f' with {settings}' if settings else ''}.",
        f"Time of a step, predicted: {after}, and {before} without a budget. Times of ops: {source}.",
        several,
        eager,
        f"Check: in a copy of the program, call apply as above; {_CHECK} then prints this peak{together}.",
    ]
    return tuple(part for line in lines for part in textwrap.wrap(_quoted(line), _WIDTH, break_long_words=False))


def _name(asked: Asked) -> str:
    return asked.target or asked.graph.meta.workload or "a step"


def _quoted(text: str) -> str:
    """``text`` as it stands between triple quotes."""
    return text.replace("\\", "\\\\").replace('"', "'")
