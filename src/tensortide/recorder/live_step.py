"""Recording of one step of a running training loop, on the user's own objects."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tensortide.collector import no_collection
from tensortide.graph.model import Graph, Meta, Role
from tensortide.recorder.build_graph import State, build
from tensortide.recorder.composites import composites_recorded
from tensortide.recorder.context import Tracker
from tensortide.recorder.control_flow import followed
from tensortide.recorder.eager import EagerStep
from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.found import Found, existing, named, reached, variables
from tensortide.recorder.torch_compat import FakeTensor

if TYPE_CHECKING:
    from tensortide.recorder.compiled import CompiledStep

_ORDINARY = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class LiveStep:
    """Records all ops of this thread, from its construction until ``finish`` or ``close``.

    ``optimizers`` are those of the loop, ``called`` has the ``id`` of every module that ran in it, and ``older`` the
    tensors, by ``id``, that may belong to other code. ``compiled`` runs what ``torch.compile`` has compiled, if it is
    not to run eagerly.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        called: Collection[int],
        older: Mapping[int, torch.Tensor],
        compiled: CompiledStep | None = None,
    ) -> None:
        gc.collect()
        self._older = older
        self._found = _found(optimizers, called)
        self.tracker = Tracker(self._found.roots(), compiled)
        self._how = compiled or EagerStep()
        self.recorder = self._how.recorder(self._first_context)
        self._state = State(self.recorder, self._found)
        self._state.register()
        self._before: list[tuple[str, int]] = []
        """Names and tensors that the previous step left in variables, or on an accelerator."""
        self._loaded: dict[int, tuple[str, int]] = {}
        """Name and tensor of each storage that a data loader handed out."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(no_collection())
            stack.enter_context(self._state.gradients_watched())
            stack.enter_context(self.tracker.watch(ends=False))
            stack.enter_context(followed(self.tracker, self.recorder))
            stack.enter_context(self._how.step())
            composites = composites_recorded(self.recorder, self.tracker, eager=compiled is None)
            self._composites = stack.enter_context(composites)
            stack.enter_context(self.recorder)
            self._open = stack.pop_all()

    def close(self) -> None:
        """Stop recording."""
        self._open.close()

    def loaded(self, batch: Any) -> None:
        """Note a batch that a data loader hands out."""
        for name, tensor in reached(batch, "batch").tensors.items():
            index = self.recorder.arrived(tensor)
            self._loaded.setdefault(self.recorder.tensors[index].storage, (name, index))

    def finish(self, meta: Meta, result: Any = None) -> Graph | None:
        """Stop recording. Returns the Graph with ``result`` as output, None if no op ran."""
        self.close()
        if not self.recorder.ops:
            return None
        self._state.add_outputs(result)
        self._name_inputs()
        self._state.register()
        self._name_rest()
        return build(self.recorder, self.tracker, self._state, self._how.told(meta), self._composites)

    # -- names ----------------------------------------------------------------------------------

    def _owned(self) -> set[int]:
        """Storages that have a name."""
        return {self.recorder.tensors[entry.tensor].storage for entry in self._state.all_named}

    def _first_context(self, index: int) -> Any:
        """Context of the first op. By now the step has released what it replaces: the last batch, old gradients."""
        self.recorder.context = self.tracker.context
        names = {id(tensor): name for name, tensor in reversed([*variables(sys._getframe()).tensors.items()])}
        owned = self._owned()
        for tensor in existing(torch.Tensor):
            name = names.get(id(tensor)) or names.get(id(tensor._base), "")
            known = self.recorder.storage_of(tensor)
            if self._left(tensor) and known not in owned and (name or known is not None or not self._is_older(tensor)):
                self._before.append((name, self.recorder.tensor(tensor)))
        return self.tracker.context(index)

    def _is_older(self, tensor: torch.Tensor) -> bool:
        return self._older.get(id(tensor)) is tensor

    @staticmethod
    def _left(tensor: torch.Tensor) -> bool:
        """True for a result of the previous step, and for any tensor on an accelerator; not for data on the CPU,
        nor for tensors of PyTorch's compiler."""
        if type(tensor) is FakeTensor and not isinstance(tensor.fake_mode, StepFakeMode):
            return False
        accelerator = tensor.device.type not in ("cpu", "meta")
        return (tensor.grad_fn is not None or accelerator) and type(tensor) in _ORDINARY

    def _name_inputs(self) -> None:
        """Name tensors that the step read and that have no name yet, after variables."""
        owned = self._owned() | {self.recorder.tensors[tensor].storage for _, tensor in self._before}
        for name, tensor in variables(sys._getframe()).tensors.items():
            storage = self.recorder.storage_of(tensor)
            if storage is None or storage in owned:
                continue
            if self.recorder.storages[storage].birth is None or storage in self._loaded:
                self._found.tensors.setdefault(name, tensor)

    def _name_rest(self) -> None:
        """Name batches that no variable holds any more, and tensors left by the previous step."""
        owned = self._owned()
        for storage, (name, tensor) in self._loaded.items():
            if storage not in owned:
                self._state.name(name, Role.INPUT, tensor)
        for name, tensor in self._before:
            dropped = self.recorder.storages[self.recorder.tensors[tensor].storage].death is not None
            if dropped:
                self._state.name(f"{name or 'result'} (previous step)", Role.OUTPUT, tensor)
            elif name:
                self._state.name(name, Role.INPUT, tensor)


def _found(optimizers: Sequence[torch.optim.Optimizer], called: Collection[int]) -> Found:
    """The outermost modules that ran or are trained, the optimizers, and trained tensors outside of modules."""
    names = variables(sys._getframe())
    trained = {id(tensor) for each in optimizers for group in each.param_groups for tensor in group["params"]}
    modules = existing(torch.nn.Module)
    inner = {id(child) for module in modules for child in module.children()}

    def takes_part(root: torch.nn.Module) -> bool:
        within = (p for module in root.modules() for p in module._parameters.values())
        return any(id(module) in called for module in root.modules()) or any(id(p) in trained for p in within)

    roots = [module for module in modules if id(module) not in inner and takes_part(module)]
    owned = {id(parameter) for root in roots for parameter in root.parameters()}
    leaves = {
        name: tensor
        for name, tensor in names.tensors.items()
        if tensor.requires_grad and tensor.is_leaf and id(tensor) not in owned and (id(tensor) in trained or not roots)
    }
    return Found(named(roots, names.modules), named(optimizers, names.optimizers), leaves)
