"""The graphs that ``torch.compile`` makes of a step, without compiling them: they run op by op and are recorded.

PyTorch traces the step's functions (Dynamo), differentiates and splits each graph (AOTAutograd) and rewrites the halves
by the passes of its own compiler that come before code generation. A backend of ours takes the place of Inductor and
runs what is left, node by node, wherever the program calls it: parts of a forward pass with eager ops between them, and
their backward parts in the order of the autograd engine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from msgspec.structs import replace

from tensortide.errors import WorkloadError
from tensortide.graph.model import Meta
from tensortide.recorder.code_paths import PACKAGE, is_internal
from tensortide.recorder.context import Context
from tensortide.recorder.found import Found
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.surroundings import compiled_calls_through, replaced
from tensortide.recorder.torch_compat import lacking

try:
    import torch._inductor.lowering  # its decompositions use it, and do not import it
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list, _FrameAction, _FrameExecStrategy, reset_code
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.convert_frame import catch_errors_wrapper, convert_frame
    from torch._dynamo.hooks import Hooks
    from torch._dynamo.types import ConvertFrameReturn
    from torch._guards import detect_fake_mode
    from torch._inductor.compile_fx import _recursive_post_grad_passes, partition_fn
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.post_grad import view_to_reshape
    from torch._inductor.virtualized import V
    from torch.fx.node import map_arg
    from torch.nn.modules import module as modules
    from torch.optim import optimizer as optimizers
except ImportError as error:
    raise lacking("--compiled", error) from error

_PLACE = ("nn_module_stack", "stack_trace")
_SKIP = _FrameAction.SKIP
_COPY = torch.ops.aten.copy_.default
_OWN = "tensortide."
_HOOKS: tuple[dict[int, Any], ...] = (
    *(modules._global_forward_pre_hooks, modules._global_forward_hooks),
    *(optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks),
)


UNFUSED = "ops of compiled graphs are those before kernels are fused: what stays inside of a kernel counts as memory"

NOTHING = (
    "--compiled (compiled=True): the step calls nothing that torch.compile has compiled, and no module with parameters"
)

NO_GRAPH = (
    "--compiled (compiled=True): torch.compile makes no graph of what the step calls, which runs eagerly "
    "(TORCH_LOGS=graph_breaks says why): leave it out"
)


class CompiledStep:
    """Runs what ``torch.compile`` has compiled as graphs, while it is ``active``.

    ``node`` is the node of a graph that runs now, ``called`` the number of calls of what is compiled, ``graphs`` the
    numbers of those that ran in the step.
    """

    def __init__(self) -> None:
        self.node: torch.fx.Node | None = None
        self.called = 0
        self.graphs: set[int] = set()
        self._numbers = 0
        self._seen: set[Any] = set()
        self._fresh: list[Any] = []
        """Code objects that nobody had compiled before."""
        hooks = Hooks(guard_filter_fn=lambda guards: [not _of_hooks(guard.name) for guard in guards])
        self._convert = catch_errors_wrapper(convert_frame(self._backend, hooks), hooks)

    def recorder(self, context: Callable[[int], Context]) -> Recorder:
        """Make a recorder that Dynamo leaves alone."""
        return _Recorder(context)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Count the graphs of a step."""
        self.graphs.clear()
        yield

    def told(self, meta: Meta) -> Meta:
        """``meta`` of the step, which says what its ops are. Raises WorkloadError if none was compiled."""
        if not self.graphs:
            raise WorkloadError(NO_GRAPH if self.called else NOTHING)
        return replace(meta, graphs=len(self.graphs), assumptions=(*meta.assumptions, UNFUSED))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Have graphs run while active. What is compiled of the user's stays so."""
        with compiled_calls_through(self._callback), _quiet():
            try:
                yield
            finally:
                for code in self._fresh:
                    reset_code(code)

    @contextlib.contextmanager
    def whole_models(self, found: Found) -> Iterator[None]:
        """Compile the outermost modules with parameters while active, as ``torch.compile(model)`` would.

        Raises WorkloadError if there is none.
        """
        roots = [root for root in found.roots().values() if next(root.parameters(), None) is not None]
        if not roots:
            raise WorkloadError(NOTHING)
        for root in roots:
            vars(root)["_compiled_call_impl"] = _as_a_whole(root)
        try:
            yield
        finally:
            for root in roots:
                vars(root)["_compiled_call_impl"] = None

    # -- what is compiled -----------------------------------------------------------------------

    def _callback(self, compiled: Any) -> Any:
        """Return the callback for frames of code in place of ``compiled``; None and False mean: nothing is compiled."""
        if compiled is None or compiled is False:
            return compiled
        self.called += 1
        return self._frame

    def _frame(self, frame: Any, *rest: Any) -> Any:
        """Trace a frame, as if it were not watched; our own run as they are."""
        code = frame.f_code
        if code.co_filename != __file__ and code.co_filename.startswith(PACKAGE) and is_internal(code.co_filename):
            return ConvertFrameReturn(frame_exec_strategy=_FrameExecStrategy(_SKIP, _SKIP))
        if code not in self._seen:
            self._seen.add(code)
            if not _debug_get_cache_entry_list(code):
                self._fresh.append(code)
        with _unwatched():
            return self._convert(frame, *rest)

    def _backend(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Take the place of Inductor."""
        with V.set_fake_mode(detect_fake_mode(inputs)):
            return aot_autograd(
                fw_compiler=lambda graph, _: self._runner(graph, inference=False),
                bw_compiler=lambda graph, _: self._runner(graph, inference=False),
                inference_compiler=lambda graph, _: self._runner(graph, inference=True),
                partition_fn=partition_fn,
                decompositions=select_decomp_table(),
                keep_inference_input_mutations=True,
            )(module, inputs)

    def _runner(self, module: torch.fx.GraphModule, *, inference: bool) -> Any:
        """The function that runs a graph after the compiler's last passes."""
        values = [node.meta.get("val") for node in module.graph.nodes]
        with V.set_fake_mode(detect_fake_mode(values)), torch.no_grad():
            view_to_reshape(module)
            _recursive_post_grad_passes(module, is_inference=inference)
        _copy_early(module.graph)
        steps = _steps(module.graph)
        self._numbers += 1
        number = self._numbers

        def run(given: list[Any]) -> Any:
            inputs, outer = iter(given), self.node
            values: dict[torch.fx.Node, Any] = {}
            self.graphs.add(number)
            try:
                for node, dead in steps:
                    self.node = node
                    match node.op:
                        case "placeholder":
                            values[node] = next(inputs)
                        case "get_attr":
                            values[node] = _attribute(module, str(node.target))
                        case "output":
                            return map_arg(node.args[0], values.__getitem__)
                        case _:
                            args = map_arg(node.args, values.__getitem__)
                            named = map_arg(node.kwargs, values.__getitem__)
                            values[node] = node.target(*args, **named)  # type: ignore[operator]
                            del args, named
                    if node.op == "placeholder" and len(values) == len(given):
                        inputs = iter(())
                        given.clear()  # it held what may be released before the end
                    for each in dead:
                        del values[each]
            finally:
                self.node = outer
            raise AssertionError("a graph without an output")

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


class _Recorder(Recorder):
    """A recorder whose own code is not compiled, and that does not keep Dynamo from compiling."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As the base class."""
        return super().__torch_dispatch__(func, types, args, kwargs)


def _as_a_whole(model: torch.nn.Module) -> Callable[..., Any]:
    """The call of ``model``, compiled in one piece, also where its class is one of PyTorch's."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return model._call_impl(*args, **kwargs)

    return torch.compile(call)


def _of_hooks(source: str) -> bool:
    """True for a guard on the hooks of all modules or optimizers: ours come and go with each record."""
    return "_global_" in source and "_hooks" in source


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the compiler's remarks on what it cannot trace to itself, unless they are asked for."""
    handlers = [handler for name in ("torch", "torch._dynamo") for handler in logging.getLogger(name).handlers]
    with contextlib.ExitStack() as stack:
        for handler in {*handlers} if "TORCH_LOGS" not in os.environ else ():
            stack.enter_context(replaced(handler, "level", logging.ERROR))
        yield


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    """Hide our own hooks on all modules and optimizers: traced, they would be part of the graph."""
    before = [dict(hooks) for hooks in _HOOKS]
    for hooks in _HOOKS:
        for key, hook in list(hooks.items()):
            if str(getattr(hook, "__module__", "")).startswith(_OWN):
                del hooks[key]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on what it looks at
            yield
    finally:
        for hooks, all_of_them in zip(_HOOKS, before, strict=True):
            hooks.clear()
            hooks.update(all_of_them)


def _attribute(module: torch.nn.Module, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found


# -- the order in which a graph runs ----------------------------------------------------------------


def _storages(nodes: Iterable[Any]) -> set[int]:
    """The storages of the values of ``nodes``."""
    values = [node.meta.get("val") for node in nodes if isinstance(node, torch.fx.Node)]
    dense = (each for each in values if isinstance(each, torch.Tensor) and each.layout == torch.strided)
    return {int(each.untyped_storage()._cdata) for each in dense}


def _copy_early(graph: torch.fx.Graph) -> None:
    """Move each write into an input, all of which stand at the end, to right after the last node that reads what was
    there: generated code writes the result in place."""
    last: dict[int, torch.fx.Node] = {}
    """The last node so far that uses each storage."""
    for node in list(graph.nodes):
        if node.op == "output":
            return
        if node.target is _COPY and not node.users:
            target, source = node.args[:2]
            if isinstance(source, torch.fx.Node) and source.op == "call_function":
                order = {each: index for index, each in enumerate(graph.nodes)}
                readers = [last[each] for each in _storages([target]) if each in last]
                max(source, *readers, key=order.__getitem__).append(node)
                node.meta.update({name: source.meta[name] for name in _PLACE if name in source.meta})
        last.update((each, node) for each in _storages(node.all_input_nodes))


def _steps(graph: torch.fx.Graph) -> list[tuple[torch.fx.Node, list[torch.fx.Node]]]:
    """The nodes in order, each with those whose values nobody uses after it."""
    used: set[torch.fx.Node] = set()
    steps: list[tuple[torch.fx.Node, list[torch.fx.Node]]] = []
    for node in reversed(graph.nodes):
        last = [each for each in node.all_input_nodes if each not in used]
        used.update(last)
        steps.append((node, last if node in used or node.op == "output" else [*last, node]))
    return steps[::-1]
