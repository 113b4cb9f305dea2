"""Saved graphs as a row of the table of importers."""

from __future__ import annotations

from pathlib import Path

from tensortide.errors import GraphFileError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import head


def _sniff(path: Path) -> bool:
    from tensortide.graph.file import MAGIC

    return head(path, len(MAGIC), unpack=False) == MAGIC


def _read(path: Path, options: Options) -> Imported:
    from tensortide.graph.file import load
    from tensortide.graph.unroll import unrolled
    from tensortide.timing import beside, load_durations

    graph = load(path)
    if not options.durations or not beside(path).is_file():
        return Imported(graph)
    try:
        return Imported(graph, load_durations(beside(path), unrolled(graph)))
    except GraphFileError as error:
        raise GraphFileError(
            f"{error}\nIt lies beside {path} and is taken for its durations. Profile again, or say which to take: "
            "--durations FILE or --machine NAME."
        ) from None


IMPORTER = Importer("tide", "a saved graph (.tide)", _sniff, _read)
