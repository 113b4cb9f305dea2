"""JAX functions as a row of the table of importers: ``tensortide.open((function, arguments))``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tensortide.errors import WorkloadError
from tensortide.graph.trips import split_settings
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, SizedOptions, no_file


@dataclass(frozen=True)
class JaxOptions(SizedOptions):
    """``dead``: keep ops whose results nobody reads. ``symbols``: trip counts of while loops, ``trips.while=8``."""

    dead: Annotated[bool, "Of a JAX function: keep the ops whose results nobody reads, which XLA leaves out."] = False


def _accepts(target: object) -> bool:
    from tensortide.importers.jax.trace import is_jax

    return is_jax(target)


def _convert(target: object, options: JaxOptions) -> Imported:
    from tensortide.importers.jax.convert import converted
    from tensortide.importers.jax.trace import traced

    return converted(traced(target, trips_of(options.symbols)), keep_dead=options.dead)


def _abstractly(make: Callable[[], Imported | None]) -> Imported | None:
    from tensortide.importers.jax.trace import abstractly

    return abstractly(make)


def trips_of(symbols: Mapping[str, int]) -> dict[str, int]:
    """Return trip counts by the names of loops. Raises WorkloadError for another symbol, or for no count."""
    others, trips = split_settings(symbols)
    for name, value in others.items():
        raise WorkloadError(f"{name}={value}: of a JAX function trip counts are set: trips.while=8, from 0 up")
    return trips


def _read(path: Path, options: JaxOptions) -> Imported:
    raise WorkloadError(f"{path}: a JAX function is no file; write file.py:function, a function that returns it")


IMPORTER = Importer(
    "jax", "a JAX function with its arguments: (function, arguments)", no_file, _read, JaxOptions, _accepts, _convert,
    modules=("jax", "flax", "optax"), abstractly=_abstractly, trips=True,
)  # fmt: skip
