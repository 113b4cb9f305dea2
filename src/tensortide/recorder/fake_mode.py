"""The fake-tensor mode of a capture: PyTorch's, with stand-ins for values that a step reads, and corrections where fake
tensors behave unlike real ones."""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from tensortide.recorder import packed, sparse
from tensortide.recorder.code_paths import is_internal
from tensortide.recorder.engine_calls import engine_called_by_pytorch
from tensortide.recorder.fake_fixes import FIXES
from tensortide.recorder.fake_results import Results
from tensortide.recorder.fake_shapes import SHAPES
from tensortide.recorder.known import KNOWN_NUMEL, SIZED, constant, forgotten, of_numbers, unneeded
from tensortide.recorder.lazy import lazy_modules
from tensortide.recorder.lists_of_tensors import made_of_lists
from tensortide.recorder.pretended import CPU, asked_by_engine
from tensortide.recorder.readable import readable
from tensortide.recorder.readings import Finding, Number, ReadSite, Sentences, sentences
from tensortide.recorder.remedies import FAKE, Remedy
from tensortide.recorder.saving import nothing_saved
from tensortide.recorder.schema import eager_body
from tensortide.recorder.scripted import scripted
from tensortide.recorder.storages import SETS, Storages
from tensortide.recorder.subclasses import fake_subclasses
from tensortide.recorder.surroundings import replaced, replaced_in
from tensortide.recorder.threads import threads_in
from tensortide.recorder.torch_compat import (
    FOREACH_TYPES,
    LOCAL_SCALAR,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    HigherOrderOperator,
    OpOverload,
    nested_int,
)
from tensortide.recorder.value_rules import follow
from tensortide.recorder.values import Values, typed
from tensortide.recorder.wrapper_devices import device_of_wrapper

_DEVICE = torch.ops.prim.device.default
_EQUALITY = (torch.ops.aten.equal.default, torch.ops.aten.allclose.default)
_EMPTY = torch.ops.aten.empty.memory_format
_META = torch.device("meta")

_NO_OVERFLOW, _SCALE = "the gradient scaler finds no overflow", "the gradient scaler's scale is 65536"
_UNPADDED = "attention masks hide nothing: no padding, one sequence per row"
ANSWERS: dict[str, tuple[float, str]] = {
    "torch/amp/grad_scaler.py:get_scale": (65536.0, _SCALE),
    "torch/amp/grad_scaler.py": (0.0, _NO_OVERFLOW),
    "deepspeed/runtime/utils.py:overflow_gpu": (0.0, _NO_OVERFLOW),
    "deepspeed/runtime/zero/stage3.py:overflow_gpu": (0.0, _NO_OVERFLOW),
    "deepspeed/runtime/zero/stage_1_and_2.py:overflow_gpu": (0.0, _NO_OVERFLOW),
    "torch/nn/init.py": (0.0, ""),
    "torch/optim/lbfgs.py:gtd > -tolerance_change": (0.0, "L-BFGS finds a direction that descends"),
    "transformers/masking_utils.py": (1.0, _UNPADDED),
    "transformers/modeling_attn_mask_utils.py": (1.0, _UNPADDED),
    "transformers/modeling_utils.py:warn_if_padding_and_no_attention_mask": (0.0, _UNPADDED),
}
"""Library code that reads a value (end of the file name, optionally ``:`` and a function or part of the line), with the
answer it gets and the assumption behind it.

An empty assumption marks an answer that cannot matter: ``torch.nn.init`` only checks whether to draw a random initial
value again.
"""


class UnreachableParameter(RuntimeError):
    """The step uses a parameter that cannot be reached from it by walking objects, so it has no stand-in."""


