"""Construction of a Graph from the raw record of a step: names and roles of storages, phases, interned tables."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from msgspec.structs import replace

from tensortide.graph.model import OUTSIDE, Graph, Meta, Named, Op, Phase, Role, Storage
from tensortide.memory.accumulate import accumulate_in_place
from tensortide.recorder.blas_workspaces import with_blas_workspaces
from tensortide.recorder.caches import infers, returned, with_caches
from tensortide.recorder.composites import CompositeCalls
from tensortide.recorder.context import Tracker
from tensortide.recorder.found import Found
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.torch_compat import pytree


class State:
    """The named tensors of a step, registered with the recorder before and after it runs."""

    def __init__(self, recorder: Recorder, found: Found) -> None:
        self._recorder = recorder
        self._found = found
        self._named: dict[tuple[str, Role, int], Named] = {}

    def register(self) -> None:
        """Name every parameter, buffer, gradient, optimizer state and input as they are now."""
        for name, tensor, role in self.walk():
            self._add(name, tensor, role)

    def register_left(self, found: Found) -> None:
        """Name the tensors ``found`` at the end of the step; those that it has made are outputs, not inputs."""
        self._found = found
        for name, tensor, role in self.walk():
            known = self._recorder.storage_of(tensor)
            made = role is Role.INPUT and known is not None and self._recorder.storages[known].birth is not None
            self._add(name, tensor, Role.OUTPUT if made else role)

    @contextlib.contextmanager
    def gradients_watched(self) -> Iterator[None]:
        """Name each gradient at the moment it is accumulated, since the step may release it before its end."""
        owners: dict[int, str] = {}

        def accumulated(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                self._add(f"{owners[id(parameter)]}.grad", parameter.grad, Role.GRADIENT)

        with contextlib.ExitStack() as stack:
            for name, parameter in (*self._parameters(), *self._found.tensors.items()):
                if parameter.requires_grad and parameter.is_leaf and id(parameter) not in owners:
                    owners[id(parameter)] = name
                    stack.callback(parameter.register_post_accumulate_grad_hook(accumulated).remove)
            yield

    def name(self, name: str, role: Role, tensor: int) -> None:
        """Name a tensor by its index; it may have been released by now."""
        self._named.setdefault((name, role, tensor), Named(name, role, tensor))

    def add_outputs(self, result: Any) -> None:
        """Name the tensors that the step returns."""
        leaves = pytree.tree_leaves(result)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        for i, tensor in enumerate(tensors):
            self._add("output" if len(tensors) == 1 else f"output[{i}]", tensor, Role.OUTPUT)
        for name, tensor in returned(self._recorder, leaves):
            self._add(name, tensor, Role.CACHE)

    @property
    def all_named(self) -> tuple[Named, ...]:
        """All named tensors; a name may have several, such as that of a parameter whose ``.data`` was replaced."""
        return tuple(self._named.values())

    @property
    def named(self) -> tuple[Named, ...]:
        """Named tensors, each name once; only a gradient may be listed twice, old and new."""
        first: dict[object, Named] = {}
        for key, entry in self._named.items():
            first.setdefault(key if entry.role is Role.GRADIENT else key[:2], entry)
        return tuple(first.values())

    def _add(self, name: str, tensor: torch.Tensor, role: Role) -> None:
        wrapper: Any = tensor
        if hasattr(wrapper, "__tensor_flatten__"):  # the memory is that of its parts
            held = {part: getattr(tensor, part) for part in wrapper.__tensor_flatten__()[0]}
            parts = {part: item for part, item in held.items() if isinstance(item, torch.Tensor)}
            for part, item in parts.items():
                self._add(name if len(parts) == 1 else f"{name}.{part}", item, role)
            return
        trainable = role is Role.PARAMETER and tensor.requires_grad
        index = self._recorder.tensor(tensor)
        self._named.setdefault((name, role, index), Named(name, role, index, trainable))

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        for prefix, module in self._found.roots().items():
            yield from module.named_parameters(prefix=prefix, remove_duplicate=False)
        trained = {id(t) for o in self._found.optimizers.values() for group in o.param_groups for t in group["params"]}
        bare = not trained and not self._found.modules  # a step without module or optimizer: its leaves are parameters
        for name, tensor in self._found.tensors.items():
            if tensor.requires_grad and tensor.is_leaf and (bare or id(tensor) in trained):
                yield name, tensor
        for path, optimizer in self._found.optimizers.items():
            for g, group in enumerate(optimizer.param_groups):
                for p, tensor in enumerate(group["params"]):
                    yield f"{path}.param_groups[{g}][{p}]", tensor

    def walk(self) -> Iterator[tuple[str, torch.Tensor, Role]]:
        """Yield every named tensor as it is now, with its name and role; some twice."""
        names: dict[int, str] = {}
        for name, parameter in self._parameters():
            if names.setdefault(id(parameter), name) == name or ".param_groups[" not in name:
                yield name, parameter, Role.PARAMETER
        for prefix, module in self._found.roots().items():
            for name, buffer in module.named_buffers(prefix=prefix, remove_duplicate=False):
                yield name, buffer, Role.BUFFER
        for name, item in self._optimizer_state(names):
            yield name, item, Role.OPTIMIZER_STATE
        for name, parameter in self._parameters():
            if parameter.grad is not None and names[id(parameter)] == name:
                yield f"{name}.grad", parameter.grad, Role.GRADIENT
        for name, tensor in self._found.tensors.items():
            if id(tensor) not in names:
                yield name, tensor, Role.INPUT
                if tensor.is_leaf and tensor.grad is not None:
                    yield f"{name}.grad", tensor.grad, Role.GRADIENT

    def _optimizer_state(self, names: dict[int, str]) -> Iterator[tuple[str, torch.Tensor]]:
        for optimizer in self._found.optimizers.values():
            for parameter, state in optimizer.state.items():
                owner = names.get(id(parameter), "state")
                for key, item in state.items() if isinstance(state, dict) else ():
                    if isinstance(item, torch.Tensor):
                        yield f"{owner}.{key}", item
                    elif isinstance(item, (list, tuple)):
                        for i, part in enumerate(item):
                            if isinstance(part, torch.Tensor):
                                yield f"{owner}.{key}[{i}]", part


def build(
    recorder: Recorder, tracker: Tracker, state: State, meta: Meta, composites: CompositeCalls | None = None
) -> Graph:
    """The Graph of what was recorded."""
    recorder.ops = _settle_phases(recorder.ops, recorder, state.named)
    graph = recorder.graph(
        _storages(recorder, with_caches(recorder, state.all_named), saves_again=not meta.graphs),
        modules=tuple(tracker.modules),
        sources=tuple(tracker.sources),
        branches=tuple(tracker.branches),
        named=with_caches(recorder, state.named),
        meta=meta,
        composites=None if composites is None else composites.table(recorder.ops),
    )
    return with_blas_workspaces(accumulate_in_place(graph, tracker.by_engine))


def _settle_phases(ops: list[Op], recorder: Recorder, named: Iterable[Named]) -> list[Op]:
    """Correct phases that depend on the whole step: all ops of an inference step are forward; clearing gradients never
    is."""
    if infers(ops):
        return [replace(op, phase=Phase.FORWARD) if op.phase is Phase.OTHER else op for op in ops]
    gradients = {recorder.tensors[n.tensor].storage for n in named if n.role is Role.GRADIENT}

    def clears(op: Op) -> bool:
        touched = {recorder.tensors[i].storage for i in op.inputs}
        return op.phase is Phase.FORWARD and op.module == OUTSIDE and bool(touched) and touched <= gradients

    return [replace(op, phase=Phase.OTHER) if clears(op) else op for op in ops]


def _storages(recorder: Recorder, named: tuple[Named, ...], *, saves_again: bool) -> Iterator[Storage]:
    """Storages with their roles. ``saves_again``: what is recomputed is saved, as in a checkpoint's replay, and no mere
    operand of the next op, as in a compiled graph."""
    roles: dict[int, tuple[Role, str]] = {}
    for entry in sorted(named, key=lambda n: n.role.precedence):
        roles.setdefault(recorder.tensors[entry.tensor].storage, (entry.role, entry.name))
    ops = recorder.ops
    of_gradient = {
        entry.name: recorder.storages[recorder.tensors[entry.tensor].storage].stream
        for entry in named
        if entry.role is Role.GRADIENT
    }
    written = {recorder.tensors[op.inputs[slot]].storage for op in ops for slot in recorder.calls[op.call].mutated}
    backward = [i for i, op in enumerate(ops) if op.phase is Phase.BACKWARD]
    for index, storage in enumerate(recorder.storages):
        role, name = roles.get(index, (None, ""))
        if role is None or (role is Role.INPUT and index in written and storage.birth is None):
            role = _role(storage.birth, storage.death, ops, backward, index in written, saves_again)
        stream = of_gradient.get(name, 0) if storage.birth is None else storage.stream  # as the step before had it
        yield replace(storage, role=role, name=name, stream=stream)


def _role(
    birth: int | None, death: int | None, ops: list[Op], backward: list[int], written: bool, saves_again: bool
) -> Role:
    """Role of a storage that has no name: a forward result that lives into backward is an activation."""
    if birth is None:
        return Role.BUFFER if written else Role.INPUT
    op = ops[birth]
    if op.recompute and saves_again:
        return Role.ACTIVATION
    if op.phase is not Phase.FORWARD:
        return Role.TEMPORARY
    if not backward:
        return Role.ACTIVATION
    at = bisect.bisect_right(backward, birth)
    lives_on = at < len(backward) and (death is None or death > backward[at])
    return Role.ACTIVATION if lives_on else Role.TEMPORARY
