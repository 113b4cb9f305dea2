"""Baselines: the metrics of a step at some time, and the figures of its modules, in a file that is accepted on purpose.

The file is JSON with one metric, and one module, in a line: a pull request shows what a commit changes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any

import msgspec

from tensortide.differences import Amounts
from tensortide.errors import CheckError, TensortideError
from tensortide.measures.checks.assertions import Quantity
from tensortide.measures.checks.measured import Measured
from tensortide.measures.metric import Number
from tensortide.measures.status import versions
from tensortide.shown import Show
from tensortide.timelines.module_figures import NONE, ModuleFigures
from tensortide.versioned import Format

FORMAT = Format(
    "baseline", "tensortide baseline", (2,), CheckError, "accept it again with --accept", "tensortide check --accept"
)
RECORDED = (
    *("flops", "macs", "elementwise_flops", "bytes", "ops", "coverage", "unknown_ops", "recomputed_flops"),
    *("recomputed_ops", "total_params", "trainable_params", "model_size", "buffer_size", "saved_activations"),
    "step_peak",
)
"""Metrics that every baseline has, where the step has them; the parts of the peak by role too."""

Scalar = str | int | float | bool | None


class Identity(msgspec.Struct, frozen=True):
    """A step, and the device and the machine that it was captured for."""

    workload: str
    hyperparameters: dict[str, Scalar]
    device: str
    machine: str = ""
    step: str = "steady"
    compiled: bool = False

    @property
    def place(self) -> str:
        """The device and machine of the capture, as ``cuda of H100-SXM-80GB``."""
        return place_text(self.device, self.machine)

    def moved(self, to: Identity) -> Identity:
        """The same step on the device and the machine of another one."""
        return msgspec.structs.replace(self, device=to.device, machine=to.machine)

    def differences(self, other: Identity) -> list[str]:
        """Name what ``other`` has that differs, field by field, hyperparameters one by one."""
        mine, theirs = (_said(one) for one in (self, other))
        return [
            f"{name} was {mine.get(name, 'not set')}, is {theirs.get(name, 'not set')}"
            for name in dict.fromkeys([*mine, *theirs])
            if mine.get(name) != theirs.get(name)
        ]


def _said(one: Identity) -> dict[str, str]:
    fields = msgspec.structs.asdict(one)
    settings: dict[str, Scalar] = fields.pop("hyperparameters")
    return {name: repr(value) for name, value in {**fields, **settings}.items() if value != ""}


def place_text(device: str, machine: str) -> str:
    """Name what a step was captured for: ``cuda of H100-SXM-80GB``."""
    return f"{device} of {machine}" if machine else device


class Amount(Amounts, frozen=True):
    """The value of a metric; None where it has none."""

    value: Annotated[int | float | None, Show(unit="number")] = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One capture: the metrics of a step by their names, and the own figures of its modules by path."""

    of: Identity
    metrics: dict[str, int | float] = {}
    modules: dict[str, ModuleFigures] = {}

    def value(self, quantity: Quantity) -> Number | None:
        """The value of a quantity; None if it has none."""
        return self.metrics.get(quantity.key)