class Converter(FakeTensorConverter):
    """Forgets each fake tensor at once: a remembered parameter could not be moved to another dtype or device."""

    def from_meta_and_device(self, fake_mode: FakeTensorMode, t: torch.Tensor, *rest: Any, **named: Any) -> FakeTensor:
        """As the base class."""
        fake = super().from_meta_and_device(fake_mode, t, *rest, **named)
        described = self.meta_converter.describer.get_tensor_id(t)
        self.tensor_memo.pop(described, None)
        return fake

    def from_real_tensor(
        self, fake_mode: FakeTensorMode, t: torch.Tensor, make_constant: bool = False, *rest: Any, **named: Any
    ) -> FakeTensor:
        """As the base class; a result whose values are known is forgotten, too, and stands where the mode says."""
        with fake_mode.placed() if make_constant and isinstance(fake_mode, StepFakeMode) else contextlib.nullcontext():
            fake = super().from_real_tensor(fake_mode, t, make_constant, *rest, **named)
            if make_constant:
                self.tensor_memo.pop(self.meta_converter.describer.get_tensor_id(t), None)
        return fake


class StepFakeMode(FakeTensorMode):
    """Fake tensors for a training step. ``answered`` collects the assumptions made, ``values`` has the stand-ins."""

    supports_higher_order_operators = True
    machine = ""
    """Name of the pretended GPU in the catalogue, if there is one."""

    def __init__(self, assume: Mapping[str, Number] | None = None, remedy: Remedy = FAKE) -> None:
        self._entered = threading.local()
        super().__init__(allow_non_fake_inputs=True)
        self.fake_tensor_converter = Converter()
        self.values = Values(assume, remedy)
        self.remedy = remedy
        self.answered: set[str] = set()
        self.remarks: set[str] = set()
        """What was assumed besides, and changes no op of the step."""
        self.unwritten = 0
        """Calls that wrote no file."""
        self.promised: torch.Tensor | None = None
        """Values of the tensor that is allocated next, where a kernel writes them."""
        self._inside = False
        self._storages = Storages()
        self._results = Results(self)
        self._turn = threading.RLock()
        """Held while an op runs: its kernel sees other devices, also in other threads."""

    @property
    def enter_stack(self) -> list[Any]:
        """States to return to, which are those of a thread."""
        states: list[Any] = vars(self._entered).setdefault("states", [])
        return states

    @enter_stack.setter
    def enter_stack(self, states: list[Any]) -> None:
        vars(self._entered)["states"] = states

    def __deepcopy__(self, memo: dict[int, Any]) -> StepFakeMode:
        """Return the mode itself: tensors of a copied mode would get a new storage in every op."""
        del memo
        return self

    def _wrote_nothing(self, said: str) -> None:
        self.remarks.add(said)
        self.unwritten += 1

    def assumptions(self, findings: Mapping[ReadSite, Finding] | None = None) -> Sentences:
        """Tell what was assumed, and on what the ops of the step depend, or may depend, by ``findings`` on values."""
        said = sentences(self.values.readings.values(), findings or {})
        every = [*sorted(self.answered | self.remarks), *said.every, *self.values.remarks()]
        return Sentences(every, [*sorted(self.answered), *said.decisive], said.untested)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the base class."""
        return self.run_op(func, types, args, kwargs or {})

    def run_op(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an op, but answer the query for a tensor's device, over half of all calls, at once."""
        with self._turn:
            if func is _DEVICE and (known := device_of(args[0])) is not None:
                return known
            return self.dispatch(func, types, args, kwargs)

    def validate_and_convert_non_fake_tensors(self, func: Any, converter: Any, flat_args: Any, args_spec: Any) -> Any:
        """As the base class, but refuses a parameter of the user's, to which backward would give fake gradients."""
        for value in flat_args if torch.is_grad_enabled() else ():
            if type(value) in (torch.Tensor, torch.nn.Parameter) and value.requires_grad and value.is_leaf:
                raise UnreachableParameter(f"{str(value.dtype)[6:]}{list(value.shape)}")
        return super().validate_and_convert_non_fake_tensors(func, converter, flat_args, args_spec)

    def create_symbolic_nested_int(self, *, nt_tensor_id: int | None = None) -> Any:
        """As the base class, but a ragged length as it is outside of tracing: equal to itself alone."""
        if nt_tensor_id is None:
            nt_tensor_id, self.nt_tensor_id_counter = self.nt_tensor_id_counter, self.nt_tensor_id_counter + 1
        return nested_int(nt_tensor_id, 1)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Have everything there that the mode needs around it."""
        with (
            nothing_saved(self._wrote_nothing),
            packed.readable_sizes(),
            scripted(),
            threads_in(self, self.in_thread),
            engine_called_by_pytorch(),
        ):
            yield

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[None]:
        """Be active in another thread, as in the program's first one."""
        with torch.autograd.set_multithreading_enabled(False), self:
            yield

    def stand_in(self, replace: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        """Wrap ``replace``, which makes stand-ins of the user's tensors, so that they are on the right device."""
        return replace

    def lacks_gpu(self, tensors: Iterable[torch.Tensor]) -> bool:
        """True if the step is to run on a GPU, and none of ``tensors`` is there."""
        del tensors
        return False

    def all_on_gpu(self) -> contextlib.AbstractContextManager[None]:
        """Have what names no device on the pretended GPU."""
        return contextlib.nullcontext()

    def placed(self) -> contextlib.AbstractContextManager[None]:
        """Have tensors of known values made where the op that runs makes its results."""
        return contextlib.nullcontext()

    def reported_device(self, fake: FakeTensor, frame: FrameType | None) -> torch.device:
        """The device of ``fake``, as reported to the code at ``frame``."""
        del frame
        return fake.fake_device

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the base class, but makes results anew that were returned for the same layouts before."""
        kwargs = kwargs or {}
        if type(func) is OpOverload:
            if func.namespace == "profiler":
                return func(*args, **kwargs)
            if not _KINDS.issuperset(types) and any(map(_runs_itself, types)):
                return NotImplemented
        call = None if self.promised is not None else self._results.call(func, args, kwargs)
        if call is None:
            return self.worked_out(func, types, args, kwargs)
        result = self._results.of(call)
        if result is NotImplemented:
            result = self.worked_out(func, types, args, kwargs)
            self._results.learn(call, result)
        elif not self._inside:
            follow(func, self.values, args, kwargs, result)
        return result

    def worked_out(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an op as the base class does, with known values of small constants, stand-ins for values that are read,
        and shape functions of our own for a few ops."""
        run = eager_body(func) if isinstance(func, HigherOrderOperator) else SHAPES.get(func)
        if run is not None:
            with self:
                return run(*args, **kwargs)
        if func in SETS and args[1].device.type != "meta":
            with replaced(self, "cache_enabled", False):  # the cache would keep the storage
                return super().dispatch(func, types, (args[0], self._storages.stand_in(args[1]), *args[2:]), kwargs)
        known = of_numbers(self, func, args, kwargs)
        if (known := self._of_parts(func, args) if known is None else known) is not None:
            return known
        outermost, self._inside = not self._inside, True
        try:
            with forgotten(*unneeded(self, func, args)):
                result = super().dispatch(func, types, args, kwargs)
        except DataDependentOutputException:
            return self._value(func, args)
        except DynamicOutputShapeException:
            size = self.values.size()
            if size is None or func not in SIZED:
                raise
            with self:
                return SIZED[func](size, *args, **kwargs)
        finally:
            self._inside = not outermost
        if result is NotImplemented:  # a tensor of another class runs the op itself
            return result
        if sparse.any_sparse(result):
            with self:
                sparse.follow(func, args, result)
        known = self.promised if func is _EMPTY else constant(func, args, kwargs, result)
        if known is not None:
            return self.fake_tensor_converter.from_real_tensor(self, known, make_constant=True)
        if outermost:  # not part of the decomposition of another op
            if func in FIXES:
                with self:
                    result = FIXES[func](args, result)
            follow(func, self.values, args, kwargs, result)
        return result

    def _of_parts(self, func: Any, args: Sequence[Any]) -> Any:
        """The result of ``func`` computed from the parts of a sparse tensor; None for an op that is not."""
        part = sparse.asked(func, args)
        if part is not None or func not in sparse.DENSE:
            return part
        with self:
            return sparse.dense(func, args)

    def _value(self, func: Any, args: Sequence[Any]) -> Number:
        """The value that ``func`` reads: the answer for known library code, else a stand-in."""
        if func in _EQUALITY:
            return self.values.equal(*args[:2])
        if func is not LOCAL_SCALAR:
            raise DataDependentOutputException(func)
        answer = _answer(sys._getframe(1))
        if answer is None:
            return self.values.read(args[0])
        value, assumption = answer
        if assumption:
            (self.remarks if assumption in (_NO_OVERFLOW, _SCALE) else self.answered).add(assumption)
        return typed(args[0].dtype, value)

    def may_turn_const(self, t: torch.Tensor) -> bool:
        """As the base class, but also for tensors of several elements."""
        fits = t.numel() <= KNOWN_NUMEL and t.layout == torch.strided
        return fits and not self.is_our_fake(t) and t.device.type != "meta"

    def invalidate_written_to_constants(
        self, func: Any, flat_arg_fake_tensors: Sequence[FakeTensor], args: Any, kwargs: Any
    ) -> None:
        """As the base class, but also for ops that write to lists of tensors."""
        super().invalidate_written_to_constants(func, flat_arg_fake_tensors, args, kwargs)
        if not func._schema.is_mutable or not any(t.constant is not None for t in flat_arg_fake_tensors):
            return
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info and argument.alias_info.is_write and isinstance(value, (list, tuple)):
                for tensor in value:
                    if self.is_our_fake(tensor) and tensor.constant is not None:
                        self.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)


