"""Every placement that a search has simulated, in a file: the same search resumes from it.

A search is a function of problem, options, seed and budget, so a resumed one takes the same path, reads the scores that
it knows, and goes on where the file ends. The file is written whole or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from tensortide.errors import OutputError, PlacementError
from tensortide.file_faults import reading
from tensortide.placements.annealing.table import Table, add, append, new_table
from tensortide.placements.genes import are_numbers
from tensortide.write import check_writable, write_file

FORMAT = "tensortide.placement_search/1"
_ANOTHER = "Delete it, or give another file (--resume; place run keeps its own in the folder that --out names)."


class Stored(msgspec.Struct, frozen=True):
    """Contents of the file: placements as rows of 16-bit device numbers, scores in ms, over-use in bytes."""

    format: str
    problem: str
    search: dict[str, str]
    width: int
    rows: bytes
    scores: list[float]
    over: list[float]


class Checkpoint:
    """A file of simulated placements of one search. It is written every ``every_s`` seconds, and when the search ends.

    ``problem`` is the digest of the problem; ``search`` has the algorithm, its options and the seed as text. A file
    of another search is refused. A search goes on where the file cannot be written; ``unsaved`` says why the last time
    failed, "" if it did not.

    Raises OutputError where no file can be written from the start.
    """

    def __init__(self, path: Path, problem: str, search: Mapping[str, str], *, every_s: float = 10.0) -> None:
        self.path, self.every_s, self.unsaved = check_writable(path, folders=True), every_s, ""
        self._problem, self._search = problem, dict(search)
        self._written = time.monotonic()

    def read(self, genes: int, devices: int, *, shared: bool) -> Table:
        """Return the placements [k, genes] in the file, of numbers as ``genes.are_numbers``; none if there is no file.

        Raises PlacementError if the file is damaged or belongs to another search.
        """
        if not self.path.exists():
            return new_table(genes)
        try:
            with reading(self.path, PlacementError):
                stored = msgspec.msgpack.decode(self.path.read_bytes(), type=Stored)
        except (msgspec.MsgspecError, OSError) as error:
            raise PlacementError(f"{self.path} is no file to resume a search from: {error}") from error
        if stored.problem != self._problem:
            raise PlacementError(
                f"{self.path} belongs to another problem: its net, cluster, groups or settings are others.\n{_ANOTHER}"
            )
        for name, value in self._search.items():
            if (other := stored.search.get(name)) != value:
                raise PlacementError(
                    f"{self.path} is of another search: its {name} is {other}, not {value}.\n{_ANOTHER}"
                )
        count = len(stored.scores)
        sizes = (len(stored.rows), len(stored.over), stored.width)
        rows = np.frombuffer(stored.rows, np.int16, len(stored.rows) // 2).astype(np.int64)
        whole = sizes == (2 * genes * count, count, genes) and are_numbers(rows, devices, shared=shared)
        if stored.format != FORMAT or not whole:
            raise PlacementError(f"{self.path} is no file to resume a search from: it is damaged.")
        found = new_table(genes, max(1, count))
        for row, score, over in zip(rows.reshape(count, genes), stored.scores, stored.over, strict=True):
            add(found, row, score, over)
        return found

    def write(self, tables: Sequence[Table]) -> None:
        """Write every placement of ``tables``, each once."""
        seen = new_table(tables[0].rows.shape[1], max(1, sum(int(table.size[0]) for table in tables)))
        for table in tables:
            append(seen, table)
        count, width = int(seen.size[0]), seen.rows.shape[1]
        stored = Stored(
            FORMAT,
            problem=self._problem,
            search=self._search,
            width=width,
            rows=seen.rows[:count].tobytes(),
            scores=seen.scores[:count].tolist(),
            over=seen.over[:count].tolist(),
        )
        try:
            write_file(self.path, msgspec.msgpack.encode(stored), folders=True)
            self.unsaved = ""
        except OutputError as error:
            self.unsaved = str(error)
        self._written = time.monotonic()

    def write_sometimes(self, tables: Sequence[Table]) -> None:
        """Write ``tables`` if the last time was long ago."""
        if time.monotonic() - self._written >= self.every_s:
            self.write(tables)
