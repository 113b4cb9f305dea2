"""Finished runs in a file, so that an interrupted experiment goes on where it was."""

from __future__ import annotations

import os
from types import TracebackType

import msgspec

from tensortide.errors import OutputError, PlanFileError
from tensortide.studies.remat.results import Run
from tensortide.versioned import Format, Head
from tensortide.write import check_writable, write_file

__all__ = ["Saved"]


FORMAT = Format("runs", "tensortide remat runs", (1,), PlanFileError, "give --save the name of a new file")
_HEAD = Head(FORMAT.tag, FORMAT.version)


class _Entry(msgspec.Struct, frozen=True):
    """A line after the head."""

    key: str
    run: Run


class Saved:
    """Runs by the key of their cell, in a file of one JSON object per line; each is written as soon as it is there.

    A file that ends amid a line was cut off there: the line is dropped. Raises PlanFileError for a file of something
    else, and for a damaged one; OutputError where it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_writable(path)
        if self.path.exists() and not self.path.is_file():
            raise PlanFileError(f"{self.path} cannot hold runs: it is no ordinary file")
        self.runs: dict[str, Run] = {}
        data = FORMAT.read(self.path) if self.path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and _line(_HEAD).startswith(data):
            whole = _line(_HEAD)
        self._read(whole)
        if whole != data:
            write_file(self.path, whole)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)

    def _read(self, data: bytes) -> None:
        lines = data.split(b"\n")[:-1]
        FORMAT.check_head(self.path, lines[0] if lines else b"")
        decoder = msgspec.json.Decoder(_Entry)
        for number, line in enumerate(lines[1:], 2):
            try:
                entry = decoder.decode(line)
            except msgspec.DecodeError as error:
                raise PlanFileError(
                    f"{self.path} is damaged in line {number}: {error}.\nDelete the line, or the file, and run again."
                ) from None
            self.runs[entry.key] = entry.run

    def add(self, key: str, run: Run) -> None:
        """Remember ``run``, here and in the file."""
        self.runs[key] = run
        try:
            os.write(self._file, _line(_Entry(key, run)))
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}.") from error

    def __enter__(self) -> Saved:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def _line(entry: Head | _Entry) -> bytes:
    return msgspec.json.encode(entry) + b"\n"
