"""Formulas against fresh captures: every total of ordinary workloads and of the built-in ones, compared to the unit.

    python benchmarks/formula_exactness.py [--settings N] [--jobs N] [--resume] [--timeout SECONDS] [--write] [NAME ...]
    python benchmarks/formula_exactness.py late_norm --settings 5      # one case, in seconds
    python benchmarks/formula_exactness.py builtin                     # the built-in workloads

The formulas of a workload (`tests/formulas/ordinary*.py`) are derived once, over all integers
among its hyperparameters. Then N legal settings are drawn (the draw is seeded): each hyperparameter is its default, 1
to 3, a divisor of the default times a power of two, or anything between a sixteenth and 64 times the default, less
where a capture would take long. At each the workload is captured on fake tensors, and each of the 11 totals gets a
verdict: ``right``, ``wrong``, the same of answers ``marked`` as extrapolated, ``outside`` of the region, ``missing``:
no formula. ``found`` are totals with a formula; ``refused`` counts settings that the workload refuses and formulas
answer, of up to 8. ``solve``: three goals that a drawn value is known to meet, with the claim, and ``wrong`` where the
capture of the answer or that value contradicts it. ``ratio`` is the processor time of the derivation over that of one
capture at the defaults. Hyperparameters that are held stay at their defaults. Each workload runs in a process of its
own.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import math
import random
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import harness

COLUMNS = {
    "workload": "{model}",
    "captures": "{captures:d}",
    "ratio": "{ratio:.1f}",
    "found": "{found:d}",
    **{name: f"{{{name}:d}}" for name in ("right", "wrong")},
    "marked right": "{marked right:d}",
    "marked wrong": "{marked wrong:d}",
    **{name: f"{{{name}:d}}" for name in ("outside", "missing", "refused")},
    "solve": "{solve}",
    "seconds": "{seconds:.0f}",
    "remarks": "{remarks}",
}
_LARGEST = 12_000
"""Ops of a step that is still worth a capture here; what the formulas say to be larger is drawn again."""
_LARGEST_BYTES = 1 << 60
"""A step with more bytes is drawn again: sums might not fit 64 bits."""
_CAPTURE_S = 30
_REFUSALS = 8
_SHOWN = 3
"""Wrong values that are recorded of each total."""
_MEMORY = 14 << 30
GOALS = (("parameters", "="), ("peak_bytes", "<="), ("flops", ">="))


class Drawing:
    """Seeded settings of one workload: each legal one comes with its capture."""

    def __init__(self, case: Any, name: str) -> None:
        defaults = {n: p.default for n, p in inspect.signature(case.workload).parameters.items()}
        self.case, self.defaults = case, {n: v for n, v in defaults.items() if type(v) is int}
        self.dice = random.Random(name)
        self.refused: list[dict[str, int]] = []
        """Settings as they were drawn, which the workload refuses."""

    def one(self, name: str) -> int:
        """Draw a value."""
        default, draw = self.defaults[name], self.dice.random()
        if name in self.case.values:
            return self.dice.choice(self.case.values[name])
        if default < 1:
            return self.dice.randint(0, 4)
        if draw < 0.2:
            return default
        low, high = max(1, default // 16), min(64 * default, self.case.most.get(name, 64 * default))
        if draw < 0.3:
            return min(self.dice.randint(1, 3), high)
        if draw < 0.45:
            divisor = self.dice.choice([n for n in range(1, default + 1) if default % n == 0])
            return min(divisor * 2 ** self.dice.randrange(7), high)
        return round(math.exp(self.dice.uniform(math.log(low), math.log(high))))

    def setting(self) -> dict[str, int]:
        """Draw a setting and make it legal; what was drawn first is kept if the workload refuses it."""
        drawn = {name: self.one(name) for name in self.defaults}
        self.case.afford(drawn)
        raw = dict(drawn)
        self.case.mend(drawn)
        if raw != drawn and len(self.refused) < _REFUSALS and self.truth(raw) is None:
            self.refused.append(raw)
        return drawn

    def truth(self, setting: dict[str, int]) -> Any:
        """The totals of a capture; None where the workload refuses, or the capture takes too long."""
        from tensortide.errors import TensortideError
        from tests.formulas.judge import Truth

        try:
            with _limited():
                truth = Truth(self.case.workload, setting)
        except (TensortideError, TimeoutError):
            return None
        return truth if max(truth.totals.values()) < _LARGEST_BYTES else None


def compared(name: str, settings: int) -> harness.Row:
    """Derive and compare one workload in this process."""
    from tensortide import capture, symbolic
    from tensortide.formulas import QUANTITIES
    from tests.formulas.judge import VERDICTS, said, verdicts

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    target, case = drawn_of(name)
    drawing = Drawing(case, name)
    capture(case.workload)
    once = harness.seconds(lambda: capture(case.workload))
    empty = {"found": 0, "refused": 0, "solve": "", **dict.fromkeys(VERDICTS, 0)}
    row: harness.Row = {"model": name, "captures": 0, "ratio": 0.0, "seconds": 0.0, **empty, "settings": settings}
    began, wall = time.process_time(), time.perf_counter()
    try:
        found = symbolic(target, over=list(drawing.defaults))
    except Exception as error:  # noqa: BLE001  # a crash is a verdict too
        why = f"no formulas: {type(error).__name__}: {str(error).splitlines()[0][:300]}"
        return {**row, "missing": settings * len(QUANTITIES), "remarks": why}
    spent = time.process_time() - began
    row |= {"captures": found.captures, "ratio": spent / once, "seconds": time.perf_counter() - wall}
    row |= {"found": len(found.formulas.totals), "held": dict(found.held), "numeric": list(found.numeric)}
    remarks = [f"held: {n}: {why}" for n, why in found.held.items()]
    remarks += [f"no formula: {what}" for what in found.numeric[:3]]
    by_total: dict[str, collections.Counter[str]] = {total: collections.Counter() for total in QUANTITIES}
    row["faults"] = []
    for setting, truth in _legal(drawing, settings, found):
        for total, verdict in verdicts(found.formulas, setting, truth).items():
            by_total[total][verdict] += 1
            if verdict.endswith("wrong") and by_total[total][verdict] <= _SHOWN:
                value = said(found.formulas, setting).values[total]
                row["faults"].append([verdict, total, setting, value, truth.shown(total)])
    for verdict in VERDICTS:
        row[verdict] = sum(verdicts[verdict] for verdicts in by_total.values())
    faults = [fault for fault in row["faults"] if fault[0] == "wrong"]
    remarks += [f"{fault[1]} at {fault[2]}: {fault[3]}, not {fault[4]}" for fault in faults[:2]]
    refused = [
        s
        for s in drawing.refused
        if all(s[name] == drawing.defaults.get(name, s[name]) for name in found.held if name in s)
    ]
    answered = [s for s in refused if not (answer := said(found.formulas, s)).outside and any(answer.values.values())]
    row |= {"refused": len(answered), "answered though refused": answered, "totals": by_total}
    row["solves"] = list(_solved(drawing, found))
    claims = collections.Counter(claim + " wrong" * bool(fault) for _, claim, fault, _ in row["solves"])
    row["solve"] = ", ".join(f"{number} {claim}" for claim, number in sorted(claims.items()))
    remarks += [f"solve {goal}: {fault}" for goal, _, fault, _ in row["solves"] if fault]
    return {**row, "remarks": "; ".join(" ".join(remark[:300].split()).replace("|", "\\|") for remark in remarks)}


def _legal(drawing: Drawing, settings: int, found: Any) -> Iterator[tuple[dict[str, int], Any]]:
    """Yield that many settings with their captures, what is held at its default."""
    held = {name: drawing.defaults[name] for name in found.held if name in drawing.defaults}
    ops = found.by(lambda row: "all", "count").get("all")
    for _ in range(40 * settings):
        setting = {**drawing.setting(), **held}
        if ops is not None and _value(ops, {**found.formulas.defaults, **setting}) > _LARGEST:
            continue
        truth = drawing.truth(setting)
        if truth is None:
            continue
        yield setting, truth
        settings -= 1
        if not settings:
            return


def _value(expr: Any, setting: dict[str, int]) -> int:
    try:
        return int(expr.evaluate({name: setting[name] for name in expr.symbols}))
    except ArithmeticError:
        return 0


def _solved(drawing: Drawing, found: Any) -> Iterator[list[str]]:
    """Solve for goals that a drawn value of one hyperparameter meets, the others at their defaults."""
    from tests.formulas.judge import judged

    own = drawing.truth(drawing.defaults)
    for total, relation in GOALS:
        symbols = [name for name in drawing.defaults if name in found.symbols]
        for symbol in [drawing.dice.choice(symbols) for _ in range(40)]:
            setting = {**drawing.defaults, symbol: drawing.one(symbol)}
            drawing.case.afford(setting)
            drawing.case.mend(setting)
            value = setting[symbol]
            alone = setting == {**drawing.defaults, symbol: value}
            truth = drawing.truth(setting) if alone else None
            if truth is None or truth.totals[total] == own.totals[total]:
                continue
            goal = f"{total} {relation} {truth.totals[total]}"
            with contextlib.suppress(TimeoutError), _limited():
                claim = judged(drawing.case.workload, found, symbol, goal, value)
                yield [f"{goal} for {symbol}", *claim]
            break


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise TimeoutError after some seconds."""

    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(_CAPTURE_S)
    try:
        yield
    finally:
        signal.alarm(0)


