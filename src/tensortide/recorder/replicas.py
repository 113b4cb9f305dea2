"""DistributedDataParallel on fake tensors: its reduction of gradients, which PyTorch's own does in memory, as ops.

The order is that of PyTorch's ``Reducer``: gradients are copied into a buffer per bucket as they are accumulated, a
full bucket is reduced, and at the end of backward its values are copied back. Buckets are laid out anew after the first
backward pass, by the order in which gradients arrived.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import ENGINE, FakeTensor, assign_buckets

_MIB = 1 << 20


class _Bucket:
    """Gradients that are reduced together. It is also what a communication hook is given."""

    def __init__(self, number: int, parameters: Sequence[torch.Tensor], *, last: bool) -> None:
        first = parameters[0]
        self._number, self._parameters, self._last = number, list(parameters), last
        self._buffer = torch.empty(sum(each.numel() for each in parameters), dtype=first.dtype, device=first.device)
        self.pending = len(parameters)
        self.future: Any = None

    def views(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield each parameter and its part of the buffer."""
        start = 0
        for each in self._parameters:
            yield each, self._buffer[start : start + each.numel()].view(each.shape)
            start += each.numel()

    def index(self) -> int:
        """Return the number of the bucket."""
        return self._number

    def buffer(self) -> torch.Tensor:
        """Return all gradients, one after the other."""
        return self._buffer

    def set_buffer(self, tensor: torch.Tensor) -> None:
        """Let ``tensor`` be the buffer."""
        self._buffer = tensor

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients, as parts of the buffer."""
        return [view for _, view in self.views()]

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameters whose gradients these are."""
        return self._parameters

    def is_last(self) -> bool:
        """Return whether it is the last of the step."""
        return self._last


class FakeReducer:
    """Stands for PyTorch's ``Reducer``, which looks into memory."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        buckets: Sequence[Sequence[int]],
        limits: Sequence[int],
        group: Any,
        sparse: Sequence[bool],
        bucket_bytes: int,
        find_unused: bool,
        as_view: bool,
        names: dict[int, str],
        first_bucket_bytes: int = _MIB,
        *others: Any,
    ) -> None:
        del limits, names, others
        self.hook: Callable[[Any], Any] = self._reduced
        self._parameters, self._group, self._as_view, self._find_unused = parameters, group, as_view, find_unused
        self._limits = [first_bucket_bytes, bucket_bytes]
        self._sparse = list(sparse)
        self._index = {id(each): index for index, each in enumerate(parameters)}
        self._buckets: list[_Bucket] = []
        self._arrived: list[int] = []
        self._expects = self._static = self._rebuilt = False
        self._next = 0
        first = parameters[0]
        self._used = torch.zeros(len(parameters) if find_unused else 0, dtype=torch.int32, device=first.device)
        self._lay_out(buckets)
        for each in parameters:
            each.register_post_accumulate_grad_hook(self._accumulated)

    def _lay_out(self, buckets: Sequence[Sequence[int]]) -> None:
        last = len(buckets) - 1
        groups = [[self._parameters[index] for index in bucket] for bucket in buckets]
        self._buckets = [_Bucket(number, group, last=number == last) for number, group in enumerate(groups)]
        self._of = {id(each): bucket for bucket in self._buckets for each in bucket.parameters()}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """All else that is told a reducer is of no consequence here."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def _set_static_graph(self) -> None:
        self._static = True

    def prepare_for_backward(self, outputs: Sequence[torch.Tensor]) -> None:
        """Expect gradients: of all parameters, or of those that ``outputs``, if there are any, depend on."""
        self._expects, self._next = True, 0
        for bucket in self._buckets:
            bucket.pending, bucket.future = len(bucket.parameters()), None
        used = _used(outputs) if outputs else set(self._index)
        for each in self._parameters:
            if id(each) not in used:
                self._arrives(each)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        if not self._expects or parameter.grad is None:
            return
        bucket = self._of[id(parameter)]
        view = next(view for each, view in bucket.views() if each is parameter)
        with torch.no_grad():
            divides = self.hook == self._reduced
            if _shares(parameter.grad, view):
                if divides:
                    view.div_(self._group.size())
            elif divides:
                torch.mul(parameter.grad, 1 / self._group.size(), out=view)
            else:
                view.copy_(parameter.grad)
            if self._as_view:
                parameter.grad = view
            self._arrives(parameter)

    def _arrives(self, parameter: torch.Tensor) -> None:
        if not self._rebuilt:
            self._arrived.append(self._index[id(parameter)])
        self._of[id(parameter)].pending -= 1
        while self._next < len(self._buckets) and not self._buckets[self._next].pending:
            bucket = self._buckets[self._next]
            bucket.future = self.hook(bucket)
            self._next += 1
        if self._next == len(self._buckets) and self._expects:
            self._expects = False
            if self._find_unused and not self._static:
                dist.all_reduce(self._used, group=self._group)
            ENGINE.queue_callback(self._finish)

    def _reduced(self, bucket: _Bucket) -> Any:
        dist.all_reduce(bucket.buffer(), group=self._group)
        return bucket.buffer()

    def _finish(self) -> None:
        """Copy what was reduced back to the gradients."""
        with torch.no_grad():
            for bucket in self._buckets:
                result = bucket.future.wait() if hasattr(bucket.future, "wait") else bucket.future
                result = result[0] if isinstance(result, (list, tuple)) else result
                if result is not None and not _shares(result, bucket.buffer()):
                    bucket.buffer().copy_(result)
                for parameter, view in bucket.views():
                    if parameter.grad is not None and not _shares(parameter.grad, view):
                        parameter.grad.copy_(view)
                bucket.future = None

    def _rebuild_buckets(self) -> bool:
        if self._rebuilt or not self._arrived or (self._find_unused and not self._static):
            return False
        self._rebuilt = True
        ordered = [self._parameters[index] for index in self._arrived]
        sparse = [self._sparse[index] for index in self._arrived]
        buckets, _ = assign_buckets(ordered, self._limits, sparse, self._arrived)
        self._lay_out(buckets)
        return True


