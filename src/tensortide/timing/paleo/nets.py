"""Descriptions of networks in Paleo's JSON: read, blocks expanded, shapes derived at any batch size."""

from __future__ import annotations

import difflib
import graphlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from tensortide.errors import TensortideError
from tensortide.timing.paleo.layers import KINDS, Entry, Layer, Wrong, layer

BLOCK = "Block"
REFUSED = {
    "Deconvolution": "no result of Paleo fixes its form",
    "ModelParallel": "only data-parallel training is predicted",
}
"""Types that Paleo reads and that are not predicted here, with the reason."""


class _File(msgspec.Struct):
    layers: dict[str, msgspec.Raw]
    name: str = ""


class _Block(msgspec.Struct):
    layers: dict[str, msgspec.Raw]
    parents: tuple[str, ...] = ()
    endpoint: str = ""


class _Typed(msgspec.Struct):
    type: str


_Part = TypeVar("_Part", Entry, _Block, _Typed)


class Net(NamedTuple):
    """A network of layers. ``entries`` are their descriptions by full name, in the order of the file, with the parents
    named in full."""

    name: str
    entries: Mapping[str, Entry]

    def layers(self, batch: int | None = None) -> tuple[Layer, ...]:
        """Every layer with its shapes, in the order of the file.

        Args:
            batch: rows of every input; None: as the file says.

        Raises:
            TensortideError: shapes do not fit, parents are missing or form a cycle, or ``batch`` is below 1.
        """
        if batch is not None and batch < 1:
            raise TensortideError(f"a batch of {batch} has no rows: 1 or more.")
        found: dict[str, Layer] = {}
        for name in self._order():
            entry = self.entries[name]
            if entry.type == "Input" and batch is not None and entry.tensor:
                entry = msgspec.structs.replace(entry, tensor=(batch, *entry.tensor[1:]))
            inputs = [found[parent].output for parent in entry.parents]
            try:
                found[name] = layer(name, entry, inputs)
            except Wrong as wrong:
                raise TensortideError(f"{self.name}, layer {name!r}: {wrong}.") from None
        return tuple(found[name] for name in self.entries)

    def batch(self) -> int:
        """Rows of the first input, as the file says."""
        return next((entry.tensor[0] for entry in self.entries.values() if entry.tensor), 1)

    def params(self) -> int:
        """Weights and biases of all layers."""
        return sum(found.params for found in self.layers())

    def _order(self) -> list[str]:
        for name, entry in self.entries.items():
            for parent in entry.parents:
                if parent not in self.entries:
                    near = difflib.get_close_matches(parent, self.entries, n=3)
                    hint = f" Near names: {', '.join(near)}." if near else ""
                    raise TensortideError(f"{self.name}, layer {name!r}: there is no parent {parent!r}.{hint}")
        parents = {name: entry.parents for name, entry in self.entries.items()}
        try:
            return list(graphlib.TopologicalSorter(parents).static_order())
        except graphlib.CycleError as error:
            raise TensortideError(f"{self.name}: layers form a cycle: {' -> '.join(error.args[1])}.") from None


def read(path: str | os.PathLike[str]) -> Net:
    """Read the network that a JSON file describes.

    Raises:
        TensortideError: the file cannot be read, is no description of a network, or has a layer of an unknown kind;
            the message names file, layer and what was expected.

    Examples:
        >>> import tempfile
        >>> text = '''{"name": "tiny", "layers": {
        ...   "data": {"type": "Input", "tensor": [32, 100]},
        ...   "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 10}}}'''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tiny.json")
        ...     _ = path.write_text(text)
        ...     net = read(path)
        >>> net.params(), net.layers(batch=64)[1].output
        (1010, (64, 10))
    """
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except OSError as error:
        raise TensortideError(f"{path}: cannot be read: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TensortideError(f"{path}: no network of layers in JSON: {error}.") from None
    if not file.layers:
        raise TensortideError(f"{path}: the network has no layer.")
    expanded = _Expansion(os.fspath(path))
    expanded.add(file.layers)
    net = Net(file.name or Path(path).stem, expanded.entries)
    net.layers()  # shapes that do not fit are errors of the file
    return net


class _Expansion:
    """Entries by full name, collected layer by layer; layers of a block take its place in the order."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        self._ends: dict[str, str] = {}

    def add(self, raws: Mapping[str, msgspec.Raw]) -> None:
        """Add the layers of the file, those of a block in its place."""
        for name, raw in raws.items():
            if self._kind(name, raw) == BLOCK:
                self._add_block(name, self._decode(name, raw, _Block))
            else:
                entry = self._decode(name, raw, Entry)
                self._put(name, entry, entry.parents)

    def _add_block(self, block: str, held: _Block) -> None:
        for local, raw in held.layers.items():
            name = f"{block}/{local}"
            if self._kind(name, raw) == BLOCK:
                raise TensortideError(f"{self.path}, layer {name!r}: a block inside of a block cannot be read.")
            entry = self._decode(name, raw, Entry)
            self._put(name, entry, tuple(f"{block}/{parent}" for parent in entry.parents) or held.parents)
        if f"{block}/{held.endpoint}" not in self.entries:
            raise TensortideError(
                f"{self.path}, block {block!r}: its endpoint {held.endpoint!r} is none of its layers."
            )
        self._ends[block] = f"{block}/{held.endpoint}"

    def _put(self, name: str, entry: Entry, parents: tuple[str, ...]) -> None:
        if name in self.entries:
            raise TensortideError(f"{self.path}: two layers are called {name!r}.")
        ends = tuple(self._ends.get(parent, parent) for parent in parents)  # a block stands for its endpoint
        self.entries[name] = msgspec.structs.replace(entry, parents=ends)

    def _kind(self, name: str, raw: msgspec.Raw) -> str:
        kind = self._decode(name, raw, _Typed).type
        if kind in REFUSED:
            raise TensortideError(f"{self.path}, layer {name!r}: {kind} is not predicted: {REFUSED[kind]}.")
        if kind not in KINDS and kind != BLOCK:
            known = (*KINDS, BLOCK)
            near = difflib.get_close_matches(kind, known, n=3) or known
            raise TensortideError(
                f"{self.path}, layer {name!r}: Paleo has no layer of type {kind!r}.\nNear names: {', '.join(near)}."
            )
        return kind

    def _decode(self, name: str, raw: msgspec.Raw, kind: type[_Part]) -> _Part:
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.MsgspecError as error:
            raise TensortideError(f"{self.path}, layer {name!r}: {error}.") from None