class Baseline(Part, frozen=True, kw_only=True):
    """A step as it was accepted: the capture of the first assertion, and ``others`` of the same step for the further
    devices that assertions name."""

    format: str = FORMAT.tag
    version: Annotated[int, msgspec.Meta(ge=1)] = FORMAT.version
    versions: dict[str, str] = {}
    others: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """All captures."""
        return (self, *self.others)

    def part(self, of: Identity) -> Part | None:
        """The capture of a step; None if there is none."""
        return next((one for one in self.parts if not one.of.differences(of)), None)

    def differences(self, now: Identity) -> list[str]:
        """Name what the step ``now`` has that differs, whatever it was captured for: nothing if it is the same step."""
        return min((one.of.differences(now.moved(one.of)) for one in self.parts), key=len)

    def refuse_other(self, now: Identity, path: str | os.PathLike[str]) -> None:
        """Raise CheckError if the baseline at ``path`` is of another step than ``now``."""
        if found := self.differences(now):
            raise CheckError(
                f"the baseline {path} is of another step: {'; '.join(found)}.\n"
                "Give this check a baseline of its own, or accept the step in its place with --accept."
            )

    def remarks(self, framework: str) -> list[str]:
        """Say which software is not that of the baseline."""
        pairs = [(self.versions.get("framework", ""), framework)]
        pairs += [(f"{name} {self.versions[name]}", f"{name} {new}") for name, new in ours() if name in self.versions]
        return [f"the baseline was made with {old}, this is {new}" for old, new in pairs if old != new]

    def text(self) -> str:
        """Write it: sorted, one metric and one module in a line."""
        head = {name: msgspec.to_builtins(getattr(self, name)) for name in ("format", "version", "of", "versions")}
        lines = [f"{_json(name)}: {_json(value)}" for name, value in head.items()]
        lines += _tables(self)
        if self.others:
            others = [
                "{\n" + ",\n".join([f'"of": {_json(msgspec.to_builtins(one.of))}', *_tables(one)]) + "\n}"
                for one in self.others
            ]
            lines.append('"others": [' + ", ".join(others) + "]")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _tables(part: Part) -> list[str]:
    """The metrics and the modules of a capture, one in a line."""
    written = []
    for name in ("metrics", "modules"):
        rows = msgspec.to_builtins(getattr(part, name))
        inner = [f" {_json(key)}: {_json(rows[key])}" for key in sorted(rows, key=_natural)]
        written.append(f"{_json(name)}: {{\n" + ",\n".join(inner) + "\n}")
    return written


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """A key to sort by: numbers in a text by their value."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", text)]


def ours() -> list[tuple[str, str]]:
    """The version of this package, where it is installed."""
    return [one for one in versions().items() if one[0] == "tensortide"]


def identity_of(measured: Measured) -> Identity:
    """Identify a step. Of a path, the name of the file alone stays: a baseline is read on other machines."""
    meta = measured.graph.meta
    path, colon, function = meta.workload.rpartition(":")
    workload = f"{PurePath(path).name}:{function}" if colon and path.endswith(".py") else meta.workload
    return Identity(
        workload=workload,
        hyperparameters=dict(meta.hyperparameters),
        device=measured.graph.index.main_device.partition(":")[0],
        machine=meta.machine,
        step=meta.step,
        compiled=bool(meta.compiled or meta.graphs),
    )


def baseline_of(captures: Sequence[tuple[Measured, Sequence[Quantity]]]) -> Baseline:
    """Make the baseline of a step from its captures: each with all of RECORDED, and with its quantities."""
    first, *others = (_part(measured, quantities) for measured, quantities in captures)
    software = {"framework": captures[0][0].graph.meta.framework, **dict(ours())}
    return Baseline(of=first.of, versions=software, metrics=first.metrics, modules=first.modules, others=tuple(others))


def _part(measured: Measured, quantities: Sequence[Quantity]) -> Part:
    registry = measured.registry
    names = [one for one in registry if one in RECORDED or one.startswith("step_peak_")]
    every = {one.key: one for one in [*(Quantity(registry[one].metric) for one in names), *quantities]}
    readings = {key: measured.read(one) for key, one in every.items()}
    metrics = {key: one.value for key, one in readings.items() if one.value is not None and not one.unknown}
    modules = {path: one for path, one in measured.modules.items() if one != NONE}
    return Part(of=identity_of(measured), metrics=metrics, modules=modules)


def load_baseline(path: str | os.PathLike[str]) -> Baseline:
    """Read a baseline. Raises CheckError for a file that is missing, foreign, damaged or of another version."""
    if not Path(path).exists():
        raise CheckError(
            f"there is no baseline {path}.\nAccept the step as it is now with --accept (of pytest: --tensortide-accept)"
            ": that writes the file, which belongs in version control."
        )
    found: Baseline = FORMAT.load(path, Baseline)
    return found


def replaced(path: str | os.PathLike[str]) -> tuple[Baseline | None, str]:
    """Return the baseline that an accepted one replaces, and why there is none to compare with.

    Raises CheckError if something else is at ``path``.
    """
    if not Path(path).exists():
        return None, ""
    try:
        return load_baseline(path), ""
    except TensortideError as error:
        if FORMAT.tag.encode() not in FORMAT.read(path)[:256]:
            raise
        return None, str(error).partition("\n")[0]
