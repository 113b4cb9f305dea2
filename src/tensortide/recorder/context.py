"""Place of an op in the step and in the user's code: phase, module path, source line, recomputation.

Backward ops carry the module and line of the forward op whose gradient they compute: autograd numbers its nodes in the
order of the forward ops, and the number of the node that runs leads back to the op.

A custom autograd function creates its node first and runs its forward without gradients: neither the gradient mode nor
the ops inside lead from the node to the call. Its calls are therefore followed, forward and backward.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tensortide.graph.model import OUTSIDE, Branch, Module, Phase, Source
from tensortide.recorder.code_paths import (
    AROUND,
    AUTOGRAD,
    CAPTURE,
    CHECKPOINT,
    COMPOSITES,
    ENGINE,
    OPTIMIZERS,
    Internal,
    is_internal,
    runs_in,
)
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import (
    BackwardCFunction,
    FunctionMeta,
    SingleLevelFunction,
    current_autograd_node,
    current_graph_task_id,
    next_sequence_number,
)

if TYPE_CHECKING:
    from tensortide.recorder.compiled import CompiledStep

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')

Origin = tuple[int, int, int]
"""Module, source line and branch of an op, which its gradient inherits."""
Context = tuple[Phase, int, int, bool, int]
"""Fields of an op: phase, module, source line, recomputation, branch."""


class _Of(NamedTuple):
    """The origin of a node of a compiled graph: module and line, whether it computes a part of the forward pass, and
    whether it is of an optimizer."""

    module: int
    source: int
    forward: bool
    updates: bool


def _context(phase: Phase, origin: Origin) -> Context:
    module, source, branch = origin
    return phase, module, source, False, branch


class Tracker:
    """Locates the op about to run, in step and code. Give its ``context`` to a Recorder, and ``watch`` the step."""

    def __init__(self, modules: dict[str, torch.nn.Module], compiled: CompiledStep | None = None) -> None:
        self._compiled = compiled
        self._of_nodes: dict[torch.fx.Node, _Of] = {}
        self.modules: list[Module] = []
        self.sources: list[Source] = []
        self.branches: list[Branch] = []
        self.branch = OUTSIDE
        self.by_engine: set[int] = set()
        """Ops that the autograd engine itself runs: sums of gradients."""
        self._module_ids: dict[int, int] = {}
        self._owners: dict[int, int] = {}
        self._watched: list[weakref.ref[torch.nn.Module]] = []
        """Modules by weak references: one made in the step, as a copy of another, is released when the step does."""
        self._stack: list[int] = [OUTSIDE]
        self._optimizer_depth = 0
        self.stepped: list[int] = []
        """The ``id`` of the optimizer of each step of one, those within another's left out."""
        self._source_ids: dict[tuple[CodeType, int], int] = {}
        self._internal = Internal()
        self._recorded = [False]
        """For each running custom function: True in a forward that autograd records, although gradients are off."""
        self._differentiated: list[bool] = []
        """For each running backward of a custom function: True if it is itself differentiated (``create_graph``)."""
        self._by_node: dict[int, Origin] = {}
        self._next_node = 0
        self._last: Origin = (OUTSIDE, OUTSIDE, OUTSIDE)
        for name, module in modules.items():
            self._add_root(name, module)

    @property
    def last(self) -> tuple[str, Source | None]:
        """Module path and source line of the last forward op, for error messages."""
        module, source, _ = self._last
        path = "" if module == OUTSIDE else self.modules[module].path
        return path, None if source == OUTSIDE else self.sources[source]

    # -- the question the recorder asks ---------------------------------------------------------

    def context(self, index: int) -> Context:
        """Context of the op about to run as op ``index``."""
        frame = sys._getframe(2).f_back  # None on the thread that runs an accelerator's backward
        while runs_in(frame, COMPOSITES):
            frame = frame.f_back  # type: ignore[union-attr]
        if self._compiled is not None:
            while frame is not None and frame.f_code.co_filename in AROUND:
                frame = frame.f_back
            if self._compiled.node is not None:
                return self._of_node(self._compiled.node, frame)
        if self._optimizer_depth:
            return _context(Phase.OPTIMIZER, self._here(frame))
        if current_graph_task_id() == -1:
            if runs_in(frame, AUTOGRAD):  # the gradient of the loss with respect to itself
                return _context(Phase.BACKWARD, self._here(frame))
            return self._forward(frame)
        if self._recomputing(frame):
            _, module, source, _, branch = self._forward(frame)
            return Phase.BACKWARD, module, source, True, branch
        origin = self._origin_of_gradient(frame)
        if torch.is_grad_enabled():
            self._number(origin)
        elif frame is None or runs_in(frame, ENGINE):
            self.by_engine.add(index)
        return _context(Phase.BACKWARD, origin)

    def _here(self, frame: FrameType | None) -> Origin:
        return self._stack[-1], self._source(frame), self.branch

    def _forward(self, frame: FrameType | None) -> Context:
        origin = self._here(frame)
        if torch.is_grad_enabled():
            self._number(origin)
        elif origin[0] == OUTSIDE and not self._recorded[-1]:
            return _context(Phase.OTHER, origin)
        return _context(Phase.FORWARD, origin)

    # -- nodes of compiled graphs ---------------------------------------------------------------

    def _of_node(self, node: torch.fx.Node, frame: FrameType | None) -> Context:
        """Context of an op that runs for ``node`` of a graph that is compiled in truth."""
        backward = current_graph_task_id() != -1
        module, source, branch = self._origin_of_gradient(frame) if backward else self._here(frame)
        if (known := self._of_nodes.get(node)) is None:
            known = self._of_nodes[node] = self._told(node)
        module = module if known.module == OUTSIDE else known.module
        source = source if known.source == OUTSIDE else known.source
        if self._optimizer_depth or known.updates:
            return _context(Phase.OPTIMIZER, (module, source, branch))
        if backward:
            return Phase.BACKWARD, module, source, known.forward, branch
        trains = torch.is_grad_enabled() or self._recorded[-1] or module != OUTSIDE
        return _context(Phase.FORWARD if trains else Phase.OTHER, (module, source, branch))

    def _told(self, node: torch.fx.Node) -> _Of:
        """Read the origin of ``node`` from its metadata."""
        meta, source, updates = node.meta, OUTSIDE, False
        stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
        known = [self._module_ids[int(key)] for key in stack if key.isdecimal() and int(key) in self._module_ids]
        for file, line, function in _FRAME.findall(node.stack_trace or ""):
            updates = updates or file.startswith(OPTIMIZERS)
            if not is_internal(file):
                source = self._at(file, int(line), function)
        forward = meta.get("partitioner_tag") in ("is_forward", "must_be_in_forward")
        return _Of(known[-1] if known else OUTSIDE, source, forward, updates)

    # -- autograd nodes -------------------------------------------------------------------------

    def _origin_of_gradient(self, frame: FrameType | None) -> Origin:
        """The forward op whose gradient the autograd engine computes now."""
        node: Any = current_autograd_node()
        origin = self._by_node.get(node._sequence_nr()) if node is not None else None
        if origin is None:
            owner = self._owners.get(id(getattr(node, "variable", None)), self._stack[-1])
            origin = (owner, self._source(frame), self.branch)
        return origin

    def _number(self, origin: Origin) -> None:
        """Attribute the autograd nodes created since the last op: the newest to ``origin``, others to the last op."""
        following = next_sequence_number()
        if following > self._next_node:
            self._settle(following - 1)
            self._by_node[following - 1] = origin
            self._next_node = following
        self._last = origin

    def _settle(self, end: int) -> None:
        """Attribute unattributed nodes below number ``end`` to the last op."""
        for number in range(self._next_node, end):
            self._by_node[number] = self._last
        self._next_node = max(self._next_node, end)

    def _function_called(self, number: int, frame: FrameType) -> None:
        """Attribute the node ``number`` to the call of a custom function from ``frame``."""
        if current_graph_task_id() == -1 or self._recomputing(frame):
            origin = self._here(frame)
        else:
            origin = self._origin_of_gradient(frame)
        self._settle(number)
        self._by_node[number] = origin
        self._next_node = number + 1

    # -- custom functions -----------------------------------------------------------------------

    @contextlib.contextmanager
    def _functions_followed(self) -> Iterator[None]:
        """Follow every call of a custom function while active, whatever ``apply`` it was called by.

        A call asks its class for ``_backward_cls``, creates the node, asks for ``forward`` and runs that; where the
        forward is not given the context it then does so with ``setup_context``.
        """
        backward: Any = BackwardCFunction
        awaited: dict[str, bool] = {}
        """What the innermost call asks for next: True if autograd records the call."""

        def asked(function: Any, name: str) -> Any:
            found = type.__getattribute__(function, name)
            if name == "_backward_cls":
                self._function_called(next_sequence_number(), sys._getframe(1))
                awaited.clear()
                awaited["forward"] = torch.is_grad_enabled() or self._recorded[-1]
            elif name in awaited:
                return part(function, name, found, awaited.pop(name))
            return found

        def part(function: Any, name: str, run: Callable[..., Any], recorded: bool) -> Callable[..., Any]:
            def followed(*args: Any, **kwargs: Any) -> Any:
                self._recorded.append(recorded)
                try:
                    result = run(*args, **kwargs)
                finally:
                    self._recorded.pop()
                awaited.clear()
                if name == "forward" and function.setup_context is not SingleLevelFunction.setup_context:
                    awaited["setup_context"] = recorded
                return result

            return followed

        def followed(run: Callable[..., Any]) -> Callable[..., Any]:
            return lambda node, *args: self._run_backward(run, node, *args)

        with replaced(FunctionMeta, "__getattribute__", asked), contextlib.ExitStack() as stack:
            for name in {"apply", "apply_boxed"} & vars(backward).keys():
                stack.enter_context(replaced(backward, name, followed(getattr(backward, name))))
            yield

    def _run_backward(self, backward: Callable[..., Any], *args: Any) -> Any:
        self._recorded.append(False)
        self._differentiated.append(torch.is_grad_enabled())
        try:
            return backward(*args)
        finally:
            self._recorded.pop()
            self._differentiated.pop()

    # -- frames ---------------------------------------------------------------------------------

    def _source(self, frame: FrameType | None) -> int:
        while frame is not None:
            code = frame.f_code
            if not self._internal[code]:
                key = (code, frame.f_lineno)
                known = self._source_ids.get(key)
                if known is None:
                    known = self._source_ids[key] = self._at(code.co_filename, frame.f_lineno, code.co_qualname)
                return known
            if code.co_filename == CAPTURE:
                break
            frame = frame.f_back
        return OUTSIDE

    def _at(self, file: str, line: int, function: str) -> int:
        """Number of a line of code, which is new."""
        self.sources.append(Source(file, line, function, linecache.getline(file, line).strip()[:160]))
        return len(self.sources) - 1

    def _recomputing(self, frame: FrameType | None) -> bool:
        """True in a forward that a checkpoint replays or that a custom backward runs."""
        users = False
        while frame is not None and frame.f_code.co_filename != ENGINE:
            code = frame.f_code
            if code is _BACKWARD:
                recorded = torch.is_grad_enabled() or self._recorded[-1]
                return recorded and not self._differentiated[-1]
            if code.co_filename == CHECKPOINT and (
                code.co_name == "unpack_hook" or (users and code.co_name == "backward")
            ):
                return True
            users = users or not self._internal[code]
            frame = frame.f_back
        return False

    # -- modules and optimizers -----------------------------------------------------------------

    def _add_root(self, name: str, root: torch.nn.Module) -> None:
        for path, module in root.named_modules(prefix=name):
            if id(module) not in self._module_ids:
                self._module_ids[id(module)] = len(self.modules)
                self.modules.append(Module(path, type(module).__name__))
                own = [id(parameter) for parameter in module._parameters.values()]
                for parameter in own:
                    self._owners.setdefault(parameter, self._module_ids[id(module)])
                self._watched.append(weakref.ref(module, functools.partial(self._forget, id(module), own)))

    def _forget(self, module: int, parameters: list[int], reference: object) -> None:
        """Forget a module that was released, and whose numbers others may get."""
        del reference
        number = self._module_ids.pop(module, None)
        for parameter in parameters:
            if self._owners.get(parameter) == number:
                del self._owners[parameter]

    def enter(self, module: torch.nn.Module, args: Any = None) -> None:
        """Note that the forward of ``module`` begins."""
        del args
        known = self._module_ids.get(id(module))
        if known is None:
            parent = self._stack[-1]
            name = type(module).__name__
            if parent != OUTSIDE and self.modules[parent].path:
                name = f"{self.modules[parent].path}.{name}"
            self._add_root(name, module)
            known = self._module_ids[id(module)]
        self._stack.append(known)

    @property
    def running(self) -> int:
        """The module whose forward runs now, OUTSIDE if none does."""
        return self._stack[-1]

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        del module, args, output
        if len(self._stack) > 1:
            self._stack.pop()

    def _optimizer_starts(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        if not self._optimizer_depth:
            self.stepped.append(id(optimizer))
        self._optimizer_depth += 1
        return tuple(map(self._closure, args)), {name: self._closure(item) for name, item in kwargs.items()}

    def _closure(self, argument: Any) -> Any:
        """Wrap an optimizer's closure: its ops are forward and backward, not the optimizer's."""
        if not isinstance(argument, (FunctionType, MethodType, functools.partial)):
            return argument

        @functools.wraps(argument)
        def called(*args: Any, **kwargs: Any) -> Any:
            depth, self._optimizer_depth = self._optimizer_depth, 0
            try:
                return argument(*args, **kwargs)
            finally:
                self._optimizer_depth = depth

        return called

    def optimizer_ends(self, *_: Any) -> None:
        """Note that a step of an optimizer ends."""
        self._optimizer_depth = max(0, self._optimizer_depth - 1)

    @contextlib.contextmanager
    def watch(self, *, ends: bool = True) -> Iterator[None]:
        """Follow module calls and optimizer steps while active; leaves no hook behind.

        Without ``ends`` the caller reports the ends of optimizer steps: no such hook can be added from within one.
        """
        self._next_node = next_sequence_number()
        handles = [
            register_module_forward_pre_hook(self.enter),
            register_module_forward_hook(self._leave, always_call=True),
            register_optimizer_step_pre_hook(self._optimizer_starts),
        ]
        if ends:
            handles.append(register_optimizer_step_post_hook(self.optimizer_ends))
        with self._functions_followed(), contextlib.ExitStack() as stack:
            for handle in handles:
                stack.callback(handle.remove)
            yield


_BACKWARD = Tracker._run_backward.__code__
