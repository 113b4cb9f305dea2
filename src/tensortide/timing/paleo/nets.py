"""Descriptions of networks in Paleo's JSON: read, blocks expanded, shapes derived at any batch size."""

from __future__ import annotations

import difflib
import graphlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from tensortide.errors import TensortideError
from tensortide.file_faults import reader
from tensortide.timing.paleo.layers import LAYER_TYPES, Entry, Layer, Wrong, layer

SPLIT = "ModelParallel"
HOLDERS = ("Block", SPLIT)
"""Types that hold layers."""
REFUSED = {"Deconvolution": "no result of Paleo fixes its form"}
"""Types that Paleo reads and that are not predicted here, with the reason."""


class _File(msgspec.Struct):
    layers: dict[str, msgspec.Raw]
    name: str = ""


class _Block(msgspec.Struct):
    layers: dict[str, msgspec.Raw]
    parents: tuple[str, ...] = ()
    endpoint: str = ""
    splits: int = 1
    device: int | tuple[int, ...] | None = None


class _Typed(msgspec.Struct):
    type: str


_KEYS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    _File: ("layers", "name", "score"),
    Entry: (*Entry.__struct_fields__, "bias", "dropout_keep_prob"),
    _Block: ("type", *_Block.__struct_fields__),
}
"""Keys of the parts of a file: those that are read, and those of published files that change no prediction."""
_Part = TypeVar("_Part", Entry, _Block, _Typed)


class Net(NamedTuple):
    """A network of layers. ``entries`` are their descriptions by full name, in the order of the file, with the parents
    named in full; ``split`` says over how many workers a layer of a ``ModelParallel`` block is split. A parent of
    which every part is read is named once per part."""

    name: str
    entries: Mapping[str, Entry]
    split: Mapping[str, int] = MappingProxyType({})

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
        for name in self.ordered():
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
        """Weights and biases of all layers, in all their parts."""
        return sum(found.params * self.split.get(found.name, 1) for found in self.layers())

    def ordered(self) -> list[str]:
        """Names of the layers, each after its parents.

        Raises:
            TensortideError: parents are missing or form a cycle.
        """
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
    net = describe(path)
    net.layers()  # shapes that do not fit are errors of the file
    return net


