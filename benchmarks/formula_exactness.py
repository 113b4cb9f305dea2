"""Formulas against fresh captures: every total of every built-in workload, compared to the unit.

    python benchmarks/formula_exactness.py [N] [NAME...] [--timeout SECONDS] [--write]

The formulas of a workload are derived once, over all of its integer hyperparameters. Then N legal settings are drawn
(the draw is seeded): each hyperparameter is its default, a divisor of it, 1 to 3, or anything down to a sixteenth of
it. At each the workload is captured and counted, and the formulas are evaluated. ``right``: all totals agree.
``wrong``: one does not. ``outside``: the formulas say themselves that they do not hold there. ``illegal``: the
workload refuses the setting. Each workload runs in a process of its own. ``--write`` records each as soon as it is done
and keeps what is recorded of the others, so the table may come from several runs.
"""

from __future__ import annotations

import argparse
import inspect
import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "formula_exactness.md"
RECORDED = RESULTS.with_suffix(".json")
COLUMNS = ("model", "captures", "seconds", "formulas", "right", "wrong", "outside", "illegal", "held")
_LARGEST = 12_000
"""Ops of a step that is still worth a capture here; what the formulas say to be larger is drawn again."""


def one(name: str, settings: int) -> dict[str, Any]:
    """Derive and compare one workload in this process."""
    from tensortide import capture, symbolic
    from tensortide.errors import ExpressionError, TensortideError
    from tensortide.examples import find
    from tensortide.formulas.space import Space

    workload = find(name).load()
    over = [n for n, parameter in inspect.signature(workload).parameters.items() if type(parameter.default) is int]
    began = time.perf_counter()
    found = symbolic(workload, over=over, name=name)
    row: dict[str, Any] = {
        "model": name,
        "captures": found.captures,
        "seconds": round(time.perf_counter() - began),
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
    return {**row, "remarks": remarks}


def totals(graph: Any) -> dict[str, int]:
    """Every total of a capture in numbers, by the names that formulas have; bounds over all orders left out."""
    from tensortide import count, timeline

    counted, alone = count(graph), timeline(graph, workspace=False)
    holdings, total = counted.holdings, counted.total
    return {
        "parameters": holdings.trainable,
        "flops": total.flops,
        "product_flops": 2 * total.macs,
        "elementwise_flops": total.cost.elementwise_flops,
        "bytes": total.bytes,
        "footprint_bytes": alone.footprint_bytes,
        "io_bytes": holdings.io_bytes,
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


def _child(name: str, settings: int, timeout: float) -> dict[str, Any]:
    command = [sys.executable, __file__, str(settings), name, "--one"]
    empty = {**dict.fromkeys(COLUMNS, ""), "model": name}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {**empty, "remarks": [f"not done in {timeout:.0f} s"]}
    if done.returncode:
        return {**empty, "remarks": [f"failed: {done.stderr.strip().splitlines()[-1]}"]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _record(row: Mapping[str, Any], settings: int, order: Sequence[str]) -> None:
    """Put a row in place of the one that is recorded for its workload, and write the table."""
    rows = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    rows[row["model"]] = {**row, "settings": settings, "python": platform.python_version()}
    rows = {name: rows[name] for name in order if name in rows}
    RECORDED.write_text(json.dumps(rows, indent=1) + "\n")
    RESULTS.write_text(_markdown(list(rows.values())))


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    settings = ", ".join(str(n) for n in sorted({row["settings"] for row in rows}))
    versions = ", ".join(sorted({row["python"] for row in rows}))
    about = (
        f"`python benchmarks/formula_exactness.py {settings} NAME... --write` on {platform.machine()}, Python "
        f"{versions}: formulas over all integer hyperparameters of {len(rows)} built-in workloads, compared to the "
        f"unit with fresh captures at {settings} random settings each. Rows are recorded one by one, in one run or in "
        f"several; seconds are wall time."
    )
    lines = [
        "# Formulas against captures",
        "",
        about,
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|" + "---:|" * (len(COLUMNS) - 2) + "---|",
        *("| " + " | ".join(str(row[column]) for column in COLUMNS) + " |" for row in rows),
        "",
        *(f"- {row['model']}: {remark[:300]}" for row in rows for remark in row["remarks"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=int, nargs="?", default=20, help="random settings per workload")
    parser.add_argument("names", nargs="*", help="workloads; all by default")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds per workload")
    parser.add_argument("--write", action="store_true", help="record the rows")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.names[0], options.settings)))
        return
    from tensortide.examples import examples

    known = [example.name for example in examples() if example.available]
    for name in options.names or known:
        row = _child(name, options.settings, options.timeout)
        print("  ".join(f"{column} {row[column]}" for column in COLUMNS), flush=True)
        for remark in row["remarks"]:
            print(f"    {remark[:1000]}", flush=True)
        if options.write:
            _record(row, options.settings, known)


if __name__ == "__main__":
    main()
