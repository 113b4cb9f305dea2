"""The placement of any target: what it writes, whether it fits, and the exit status."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tensortide.errors import ExitStatus, OutputError, TensortideError
from tensortide.placements.search import SearchResult
from tensortide.shown import Shown


@dataclass(kw_only=True, eq=False, repr=False)
class Placed(Shown):
    """A placed target. ``search``: None of a Plan that was played; ``wrote``: files; ``failed``: what could not be
    exported or run after all."""

    TABLE: ClassVar[str]
    """Key of the table that ``--csv`` writes."""
    PICTURES: ClassVar[tuple[str, ...]] = ()
    """Keys of the blocks that ``--figure`` draws."""

    search: SearchResult | None
    wrote: list[Path] = field(default_factory=list)
    failed: list[TensortideError] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """True if the placement fits the memory of every device."""
        raise NotImplementedError

    @property
    def runs(self) -> bool:
        """True if it is to run, and can."""
        return False

    def run(self) -> None:
        """Run it where it ``runs``; what fails, first of all on a rank, is in ``failed``."""

    @property
    def status(self) -> ExitStatus:
        """FAILS if it does not fit and none does; UNDECIDED if another one may fit."""
        if self.fits:
            return ExitStatus.HOLDS
        return ExitStatus.FAILS if self.search is None or self.search.none_fits else ExitStatus.UNDECIDED

    def raise_errors(self) -> None:
        """Raise OutputError if the file to resume from could not be written, and what is in ``failed``: several errors
        become one, a line each."""
        if self.search is not None and self.search.unsaved:
            raise OutputError(
                f"{self.search.unsaved}\nThe search ended as shown; it resumes from what was written before."
            )
        if len(self.failed) > 1:
            raise TensortideError("\n".join(map(str, self.failed)))
        for error in self.failed:
            raise error
