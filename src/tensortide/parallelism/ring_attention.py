"""Fused attention in a ring: keys and values pass by every rank, which attends to one block of them at a time.

A rank sends its block to the next one while its queries attend to it; the partial results are merged by their logsumexp
(Liu et al., "Ring Attention", 2310.01889). In the backward pass the gradients of a block travel with it, and come home
at last. Under a causal mask a rank leaves out blocks of later tokens. In zigzag it has two parts of each sequence that
mirror each other, so that every rank attends to as many keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tensortide.errors import DegreesError
from tensortide.graph.model import Op, Tensor
from tensortide.parallelism.draft import Draft, Hole, allocation, contiguous, replace
from tensortide.parallelism.exchange import Exchange, form
from tensortide.parallelism.sites import base_name, holes_of, located

_PADDED = 32
"""Tokens of which the memory-efficient kernel has sums of whole multiples."""
_ROWS_OF_QUERIES = ("query", "grad_out", "grad_out_", "out", "logsumexp")


class Block(NamedTuple):
    """Tokens of this rank that attend to a block of keys, those keys, and whether the mask between them is causal."""

    queries: range
    keys: range
    causal: bool


def blocks(tokens: int, ranks: int, rank: int, *, causal: bool, zigzag: bool) -> list[Block | None]:
    """For each step of a ring what ``rank`` attends to, of ``tokens`` of each rank: its own ones first, then those of
    the ranks before it; None where all are masked."""
    every, half = range(tokens), tokens // 2
    found: list[Block | None] = [Block(every, every, causal)]
    for step in range(1, ranks):
        is_before = (rank - step) % ranks < rank
        if not causal:
            found.append(Block(every, every, False))
        elif not zigzag:
            found.append(Block(every, every, False) if is_before else None)
        else:
            first, second = every[:half], every[half:]
            found.append(Block(every, first, False) if is_before else Block(second, every, False))
    return found


def check_ring(draft: Draft, index: int, op: Op, ranks: int, *, zigzag: bool) -> None:
    """Raise DegreesError for a kernel, at ``index`` of a draft, that no ring can take."""
    call = draft.calls[op.call]
    tensors = dict(zip(holes_of(call), op.inputs, strict=True))
    first = op.inputs[base_name(call.op).endswith("backward")]
    tokens, sums = (draft.tensors[t].shape for t in (first, tensors.get("logsumexp", op.outputs[1])))
    wrong = ""
    if dict(call.arguments).get("dropout_p"):
        wrong = "has dropout"
    elif not tensors.keys().isdisjoint(("attn_mask", "attn_bias")):
        wrong = "has a mask in memory"
    elif "efficient" in call.op and tokens[2] // (1 + zigzag) % _PADDED:
        wrong = f"pads parts of a sequence to {_PADDED} tokens"
    elif sums[:3] != tokens[:3] or draft.tensors[tensors["key"]].shape[2] != tokens[2]:
        wrong = "has keys of another sequence"
    if wrong:
        where = located(draft.graph, index)
        raise DegreesError(f"context={ranks}: {where} {wrong}: keys go in no ring, but are gathered")


@form("ring")
def in_ring(exchange: Exchange) -> list[Op]:
    """The ops in the place of a kernel of which each rank has one part."""
    return _ring(exchange, zigzag=False)


@form("zigzag")
def in_zigzag(exchange: Exchange) -> list[Op]:
    """The ops in the place of a kernel of which each rank has two parts."""
    return _ring(exchange, zigzag=True)


def _ring(exchange: Exchange, *, zigzag: bool) -> list[Op]:
    call = exchange.draft.calls[exchange.like.call]
    tensors = dict(zip(holes_of(call), exchange.like.inputs, strict=True))
    tokens, causal = exchange.draft.tensors[tensors["query"]].shape[2], bool(dict(call.arguments).get("is_causal"))
    steps = blocks(tokens, exchange.ranks, exchange.rank, causal=causal, zigzag=zigzag)
    ring = _Ring(exchange, tensors)
    return ring.backward(steps) if base_name(call.op).endswith("backward") else ring.forward(steps)


@dataclass(slots=True)
class _Ring:
    """The ops in the place of one kernel, of which ``tensors`` are the operands by name."""

    exchange: Exchange
    tensors: dict[str, int]
    ops: list[Op] = field(default_factory=list)

    @property
    def draft(self) -> Draft:
        """The draft that has the kernel."""
        return self.exchange.draft

    def forward(self, steps: Sequence[Block | None]) -> list[Op]:
        """Attend to one block after the other, and merge each result into that of the first, the outputs."""
        outputs = self.exchange.like.outputs
        block = [self._dense(self.tensors[name]) for name in ("key", "value")]
        for number, step in enumerate(steps):
            arriving = [] if number == len(steps) - 1 else self._passed(block)
            if not number and step is not None:
                self._kernel(step, block, outputs)
            elif step is not None:
                found = [self._like(tensor, step.queries) for tensor in outputs[:2]]
                self._kernel(step, block, [*found, *map(self.draft.twin, outputs[2:])])
                self._merge([self._rows(tensor, step.queries) for tensor in outputs[:2]], found)
            block = arriving
        return self.ops

    def backward(self, steps: Sequence[Block | None]) -> list[Op]:
        """Add up the gradient of the queries here, and those of each block of keys and values as it passes by."""
        query, *own = self.exchange.like.outputs[:3]
        block = [self._dense(self.tensors[name]) for name in ("key", "value")]
        sums: list[int] = []
        for number, step in enumerate(steps):
            arriving = [] if number == len(steps) - 1 else self._passed(block)
            sums = self._passed(sums) if number else sums
            if step is not None:
                found = [self._like(tensor, step.keys) for tensor in own]
                rows = self._like(query, step.queries) if number else query
                self._kernel(step, block, [rows, *found, *map(self.draft.twin, self.exchange.like.outputs[3:])])
                if number:
                    self._add(self._rows(query, step.queries), rows)
                    for tensor, part in zip(sums, found, strict=True):
                        self._add(self._rows(tensor, step.keys), part)
                else:
                    sums = [self._dense(tensor) for tensor in found]
            block = arriving
        for arrived, out in zip(self._passed(sums), own, strict=True):
            self.ops += self.exchange.laid_out(arrived, out)
        return self.ops

    def _dense(self, tensor: int) -> int:
        ops, made = self.exchange.dense(tensor)
        self.ops += ops
        return made

    def _passed(self, tensors: Sequence[int]) -> list[int]:
        """Send ``tensors`` to the next rank, and return what the one before has sent. Ranks of odd number receive
        first, so that no two wait for each other."""
        ring, like, found = self.exchange, self.exchange.like, list[int]()
        for tensor in tensors:
            made, tag = self.draft.fresh(tensor, self.draft.tensors[tensor].shape), self._tag()
            next_one, before = (ring.rank + 1) % ring.ranks, (ring.rank - 1) % ring.ranks
            given = {"tensors": (Hole(tensor),)}
            leaving = self.draft.collective("send", given, ring.group, like=like, dst=next_one, tag=tag)
            given = {"tensors": (Hole(made),)}
            arriving = self.draft.collective("recv_", given, ring.group, like=like, src=before, tag=tag)
            self.ops.append(allocation(self.draft, made, like))
            self.ops += [arriving, leaving] if ring.rank % 2 else [leaving, arriving]
            found.append(made)
        return found

    def _tag(self) -> int:
        """A number for one more message, the same on all ranks."""
        self.exchange.common["tag"] = found = self.exchange.common.get("tag", 0) + 1
        return found

    def _kernel(self, block: Block, keys: Sequence[int], outputs: Sequence[int]) -> None:
        """Attend from some tokens of this rank to some of a block, by the kernel."""
        like = self.exchange.like
        call = self.draft.calls[like.call]
        tensors = self.tensors | dict(zip(("key", "value"), keys, strict=True))
        changed = {"is_causal": block.causal, "max_q": len(block.queries), "max_k": len(block.keys)}
        given = {name: changed.get(name, value) for name, value in call.arguments}
        for name, tensor in tensors.items():
            rows = block.queries if name in _ROWS_OF_QUERIES else block.keys
            given[name] = Hole(self._rows(tensor, rows) if name in (*_ROWS_OF_QUERIES, "key", "value") else tensor)
        made = self.draft.op(call.op, given, outputs, like=like, positional=call.positional, tags=call.tags)
        returns = replace(self.draft.calls[made.call], returns=call.returns)
        self.ops.append(replace(made, call=self.draft.call(returns)))

    def _rows(self, tensor: int, tokens: range) -> int:
        """``tensor``, of which ``tokens`` are a part of the third dimension, as a view."""
        if len(tokens) == self.draft.tensors[tensor].shape[2]:
            return tensor
        op, part = self.exchange.part(tensor, 2, tokens)
        self.ops.append(op)
        return part

    def _like(self, tensor: int, tokens: range) -> int:
        """A new tensor like ``tensor`` for ``tokens``, with its dimensions in the same order in memory."""
        view = self.draft.tensors[tensor]
        shape = (*view.shape[:2], len(tokens), *view.shape[3:])
        order = sorted(range(len(shape)), key=lambda dim: -view.strides[dim])
        strides = dict(zip(order, contiguous([shape[dim] for dim in order]), strict=True))
        made = self.draft.tensors[self.draft.fresh(tensor, shape)]
        return self.draft.tensor(
            Tensor(made.storage, view.dtype, shape, tuple(strides[dim] for dim in range(len(shape))))
        )

    def _add(self, tensor: int, other: int) -> None:
        self._in_place("add_.Tensor", tensor, "other", other)

    def _in_place(self, name: str, tensor: int, operand: str, other: int) -> None:
        given = {"self": Hole(tensor), operand: Hole(other)}
        self.ops.append(self.exchange.make(name, given, tensor))

    def _new(self, name: str, *operands: int) -> int:
        """The result of an op on tensors that are as large as the first one."""
        made = self.draft.fresh(operands[0], self.draft.tensors[operands[0]].shape)
        given = {key: Hole(tensor) for key, tensor in zip(("self", "other"), operands, strict=False)}
        self.ops.append(self.exchange.make(name, given, made))
        return made

    def _merge(self, into: Sequence[int], other: Sequence[int]) -> None:
        """Merge a result and its logsumexp into an earlier one: each is weighted by its share of all exponentials."""
        total = self._new("logaddexp.default", into[1], other[1])
        for result, sums in (into, other):
            share = self._new("exp.default", self._new("sub.Tensor", sums, total))
            if len(self.draft.tensors[share].shape) == 3:
                op, share = self.exchange.column(share)
                self.ops.append(op)
            self._in_place("mul_.Tensor", result, "other", share)
        self._add(into[0], other[0])
        self._in_place("copy_.default", into[1], "src", total)
