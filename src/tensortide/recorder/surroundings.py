"""The process around a capture: state that a step may change is restored, and disturbances are kept away."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from tensortide.collector import no_collection
from tensortide.recorder.settings import change, snapshot
from tensortide.recorder.torch_compat import compiled_calls, set_grad_enabled


class _Turn:
    """The lock of what replaces parts of the process."""

    lock = threading.RLock()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Be the only thread that replaces parts of PyTorch and settings of the process: others wait, and each finds them
    as they were. A thread that has this already may have it again."""
    with _Turn.lock:
        yield


def _free_in_child() -> None:
    """In a fork, take the place of a lock that a thread held which is not there."""
    if _Turn.lock.acquire(blocking=False):
        _Turn.lock.release()
    else:
        _Turn.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)


@contextlib.contextmanager
def undisturbed(compiled: contextlib.AbstractContextManager[None] | None = None) -> Iterator[None]:
    """Restore the state of the process on exit. Meanwhile no cyclic garbage is collected, and code that
    ``torch.compile`` has compiled runs as under ``compiled``, or else eagerly."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")  # it logs failures that the error reports anyway
    with (
        global_state(),
        no_collection(),
        compiled or eagerly(),
        replaced(logger, "disabled", True),
    ):
        warnings.filterwarnings("ignore", "Using `torch.compile", UserWarning)  # with the hooks of a capture
        yield


@contextlib.contextmanager
def eagerly(called: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let what ``torch.compile`` has compiled run op by op while active; ``called`` is told of each call of it."""

    def none(compiled: Any) -> None:
        if compiled is not None and compiled is not False:
            called()

    with compiled_calls_through(none, stance="force_eager"):
        yield


@contextlib.contextmanager
def compiled_calls_through(choose: Callable[[Any], Any], *, stance: str = "default") -> Iterator[None]:
    """Let ``choose`` say, at each call of what ``torch.compile`` has compiled, what gets its frames: given what would,
    which is None or False where nothing is compiled. ``stance`` is that of ``torch.compiler``."""
    compile_, entered = torch.compile, False
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are global hooks")  # ours

        def enter() -> None:
            nonlocal entered
            entered = True
            owner, name = compiled_calls()
            chosen = getattr(owner, name)
            stack.enter_context(replaced(owner, name, lambda compiled: chosen(choose(compiled))))
            if hasattr(torch.compiler, "set_stance"):
                stack.enter_context(torch.compiler.set_stance(stance))

        @functools.wraps(compile_)
        def first(*args: Any, **options: Any) -> Any:
            if not entered:
                enter()
            return compile_(*args, **options)

        if "torch._dynamo" in sys.modules:
            enter()
        else:  # it takes a second to import, and most programs never do
            stack.enter_context(replaced(torch, "compile", first))
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    """Replace the attribute ``name`` of ``owner`` (a module, class or object) by ``new`` while active."""
    own, before = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, before) if own else delattr(owner, name)


def wrapped(function: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``function``: calls go to ``around``, with ``function`` as first argument."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return around(function, *args, **kwargs)

    return call


def replaced_in(module: str, name: str, new: Any) -> AbstractContextManager[None]:
    """Replace the attribute ``name`` of a module (``Class.method`` of a class in it) while active, from its import on;
    of a module without the attribute, nothing."""
    return wrapped_in(module, name, lambda before: new)


@contextlib.contextmanager
def wrapped_in(module: str, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace such an attribute by what ``wrap`` returns for it."""
    *path, last = name.split(".")
    with contextlib.ExitStack() as stack:

        def replace(library: ModuleType) -> None:
            owner: Any = library
            for part in path:
                owner = getattr(owner, part, None)
            if hasattr(owner, last):
                stack.enter_context(replaced(owner, last, wrap(getattr(owner, last))))

        if module in sys.modules:
            replace(sys.modules[module])
        else:  # to import it only for this would take long
            finder = _Awaited(module, replace)
            sys.meta_path.insert(0, finder)
            stack.callback(finder.remove)
        yield


class _Awaited(MetaPathFinder):
    """Finds a module as others do, and calls ``imported`` with it once it has been imported."""

    def __init__(self, module: str, imported: Callable[[ModuleType], None]) -> None:
        self._module, self._imported = module, imported

    def remove(self) -> None:
        """Find nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """As the base class."""
        del path, target
        if fullname != self._module:
            return None
        self.remove()
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def then_told(module: ModuleType) -> None:
                execute(module)
                self._imported(module)

            vars(spec.loader)["exec_module"] = then_told
        return spec


Switch = tuple[Callable[[], Any], Callable[[Any], Any]]
"""A state of the process: functions that get and set it."""


def _flag(owner: Any, name: str) -> Switch:
    return functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)


_cuda = torch.backends.cuda
_SWITCHES: list[Switch] = [
    (torch.is_grad_enabled, set_grad_enabled),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    *(
        (functools.partial(torch.is_autocast_enabled, d), functools.partial(torch.set_autocast_enabled, d))
        for d in ("cpu", "cuda")
    ),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (_cuda.flash_sdp_enabled, _cuda.enable_flash_sdp),
    (_cuda.math_sdp_enabled, _cuda.enable_math_sdp),
    (_cuda.mem_efficient_sdp_enabled, _cuda.enable_mem_efficient_sdp),
    (_cuda.cudnn_sdp_enabled, _cuda.enable_cudnn_sdp),
]
"""PyTorch's global switches."""


def rewinder(value: Any) -> Callable[[], Any] | None:
    """A function that restores the present state of ``value`` if it is a random generator, else None."""
    switch = _generator(value)
    return None if switch is None else functools.partial(switch[1], switch[0]())


def _generator(value: Any) -> Switch | None:
    if isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    if isinstance(value, random.Random):
        return value.getstate, value.setstate
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None and isinstance(value, numpy_random.RandomState):
        return value.get_state, value.set_state
    if numpy_random is not None and isinstance(value, numpy_random.Generator):
        return _flag(value.bit_generator, "state")
    return None


def _global_generators() -> Iterator[Switch]:
    """The generators of Python, PyTorch, NumPy and accelerators."""
    yield random.getstate, random.setstate
    yield torch.get_rng_state, torch.set_rng_state
    if "numpy.random" in sys.modules:
        yield sys.modules["numpy.random"].get_state, sys.modules["numpy.random"].set_state
    if torch.cuda.is_initialized():
        yield torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all


@contextlib.contextmanager
def global_state() -> Iterator[None]:
    """Restore random generators and global switches on exit; other threads that change them wait for it."""
    with alone(), _state_restored():
        yield


@contextlib.contextmanager
def _state_restored() -> Iterator[None]:
    drawn = [(put, get()) for get, put in _global_generators()]
    switches, settings = [(get, put, get()) for get, put in _SWITCHES], snapshot()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for put, state in drawn:
            put(state)
        for get, put, value in switches:
            if get() != value:
                put(value)
        change(settings)
