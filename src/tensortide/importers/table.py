"""The table of importers: one row for each kind of file, whoever wrote it.

The project's own rows and those of installed packages are entry points of the group ``tensortide.importers``, each the
name of an Importer: ``dtrlog = "tensortide.importers.dtrlog.importer:IMPORTER"``.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tensortide.errors import TensortideError, WorkloadError
from tensortide.file_faults import reading
from tensortide.graph.trips import split_settings
from tensortide.importers.imported import Imported

if TYPE_CHECKING:
    from tensortide.cost.differences import Comparison
    from tensortide.cost.table import Table


V = TypeVar("V")
GROUP = "tensortide.importers"


@dataclass(frozen=True)
class Options:
    """Options of every importer; one that has others defines a subclass.

    ``durations``: read those too, where the source has them.

    A field of a type ``Annotated[..., "What it is."]`` is an option of the command line too, with that help. A field
    ``symbols`` takes the values of the symbols in a file's sizes: ``--set`` on the command line.
    """

    durations: bool = True


@dataclass(frozen=True)
class SizedOptions(Options):
    """Options of an importer of what leaves sizes or trips of loops open: ``symbols`` has values of them."""

    symbols: Mapping[str, int] = dataclasses.field(default_factory=dict)


def _nothing(_: object) -> bool:
    return False


def _called(make: Callable[[], Imported | None]) -> Imported | None:
    return make()


def no_file(path: Path) -> bool:
    """Recognize nothing: the ``sniff`` of an importer that converts objects alone."""
    del path
    return False


@dataclass(frozen=True)
class Importer:
    """A reader of one kind of file or folder, recognized by its content.

    ``kind`` names it in messages: ``a DTR log (.log, .jsonl, also .gz)``. ``sniff`` looks at the first bytes of a file,
    or at what is in a folder; it is cheap, and no path is of two importers. ``read`` takes the path and
    an instance of ``options``.

    ``accepts`` tells whether a Python object is of its framework (it looks in ``sys.modules`` and imports nothing), and
    ``convert`` takes the object and the options: ``tensortide.open(model)``. ``modules`` are those of the framework: a
    workload function that uses one of them may return such an object instead of a step. ``abstractly`` calls a function
    that builds and converts such an object so that its arrays are not allocated, where the framework can do so.
    ``open_sizes``: such objects leave sizes open, which the option ``symbols`` gives.

    ``trips``: trip counts of loops (``trips.NAME``) are among the ``symbols`` of its options, since sizes may follow
    from them; else the loops of what it read get them.

    ``tables`` price a file by the rules of other tools, by the name that ``count --table`` takes: from the path, an
    instance of ``options`` and whether an op without a rule is an error, a cost table or a comparison with ours.
    """

    name: str
    kind: str
    sniff: Callable[[Path], bool]
    read: Callable[[Path, Any], Imported]
    options: type[Options] = Options
    accepts: Callable[[object], bool] = _nothing
    convert: Callable[[Any, Any], Imported] | None = None
    modules: tuple[str, ...] = ()
    abstractly: Callable[[Callable[[], Imported | None]], Imported | None] = _called
    trips: bool = False
    open_sizes: bool = False
    tables: Mapping[str, Callable[[Path, Any, bool], Table | Comparison]] = dataclasses.field(default_factory=dict)

    def recognizes(self, path: Path) -> bool:
        """Sniff at ``path``; what cannot be looked at is nobody's."""
        try:
            with reading(path):
                return self.sniff(path)
        except (OSError, ValueError, TensortideError):
            return False

    def has(self, name: str) -> bool:
        """Tell whether it has the option ``name``."""
        return name in {field.name for field in dataclasses.fields(self.options)}

    def split(self, settings: Mapping[str, V]) -> tuple[Mapping[str, V], Mapping[str, int]]:
        """Split settings into those that it takes as ``symbols``, and trip counts to set in the Graph that it returns.

        Raises WorkloadError for a trip count that is no whole number, or negative.
        """
        symbols, trips = split_settings(settings)
        return (settings, {}) if self.trips else (symbols, trips)

    def options_of(self, given: Mapping[str, object], path: Path | str) -> Options:
        """Make the options of ``given`` for what is at ``path``. Raises WorkloadError for one that it does not have."""
        for name in given:
            if not self.has(name):
                raise WorkloadError(f"{path} is {self.kind}: {name} does not go with it")
        options: Callable[..., Options] = self.options
        return options(**given)


@functools.cache
def importers() -> tuple[Importer, ...]:
    """List the importers that are installed, ours first. Raises TensortideError for one that cannot be loaded."""
    found = {entry.value: entry for entry in importlib.metadata.entry_points(group=GROUP)}  # one may be installed twice
    ours = sorted(found.values(), key=lambda entry: (not entry.value.startswith("tensortide."), entry.name))
    return tuple(_loaded(entry) for entry in ours)


def _loaded(entry: importlib.metadata.EntryPoint) -> Importer:
    try:
        importer = entry.load()
    except Exception as error:
        raise TensortideError(f"the importer {entry.name!r} ({entry.value}) cannot be loaded: {error!r}") from error
    if not isinstance(importer, Importer):
        raise TensortideError(f"{entry.value}, one of the importers, is a {type(importer).__name__} and no Importer")
    return importer
