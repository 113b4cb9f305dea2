"""Cost of one step, counted: in numbers, as a table of formulas that a file is counted by, or as formulas in
hyperparameters; and the rules behind the numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, TypeAlias

from tensortide.cost import Cost, Count, Coverage, Explanation, Missing, count, explain, missing
from tensortide.cost.differences import Comparison
from tensortide.cost.evaluate import How
from tensortide.cost.table import Table, table_of
from tensortide.errors import GraphFileError, RequestError
from tensortide.expr import Size
from tensortide.file_faults import reading
from tensortide.formulas.request import DomainRequest, FormulaFiles
from tensortide.formulas.result import Symbolic
from tensortide.graph import OpView, unrolled
from tensortide.graph.plain import plain
from tensortide.graph.sizes import known_sizes, settled
from tensortide.importers.door import Built, File, resolve
from tensortide.importers.imported import Imported
from tensortide.progress import Say, silent
from tensortide.recorder import resolver
from tensortide.request import Arg, Opt, Request, exclusive, needs
from tensortide.targets.opening import opened, symbols_of, workload_of
from tensortide.targets.requests import TARGET, CaptureRequest, Depth, Strict, described, refuse

OURS = "tensortide"


@dataclass(frozen=True, kw_only=True)
class CountRequest(Request):
    """What does one step cost?"""

    GROUP = "Ops and their rules"

    target: Annotated[str, Arg(TARGET)]
    explain: Annotated[
        str, Opt("Explain the cost of one op, by its index or name: 42, mm, aten.mm.", common=True, value="OP")
    ] = ""
    missing: Annotated[bool, Opt("List the ops that have no cost rule, each with a rule to complete.", common=True)] = (
        False
    )
    depth: Depth = 3
    top: Annotated[
        int | None,
        Opt("Rows to show of each list (default: 15, of --ops all).", least=0, common=True, group="Output"),
    ] = None
    capture: CaptureRequest = CaptureRequest()
    strict: Strict = False
    table: Annotated[str, Opt("The table that a file is counted by.", hidden=True, of=("file",))] = OURS
    ops: Annotated[
        bool,
        Opt("List every op with its inputs, outputs and formulas, then the inputs and parameters.", common=True),
    ] = False
    domain: DomainRequest = DomainRequest()
    written: FormulaFiles = FormulaFiles()

    RULES = (
        exclusive("symbols", "explain", "missing"),
        exclusive("ops", "explain", "missing"),
        exclusive("symbols", "table"),
        *(needs(name, "symbols") for name in ("condition", "values", "limit", "work_limit", "formulas", "latex")),
        *(
            exclusive("symbols", name, why="formulas are of the steady step on one CPU")
            for name in ("device", "machines", "ranks", "real", "first_step", "compiled")
        ),
    )


class Explained(NamedTuple):
    """Origin of the cost of an op of ``workload``."""

    workload: str
    rule: Explanation


class Unknown(NamedTuple):
    """The ops of ``workload`` that have no cost rule."""

    workload: str
    coverage: Coverage
    rules: list[Missing]


class Tabulated(NamedTuple):
    """Costs as formulas, op by op, of a ``file`` or a step; ``counted`` are the same in numbers where the table is
    ours."""

    file: str
    table: Table | Comparison
    counted: Count | None = None


Counted: TypeAlias = Count | Tabulated | Symbolic | Explained | Unknown


def answer(asked: CountRequest, say: Say = silent) -> Counted:
    """The costs of the step, or what else is asked for.

    A step is tabulated if the request asks for its ops; a file also if its importer has a table, its graph has loops or
    its sizes have open symbols: then formulas say more than numbers.
    """
    capture, found = asked.capture, resolve(asked.target)
    if asked.domain.symbols and (isinstance(found, Built) or not isinstance(found, File)):
        workload = workload_of(asked.target, "--symbols")
        capture.require(workload)
        return asked.domain.derived(workload, asked, say=say)
    capture.require(found)
    refuse(asked, *described(found))
    if asked.explain or asked.missing:
        return _rules(opened(found, capture, say, exact=True, durations=False), asked.explain)
    if isinstance(found, File) and asked.table != OURS:
        return Tabulated(found.path.name, _theirs(found, asked))
    read = opened(found, capture, say, exact=True, strict=asked.strict, durations=False)
    if isinstance(found, File) and asked.domain.symbols:
        symbols = read.symbols or known_sizes(read.graph)
        kept = asked.domain.of_file(found.path, symbols)
        read = replace(read, graph=settled(read.graph, symbols, kept))
    of_file = isinstance(found, File) and (found.importer.tables or read.graph.loops or _is_open(read, capture))
    if of_file or asked.ops:
        counted = count(read.graph, strict=asked.strict, resolver=_of_numbers)
        table = table_of(counted, read.symbols or known_sizes(read.graph))
        return Tabulated(found.path.name if isinstance(found, File) else asked.target, table, counted)
    return count(unrolled(plain(read.graph)), strict=asked.strict, resolver=resolver)


def _of_numbers(op: OpView) -> tuple[Cost, How] | None:
    """As ``resolver``, of an op whose sizes are numbers: the cost that it finds is no formula."""
    sizes = (size for tensor in (*op.inputs, *op.outputs) for size in tensor.shape)
    return None if any(isinstance(size, Size) for size in sizes) else resolver(op)


def _is_open(read: Imported, asked: CaptureRequest) -> bool:
    """Tell whether sizes have a symbol whose value was not given."""
    return bool(read.symbols.keys() - {setting.rpartition("=")[0].strip() for setting in asked.set})


def _theirs(found: File, asked: CountRequest) -> Table | Comparison:
    """A table of the file's importer. Raises RequestError if it has none of this name."""
    if asked.table not in found.importer.tables:
        known = ", ".join([OURS, *found.importer.tables])
        raise RequestError(f"{found}, which has no table {asked.table!r}: --table takes {known}")
    capture = asked.capture
    given = found.importer.options_of({**capture.of_file(), "symbols": symbols_of(found, capture)}, found.path)
    with reading(found.path, GraphFileError):
        return found.importer.tables[asked.table](found.path, given, asked.strict)


def _rules(step: Imported, op: str) -> Explained | Unknown:
    """The rule of one op, or the ops that have none."""
    graph = step.graph
    if op:
        return Explained(graph.meta.workload, explain(graph, op, resolver=resolver))
    coverage = count(graph, resolver=resolver).coverage
    return Unknown(graph.meta.workload, coverage, missing(graph, resolver=resolver))
