"""Ops that are made of other ops, and reach a dispatch mode whole in inference mode."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import DispatchKey, has_kernel
from tensortide.run.block import tensors_of
from tensortide.run.torch_compat import WithKeys, excluded_keys, included_keys

if TYPE_CHECKING:
    from tensortide.recorder.recorder import Mode

_AUTOCAST = {"cpu": DispatchKey.AutocastCPU, "cuda": DispatchKey.AutocastCUDA}


class Composites:
    """Runs such ops one by one, in the surroundings of an ordinary run.

    A dispatch mode is entered with autograd, views and autocast switched off. In these surroundings a composite op
    takes other ways than by itself: ``matmul`` asks whether a view of a parameter needs gradients, and the layers
    inside a recurrent one are cast by autocast.
    """

    def __init__(self) -> None:
        with torch.inference_mode():
            self._excluded = excluded_keys()
        for key in _AUTOCAST.values():
            self._excluded = self._excluded.add(key)
        self._casts = {device: torch.is_autocast_enabled(device) for device in _AUTOCAST}

    @contextlib.contextmanager
    def autocast_seen(self) -> Iterator[None]:
        """Know whether autocast is on: inside of a mode it never is."""
        original = torch.set_autocast_enabled

        @functools.wraps(original)
        def switched(*args: Any) -> None:
            original(*args)
            self._casts.update({device: torch.is_autocast_enabled(device) for device in _AUTOCAST})

        with replaced(torch, "set_autocast_enabled", switched):
            yield

    def run(self, mode: Mode, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run the ops that ``func`` is made of under ``mode``."""
        excluded = self._excluded
        for device, key in _AUTOCAST.items():
            if self._casts[device] and not has_kernel(func.name(), key):
                excluded = excluded.remove(key)
        with mode, WithKeys(included_keys(), excluded):
            return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def all_strided(values: Sequence[Any]) -> bool:
    """True if the tensors among ``values`` are not sparse, nested or quantized, which have kernels of their own."""
    return all(t.layout is torch.strided and not (t.is_nested or t.is_quantized) for t in tensors_of(values))