def drawn_of(name: str) -> tuple[str, Any]:
    """The target of a case, and what is drawn for it."""
    from tensortide.examples import find
    from tests.formulas.ordinary import builtin
    from tests.formulas.ordinary_structure import CASES

    if name in CASES:
        return f"{CASES[name].workload.__module__}:{name}", CASES[name]
    return name, builtin(find(name).load())


def measure(run: harness.Run) -> None:
    from tensortide.examples import examples
    from tests.formulas.ordinary_structure import CASES

    ordinary = dict.fromkeys(CASES, "Ordinary workloads")
    builtin = dict.fromkeys((e.name for e in examples() if e.available), "Built-in workloads")
    tables = {title: run.table(COLUMNS, ("model",), title) for title in ("Ordinary workloads", "Built-in workloads")}
    known = builtin if "builtin" in run.options.names else {**ordinary, **builtin}
    chosen = run.cases(known) if run.options.names else run.cases(ordinary)
    if run.options.resume:
        recorded = {row["model"] for table in tables.values() for row in table.recorded() if "found" in row}
        chosen = {name: title for name, title in chosen.items() if name not in recorded}
    settings = 1 if run.smallest else run.options.settings

    def judged(name: str) -> harness.Row:
        try:
            return run.child(compared, name, settings, timeout_s=run.options.timeout)
        except harness.ChildFailed as failed:
            return {"model": name, "remarks": str(failed)}

    with ThreadPoolExecutor(run.options.jobs) as pool:
        for done in as_completed([pool.submit(judged, name) for name in chosen]):
            tables[chosen[done.result()["model"]]].add(done.result())
    for title, table in tables.items():
        rows = table.merged(table.recorded())
        if rows:
            run.note(f"{title}: " + _summary(rows))


