"""Tensors used outside of the dispatcher: the program reads them, takes their addresses, and changes their sizes."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from tensortide.run.block import ORDINARY, PENDING, Storage, Value, storage_of
from tensortide.run.evicted import resize
from tensortide.run.sizes import NO_ROOM, Room
from tensortide.run.writers import Handed, add_writer, in_passing

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime


class Access:
    """Makes tensors resident before their bytes are read, and takes note of what may have been written."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.sizing = False
        """True while storages are asked for their sizes alone."""

    def gradient(self, parameter: torch.Tensor) -> None:
        """The gradient of ``parameter`` has come: it is evicted last."""
        gradient = parameter.grad
        if gradient is not None and type(gradient) in ORDINARY and gradient.layout is torch.strided:
            self.runtime.alone(self._gradient, "a gradient", gradient)

    def _gradient(self, _: str, gradient: torch.Tensor) -> None:
        block = self.runtime.storages.value(gradient).block
        self.runtime.engine.gradients.add(block)
        if block.storage != PENDING:
            self.runtime.engine.gradient_made(block.storage)

    def own(self, parameter: torch.nn.Parameter) -> None:
        """``parameter`` is one of a module."""
        if parameter.layout is torch.strided and (value := self._known(storage_of(parameter))) is not None:
            value.block.parameter = True

    def expose(self, tensor: torch.Tensor, *, lasting: bool) -> None:
        """Make ``tensor`` resident before its bytes are read; if ``lasting``, its address is kept, and its bytes may be
        overwritten at once, unseen."""
        runtime = self.runtime
        if runtime.closed or (runtime.interrupts.busy and runtime.engine.recomputing):
            return  # inputs of what is recomputed are resident
        if type(tensor) not in ORDINARY or tensor.layout is not torch.strided or tensor._is_zerotensor():
            return
        if get_ident() == runtime.thread or storage_of(tensor)._cdata in runtime.known:
            runtime.alone(self.make_resident, "reading a tensor", tensor, lasting and not self.sizing)

    def pin(self, tensor: torch.Tensor) -> None:
        """Make ``tensor`` resident, and pin it until the program releases the storage."""

        def pin(_: str) -> None:
            self.runtime.unfilled.used(False, [tensor], ())
            self.runtime.bring(self.runtime.storage(tensor))
            self.runtime.engine.pin(self.runtime.storage(tensor))

        self.runtime.alone(pin, "pinning a tensor")

    @contextlib.contextmanager
    def reading(self, tensor: torch.Tensor, how: Handed) -> Iterator[Callable[[Any], None]]:
        """``expose`` it, and let no op of another thread run while its bytes are read. What is read is given to the
        function."""
        by_op = self.runtime.interrupts.busy
        self.runtime.interrupts.enter()
        try:
            self.expose(tensor, lasting=how is not Handed.NOT)
            yield functools.partial(self._handed_out, tensor, how, by_op)
        finally:
            self.runtime.lock.release()
            self.runtime.interrupts.deliver()

    def _handed_out(self, tensor: torch.Tensor, how: Handed, by_op: bool, given: Any) -> None:
        """Note who may write ``tensor`` from now on: whoever has what was ``given``. Ops do not keep addresses."""
        if how > Handed.NOW:
            with contextlib.suppress(RuntimeError):  # it has no storage
                if (value := self._known(storage_of(tensor))) is not None:
                    self._writer(value, how, by_op, given)

    def _known(self, handle: Storage) -> Value | None:
        return None if self.runtime.closed else self.runtime.known.get(handle._cdata)

    def _writer(self, value: Value, how: Handed, by_op: bool, given: Any) -> None:
        if how is Handed.ARRAY:
            add_writer(value.block, given)
        elif how is Handed.ALWAYS or not (by_op or value.block.parameter or in_passing()):
            add_writer(value.block)

    @contextlib.contextmanager
    def addressing(self, handle: Storage, how: Handed) -> Iterator[None]:
        """As ``reading``, of a storage that the program has."""
        by_op = self.runtime.interrupts.busy
        value = self._known(handle)
        if value is None or by_op or in_passing():
            yield
            return
        self.runtime.interrupts.enter()
        try:
            self.runtime.alone(self._overwritten, "writing a storage", value)
            yield
            self._writer(value, how, by_op, handle)
        finally:
            self.runtime.lock.release()
            self.runtime.interrupts.deliver()

    def make_resident(self, _: str, tensor: torch.Tensor, lasting: bool) -> None:
        """``expose``, while no op is under way."""
        storage = self.runtime.storages.value(tensor).block.storage
        if storage != PENDING and not self.runtime.engine.resident[storage]:
            self.runtime.bring(storage)
        if lasting:
            self.runtime.engine.exposed.add(storage)
            self._overwritten("", self.runtime.storages.value(tensor))
            self.runtime.storages.share(self.runtime.storages.value(tensor).block)

    def _overwritten(self, _: str, value: Value) -> None:
        """Secure what depends on ``value``, which unseen code may overwrite from now on; it stays resident."""
        self.runtime.unfilled.found.pop(value.block.key, None)
        written = self.runtime.storages.with_aliases([value])
        frame = self.runtime.ready(written, [], written, True, NO_ROOM)
        self.runtime.engine.abandon(frame)
        for value in written:
            self.runtime.note_write(value, None, 0, self.runtime.engine.clock_ns)

    def resize(self, handle: Storage, nbytes: int) -> None:
        """Give the storage ``handle`` another size, as the program asks: a write, since contents may be lost."""
        value = None if self.runtime.closed else self.runtime.known.get(handle._cdata)
        if value is None:
            resize(handle, nbytes)
        else:
            self.runtime.alone(functools.partial(self._resize, value), "resizing a storage", nbytes)

    def _resize(self, value: Value, _: str, nbytes: int) -> None:
        block = value.block
        handle = block.bytes()
        made = nbytes if handle.device == self.runtime.device else 0
        frame = self.runtime.ready(
            [value], [], [value], False, Room(max(0, made - block.nbytes), min(made, block.nbytes))
        )
        try:
            resize(handle, nbytes)
        finally:
            self.runtime.engine.abandon(frame)
        self.runtime.engine.ran(0, 0, made)  # PyTorch copies to new bytes
        self.runtime.note_write(value, None, 0, self.runtime.engine.clock_ns)
        self.resized([value])

    def grow(self, tensor: torch.Tensor, source: Any = None, offset: int = 0, size: Any = (), stride: Any = ()) -> None:
        """Prepare the storage ``source`` that ``tensor`` is about to be set to: PyTorch enlarges it where it is too
        small."""
        last = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if stride else math.prod(size) - 1
        nbytes = (offset + last + 1) * tensor.itemsize if size and all(size) else 0
        if nbytes and nbytes > source.nbytes():
            self.resize(source, nbytes)

    def resized(self, written: Sequence[Value]) -> int:
        """An op may have given storages another size; they are not followed any further than that."""
        engine, grown = self.runtime.engine, 0
        self.runtime.promote()
        for value in written:
            block, storage = value.block, value.block.storage
            nbytes = self.runtime.storages.nbytes(block.bytes())
            if nbytes == block.nbytes:
                continue
            grown += max(0, nbytes - block.nbytes)
            engine.memory += nbytes - block.nbytes
            block.nbytes = engine.storage_bytes[storage] = nbytes
            engine.fix(storage)
        engine.peak = max(engine.peak, engine.memory)
        return grown
