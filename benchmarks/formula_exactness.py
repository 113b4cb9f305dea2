"""Formulas against fresh captures: every total of every built-in workload, compared to the unit.

    python benchmarks/formula_exactness.py [--settings N] [--timeout SECONDS] [--write] [NAME ...]

The formulas of a workload are derived once, over all of its integer hyperparameters. Then N legal settings are drawn
(the draw is seeded): each hyperparameter is its default, a divisor of it, 1 to 3, or anything down to a sixteenth of
it. At each the workload is captured and counted, and the formulas are evaluated. ``right``: all totals agree.
``wrong``: one does not. ``outside``: the formulas say themselves that they do not hold there. ``illegal``: the
workload refuses the setting. Each workload runs in a process of its own; seconds are of the derivation, wall time.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Sequence
from typing import Any

import harness

COLUMNS = {
    "model": "{model}",
    "captures": "{captures:d}",
    "seconds": "{seconds:.0f}",
    "formulas": "{formulas:d}",
    **{name: f"{{{name}:d}}" for name in ("settings", "right", "wrong", "outside", "illegal")},
    "held": "{held}",
    "remarks": "{remarks}",
}
_LARGEST = 12_000
"""Ops of a step that is still worth a capture here; what the formulas say to be larger is drawn again."""


def compared(name: str, settings: int) -> harness.Row:
    """Derive and compare one workload in this process."""
    from tensortide import capture, symbolic
    from tensortide.errors import ExpressionError, TensortideError
    from tensortide.examples import find
    from tensortide.formulas.sampler import Space

    workload = find(name).load()
    over = [n for n, parameter in inspect.signature(workload).parameters.items() if type(parameter.default) is int]
    began = time.perf_counter()
    found = symbolic(workload, over=over, name=name)
    row: harness.Row = {
        "model": name,
        "captures": found.captures,
        "seconds": time.perf_counter() - began,
        "settings": settings,
        "formulas": len(found.formulas.totals),
        **dict.fromkeys(("right", "wrong", "outside", "illegal"), 0),
        "held": ", ".join(found.held),
    }
    remarks = [f"held: {n}: {why}" for n, why in found.held.items()]
    remarks += [f"no formula: {what}" for what in found.numeric[:5]]
    space, dice = Space(workload, over, {}), random.Random(0)
    ops = found.by(lambda row: "all", "count")["all"]
    for _ in range(200 * settings):
        if row["right"] + row["wrong"] + row["outside"] == settings:
            break
        setting = {n: _drawn(dice, v, space.values.get(n, ())) for n, v in space.all.items() if n not in found.held}
        symbols = {n: v for n, v in setting.items() if n in found.symbols}
        too_large = ops is not None and ops.evaluate({**found.formulas.defaults, **symbols}) > _LARGEST
        if too_large or not space.allows(setting):
            continue
        try:
            truth = totals(capture(workload, hyperparameters=setting))
        except TensortideError:
            row["illegal"] += 1
            continue
        try:
            said = found.evaluate(**symbols)
        except ExpressionError as error:
            row["outside"] += 1
            remarks.append(f"outside: {str(error)[-160:]}")
            continue
        wrong = {total: (value, truth[total]) for total, value in said.items() if value != truth.get(total, value)}
        row["wrong" if wrong else "right"] += 1
        if wrong:
            remarks.append(f"wrong at {setting}: " + ", ".join(f"{t} {a}, not {b}" for t, (a, b) in wrong.items()))
    return {**row, "remarks": "; ".join(remark[:300] for remark in remarks)}


def totals(graph: Any) -> dict[str, int]:
    """Every total of a capture in numbers, by the names that formulas have; bounds over all orders left out."""
    from tensortide import count, timeline

    counted, alone = count(graph), timeline(graph, workspace=False)
    sizes, total = counted.sizes, counted.total
    return {
        "parameters": sizes.trainable,
        "flops": total.flops,
        "product_flops": 2 * total.macs,
        "elementwise_flops": total.cost.elementwise_flops,
        "bytes": total.bytes,
        "footprint_bytes": alone.footprint_bytes,
        "io_bytes": sizes.io_bytes,
        "peak_bytes": alone.peak_bytes,
        "peak_with_workspace_bytes": timeline(graph).peak_bytes,
    }


def _drawn(dice: random.Random, default: int, values: Sequence[int]) -> int:
    if values:
        return dice.choice(values)
    if dice.random() < 1 / 8:
        return dice.randint(1, 3)
    divisors = [n for n in range(1, default + 1) if default % n == 0]
    return dice.choice([default, dice.choice(divisors[1:] or divisors), dice.randint(-(-default // 16), default)])


def measure(run: harness.Run) -> None:
    from tensortide.examples import examples

    known = {"mlp": "mlp"} if run.smallest else {e.name: e.name for e in examples() if e.available}
    settings = 1 if run.smallest else run.options.settings
    table = run.table(COLUMNS, ("model",))
    for name in run.cases(known):
        try:
            table.add(run.child(compared, name, settings, timeout_s=run.options.timeout))
        except harness.ChildFailed as failed:
            table.add({"model": name, "remarks": str(failed)})


if __name__ == "__main__":
    harness.main(
        __doc__,
        measure,
        settings={"type": int, "default": 20, "help": "random settings per workload"},
        timeout={"type": float, "default": 1800, "help": "seconds per workload"},
    )
