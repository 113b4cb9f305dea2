"""A graph of TensorFlow 2 as a Graph: read from its roots, sized, converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tensortide.collector import no_collection
from tensortide.expr import Expr
from tensortide.graph.trips import TRIPS
from tensortide.importers.imported import Imported
from tensortide.importers.symbols import require_symbols
from tensortide.importers.tensorflow.building.convert import graph_of_program
from tensortide.importers.tensorflow.program import Program
from tensortide.importers.tensorflow.read import read_program
from tensortide.importers.tensorflow.reading.raw import RawGraph
from tensortide.importers.tf2.calls import plain, simplified

WORDS = {"b": "batch", "s": "length", "t": "length_2", "H": "height", "W": "width"}
"""Names of sizes of what is fed, by those that graphs of TensorFlow 1 have for them."""


@no_collection()
def import_raw(
    raw: RawGraph,
    roots: Sequence[str],
    *,
    name: str,
    bind: Mapping[str, Sequence[int | str | Expr]] | None = None,
    settings: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
    unused: bool = False,
    shorten: Callable[[str], str] = plain,
) -> Imported:
    """Convert what ``roots`` need of a graph, and with ``unused`` all that the functions they call compute.

    ``settings`` are values of symbols, ``bind`` names sizes, ``shorten`` gives nodes other names.

    Raises MetaGraphError for a graph that cannot be read, WorkloadError for a setting that is no symbol of its sizes.
    """
    roots, left_out = simplified(raw, roots, unused=unused, shorten=shorten)
    program = read_program(raw, fetches=roots, bind=bind, words=WORDS)
    given = {_spelled(key): value for key, value in (settings or {}).items()}
    visible = [_written(key) for key in program.hints if "::" not in key]
    require_symbols(raw.file, (_written(key) for key in given if key not in program.hints), visible)
    program = msgspec.structs.replace(
        program,
        hints={**program.hints, **given},
        notes=(*notes, *left_out, *program.notes, *_examples(program, given), "lifetimes by last use"),
        unknown_trips=tuple(name for name in program.unknown_trips if name not in given),
    )
    return Imported(graph_of_program(program, name), symbols=program.hints)


def _spelled(name: str) -> str:
    """``trips.NAME`` is the symbol ``trips(NAME)``, which a shell would want in quotes."""
    return f"trips({name.removeprefix(TRIPS)})" if name.startswith(TRIPS) else name


def _written(name: str) -> str:
    """Return how ``--set`` takes a symbol: ``trips(NAME)`` as ``trips.NAME``."""
    return f"{TRIPS}{name[6:-1]}" if name.startswith("trips(") else name


def _examples(program: Program, given: Mapping[str, int]) -> Iterator[str]:
    """Sizes that the file leaves open and nobody gave."""
    for name in program.open:
        if name not in given and name in program.hints:
            yield f"{name} is open in the file: {program.hints[name]}, an example (--set {_written(name)}=...)"