_KINDS = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})


@functools.cache
def _runs_itself(kind: type) -> bool:
    """True for a class of tensors that wrap others, which runs its ops by those of its parts."""
    return kind not in _KINDS and not issubclass(kind, FakeTensor)


def _answer(frame: FrameType | None) -> tuple[float, str] | None:
    """The answer for the library code that reads a value, if any frame up to the user's is in ``ANSWERS``."""
    while frame is not None:
        filename = frame.f_code.co_filename.replace("\\", "/")
        for ending, answer in ANSWERS.items():
            file, _, part = ending.partition(":")
            if filename.endswith(file) and (
                not part or part == frame.f_code.co_name or part in linecache.getline(filename, frame.f_lineno)
            ):
                return answer
        if not is_internal(filename) and frame.f_code.co_name != "__torch_dispatch__":
            return None
        frame = frame.f_back
    return None


def device_of(value: torch.Tensor) -> torch.device | None:
    """The device of a fake tensor, or the meta device while its own kernel runs; that of a wrapper made for a pretended
    GPU; None for any other tensor."""
    if not isinstance(value, FakeTensor):
        place = device_of_wrapper(value)
        return CPU if place is not None and asked_by_engine(sys._getframe(1)) else place
    mode = value.fake_mode
    if mode.in_kernel_invocation:
        return _META
    return mode.reported_device(value, sys._getframe(1)) if isinstance(mode, StepFakeMode) else value.fake_device


