"""Ops as a program calls them: the function and its arguments, with holes for the tensors that the Graph has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import Schema
from tensortide.recorder.torch_compat import FakeTensor


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of input number ``number`` of the op, among its arguments."""

    number: int


@dataclass(frozen=True, slots=True)
class Code:
    """The function of an op, and its arguments with a Hole for each input."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class CodeRecorder(Recorder):
    """A Recorder that also keeps the Code of each op it records; ``codes`` has those of ``ops``."""

    def __init__(self, context: Callable[[int], tuple[Any, ...]]) -> None:
        super().__init__(context)
        self.codes: list[Code] = []

    def record(self, func: Any, schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """As the base class."""
        if schema.fresh:  # its input is a constant, which is none of the inputs
            code = Code(func, tuple(map(_constant, args)), {})
        else:
            numbers = itertools.count()
            positional = tuple([_with_holes(arg, numbers) for arg in args])
            code = Code(func, positional, {name: _with_holes(arg, numbers) for name, arg in kwargs.items()})
        result = super().record(func, schema, args, kwargs)
        self.codes.append(code)
        return result


def _with_holes(value: Any, numbers: Iterator[int]) -> Any:
    """``value`` with a Hole for each tensor, in the order in which the recorder counts inputs."""
    if isinstance(value, torch.Tensor):
        return Hole(next(numbers))
    if isinstance(value, list | tuple):
        return [_with_holes(item, numbers) for item in value]
    return value


def _constant(value: Any) -> Any:
    return value.constant if isinstance(value, FakeTensor) else value
