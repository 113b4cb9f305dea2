"""The fake-tensor mode of a step on a pretended GPU, and what must be installed around it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from tensortide.errors import CaptureError
from tensortide.memory.allocators import allocator_of
from tensortide.recorder import gpu_arguments
from tensortide.recorder.cuda_kernels import ASSUMED, SHAPES, chosen_kernels
from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.known import KNOWN_NUMEL, forgotten
from tensortide.recorder.pretended import CPU, META, Gpu, asked_by_engine, pretended, with_true_device
from tensortide.recorder.pretended_devices import CUDA
from tensortide.recorder.readings import Number
from tensortide.recorder.remedies import without_gpu
from tensortide.recorder.standins import is_constant
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import (
    DeviceContext,
    FakeTensor,
    MetaConverter,
    UnsupportedOperatorException,
    allocator_settings,
    by_op,
)
from tensortide.recorder.triton_launches import recorded_launches
from tensortide.timing import DEFAULT_DEVICE
from tensortide.timing import device as catalogued

_NO_KERNEL = "CUDA' backend"


class _Moved(MetaConverter):  # type: ignore[type-arg]  # before 2.6 it takes none
    """Describes tensors as if they were elsewhere: those on the devices ``of`` as on the device ``to``."""

    def __init__(self, to: torch.device, *of: torch.device) -> None:
        super().__init__()
        self.to, self.of = to, of

    def __call__(self, t: torch.Tensor, *args: Any, callback: Any = None, **kwargs: Any) -> Any:
        """As the base class."""

        def placed(make: Any, device: Any) -> Any:
            return callback(make, self.to if torch.device(device) in self.of else device)

        return super().__call__(t, *args, callback=placed, **kwargs)


class _Placed(DeviceContext):
    """Default device of a program that is moved to the GPU; optimizers still keep their counters on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the base class."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == _ARGUMENTS:  # another mode, which has passed it on
            frame = frame.f_back
        if frame is not None and frame.f_code.co_filename.startswith(_OPTIMIZERS):
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


def _autocast_of_gpu(init: Callable[..., None]) -> Callable[..., None]:
    def on_gpu(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any) -> None:
        restored = sys._getframe(1).f_code.co_filename == _CHECKPOINT  # a checkpoint restores that of each device
        if device_type == "cpu" and not restored:
            device_type, dtype = "cuda", dtype or torch.get_autocast_dtype("cpu")
        init(self, device_type, dtype, *args, **kwargs)

    return on_gpu


_ARGUMENTS = gpu_arguments.__file__
_OPTIMIZERS = str(Path(torch.optim.__file__).parent)
_CHECKPOINT = str(Path(torch.__file__).parent / "utils" / "checkpoint.py")