@contextlib.contextmanager
def same_paths() -> Iterator[None]:
    """Make libraries treat fake tensors like real ones while active.

    Optimizers and gradient clipping choose kernels by the type of the tensor; models of ``transformers`` take a fake
    tensor as a sign of tracing, and build masks that eager execution does without.
    """
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")  # of a copied one
        for supported in FOREACH_TYPES:  # changed in place, as other modules hold these lists
            supported.append(FakeTensor)
            stack.callback(supported.remove, FakeTensor)
        stack.enter_context(readable())
        stack.enter_context(made_of_lists())
        stack.enter_context(lazy_modules())
        stack.enter_context(replaced(torch.utils, "swap_tensors", _converted))
        stack.enter_context(fake_subclasses())
        never = replaced_in("transformers.utils.import_utils", "is_fake_tensor", lambda tensor: False)
        stack.enter_context(never)
        yield


_swap = torch.utils.swap_tensors


def _converted(first: torch.Tensor, second: torch.Tensor) -> None:
    """Give ``first`` what ``second`` holds, where PyTorch would swap fake tensors as a module is moved or cast.

    Real tensors are given new data instead, and may have weak references meanwhile, with which none can be swapped.
    """
    if first is second:
        return
    if not isinstance(first, FakeTensor) or not isinstance(second, FakeTensor):
        _swap(first, second)
        return
    for tensor in (first, second):
        if tensor.constant is not None:
            tensor.fake_mode.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)
    first.data = second.data
