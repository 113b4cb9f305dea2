"""A net spec: layers with their parents, in file order and in the topological order of every placement vector."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tensortide.errors import TensortideError
from tensortide.file_faults import reader
from tensortide.timing.json_file import refuse_repeated_keys
from tensortide.timing.paleo import LAYER_TYPES, Layer
from tensortide.timing.paleo import Net as Described
from tensortide.timing.paleo.layers import Entry
from tensortide.timing.paleo.nets import SPLIT, describe

REFUSED = MappingProxyType(
    {SPLIT: "its parts run on workers that the block names; tensortide place paleo predicts that"}
)
"""Types that no placement is searched for, with the reason."""

Devices = tuple[int, ...]


@dataclass(frozen=True)
class Net:
    """A network of layers to be placed.

    ``entries`` are the layers by full name, in file order, parents named in full; blocks are expanded. ``name`` is that
    of the file. A *placement* names the device of every layer, in the order of ``order``.
    """

    name: str
    entries: Mapping[str, Entry]

    def __reduce__(self) -> tuple[type[Net], tuple[str, dict[str, Entry]]]:
        """Travel to other processes without what is derived."""
        return Net, (self.name, dict(self.entries))

    @functools.cached_property
    def order(self) -> tuple[str, ...]:
        """Names in topological order: a stack begins with all layers without parents in file order; its last is taken,
        and each child whose parents are all taken is pushed, children in file order.

        Raises:
            TensortideError: a parent is missing, or the layers form a cycle.
        """
        self._described.ordered()
        waiting = {name: len(set(entry.parents)) for name, entry in self.entries.items()}
        children: dict[str, list[str]] = {name: [] for name in self.entries}
        for name, entry in self.entries.items():
            for parent in dict.fromkeys(entry.parents):
                children[parent].append(name)
        stack, order = [name for name, count in waiting.items() if not count], []
        while stack:
            name = stack.pop()
            order.append(name)
            for child in children[name]:
                waiting[child] -= 1
                if not waiting[child]:
                    stack.append(child)
        return tuple(order)

    @functools.cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each layer in ``order``."""
        return {name: position for position, name in enumerate(self.order)}

    @functools.cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the parents of each layer of ``order``, as written, each once."""
        return tuple(
            tuple(self.index[parent] for parent in dict.fromkeys(self.entries[name].parents)) for name in self.order
        )

    @functools.cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the children of each layer of ``order``, in file order."""
        found: list[list[int]] = [[] for _ in self.order]
        for name, entry in self.entries.items():
            for parent in dict.fromkeys(entry.parents):
                found[self.index[parent]].append(self.index[name])
        return tuple(map(tuple, found))

    @functools.cached_property
    def defaults(self) -> tuple[Devices, ...]:
        """Devices of each layer of ``order`` as the file says; 0 where it says none."""
        given = (self.entries[name].device for name in self.order)
        return tuple((one or 0,) if isinstance(one, int | None) else one for one in given)

    @functools.cached_property
    def unknown(self) -> tuple[str, ...]:
        """Layers whose type is unknown, which take no time."""
        return tuple(name for name in self.order if self.entries[name].type not in LAYER_TYPES)

    def batch(self, given: int | None = None) -> int:
        """Examples in a batch: those that are ``given``, or those of the first layer."""
        return self.layers(given)[0].output[0]

    def layers(self, batch: int | None = None) -> tuple[Layer, ...]:
        """Layers of ``order`` with their shapes; ``batch`` replaces the first dimension of every tensor.

        Raises:
            TensortideError: shapes do not fit, a parent is missing, or the layers form a cycle.
        """
        if batch is not None and batch < 1:
            raise TensortideError(f"a batch of {batch} has no rows: 1 or more.")
        found = {layer.name: layer for layer in self._described.layers()}
        made = (found[name] for name in self.order)
        if batch is None:
            return tuple(made)
        return tuple(
            layer._replace(
                inputs=tuple((batch, *shape[1:]) for shape in layer.inputs), output=(batch, *layer.output[1:])
            )
            for layer in made
        )

    @functools.cached_property
    def _described(self) -> Described:
        return Described(self.name, self.entries, {})  # its default could not be sent to other processes


@reader
def read_net(path: str | os.PathLike[str], *, unknown: bool = False) -> Net:
    """Read a net spec.

    Args:
        path: a JSON file, ``{"name": ..., "layers": {name: {"type": ..., "parents": [...], ...}}}``.
        unknown: accept layers of unknown types, as free ones; ``Net.unknown`` lists them.

    Raises:
        TensortideError: the file cannot be read or is no net spec; a layer has an unknown type, shapes that do not fit
            or a parent that does not exist; two have one name; layers form a cycle.

    Examples:
        >>> import tempfile
        >>> text = '''{"name": "tiny", "layers": {
        ...   "data": {"type": "Input", "tensor": [32, 100]},
        ...   "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 10}}}'''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "tiny.json")
        ...     _ = path.write_text(text)
        ...     net = read_net(path)
        >>> net.order, net.layers(batch=64)[1].output
        (('data', 'fc'), (64, 10))
    """
    found = describe(path, refused=REFUSED, unknown=unknown)
    refuse_repeated_keys(path, Path(path).read_bytes())
    for name, entry in found.entries.items():
        devices = (entry.device or 0,) if isinstance(entry.device, int | None) else entry.device
        if not devices or min(devices) < 0:
            raise TensortideError(f"{path}, layer {name!r}: 'device' is {entry.device}: 0 or more, one or several.")
    try:
        found.layers()  # shapes, parents and cycles
    except TensortideError as error:
        raise TensortideError(f"{path}: {error}") from None
    return Net(found.name, found.entries)
