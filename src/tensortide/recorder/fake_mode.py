"""The fake-tensor mode of a capture: PyTorch's, with answers to the few questions that training steps ask of values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
)

from tensortide.recorder.context import is_internal

_DEVICE = torch.ops.prim.device.default
_SCALAR = torch.ops.aten._local_scalar_dense.default
_META = torch.device("meta")

_UNPADDED = "attention masks hide nothing: no padding, one sequence per row"
ANSWERS: dict[str, tuple[float, str]] = {
    "torch/amp/grad_scaler.py": (0.0, "the gradient scaler finds no overflow"),
    "torch/nn/init.py": (0.0, ""),
    "transformers/masking_utils.py": (1.0, _UNPADDED),
    "transformers/modeling_attn_mask_utils.py": (1.0, _UNPADDED),
    "transformers/modeling_utils.py:warn_if_padding_and_no_attention_mask": (0.0, _UNPADDED),
}
"""Code that may ask for a value (the end of the file's name, perhaps a function), the answer, and the assumption in it.

The check whether a random initial value must be drawn again is among them; the values do not matter, so neither does
the answer.
"""


class UnreachableParameter(RuntimeError):
    """The step uses a parameter that no walk from the step leads to, so nothing stands for it."""


class _Converter(FakeTensorConverter):
    """Forgets each fake result at once: a remembered parameter could not be moved to another dtype or device."""

    def from_meta_and_device(self, fake_mode: FakeTensorMode, t: torch.Tensor, *rest: Any, **named: Any) -> FakeTensor:
        """As the base class."""
        fake = super().from_meta_and_device(fake_mode, t, *rest, **named)
        described = self.meta_converter.describer.get_tensor_id(t)
        self.tensor_memo.pop(described, None)
        return fake


class StepFakeMode(FakeTensorMode):
    """Fake tensors for a training step. ``assumptions`` are the answers it gave, for the reader of the Graph."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.fake_tensor_converter = _Converter()
        self.assumptions: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the base class, but the question for a tensor's device, over half of all calls, is answered at once."""
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return device_of(args[0])
        return super().__torch_dispatch__(func, types, args, kwargs or {})

    def validate_and_convert_non_fake_tensors(self, func: Any, converter: Any, flat_args: Any, args_spec: Any) -> Any:
        """As the base class, but a parameter of the user's stays out: backward would give it fake gradients."""
        for value in flat_args if torch.is_grad_enabled() else ():
            if type(value) in (torch.Tensor, torch.nn.Parameter) and value.requires_grad and value.is_leaf:
                raise UnreachableParameter(f"{str(value.dtype)[6:]}{list(value.shape)}")
        return super().validate_and_convert_non_fake_tensors(func, converter, flat_args, args_spec)

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the base class, except for values that can be answered and ops with a shape function of our own."""
        if func in SHAPES:
            with self:
                return SHAPES[func](*args, **(kwargs or {}))
        try:
            return super().dispatch(func, types, args, kwargs)
        except DataDependentOutputException:
            answer = _answer(sys._getframe(1)) if func is _SCALAR else None
            if answer is None:
                raise
            value, assumption = answer
            if assumption:
                self.assumptions.add(assumption)
            return _as(args[0].dtype, value)


def _as(dtype: torch.dtype, value: float) -> bool | int | float:
    if dtype == torch.bool:
        return bool(value)
    return value if dtype.is_floating_point else int(value)


def _answer(frame: FrameType | None) -> tuple[float, str] | None:
    """Answer for the code that asks for a value: the first user frame and the framework's frames below it."""
    while frame is not None:
        filename = frame.f_code.co_filename
        for ending, answer in ANSWERS.items():
            if filename.endswith(ending) or f"{filename}:{frame.f_code.co_name}".endswith(ending):
                return answer
        if not is_internal(filename) and frame.f_code.co_name != "__torch_dispatch__":
            return None
        frame = frame.f_back
    return None


def device_of(fake: FakeTensor) -> torch.device:
    """The device a fake tensor stands on: the meta device while its own kernel runs."""
    return _META if fake.fake_mode.in_kernel_invocation else fake.fake_device


def _grouped_mm(
    first: torch.Tensor,
    second: torch.Tensor,
    offsets: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Products of groups of rows: (T,K)(G,K,N), (G,M,K)(G,K,N), (M,T)(T,N) or (G,M,K)(K,T), in any dtype.

    PyTorch's own shape function takes bfloat16 only. On CUDA rows are padded to 16 bytes.
    """
    del bias
    rows, columns = first.shape[-2], second.shape[-1]
    groups = {(2, 2): () if offsets is None else (offsets.shape[0],), (3, 3): (first.shape[0],)}
    shape = (*groups.get((first.dim(), second.dim()), ()), rows, columns)
    dtype = out_dtype or first.dtype
    unit = 16 // dtype.itemsize if first.device.type == "cuda" else 1
    row = -(-columns // unit) * unit
    strides = (rows * row, row, 1)[-len(shape) :]
    return torch.empty_strided(shape, strides, dtype=dtype, device=first.device)


SHAPES: dict[Any, Callable[..., Any]] = {torch.ops.aten._grouped_mm.default: _grouped_mm}
"""Ops whose fake kernel refuses what the real one takes."""
