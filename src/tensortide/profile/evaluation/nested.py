"""Tensors in nested containers: batches, arguments and outputs of models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch


def mapped(function: Callable[[Any, str], Any], value: Any, path: str = "") -> Any:
    """``value`` with each leaf of its tuples, lists and mappings replaced by ``function`` of the leaf and its path."""
    if isinstance(value, Mapping):
        return {key: mapped(function, item, f"{path}[{key!r}]") for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [mapped(function, item, f"{path}[{i}]") for i, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return function(value, path)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in ``value``: in tuples, lists, mappings and dataclasses, however deep."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors(getattr(value, field.name))


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor | None:
    """Copy an array into a tensor, whatever its layout; None if tensors have no such dtype."""
    try:
        return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
    except TypeError:
        return None


def placed(value: Any, device: torch.device | None) -> Any:
    """``value`` with its tensors on a device (None: where they are), NumPy arrays as tensors if they are numbers."""

    def place(leaf: Any, path: str) -> Any:
        del path
        if isinstance(leaf, np.ndarray):
            tensor = tensor_of(leaf)
            leaf = leaf if tensor is None else tensor
        return leaf.to(device) if device is not None and callable(getattr(leaf, "to", None)) else leaf

    if not isinstance(value, torch.Tensor) and callable(getattr(value, "to", None)):
        return place(value, "")  # a container with a method of its own: packed sequences, encoded texts
    return mapped(place, value)
