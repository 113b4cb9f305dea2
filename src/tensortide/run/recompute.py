"""Calls that have run and can be recomputed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensortide.run.block import Value
from tensortide.run.template import Hole, Storage, Template, storage_of, tensors_of, thawed

_ABOVE = torch._C.DispatchKey.Functionalize
"""A key like autograd and autocast: the handlers of dispatch modes run with all of these off already."""


class Recomputable:
    """A call with everything that its results depend on: arguments, and the state of the generators it drew from."""

    __slots__ = (
        *("args", "cost_ns", "count", "fresh", "func", "generators", "gradients", "held", "inputs", "kwargs"),
        *("nbytes", "number", "parts", "sums", "workspace_bytes"),
    )

    def __init__(
        self, func: Any, args: Template, kwargs: dict[str, Template], inputs: Sequence[Value | None], number: int
    ) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.inputs = inputs
        """Value of each tensor argument; None where the result does not depend on it."""
        self.number = number
        """Position among all ops of the program."""
        self.cost_ns = self.nbytes = self.workspace_bytes = 0
        """Duration; bytes that it allocated; bytes of its workspace."""
        self.gradients = torch.is_grad_enabled()  # kernels of recurrent layers return more if so
        self.sums = False
        """True for the sum of two gradients that autograd makes."""
        self.generators: Sequence[tuple[torch.Generator, torch.Tensor]] = ()
        self.fresh: Sequence[tuple[int, int]] = ()
        """Place of each result that owns a new storage, and the engine's value for it."""
        self.held: Sequence[Storage] = ()
        """Inputs that cannot be recomputed, until the call is reported to the engine."""
        self.count = 0
        """Number of tensors of a call that does the same to each of several; else 0."""
        self.parts: dict[int, Recomputable] | None = None

    def part(self, index: int) -> Recomputable:
        """The part of a call for several tensors that works on number ``index``: it depends on its own inputs only."""
        if self.parts is None:
            self.parts = {}
        found = self.parts.get(index)
        if found is None:
            inputs: list[Value | None] = []
            args = [self._part(value, index, inputs) for value in self.args]
            kwargs = {name: self._part(value, index, inputs) for name, value in self.kwargs.items()}
            found = self.parts[index] = Recomputable(self.func, args, kwargs, inputs, self.number)
            found.cost_ns, found.gradients, found.held = self.cost_ns // self.count, self.gradients, self.held
            found.workspace_bytes = self.workspace_bytes
        return found

    def _part(self, template: Template, index: int, inputs: list[Value | None]) -> Template:
        if isinstance(template, Hole):
            inputs.append(self.inputs[template.place])
            return template._replace(place=len(inputs) - 1)
        if isinstance(template, (list, tuple)):
            some = template[index : index + 1] if len(template) == self.count else template
            return type(template)([self._part(item, index, inputs) for item in some])
        return template

    def recompute(self, clock: Callable[[], int]) -> tuple[dict[int, Any], int]:
        """Run the call: the new storage of each value that it allocates, and the time of the kernel alone by ``clock``,
        as the first run was timed."""
        storages = [value.block.bytes() if value is not None else None for value in self.inputs]
        now = [(generator, generator.get_state()) for generator, _ in self.generators] if self.generators else ()
        gradients = torch.is_grad_enabled()
        try:
            for generator, state in self.generators:
                generator.set_state(state)
            if gradients != self.gradients:
                torch._C._set_grad_enabled(self.gradients)
            if torch._C._dispatch_tls_is_dispatch_key_excluded(_ABOVE):
                result, cost_ns = self._run(storages, clock)
            else:
                with (
                    torch._C._DisableAutocast(),
                    torch._C._AutoDispatchBelowAutograd(),
                    torch._C._DisableTorchDispatch(),
                ):
                    result, cost_ns = self._run(storages, clock)
        finally:
            if gradients != self.gradients:
                torch._C._set_grad_enabled(gradients)
            for generator, state in now:
                generator.set_state(state)
        results = (result,) if type(result) is torch.Tensor else tensors_of((result,))
        return {value: storage_of(results[place]) for place, value in self.fresh}, cost_ns

    def _run(self, storages: Sequence[Storage | None], clock: Callable[[], int]) -> tuple[Any, int]:
        args = [thawed(value, storages) for value in self.args]
        kwargs = {name: thawed(value, storages) for name, value in self.kwargs.items()} if self.kwargs else self.kwargs
        kernel = self.func._op
        began = clock()
        result = kernel(*args, **kwargs)
        return result, clock() - began
