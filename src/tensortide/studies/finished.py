"""Files of finished items, from which an interrupted study resumes: runs, searches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from tensortide.errors import OutputError
from tensortide.version import VERSION
from tensortide.versioned import Format, Head
from tensortide.write import check_writable, write_file

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
    """

    def __init__(self, path: str | os.PathLike[str], form: Format, kind: type[Result], name: str) -> None:
        self.path = check_writable(path)
        self._form, self._name = form, name
        if self.path.exists() and not self.path.is_file():
            raise form.error(f"{self.path} cannot hold {form.kind}: it is no ordinary file")
        self.results: dict[str, Result] = {}
        self._file = self._open()
        try:
            with self._locked():
                self._load(msgspec.json.Decoder(msgspec.defstruct("Entry", [("key", str), (name, kind)])))
        except BaseException:
            os.close(self._file)
            raise

    def _load(self, decoder: msgspec.json.Decoder[Any]) -> None:
        """Read the results, and make the file one of this release."""
        head = _line(Head(self._form.tag, self._form.version, VERSION))
        data = self._form.read(self.path)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and head.startswith(data):
            whole = head
        whole = b"".join([head, *self._read(whole, decoder)])
        if whole != data:
            write_file(self.path, whole)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}.") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file that is at the path now, which another process may have replaced, for this process alone."""
        while True:
            _lock(self._file)
            with contextlib.suppress(FileNotFoundError):
                if not os.path.samestat(os.fstat(self._file), self.path.stat()):
                    os.close(self._file)
                    self._file = self._open()
                    continue
            break
        try:
            yield
        finally:
            _unlock(self._file)

    def _is_there(self, key: str) -> bool:
        """True if the file, to which other processes append too, has a result of this key."""
        os.lseek(self._file, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self._file), "rb") as file:
            return any(_key_of(line) == key for line in file)

    def _read(self, data: bytes, decoder: msgspec.json.Decoder[Any]) -> list[bytes]:
        """Read the results, and return their lines."""
        lines = data.split(b"\n")[:-1]
        is_ours = self._form.check_head(self.path, lines[0] if lines else b"").tensortide == VERSION
        kept: list[bytes] = []
        for number, line in enumerate(lines[1:], 2):
            try:
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
        """Keep ``result`` in memory and append it to the file, unless another process has meanwhile."""
        self.results[key] = result
        try:
            with self._locked():
                if not self._is_there(key):
                    os.write(self._file, _line({"key": key, self._name: result}))
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}.") from error

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
