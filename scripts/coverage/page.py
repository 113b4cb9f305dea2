"""docs/coverage.md: how much of each vocabulary has a rule, and the one list of what has none, with the reason."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import torch

from scripts.coverage.vocabularies import VOCABULARIES, Vocabulary
from tensortide.cost.evaluate import rule_for

PAGE = Path(__file__).resolve().parents[2] / "docs/coverage.md"
REASONS = Path(__file__).parent / "reasons.csv"
MODEL_OPS = Path(__file__).parent / "model_ops.csv"
_HEAD = """# Coverage

Written by `python -m scripts.coverage` from the lists of `scripts/coverage/lists`, which it reads off the packages that
are installed, and the reasons of `scripts/coverage/reasons.csv`. An op is covered if it has a [cost rule](cost.md) and,
where its importer needs one, a shape function, or if an importer reads it as structure: a loop, a call. Every other op
of a vocabulary is a line below, and is [unknown](cost.md#unknown-costs) in a count, never 0.

What PyTorch's models dispatch is `scripts/coverage/model_ops.csv`: `python -m scripts.coverage.models` builds the
architectures of libraries small, from their configurations, and records a forward and a backward pass of each.

| vocabulary | list | ops | covered | not covered |
|---|---|---|---|---|
"""


class Reason(NamedTuple):
    """The reason why ops, by patterns of their names, have no rule."""

    vocabulary: str
    ops: tuple[str, ...]
    text: str

    def explains(self, name: str) -> bool:
        """Tell whether the reason is one for the op ``name``."""
        return any(fnmatchcase(name, pattern) for pattern in self.ops)


def reasons() -> list[Reason]:
    """Read the committed reasons."""
    with REASONS.open(encoding="utf-8", newline="") as file:
        return [Reason(row["vocabulary"], tuple(row["ops"].split()), row["reason"]) for row in csv.DictReader(file)]


class ModelOp(NamedTuple):
    """An op that models dispatch in a training step: how many models of each library."""

    name: str
    models: dict[str, int]

    @property
    def covered(self) -> bool:
        """Tell whether it has a rule, or is a view of its input, which costs nothing."""
        return rule_for(self.name) is not None or _is_view(self.name)


def model_ops() -> list[ModelOp]:
    """Read the ops of models."""
    with MODEL_OPS.open(encoding="utf-8", newline="") as file:
        return [
            ModelOp(row.pop("op"), {library: int(count) for library, count in row.items()})
            for row in csv.DictReader(file)
        ]


def _is_view(name: str) -> bool:
    namespace, _, full = name.partition("::")
    base, _, overload = full.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return packet is not None and bool(getattr(packet, overload or "default").is_view)


def unexplained(vocabulary: Vocabulary) -> list[str]:
    """List the ops that are not covered and have no reason."""
    given = [reason for reason in reasons() if reason.vocabulary == vocabulary.name]
    return [name for name in vocabulary.lacking() if not any(reason.explains(name) for reason in given)]


def page() -> str:
    """Return the whole page."""
    lines = [_HEAD.rstrip("\n")]
    without: list[str] = []
    for one in VOCABULARIES:
        source = one.path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        names, lacking = one.names(), [*one.lacking()]
        lines.append(f"| {one.title} | {source} | {len(names)} | {len(names) - len(lacking)} | {len(lacking)} |")
        without += _rows(one, lacking)
    lines += [*_models(), "", "## Ops without a rule", "", "| vocabulary | ops | reason |", "|---|---|---|", *without]
    return "\n".join(lines) + "\n"


def _rows(vocabulary: Vocabulary, lacking: list[str]) -> Iterator[str]:
    left = list(lacking)
    for reason in reasons():
        if reason.vocabulary == vocabulary.name and (found := [name for name in left if reason.explains(name)]):
            left = [name for name in left if name not in found]
            yield f"| {vocabulary.title} | {', '.join(f'`{name}`' for name in found)} | {reason.text} |"


def _models() -> Iterator[str]:
    """Yield the rows of ops that models dispatch, by library."""
    ops = model_ops()
    for library in ops[0].models:
        used = [op for op in ops if op.models[library]]
        lacking = [op.name for op in used if not op.covered]
        source = f"what models of {library} dispatch"
        yield f"| PyTorch | {source} | {len(used)} | {len(used) - len(lacking)} | {len(lacking)} |"