def _summary(rows: list[harness.Row]) -> str:
    """Say how many claims were wrong and how many totals were found."""
    sums = {name: sum(row.get(name, 0) for row in rows) for name in COLUMNS.keys() - {"solve", "workload", "remarks"}}
    claims = [claim for row in rows for claim in row.get("solves", ())]
    wrong = [row["model"] for row in rows if row.get("wrong")]
    few = [row["model"] for row in rows if row.get("found", 0) < 9]
    bad = [claim for claim in claims if claim[2]]
    return (
        f"{len(rows)} workloads; of {sums['right'] + sums['wrong']:,} claims {sums['wrong']:,} are wrong, "
        f"in {len(wrong)} workloads ({', '.join(wrong)}); "
        f"marked as extrapolated {sums['marked right']:,} right and {sums['marked wrong']:,} wrong; "
        f"{sums['outside']:,} outside, {sums['missing']:,} missing; "
        f"fewer than 9 totals in {len(few)} ({', '.join(few)}); "
        f"of {len(claims)} solutions {len(bad)} are wrong, {sum(claim[1] == 'proved' for claim in bad)} of them proved."
    )


if __name__ == "__main__":
    harness.main(
        __doc__,
        measure,
        settings={"type": int, "default": 30, "help": "random settings per workload"},
        jobs={"type": int, "default": 1, "help": "workloads at a time"},
        resume={"action": "store_true", "help": "leave out what is recorded"},
        timeout={"type": float, "default": 1800, "help": "seconds per workload"},
    )
