"""Files of finished items, from which an interrupted study resumes: runs, searches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from tensortide.errors import OutputError
from tensortide.file_faults import reading
from tensortide.version import VERSION
from tensortide.versioned import Format, Head
from tensortide.write import check_writable, reason_of, write_file

Result = TypeVar("Result")


class FinishedFile(Generic[Result]):
    """Results by a key, in a file with one JSON object per line after its head; each is appended as soon as it ends.
    Processes that share the file add a result once.

    An incomplete last line, left by an interrupted write, is dropped. In a file written by another release, results
    without a field that this release keeps are dropped and computed anew; the file is then one of this release. Raises
    the error of ``form`` for a file of another kind and for a damaged one, OutputError if the file cannot be written.

    Args:
        path: the file, which need not be there.
        form: the format that its head names.
        kind: the type of a result.
        name: the key of a result in its line.
        sync: have each result on the disk before ``add`` returns, for results that took long.
    """

    def __init__(
        self, path: str | os.PathLike[str], form: Format, kind: type[Result], name: str, *, sync: bool = False
    ) -> None:
        self.path = check_writable(path)
        self._form, self._name, self._sync = form, name, sync
        self._head = _line(Head(form.tag, form.version, VERSION))
        if self.path.exists() and not self.path.is_file():
            raise form.error(f"{self.path} cannot hold {form.kind}: it is no ordinary file")
        self.results: dict[str, Result] = {}
        self._keys: set[str] = set()
        self._read_to = 0
        self._file = self._open()
        try:
            with self._locked():
                self._load(msgspec.json.Decoder(msgspec.defstruct("Entry", [("key", str), (name, kind)])))
        except BaseException:
            os.close(self._file)
            raise

    def _load(self, decoder: msgspec.json.Decoder[Any]) -> None:
        """Read the results, and make the file one of this release."""
        data = self._form.read(self.path)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and self._head.startswith(data):
            whole = self._head
        whole = b"".join([self._head, *self._read(whole, decoder)])
        if whole != data:
            write_file(self.path, whole)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {reason_of(error)}.") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file at the path; reopen it first if another process has replaced or deleted it."""
        try:
            _lock(self._file)
            while not self._is_at_path():
                replaced, self._file = self._file, self._open()
                os.close(replaced)
                self._keys, self._read_to = set(), 0
                _lock(self._file)
            yield
        finally:
            _unlock(self._file)

    def _is_at_path(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        except FileNotFoundError:
            return False

    def _read_on(self) -> None:
        """Read the keys of lines that were appended since the last call, by this process or others."""
        os.lseek(self._file, self._read_to, os.SEEK_SET)
        with os.fdopen(os.dup(self._file), "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    self._keys.add(_key_of(line))
                    self._read_to += len(line)

    def _read(self, data: bytes, decoder: msgspec.json.Decoder[Any]) -> list[bytes]:
        """Read the results, and return their lines."""
        lines = data.split(b"\n")[:-1]
        is_ours = self._form.check_head(self.path, lines[0] if lines else b"").tensortide == VERSION
        kept: list[bytes] = []
        for number, line in enumerate(lines[1:], 2):
            try:
                with reading(self.path, self._form.error):
                    entry = decoder.decode(line)
            except msgspec.DecodeError as error:
                if not is_ours and _key_of(line):
                    continue
                raise self._form.error(
                    f"{self.path} is damaged in line {number}: {error}.\nDelete the line, or the file, and run again."
                ) from None
            self.results[entry.key] = getattr(entry, self._name)
            kept.append(line + b"\n")
        return kept

    def add(self, key: str, result: Result) -> None:
        """Keep ``result`` in memory and append it to the file, unless another process has meanwhile. A file that was
        deleted or replaced gets all results that it lacks."""
        self.results[key] = result
        try:
            with self._locked():
                added = [key] if self._read_to else [*self.results]
                self._read_on()
                lines = [
                    _line({"key": each, self._name: self.results[each]}) for each in added if each not in self._keys
                ]
                if lines:
                    os.ftruncate(self._file, self._read_to)  # an incomplete last line
                    self._write(b"".join(lines if self._read_to else [self._head, *lines]))
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {reason_of(error)}.") from error

    def _write(self, data: bytes) -> None:
        """Append all of ``data``: a disk that gets full takes a part of it at first."""
        while data:
            data = data[os.write(self._file, data) :]
        if self._sync:
            os.fsync(self._file)

    def __enter__(self) -> FinishedFile[Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


class _Keyed(msgspec.Struct):
    """Fields that a line of any release has."""

    key: str


def _key_of(line: bytes) -> str:
    """The key of the result in ``line``; empty for any other line."""
    try:
        return msgspec.json.decode(line, type=_Keyed).key
    except msgspec.DecodeError:
        return ""


def _lock(file: int) -> None:
    """Wait until no other process holds ``file``; on systems without such locks nothing is locked."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _unlock(file: int) -> None:
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _line(entry: object) -> bytes:
    return msgspec.json.encode(entry) + b"\n"
