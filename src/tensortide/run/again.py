"""An op that was run, and can be run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensortide.run.template import Storage, Template, storage_of, tensors_of, thawed


class Again:
    """A call with everything that its results depend on: arguments, and the state of the generators it drew from."""

    __slots__ = ("args", "bytes_of", "fresh", "func", "generators", "gradients", "inputs", "kwargs")

    def __init__(
        self,
        func: Any,
        args: Template,
        kwargs: dict[str, Template],
        inputs: list[int],
        bytes_of: Callable[[int], Storage],
    ) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.inputs = inputs
        """For each tensor of the arguments the storage of the engine; negative if its contents do not matter."""
        self.bytes_of = bytes_of
        self.gradients = torch.is_grad_enabled()  # kernels of recurrent layers return more if so
        self.generators: Sequence[tuple[torch.Generator, torch.Tensor]] = ()
        self.fresh: Sequence[tuple[int, int]] = ()
        """Places of results that own a new storage, and the value that it is."""

    def again(self) -> dict[int, Any]:
        """Run it: the new storage of each value that it allocates."""
        storages = [self.bytes_of(storage) if storage >= 0 else None for storage in self.inputs]
        now = [(generator, generator.get_state()) for generator, _ in self.generators]
        gradients = torch.is_grad_enabled()
        try:
            for generator, state in self.generators:
                generator.set_state(state)
            if gradients != self.gradients:
                torch._C._set_grad_enabled(self.gradients)
            with torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
                args = thawed(self.args, storages)
                kwargs = {name: thawed(value, storages) for name, value in self.kwargs.items()}
                results = tensors_of([self.func(*args, **kwargs)])
        finally:
            if gradients != self.gradients:
                torch._C._set_grad_enabled(gradients)
            for generator, state in now:
                generator.set_state(state)
        return {value: storage_of(results[place]) for place, value in self.fresh}
