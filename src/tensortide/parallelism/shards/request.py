"""Requests to shard modules of a step, as the command line has them: ``h.*.mlp=output:2``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal, TypeAlias, get_args

import msgspec

from tensortide.errors import DegreesError

Along: TypeAlias = Literal["batch", "output", "reduction"]


class Shard(msgspec.Struct, frozen=True):
    """Modules to shard: those whose path is ``module``, in which ``*`` stands for any name between two dots, ``along``
    their batch, output channels or reduction, in so many ``parts``.

    Raises DegreesError for another dimension and for less than two parts.

    Examples:
        >>> Shard.parse("h.*.mlp=output:2")
        Shard(module='h.*.mlp', along='output', parts=2)
    """

    module: str
    along: Along
    parts: int

    def __post_init__(self) -> None:
        if self.along not in get_args(Along):
            raise DegreesError(f"{self}: a module is sharded along {', '.join(get_args(Along))}, not {self.along!r}")
        if self.parts < 2:
            raise DegreesError(f"{self}: a module is sharded in 2 parts or more")

    def __str__(self) -> str:
        return f"{self.module}={self.along}:{self.parts}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``MODULE=ALONG:PARTS``. Raises DegreesError for other text."""
        module, equals, rest = text.rpartition("=")
        along, colon, parts = rest.partition(":")
        if not (module and equals and colon and parts.isdecimal()):
            raise DegreesError(f"--shard takes MODULE=ALONG:PARTS, as in h.*.mlp=output:2, not {text!r}")
        return cls(module, along, int(parts))  # type: ignore[arg-type]  # checked there

    def matches(self, path: str) -> bool:
        """Return whether the module at ``path`` (``""`` is the root, which is asked for as ``(root)``) is meant."""
        if not path:
            return self.module == "(root)"
        names, wanted = path.split("."), self.module.split(".")
        return len(names) == len(wanted) and all(map(fnmatchcase, names, wanted))


def sizes_of(size: int, parts: int) -> tuple[int, ...]:
    """The sizes of ``parts`` of an axis of ``size``: what is left over goes to the first ones, one each."""
    share, rest = divmod(size, parts)
    return tuple(share + (part < rest) for part in range(parts))
