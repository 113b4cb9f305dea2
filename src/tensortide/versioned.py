"""Files that name their format and version: one declaration per format, one way to read them.

>>> PLAN = Format("plan", "tensortide plan", (1,), PlanFileError, "make it again")  # doctest: +SKIP
>>> PLAN.load("a.json", File)  # doctest: +SKIP

Every failure is the format's own error with the path in it: a missing, foreign, damaged or oversized file, another
version, content that does not decode.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from tensortide.errors import TensortideError
from tensortide.file_faults import reading
from tensortide.version import VERSION

T = TypeVar("T")


class Head(msgspec.Struct, frozen=True):
    """The first keys of a JSON file. A version stands in ``version``, or in ``format`` after a slash; ``tensortide`` is
    the release that wrote the file, where it says so."""

    format: str = ""
    version: int = 0
    tensortide: str = ""

    def split(self) -> tuple[str, int]:
        """The name of the format and the version."""
        name, _, number = self.format.partition("/")
        return name, int(number[:18]) if number.isdecimal() else self.version


def written_by(head: Head) -> str:
    """Return the clause that names the release that wrote a file, for the end of a message about a file that does not
    fit; nothing if this release wrote it."""
    if head.tensortide == VERSION:
        return ""
    writer = f"tensortide {head.tensortide}" if head.tensortide else "an older tensortide"
    return (
        f"; it was written by {writer} (this is {VERSION}), which may capture the same step as a different Graph: "
        "create it again"
    )


@dataclass(frozen=True)
class Format:
    """A kind of file.

    ``tag`` names it inside the file. ``versions`` are those that this release reads, the last is the one it writes.
    ``remedy`` and ``source`` end messages: what to do about a file that cannot be used, and how to make one.
    """

    kind: str
    tag: str
    versions: tuple[int, ...]
    error: type[TensortideError]
    remedy: str
    source: str = ""
    most_bytes: int = 1 << 32

    @property
    def version(self) -> int:
        """The version that this release writes."""
        return self.versions[-1]

    def read(self, path: str | os.PathLike[str]) -> bytes:
        """The content of the file, never more than ``most_bytes`` of it in memory."""
        try:
            with Path(path).open("rb") as stream:
                pieces = [stream.read(min(os.fstat(stream.fileno()).st_size, self.most_bytes) + 1)]
                left = self.most_bytes + 1 - len(pieces[0])
                while piece := stream.read(min(left, 1 << 20)):  # a pipe or a device, which has no size
                    pieces.append(piece)
                    left -= len(piece)
        except OSError as error:
            raise self.error(f"cannot read {path}: {error.strerror or error}") from error
        if not left:
            raise self.error(f"{path} is too large: more than {self.most_bytes} bytes")
        return b"".join(pieces)

    def check(self, path: str | os.PathLike[str], tag: str, version: int, writer: str = "") -> None:
        """Raise the error of a foreign file, or of a version that this release does not read."""
        if tag != self.tag:
            raise self.foreign(path)
        if version not in self.versions:
            known = " and ".join(map(str, self.versions))
            by = f" of tensortide {writer}" if writer else ""
            raise self.error(f"{path} has {self.kind} format {version}{by}; this release reads {known}: {self.remedy}")

    def check_head(self, path: str | os.PathLike[str], data: bytes) -> Head:
        """Check the head of a JSON file, or of its first line, and return it."""
        try:
            head = msgspec.json.decode(data, type=Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise (self.damaged(path) if self.tag.encode() in data[:256] else self.foreign(path)) from None
        self.check(path, *head.split(), head.tensortide)
        return head

    def decode(self, path: str | os.PathLike[str], read: Callable[[], T]) -> T:
        """The value that ``read`` makes of the content; its failure is the error of a file that holds no such value."""
        with reading(path, self.error):
            try:
                return read()
            except (LookupError, ArithmeticError, RecursionError) as error:
                raise self.damaged(path) from error
            except (msgspec.DecodeError, TensortideError, TypeError, ValueError) as error:
                article = "" if self.kind.endswith("s") else "a "
                raise self.error(f"{path} does not hold {article}valid {self.kind}: {error}") from error

    def load(self, path: str | os.PathLike[str], as_type: type[T]) -> T:
        """The content of a JSON file, head included."""
        data = self.read(path)
        self.check_head(path, data)
        return self.decode(path, lambda: msgspec.json.decode(data, type=as_type))

    def foreign(self, path: str | os.PathLike[str]) -> TensortideError:
        """The error of a file of something else."""
        what = f"does not hold {self.kind}" if self.kind.endswith("s") else f"is not a tensortide {self.kind}"
        return self.error(f"{path} {what} ({self.source})" if self.source else f"{path} {what}")

    def damaged(self, path: str | os.PathLike[str]) -> TensortideError:
        """The error of a file that was cut off or altered."""
        return self.error(f"{path} is damaged (truncated or altered): {self.remedy}")