class CudaFakeMode(StepFakeMode):
    """Fake tensors for a training step on ``gpu``."""

    avoid_device_init = True

    def __init__(self, gpu: Gpu, assume: Mapping[str, Number] | None = None, *, script: bool = False) -> None:
        super().__init__(assume, without_gpu(script=script))
        self.gpu, self.machine = gpu, gpu.name
        self.moves_to_gpu = False
        # A model on the device meta is one that nobody has allocated yet: it will be where the others are.
        self._to_cpu, self._to_gpu = _Moved(CPU, META), _Moved(torch.device("cuda"), CPU, META)
        self._known = _Moved(torch.device("cuda"), CPU, META)
        self._on_gpu: torch.device | None = None
        """The GPU while an op runs whose results are on it."""

    def reported_device(self, fake: FakeTensor, frame: FrameType | None) -> torch.device:
        """As the base class, but the autograd engine is told that there is no GPU."""
        return CPU if fake.fake_device.type == "cuda" and asked_by_engine(frame) else fake.fake_device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the base class, with the devices that the autograd engine would have used."""
        kwargs = kwargs or {}
        if "device" in kwargs:
            kwargs = with_true_device(func, args, kwargs)
        return self.run_op(func, types, args, kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave out the compiler's wrapper, which costs microseconds per op: no step on a pretended GPU is compiled."""
        return False

    def worked_out(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """As the base class, with the shapes of kernels that only CUDA has."""
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}  # pinned or not, it is memory of the host
        if func in ASSUMED:
            self.answered.add(ASSUMED[func])
        if func in SHAPES:
            with self:
                return SHAPES[func](*args, **kwargs)
        kwargs, hidden, on_gpu = _values_of(func, args, kwargs)
        before, self._on_gpu = self._on_gpu, on_gpu
        try:
            with forgotten(*hidden) if hidden else contextlib.nullcontext():
                return super().worked_out(func, types, args, kwargs)
        except NotImplementedError as error:
            if _NO_KERNEL not in str(error):
                raise
            raise UnsupportedOperatorException(func) from error  # PyTorch would run the op on zeros
        finally:
            self._on_gpu = before

    def placed(self) -> contextlib.AbstractContextManager[None]:
        """As the base class."""
        if self._on_gpu is None:
            return contextlib.nullcontext()
        self._known.to = self._on_gpu
        return replaced(self.fake_tensor_converter, "meta_converter", self._known)

    def lacks_gpu(self, tensors: Iterable[torch.Tensor]) -> bool:
        """As the base class."""
        return not any(tensor.is_cuda for tensor in tensors)

    @contextlib.contextmanager
    def all_on_gpu(self) -> Iterator[None]:
        """Have what names no device on the GPU: new tensors, and those of the user's that get a stand-in.

        Autocasting of the CPU is that of the GPU, with the same dtype.
        """
        self.moves_to_gpu = True
        with _Placed(CUDA), replaced(torch.autocast, "__init__", _autocast_of_gpu(torch.autocast.__init__)):
            yield

    def stand_in(self, replace: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        """Wrap ``replace``, which makes stand-ins of the user's tensors: on the GPU, once everything is moved there."""

        def placed(value: torch.Tensor) -> torch.Tensor:
            if is_constant(value):
                return replace(value)
            moved = self._to_gpu if self.moves_to_gpu else self._to_cpu
            with replaced(self.fake_tensor_converter, "meta_converter", moved):
                return replace(value)

        return placed

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Have the GPU there, and its kernels chosen."""
        with (
            super().installed(),
            pretended(self.gpu, self, self.remarks.add),
            chosen_kernels(self.gpu),
            recorded_launches(self.remarks.add),
            replaced(FakeTensor, "data", property(_DATA.__get__, _set_data)),
        ):
            yield

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[None]:
        """As the base class."""
        with gpu_arguments.Numbered(), super().in_thread():
            yield


_DATA: Any = torch.Tensor.data


def _set_data(fake: FakeTensor, value: torch.Tensor) -> None:
    """Exchange what a tensor holds: it is then where ``value`` is."""
    _DATA.__set__(fake, value)
    if isinstance(value, FakeTensor):
        fake.fake_device = value.fake_device


def _values_of(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], Sequence[FakeTensor], torch.device | None]:
    """Prepare an op on known values, which are computed on the CPU wherever their tensors are.

    Returns its keyword arguments, the tensors whose values must be forgotten because the op could not be computed or
    would fail on a GPU, and the GPU that its results are on (None: they are on none).
    """
    fakes = [each for each in _leaves((*args, *kwargs.values())) if isinstance(each, FakeTensor)]
    near = [each for each in fakes if each.fake_device.type == "cuda"]
    device = kwargs.get("device") or next((each for each in args if isinstance(each, torch.device)), None)
    gpu = device if device is not None and device.type == "cuda" else None
    if device is None and near:
        gpu = near[0].fake_device
    if not fakes or any(each.constant is None for each in fakes):
        return kwargs, (), gpu
    if device is not None and device.type == "cuda":
        small = func is _TO_COPY and args[0].numel() <= KNOWN_NUMEL
        if "device" not in kwargs or (not small and len(near) < len(fakes)):
            return kwargs, fakes, gpu
        return {name: value for name, value in kwargs.items() if name != "device"}, (), gpu
    elsewhere = (
        any(each.dim() for each in fakes if each.fake_device.type != "cuda") if near and func is not _COPY else False
    )
    return kwargs, fakes if elsewhere else (), gpu


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


_TO_COPY, _COPY = by_op({"aten._to_copy.default": None, "aten.copy_.default": None})


def pretended_gpu(device: str | None, machine: str | None, real: bool | None = None) -> Gpu | None:
    """The GPU to pretend for a capture on ``device`` of ``machine``; None to pretend none.

    Raises CaptureError for a device other than ``cpu`` or ``cuda``, for one that the machine does not have, and if
    ``real`` tensors are asked for as well; TensortideError for a machine that is not in the catalogue.
    """
    row = None if machine is None else catalogued(machine)
    wanted = device or ("cpu" if row is None or row.kind != "gpu" else "cuda")
    if wanted not in ("cpu", "cuda", "cuda:0"):
        raise CaptureError(f"a step is captured on cpu or cuda, not on {wanted!r}")
    if real and (device is not None or machine is not None):
        raise CaptureError("real tensors are where the workload puts them: --real excludes --device and --machine")
    return None if wanted == "cpu" else Gpu.of(row or catalogued(DEFAULT_DEVICE))


def allocator_name(mode: StepFakeMode | None) -> str:
    """The name of the allocator that the program has for a GPU. On a pretended one ``mode`` is told which of its
    settings are not modelled."""
    try:
        name, others = allocator_of(allocator_settings())
    except ValueError as error:
        if not isinstance(mode, CudaFakeMode):  # no GPU is asked for
            return "cuda"
        said = str(error).partition("\n")[0]
        raise CaptureError(
            f"PyTorch does not accept the settings of its allocator (PYTORCH_ALLOC_CONF): {said}"
        ) from None
    if others and isinstance(mode, CudaFakeMode):
        mode.answered.add(f"the allocator's settings {others} are not modelled")
    return name
