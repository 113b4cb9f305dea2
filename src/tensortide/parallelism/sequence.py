"""Sequence parallelism: the ops that a tensor group would replicate are divided along the sequence.

Under tensor parallelism alone the ops between divided products (norms, dropouts, residuals) are replicated. Here each
rank computes them for its part of every sequence. The all-reduce of a partial result becomes a reduce-scatter along
the sequence, and a product that needs all tokens all-gathers them, in both passes; together they move the bytes of the
all-reduce (Korthikanti et al., 2205.05198).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tensortide.errors import DegreesError
from tensortide.graph.model import Graph, Op
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.batch import batch_of, sequence_of
from tensortide.parallelism.constant_ops import constants, given_tensors
from tensortide.parallelism.draft import Draft, replace
from tensortide.parallelism.exchange import stand_in
from tensortide.parallelism.partials import carried, is_view
from tensortide.parallelism.propagate import Division
from tensortide.parallelism.sites import located


def token_axis(analysis: Analysis) -> Axis:
    """The axis of tokens: the other of the first two dimensions of the inputs.

    Raises DegreesError without one, and if an op takes that dimension apart.
    """
    tensor, leaves = sequence_of(analysis, batch_of(analysis).sequence_dimension, "sequence")
    if len(leaves) > 1:
        sizes = " x ".join(str(analysis.axes.size[leaf]) for leaf in leaves)
        shape = analysis.graph.tensors[tensor].shape
        raise DegreesError(f"sequence: an op takes the sequences of the input {list(shape)} apart, into {sizes}")
    return leaves[0]


@dataclass(slots=True)
class SequenceParts:
    """The step of a ``division``, with stand-ins where ranks exchange parts of the ``sequence``. ``parts`` are tensors
    of one rank's tokens, each with that dimension."""

    division: Division
    sequence: Axis
    parts: dict[int, int] = field(default_factory=dict)
    _draft: Draft = field(init=False)
    _given: set[int] = field(init=False)
    _pending: dict[int, int] = field(default_factory=dict)
    _moved: dict[int, int] = field(default_factory=dict)
    _clean: dict[int, int] = field(default_factory=dict)
    _local: set[int] = field(default_factory=set)
    _shown: set[int] = field(default_factory=set)
    _needed: frozenset[int] = frozenset()
    _copies: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def analysis(self) -> Analysis:
        """The analysis of the step without stand-ins."""
        return self.division.analysis

    def graph(self) -> Graph:
        """The whole step with its stand-ins."""
        graph = self.analysis.graph
        self._draft, free = Draft(graph), constants(graph)
        self._needed = frozenset(self.analysis.axes.needs(self.sequence))
        owner = graph.index.owner
        self._given = {owner[tensor] for tensor in given_tensors(graph, free)}
        for index, op in enumerate(graph.ops):
            if index not in free:
                self._meet(index, op)
        return self._draft.finished()

    def _owner(self, tensor: int) -> int:
        return self._draft.tensors[tensor].storage

    def _dimension(self, tensor: int) -> int | None:
        """The dimension of a tensor of the step that is the sequence alone."""
        axes, dims = self.analysis.axes, self.analysis.dims[tensor]
        return next((dim for dim, axis in enumerate(dims) if axes.leaves([axis]) == [self.sequence]), None)

    def _clean_dimension(self, tensor: int) -> int | None:
        """The same as ``_dimension`` for a tensor that covers its storage; else None."""
        view = self._draft.tensors[tensor]
        whole = view.nbytes == self._draft.storages[view.storage].nbytes
        return self._dimension(tensor) if whole else None

    def _has(self, tensor: int) -> bool:
        return self.sequence in self.analysis.all_leaves(tensor)

    def _meet(self, index: int, op: Op) -> None:
        graph = self.analysis.graph
        call = graph.calls[op.call]
        hows = self.division.partials(index)
        waiting, passed = carried(call, op, self._owner, self._pending)
        made = {*hows, *passed}
        if waiting and not passed:
            self._scatter(index, op, waiting)
        for tensor in filter(self._has, made):
            if hows.get(tensor, "sum") != "sum":
                self._given.add(self._owner(tensor))  # an all-reduce makes it whole on all ranks
            elif self._clean_dimension(tensor) is not None or self._owner(tensor) not in self._pending:
                self._pending[self._owner(tensor)] = tensor
        within = bool(made) or any(map(self.division.dims, (*op.inputs, *op.outputs)))
        given = is_view(call, op, self._owner) and any(self._owner(t) in self._given for t in op.inputs)
        # parts are of what is read through a view
        whole = within or given or index in self._needed or any(map(self._no_part, op.inputs))
        if whole and not within:
            self._given.update(self._owner(t) for t in op.outputs)
        self._replace(index, op, whole=whole)

    def _replace(self, index: int, op: Op, *, whole: bool) -> None:
        """Let an op read all tokens or a part of them."""
        slots = self.analysis.graph.calls[op.call].mutated
        for tensor in (op.inputs[slot] for slot in slots if not whole):
            if self._owner(tensor) in self._given and self._has(tensor):
                self._divide(index, op, tensor)
        new = [self._whole(index, op, t) if whole else self._part(index, op, t) for t in op.inputs]
        read = {self._owner(old): self._owner(now) for old, now in zip(op.inputs, new, strict=True)}
        outputs = [self._view(t, read[self._owner(t)]) if self._owner(t) in read else self._now(t) for t in op.outputs]
        self._shown.update(outputs)
        if whole and any(new[slot] != self._now(op.inputs[slot]) for slot in slots):
            raise DegreesError(
                f"sequence: {located(self.analysis.graph, index)} writes all tokens of what ranks divide"
            )
        written = {self._owner(new[slot]) for slot in slots}
        for key in [key for key in self._copies if self._owner(key[0]) in written]:
            del self._copies[key]  # it has other contents from here on
        changed = replace(op, inputs=tuple(new), outputs=tuple(outputs))
        if changed != op:
            self._draft.replaced[index] = [changed]
        for tensor, result in zip(op.outputs, outputs, strict=True):
            if not whole and self._has(tensor) and self._owner(tensor) not in self._given:
                self._local.add(self._owner(result))
                dimension = self._dimension(tensor)
                if self._clean_dimension(tensor) is not None:
                    self._clean.setdefault(self._owner(result), result)
                if dimension is not None:
                    self.parts.setdefault(result, dimension)

    def _now(self, tensor: int) -> int:
        """``tensor``, or the same view of what its storage has been scattered into."""
        storage = self._moved.get(self._owner(tensor))
        return tensor if storage is None else self._view(tensor, storage)

    def _view(self, tensor: int, storage: int) -> int:
        return self._draft.tensor(replace(self._draft.tensors[tensor], storage=storage))

    def _scatter(self, index: int, op: Op, waiting: set[int]) -> None:
        """Sum partial results that the op at ``index`` needs, and keep a part of each."""
        for storage in sorted(waiting):
            tensor = self._pending.pop(storage)
            dimension = self._clean_dimension(tensor)
            if dimension is None:
                self._given.add(storage)  # it is summed as it is, and all ranks have it whole
                continue
            made = self._draft.twin(tensor)
            self._draft.insert(index, stand_in(self._draft, "scatter_along", [tensor], [made], dimension, op))
            self._moved[storage] = self._owner(made)
            self._clean[self._owner(made)] = made
            self.parts[made] = dimension

    def _divide(self, index: int, op: Op, tensor: int) -> None:
        """Keep this rank's part alone of what every rank has whole, as the op at ``index`` writes that part."""
        storage, dimension = self._owner(tensor), self._clean_dimension(tensor)
        if dimension is None or self._draft.storages[storage].birth is None:
            where = located(self.analysis.graph, index)
            raise DegreesError(f"sequence: {where} writes a part of the tokens of what every rank has whole")
        made = self._draft.twin(tensor)
        self._draft.insert(index, stand_in(self._draft, "part_along", [tensor], [made], dimension, op))
        self._given.discard(storage)
        self._moved[storage] = self._owner(made)
        self._clean[self._owner(made)] = made
        self._local.add(self._owner(made))
        self.parts[made] = dimension

    def _part(self, index: int, op: Op, tensor: int) -> int:
        """The tensor that an op on a part of each sequence reads in place of ``tensor``."""
        if self._owner(tensor) not in self._given or not self._has(tensor):
            now = self._now(tensor)
            return now if now == tensor else self._seen(index, op, now, self._clean[self._owner(now)])
        dimension = self._dimension(tensor)
        assert dimension is not None, "ops that read no parts have been made to read all"
        key = tensor, ""
        if key not in self._copies:
            made = self._copies[key] = self._draft.fresh(tensor, self._draft.tensors[tensor].shape)
            self._draft.insert(index, stand_in(self._draft, "part_along", [tensor], [made], dimension, op))
            self.parts[made] = dimension
        return self._copies[key]

    def _whole(self, index: int, op: Op, tensor: int) -> int:
        """The tensor that an op on all tokens reads in place of ``tensor``, gathered once in each pass."""
        now = self._now(tensor)
        base = self._clean.get(self._owner(now))
        if not self._has(tensor) or (base is None and self._owner(now) not in self._local):
            return now
        if base is None:
            where = located(self.analysis.graph, index)
            raise DegreesError(f"sequence: {where} reads all tokens of what has no dimension of tokens alone")
        key = base, op.phase.value
        if key not in self._copies:
            made = self._copies[key] = self._draft.twin(base)
            gather = stand_in(self._draft, "gather_along", [base], [made], self.parts[base], op)
            self._draft.insert(index, gather)
        whole = self._copies[key]
        return whole if now == base else self._seen(index, op, self._view(now, self._owner(whole)), whole)

    def _seen(self, index: int, op: Op, wanted: int, base: int) -> int:
        """``wanted``, a view of ``base``, which an op makes if none has before."""
        if wanted != base and wanted not in self._shown:
            self._draft.insert(index, self._draft.as_strided(base, wanted, like=op))
            self._shown.add(wanted)
        return wanted

    def _no_part(self, tensor: int) -> bool:
        """Return whether a tensor is given whole and no part of it along the sequence is one slice."""
        return self._owner(tensor) in self._given and self._has(tensor) and self._dimension(tensor) is None