@reader
def describe(
    path: str | os.PathLike[str], *, refused: Mapping[str, str] = MappingProxyType(REFUSED), unknown: bool = False
) -> Net:
    """Read the layers of a JSON file and expand blocks, without deriving shapes.

    Args:
        path: the file.
        refused: types that are an error, with the reason.
        unknown: accept types that are unknown, as free layers.

    Raises:
        TensortideError: as of ``read``, but for shapes, parents and cycles: ``Net.layers`` checks those.
    """
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except OSError as error:
        raise TensortideError(f"{path}: cannot be read: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TensortideError(f"{path}: no network of layers in JSON: {error}.") from None
    if not file.layers:
        raise TensortideError(f"{path}: the network has no layer.")
    _check_keys(os.fspath(path), Path(path).read_bytes(), _File)
    expanded = _Expansion(os.fspath(path), refused, unknown)
    expanded.add(file.layers)
    return Net(file.name or Path(path).stem, expanded.entries, expanded.split)


class _Expansion:
    """Entries by full name, collected layer by layer; layers of a block take its place in the order."""

    def __init__(self, path: str, refused: Mapping[str, str], unknown: bool) -> None:
        self.path = path
        self.refused = refused
        self.unknown = unknown
        self.entries: dict[str, Entry] = {}
        self.split: dict[str, int] = {}
        self._ends: dict[str, str] = {}

    def add(self, raws: Mapping[str, msgspec.Raw]) -> None:
        """Add the layers of the file, those of a block in its place."""
        for name, raw in raws.items():
            if (kind := self._kind(name, raw)) in HOLDERS:
                held = self._decode(name, raw, _Block)
                _check_keys(f"{self.path}, block {name!r}", raw, _Block)
                self._add_block(name, held, kind == SPLIT)
            else:
                entry = self._entry(name, raw, kind)
                self._put(name, entry, entry.parents)

    def _add_block(self, block: str, held: _Block, split: bool) -> None:
        if held.splits < 1:
            raise TensortideError(f"{self.path}, layer {block!r}: {held.splits} splits: 1 or more.")
        if split:
            self.split |= {f"{block}/{local}": held.splits for local in held.layers}
        for local, raw in held.layers.items():
            name = f"{block}/{local}"
            if (kind := self._kind(name, raw)) in HOLDERS:
                raise TensortideError(f"{self.path}, layer {name!r}: a block inside of a block cannot be read.")
            entry = self._entry(name, raw, kind)
            if split:
                entry = msgspec.structs.replace(entry, splits=held.splits)
            if entry.device is None:
                entry = msgspec.structs.replace(entry, device=held.device)
            self._put(name, entry, tuple(f"{block}/{parent}" for parent in entry.parents) or held.parents)
        if split and not held.endpoint:
            return
        if f"{block}/{held.endpoint}" not in self.entries:
            raise TensortideError(
                f"{self.path}, block {block!r}: its endpoint {held.endpoint!r} is none of its layers."
            )
        self._ends[block] = f"{block}/{held.endpoint}"

    def _put(self, name: str, entry: Entry, parents: tuple[str, ...]) -> None:
        if name in self.entries:
            raise TensortideError(f"{self.path}: two layers are called {name!r}.")
        ends: list[str] = []
        for reference in parents:
            parent, _, part = reference.partition("@")
            parent = self._ends.get(parent, parent)  # a block stands for its endpoint
            ends += [parent] * (self.split.get(parent, 1) if part == "all" else 1)
        self.entries[name] = msgspec.structs.replace(entry, parents=tuple(ends))

    def _kind(self, name: str, raw: msgspec.Raw) -> str:
        kind = self._decode(name, raw, _Typed).type
        if kind in self.refused:
            raise TensortideError(f"{self.path}, layer {name!r}: {kind} is not predicted: {self.refused[kind]}.")
        if kind not in LAYER_TYPES and kind not in HOLDERS and not self.unknown:
            known = [known for known in (*LAYER_TYPES, *HOLDERS) if known not in self.refused]
            near = difflib.get_close_matches(kind, known, n=3) or known
            raise TensortideError(
                f"{self.path}, layer {name!r}: Paleo has no layer of type {kind!r}.\nNear names: {', '.join(near)}."
            )
        return kind

    def _entry(self, name: str, raw: msgspec.Raw, kind: str) -> Entry:
        """Read a layer; one of a type that is unknown may have any keys."""
        entry = self._decode(name, raw, Entry)
        if kind in LAYER_TYPES:
            _check_keys(f"{self.path}, layer {name!r}", raw, Entry)
        return entry

    def _decode(self, name: str, raw: msgspec.Raw, kind: type[_Part]) -> _Part:
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.MsgspecError as error:
            raise TensortideError(f"{self.path}, layer {name!r}: {error}.") from None


def _check_keys(place: str, raw: msgspec.Raw | bytes, kind: type[msgspec.Struct]) -> None:
    refuse_unknown_keys(place, msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), _KEYS[kind])


def refuse_unknown_keys(place: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise TensortideError that begins with ``place``, and has near names, for a key that is not ``known``."""
    for key in given:
        if key not in known:
            raise TensortideError(f"{place}: unknown key {key!r}; {names_like(key, known)}.")


def names_like(key: str, known: Sequence[str]) -> str:
    """Return the names among ``known`` that ``key`` may stand for, in words; all of them where none is near."""
    near = difflib.get_close_matches(key, known, n=3)
    return f"near names: {', '.join(near)}" if near else f"known: {', '.join(known)}"
