"""Everything a report shows, as frozen data: what ``--json`` prints and what the HTML page reads.

Names of fields carry their unit: ``*_bytes``, ``flops`` (one multiply or one add), ``macs`` (multiply-accumulates).
Tables with a row per op or per storage are columns: see ``tensortide.reports.columns``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from tensortide.reports.columns import Ints, OpTable, SourceRow, StorageTable, Strings
from tensortide.reports.rows import ModuleRow, OpGroup

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

FORMAT = "tensortide.report/1"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What ``ops`` ops do, summed over those whose cost is known: a lower bound if some are not.

    ``flops = product_flops + elementwise_flops``. ``macs`` are dense; ``active_macs`` what known sparsity leaves (None:
    unknown). ``recompute_macs`` are issued beyond what the mathematics needs, and in no total.
    """

    ops: int
    unknown_ops: int
    flops: int
    macs: int
    active_macs: int | None
    recompute_macs: int
    product_flops: int
    elementwise_flops: int
    transcendentals: int
    comparisons: int
    int_ops: int
    random_draws: int
    read_bytes: int
    written_bytes: int

    @property
    def accessed_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOP per byte accessed."""
        return self.flops / self.accessed_bytes if self.accessed_bytes else 0.0


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the step: ``forward``, ``backward``, ``recompute``, ``optimizer`` or ``other``."""

    phase: str
    work: Work
    peak_bytes: int


class Irregular(msgspec.Struct, frozen=True, kw_only=True):
    """Ops whose cost is not simply that of their rule.

    ``how`` is ``unknown`` (in no total), ``default`` (one FLOP per output element), ``framework`` (its formula),
    ``decomposition`` (into ops that have rules) or ``bound`` (the rule gives a bound). ``shapes`` and ``module`` are
    those of the first.
    """

    how: str
    op: str
    count: int
    shapes: str
    module: str
    reason: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the step the totals cover. Views need no rule and are not among ``ops``."""

    line: str
    ops: int
    covered: int
    accessed_bytes: int
    covered_bytes: int
    irregular: tuple[Irregular, ...]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The step in a few numbers.

    ``step`` is ``steady`` or ``first``; ``kind`` is ``training``, ``inference`` or ``forward and backward``.
    """

    workload: str
    hyperparameters: dict[str, str | int | float | bool | None]
    kind: str
    step: str
    ops: int
    total: Work
    arithmetic_intensity_flops_per_byte: float
    parameters: int
    trainable_parameters: int
    parameter_bytes: int
    input_bytes: int
    output_bytes: int
    peak_bytes: int
    peak_op: int
    last_use_peak_bytes: int
    footprint_bytes: int
    persistent_bytes: int
    coverage: Coverage


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Resident bytes over the step, by role: at most a few hundred instants, each the highest of its stretch.

    ``op`` is the instant: bytes while that op runs. Every curve contains its peak.
    """

    lifetimes: str
    peak_bytes: int
    peak_op: int
    peak_bytes_by_phase: dict[str, int]
    op: Ints
    total_bytes: Ints
    bytes_by_role: dict[str, Ints]


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A storage that is alive at the peak. ``born`` is the op that made it (-1: it existed before the step)."""

    storage: int
    role: str
    name: str
    tensor: str
    nbytes: int
    module: str
    op: str
    born: int
    dies: int
    source: int


class RoleBytes(msgspec.Struct, frozen=True):
    """How many storages of a role are alive at the peak, and their bytes."""

    role: str
    count: int
    nbytes: int


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the step under both lifetimes, and what is alive at the eager peak (largest first)."""

    eager: Curve
    last_use: Curve
    roles_at_peak: tuple[RoleBytes, ...]
    at_peak: tuple[Resident, ...]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where the numbers come from."""

    tensortide: str
    framework: str
    python: str
    captured_on: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report. ``notes`` say what the numbers mean; ``assumptions`` what capture had to assume of this step."""

    format: str = FORMAT
    overview: Overview
    phases: tuple[PhaseRow, ...]
    modules: tuple[ModuleRow, ...]
    top_by_flops: tuple[OpGroup, ...]
    top_by_bytes: tuple[OpGroup, ...]
    memory: Memory
    sources: tuple[SourceRow, ...]
    ops: OpTable
    storages: StorageTable
    environment: Environment
    assumptions: Strings
    notes: Strings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from tensortide.reports.terminal import whole

        yield from whole(self, options)

    def _repr_html_(self) -> str:
        from tensortide.reports.html import render_frame

        return render_frame(self)


def to_json(document: Document) -> bytes:
    """``document`` as compact JSON."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:  # a name with half a character, which only escapes can write
        return json.dumps(msgspec.to_builtins(document), separators=(",", ":")).encode()
