"""The graphs that ``torch.compile`` makes of a model, without compiling, running or dumping anything.

The model is traced by AOTAutograd on fake tensors, and the passes of PyTorch's own compiler that come before code
generation rewrite the graphs, as in its dumps.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec.structs import replace

from tensortide.errors import CaptureError
from tensortide.graph.model import Named, Phase, Role
from tensortide.importers.imported import Imported
from tensortide.importers.inductor.read import trace_of_texts
from tensortide.importers.textfile import TextFile
from tensortide.recorder.building import Loss, built, named
from tensortide.recorder.failure import explained
from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.isolate import Isolation
from tensortide.recorder.target import Scalar
from tensortide.recorder.torch_compat import lacking

try:
    import torch._inductor.lowering  # its decompositions use it, and do not import it
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._functorch.aot_autograd import aot_function
    from torch._inductor.compile_fx import _recursive_post_grad_passes, partition_fn
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.post_grad import view_to_reshape
    from torch._inductor.virtualized import V
except ImportError as error:
    raise lacking("capture --compiled", error) from error


def compiled_trace(
    target: Any,
    inputs: Any = None,
    *,
    hyperparameters: Mapping[str, Scalar] | None = None,
    loss: Loss = None,
    name: str = "",
    progress: Callable[[str], None] = lambda message: None,
) -> Imported:
    """The forward and backward graph of the model that ``target`` trains (or runs) in a step.

    ``target``, ``inputs``, ``hyperparameters`` and ``loss`` are as in ``tensortide.capture``. The graph is that
    of the one module with parameters that the step calls, as ``torch.compile(model)`` would make it on this machine;
    what the step does outside of that module (a loss function, the optimizer) is not in it. Parameters come first
    among the graph's arguments, then buffers, then inputs. Nothing is allocated, compiled or changed.

    Raises:
        WorkloadError: the target cannot be found or built.
        CaptureError: the step fails, calls no such module, or several, or PyTorch cannot trace the module.
    """
    workload = named(target, inputs, loss, None, name, verb="trace")
    name = workload.name
    mode = StepFakeMode()
    texts: dict[Phase, str] = {}
    with built(workload, hyperparameters or {}, mode=mode, progress=progress) as step:
        progress("tracing")
        with _traced(_models(step), mode, texts) as forwards, explained("step", name, real=False):
            step()
    if Phase.FORWARD not in texts:
        raise CaptureError(f"the step of {name} calls no module with parameters")
    files = {phase: TextFile(f"{phase} graph of {name}", text) for phase, text in texts.items()}
    names = next(forward.names for forward in forwards if forward.names)
    return _named(trace_of_texts(files, name=name), names, mode.assumptions())


def _named(trace: Imported, names: Sequence[Named], assumptions: Sequence[str]) -> Imported:
    """``trace`` with the names that the model has for its first tensors, and what was assumed in running it."""
    storages = list(trace.graph.storages)
    for entry in names:
        index = trace.graph.tensors[entry.tensor].storage
        storages[index] = replace(storages[index], name=entry.name, role=entry.role)
    before = trace.graph.meta
    meta = replace(
        before,
        framework=f"torch {torch.__version__}",
        captured_on="fake",
        assumptions=(*before.assumptions, *assumptions),
    )
    graph = replace(trace.graph, storages=tuple(storages), named=tuple(names), meta=meta)
    return dataclasses.replace(trace, graph=graph)


def _models(step: Callable[[], Any]) -> dict[str, torch.nn.Module]:
    """The outermost modules with parameters that ``step`` leads to."""
    found = Isolation(lambda tensor: tensor)
    found.visit(step)
    roots = found.roots()
    return {name: root for name, root in roots.items() if next(root.parameters(), None) is not None}


@contextlib.contextmanager
def _traced(
    models: Mapping[str, torch.nn.Module], mode: StepFakeMode, texts: dict[Phase, str]
) -> Iterator[list[_Forward]]:
    """Let every module run as AOTAutograd traces it, and collect the text of the graphs."""
    forwards = [_Forward(path or type(model).__name__, model, mode, texts) for path, model in models.items()]
    own = [model.__dict__.get("forward") for model in models.values()]
    for model, forward in zip(models.values(), forwards, strict=True):
        model.forward = forward
    try:
        yield forwards
    finally:
        for model, before in zip(models.values(), own, strict=True):
            del model.forward
            if before is not None:
                model.forward = before


class _Forward:
    """A module's ``forward`` in graphs; while they are traced it is the module's own."""

    def __init__(self, path: str, model: torch.nn.Module, mode: StepFakeMode, texts: dict[Phase, str]) -> None:
        self._path, self._model, self._mode, self._texts = path, model, mode, texts
        self._original = model.forward
        self._tracing = False
        self._compiled: Callable[..., Any] | None = None
        self.names: list[Named] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._tracing:
            return self._original(*args, **kwargs)
        model = self._model
        parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
        state = {**parameters, **buffers}
        if self._compiled is None:
            self._compiled = self._compile(len(state))
            self.names = [
                Named(name, Role.PARAMETER if name in parameters else Role.BUFFER, index, value.requires_grad)
                for index, (name, value) in enumerate(state.items())
            ]
        self._tracing = True
        try:
            return self._compiled(state, args, kwargs)
        finally:
            self._tracing = False

    def _compile(self, states: int) -> Callable[..., Any]:
        def call(state: dict[str, torch.Tensor], args: Any, kwargs: Any) -> Any:
            return torch.func.functional_call(self._model, state, args, kwargs)

        def partition(*args: Any, **kwargs: Any) -> Any:
            kwargs["static_lifetime_input_indices"] = list(range(states))  # views of weights are made again
            with V.set_fake_mode(self._mode):
                return partition_fn(*args, **kwargs)

        compiled: Callable[..., Any] = aot_function(
            call,
            fw_compiler=lambda module, _: self._keep(module, Phase.FORWARD, inference=False),
            bw_compiler=lambda module, _: self._keep(module, Phase.BACKWARD, inference=False),
            inference_compiler=lambda module, _: self._keep(module, Phase.FORWARD, inference=True),
            partition_fn=partition,
            decompositions=select_decomp_table(),
            num_params_buffers=states,
            keep_inference_input_mutations=True,
        )
        return compiled

    def _keep(self, module: torch.fx.GraphModule, phase: Phase, *, inference: bool) -> Any:
        """Note the text of a graph after the last passes, and run it as it was before them."""
        if phase in self._texts:
            raise CaptureError(
                f"the step calls several modules with parameters, or one in several ways; the second is {self._path}: "
                "capture them one by one, as model and inputs"
            )
        passed = copy.deepcopy(module)
        with V.set_fake_mode(self._mode), torch.no_grad():
            view_to_reshape(passed)
            _recursive_post_grad_passes(passed, is_inference=inference)
        self._texts[phase] = passed.print_readable(print_output=False)
        return make_boxed_func(module.forward)
