"""The part of a step that one rank does when axes are sharded: local shapes, strides, bytes and arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from tensortide.graph.model import Call, Graph, Op, Phase, Storage, Tensor, Value
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.sites import base_name, with_values

Tensors: TypeAlias = Sequence[Tensor] | Mapping[int, Tensor]
"""Tensors by number."""


class StoredAxis(NamedTuple):
    """A sharded axis in a storage: elements, or bytes where tensors of several dtypes share it, from one of its indices
    to the next; its size, and that of one rank."""

    stride: int
    size: int
    local: int


class LocalSizes:
    """The local sizes of what carries one of ``chosen`` axes, each divided among ``ranks``; uneven shares are rounded
    up to that of the first rank. ``grown`` axes are as many times longer. ``means``: gradients are averaged over the
    ranks, so that a mean over a sharded axis is that of each rank's part, and so is its gradient."""

    def __init__(
        self,
        analysis: Analysis,
        chosen: Collection[Axis],
        ranks: int,
        grown: Collection[Axis] = frozenset(),
        *,
        means: bool = False,
    ) -> None:
        self.analysis = analysis
        self.means = means
        self.chosen = frozenset(chosen)
        self.grown = frozenset(grown)
        self.ranks = ranks
        self._places = self._found_places()

    def local_size(self, axis: Axis) -> int:
        """The size of a finest axis on one rank."""
        size = self.analysis.axes.size[axis]
        if axis in self.grown:
            return size * self.ranks
        return -(-size // self.ranks) if axis in self.chosen else size

    def carries(self, tensor: int) -> bool:
        """Return whether a tensor has an axis of another size on each rank."""
        return any(axis in self.chosen or axis in self.grown for axis in self.analysis.all_leaves(tensor))

    def graph(self) -> Graph:
        """The Graph with local shapes. What an op of the original computes on all, it computes on its part."""
        original = self.analysis.graph
        places = [self._places.get(tensor.storage, []) for tensor in original.tensors]
        tensors = tuple(local_tensor(self.analysis, t, self.local_size, at) for t, at in enumerate(places))
        storages = tuple(self._storage(s, storage) for s, storage in enumerate(original.storages))
        calls = dict.fromkeys(original.calls)
        numbers = {call: number for number, call in enumerate(calls)}
        ops = []
        for op in original.ops:
            call = original.calls[op.call]
            if any(map(self.carries, (*op.inputs, *op.outputs))):
                call = localized(call, original, op.inputs, op.outputs, tensors)
                if self.means and op.phase is Phase.BACKWARD:
                    call = _of_mean(call, original, op, tensors)
            ops.append(replace(op, call=numbers.setdefault(call, len(numbers))))
        return replace(original, ops=tuple(ops), calls=tuple(numbers), tensors=tensors, storages=storages)

    def _found_places(self) -> dict[int, list[StoredAxis]]:
        """The places of the sharded axes in each storage, in bytes, the outermost first."""
        axes, graph = self.analysis.axes, self.analysis.graph
        found: dict[int, set[StoredAxis]] = {}
        for number, tensor in enumerate(graph.tensors):
            for leaf, at in self.analysis.distances(number):
                if at and (leaf in self.chosen or leaf in self.grown):
                    place = StoredAxis(at * tensor.itemsize, axes.size[leaf], self.local_size(leaf))
                    found.setdefault(tensor.storage, set()).add(place)
        return {storage: sorted(places, reverse=True) for storage, places in found.items()}

    def _storage(self, number: int, storage: Storage) -> Storage:
        nbytes = int(storage.nbytes)
        for place in self._places.get(number, []):
            nbytes = nbytes * place.local // place.size
        return replace(storage, nbytes=nbytes)


def local_tensor(analysis: Analysis, number: int, size: Callable[[Axis], int], places: Sequence[StoredAxis]) -> Tensor:
    """A tensor whose finest axes have other sizes, in a storage that has them at ``places``, in bytes."""
    tensor, axes = analysis.graph.tensors[number], analysis.axes
    shape = tuple(math.prod(map(size, axes.leaves([axis]))) for axis in analysis.dims[number])
    unit = tensor.itemsize or 1  # strings have none
    strides = tuple(distance(stride * unit, places) // unit for stride in tensor.strides)
    return replace(tensor, shape=shape, strides=strides, offset=local_offset(tensor.offset * unit, places) // unit)


def distance(stride: int, places: Sequence[StoredAxis]) -> int:
    """The local distance of what lies ``stride`` apart in the whole storage, in the unit of ``places``."""
    for place in places:
        if stride >= place.stride * place.size:
            stride = stride * place.local // place.size
    return stride


def local_offset(offset: int, places: Sequence[StoredAxis]) -> int:
    """The offset of the same element, in the unit of ``places``: the digits of ``offset``, in the local radix."""
    found = 0
    for place in places:
        outside, offset = divmod(offset, place.stride * place.size)
        found += outside * distance(place.stride * place.size, places)
        digit, offset = divmod(offset, place.stride)
        found += min(digit, place.local - 1) * distance(place.stride, places)
    return found + offset


_SIZES = ("size", "input_size", "input_sizes", "self_sizes", "bias_sizes", "shape", "sizes")


def localized(call: Call, graph: Graph, inputs: tuple[int, ...], outputs: tuple[int, ...], local: Tensors) -> Call:
    """``call`` with the sizes among its arguments those of local tensors."""
    name = base_name(call.op)
    given = dict(call.arguments)
    changed: dict[str, Value] = {}
    if outputs:
        out, small = graph.tensors[outputs[0]], local[outputs[0]]
        for key in _SIZES:
            if isinstance(size := given.get(key), tuple) and len(size) == len(small.shape):
                changed[key] = tuple(-1 if old == -1 else new for old, new in zip(size, small.shape, strict=True))
        if "stride" in given and name in ("as_strided", "new_empty_strided", "empty_strided"):
            changed["stride"] = small.strides
            if given.get("storage_offset") is not None:
                changed["storage_offset"] = small.offset
        changed.update(_counts(name, given, graph, inputs, small, local))
        dim = given.get("dim", 0)
        if isinstance(dim, int) and len(small.shape) > dim % max(len(small.shape), 1):
            changed.update(_parts(name, given, out, small, dim, [local[t] for t in outputs]))
        if name in ("slice_backward", "slice"):
            changed.update(_sliced(given, name, graph.tensors[inputs[0]], local[inputs[0]], out, small))
    return with_values(call, changed)


def _of_mean(call: Call, graph: Graph, op: Op, local: tuple[Tensor, ...]) -> Call:
    """The gradient of a mean: divided by as many elements as it has, or for which it is repeated in memory."""
    given = dict(call.arguments).get("other")
    if base_name(call.op) != "div" or not isinstance(given, int | float) or given != int(given):
        return call
    whole, part = graph.tensors[op.inputs[0]], local[op.inputs[0]]
    number = {_repeated(whole): _repeated(part), whole.numel: part.numel}.get(int(given), given)
    return with_values(call, {"other": number})


def _repeated(tensor: Tensor) -> int:
    """The number of elements of a tensor that share each place in memory (strides of 0)."""
    return math.prod(size for size, stride in zip(tensor.shape, tensor.strides, strict=True) if not stride)


def _counts(
    name: str, given: dict[str, Value], graph: Graph, inputs: tuple[int, ...], small: Tensor, local: Tensors
) -> dict[str, Value]:
    """Numbers of rows, groups and elements among the arguments of an op whose first result is ``small``."""
    changed: dict[str, Value] = {}
    if name == "topk":
        dim = given.get("dim", -1)
        changed["k"] = small.shape[dim]  # type: ignore[index]  # a number
    if name == "affine_grid_generator":
        changed["size"] = (small.shape[0], *given["size"][1:])  # type: ignore[index]  # images, channels, space
    if name in ("unfold", "unfold_backward"):
        patch = (small if name == "unfold" else local[inputs[0]]).shape[-1]
        if patch != given["size"]:  # patches that do not overlap: each is as long as a step
            changed["size"] = changed["step"] = patch
    if name == "repeat":
        changed["repeats"] = _repeats(local[inputs[0]].shape, small.shape)
    if name == "embedding_dense_backward":
        changed["num_weights"] = small.shape[0]
    if name == "randperm":
        changed["n"] = small.shape[0]
    if name == "arange":
        start, step = given.get("start", 0), given.get("step", 1)
        changed["end"] = start + step * small.shape[0]  # type: ignore[operator]  # numbers of a recorded call
    if name in ("native_group_norm", "native_group_norm_backward"):
        small_data, groups = local[inputs[0]], given["group"]
        changed["N"], changed["C"] = small_data.shape[:2]
        whole = graph.tensors[inputs[0]].shape[1]
        changed["group"] = groups * small_data.shape[1] // whole  # type: ignore[operator]  # a number
    if name.startswith("convolution") and given.get("groups", 1) != 1:
        data = inputs[1 if name == "convolution_backward" else 0]
        whole = graph.tensors[data].shape[1]
        changed["groups"] = given["groups"] * local[data].shape[1] // whole  # type: ignore[operator]  # a number
    return changed


def _repeats(shape: tuple[int, ...], repeated: tuple[int, ...]) -> tuple[int, ...]:
    """The factor by which each dimension of ``repeated`` repeats that of ``shape``."""
    aligned = (*[1] * (len(repeated) - len(shape)), *shape)
    return tuple(many // one if one else 1 for one, many in zip(aligned, repeated, strict=True))


def _parts(
    name: str, given: dict[str, Value], out: Tensor, small: Tensor, dim: int, outs: list[Tensor]
) -> dict[str, Value]:
    if name in ("split", "unsafe_split") and given.get("split_size") == out.shape[dim]:
        return {"split_size": small.shape[dim]}
    if name in ("split_with_sizes", "unsafe_split_with_sizes"):
        return {"split_sizes": tuple(each.shape[dim] for each in outs)}
    return {}


def _sliced(
    given: dict[str, Value], name: str, data: Tensor, small_data: Tensor, out: Tensor, small_out: Tensor
) -> dict[str, Value]:
    """Start and end of a slice that is an aligned share, in local elements."""
    dim, start, end = given.get("dim", 0), given.get("start") or 0, given.get("end")
    if not (isinstance(dim, int) and isinstance(start, int)):
        return {}
    part, small = (out, small_out) if name == "slice" else (data, small_data)
    size, local = part.shape[dim], small.shape[dim]
    if size == local or not size:
        return {}
    begin = start // size * local
    found: dict[str, Value] = {"start": begin}
    if isinstance(end, int) and end < 1 << 62:
        found["end"] = begin + local
    return found