def _shares(first: torch.Tensor, second: torch.Tensor) -> bool:
    return bool(first.untyped_storage()._cdata == second.untyped_storage()._cdata)


def _used(outputs: Sequence[torch.Tensor]) -> set[int]:
    """The leaves that ``outputs`` depend on, by their number (``id``)."""
    seen, used = set[Any](), set[int]()
    left: list[Any] = [each.grad_fn for each in outputs if each.grad_fn is not None]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            used.add(id(node.variable))
        left += [function for function, _ in node.next_functions]
    return used


class _NoLogger:
    """Stands for the logger of a reducer."""

    def __init__(self, reducer: Any) -> None:
        del reducer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: None


def _broadcast(group: Any, tensors: Sequence[torch.Tensor], nbytes: int, source: int = 0) -> None:
    """Broadcast buffers as one tensor of each type."""
    del nbytes
    kinds: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for each in tensors:
        kinds.setdefault((each.dtype, each.device), []).append(each)
    for same in kinds.values():
        flat = torch.cat([each.reshape(-1) for each in same])
        dist.broadcast(flat, source, group=group)
        for each, part in zip(same, flat.split([each.numel() for each in same]), strict=True):
            each.copy_(part.view(each.shape))


def _on_fakes(fake: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is ``fake`` where its first arguments are fake tensors, or follow from them, else ``real``."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        listed = [each for arg in args[:2] for each in (arg if isinstance(arg, (list, tuple)) else [arg])]
        return (fake if any(isinstance(each, (FakeTensor, FakeReducer)) for each in listed) else real)(*args, **kwargs)

    return chosen


def _hooked(construct: Callable[..., None]) -> Callable[..., None]:
    """The constructor of DDP, on real tensors with its reduction as a hook: the default one fails in a group that moves
    nothing."""

    def reduced(state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        del state
        buffer = bucket.buffer().div_(dist.get_world_size())
        dist.all_reduce(buffer)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future

    reduced.__annotations__.clear()  # PyTorch checks them, and does not take their text

    @functools.wraps(construct)
    def constructed(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        construct(model, *args, **kwargs)
        if not isinstance(model.reducer, FakeReducer):
            model.register_comm_hook(None, reduced)

    return constructed


def _registered(reducer: FakeReducer, state: Any, hook: Callable[[Any, Any], Any]) -> None:
    reducer.hook = functools.partial(hook, state)


def _registered_builtin(reducer: FakeReducer, kind: Any) -> None:
    del reducer, kind  # one of C++, whose buffer has half the bytes at most


def _verified(group: Any, parameters: Any, logger: Any = None) -> None:
    """Find the parameters to be those of all processes."""
    del group, parameters, logger


@contextlib.contextmanager
def replicas() -> Iterator[None]:
    """Let DistributedDataParallel reduce gradients in a group that moves nothing, of real and of fake tensors."""
    owner: Any = dist
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(DistributedDataParallel, "__init__", _hooked(DistributedDataParallel.__init__)))
        for name, fake in (
            ("Reducer", FakeReducer),
            ("Logger", _NoLogger),
            ("_register_comm_hook", _registered),
            ("_register_builtin_comm_hook", _registered_builtin),
            ("_broadcast_coalesced", _broadcast),
            ("_verify_params_across_processes", _verified),
        ):
            stack.enter_context(replaced(owner, name, _on_fakes(fake, getattr(owner, name))))
        yield
