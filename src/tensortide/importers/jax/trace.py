"""Functions and their arguments, traced to a Program without running them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tensortide.errors import CaptureError, TensortideError, WorkloadError, headline
from tensortide.importers.jax import compat
from tensortide.importers.jax.avals import cell_of
from tensortide.importers.jax.flatten import Flattener, Scope
from tensortide.importers.jax.program import Cell, Leaf, Loop, Program, loops
from tensortide.importers.jax.tree import containers, leaf_of, name_of, paired, path_of

T = TypeVar("T")
_KERAS = ("trainable_variables", "non_trainable_variables", "inputs")
_LOADED = ("jax", "jaxlib", "flax", "optax")


def is_jax(target: object) -> bool:
    """Tell what this importer takes from any other object, without importing JAX: a pair of a function and its
    arguments of which one is JAX's, a traced function, a jaxpr."""
    if "jax" not in sys.modules:
        return False
    if compat.is_closed(target) or _is_staged(target):
        return True
    if not isinstance(target, tuple | list) or not 2 <= len(target) <= 3 or not callable(target[0]):
        return False
    import jax

    function, *arguments = target
    if hasattr(function, "lower") and hasattr(function, "trace"):
        return True
    try:
        kinds = {_root(leaf) for leaf in jax.tree_util.tree_leaves(arguments)}
    except ValueError as error:  # keys that cannot be sorted
        raise WorkloadError(f"JAX cannot take the arguments apart: {error}") from error
    return bool(kinds & set(_LOADED)) or (kinds <= {"numpy", "builtins"} and _mentions(function))


def _is_staged(target: object) -> bool:
    return type(target).__name__ in ("Traced", "Lowered", "Compiled") and _root(target) == "jax"


def _root(value: object) -> str:
    return str(type(value).__module__).partition(".")[0]


def _mentions(function: Any) -> bool:
    """Return whether the module of ``function`` imports JAX."""
    names = vars(sys.modules.get(getattr(function, "__module__", "") or "", None) or object)
    return any(getattr(value, "__name__", None) == "jax" for value in names.values())


def traced(target: Any, trips: Mapping[str, int]) -> Program:
    """Trace ``target`` (see ``is_jax``). ``trips`` are trip counts of while loops by name.

    Raises CaptureError if the function fails on abstract arrays, WorkloadError for what holds no jaxpr.
    """
    if compat.is_closed(target):
        return _of_jaxpr(target, trips)
    if _is_staged(target):
        if not hasattr(target, "jaxpr"):
            raise WorkloadError(
                f"a {type(target).__name__} of JAX holds no jaxpr any more: open jitted.trace(*arguments) instead"
            )
        return _of_stage(target, (target.args_info, {}), getattr(target, "fun_name", "jax"), (), trips)
    function, arguments, keywords = _parts(target)
    return _of_call(function, arguments, keywords, trips)


def abstractly(make: Callable[[], T]) -> T:
    """Return what ``make`` does, called so that JAX allocates and computes nothing in it: as if it were traced.

    Where that fails, as its code needs a value, it is called for real, and what it raises then is the error.
    """
    import jax

    made: list[T] = []

    def trace() -> tuple[()]:
        made.append(make())
        return ()

    try:
        jax.eval_shape(trace)
    except (TensortideError, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return make()
    return made[0]


def _parts(target: Sequence[Any]) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    function, arguments, *rest = target
    keywords = rest[0] if rest else {}
    if not isinstance(arguments, tuple | list):
        arguments = (arguments,)
    if not isinstance(keywords, Mapping):
        raise WorkloadError(
            f"(function, arguments, keywords): keywords is a {type(keywords).__name__}, not a dictionary"
        )
    return function, tuple(arguments), dict(keywords)


def _of_call(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], trips: Mapping[str, int]
) -> Program:
    import jax

    name = str(getattr(function, "__name__", type(function).__name__))
    names = _names(function, len(arguments))
    try:
        if _holds_modules((arguments, keywords)):
            pure, given = _split(function, arguments, keywords, names)
            return _of_stage(jax.jit(pure).trace(*given), (given, {}), name, ("", ""), trips)
        if _is_keras(function):
            pure, given = _stateless(function, arguments, keywords)
            return _of_stage(jax.jit(pure).trace(*given), (given, {}), name, _KERAS, trips)
        if hasattr(function, "trace") and hasattr(function, "lower"):
            stage = function.trace(*arguments, **keywords)
            return _of_stage(stage, (arguments, keywords), name, names, trips)
        called, arrays, kept = _dynamic(function, arguments, keywords)
        stage = jax.jit(called).trace(*arrays)
        return _of_stage(stage, (arguments, keywords), name, names, trips, kept)
    except TensortideError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise CaptureError(f"{name} cannot be traced by JAX: {_said(error)}") from error


def _said(error: Exception) -> str:
    """Return the first lines of an error and the user's line that raised it."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not compat.is_library(frame.filename) and "/tensortide/" not in frame.filename]
    where = f"\n  at {own[-1].filename}:{own[-1].lineno}: {own[-1].line}" if own else ""
    return f"{type(error).__name__}: {headline(error)}{where}"


def _names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return the names of the positional parameters, as far as the signature tells."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in kinds)[:count]


def _dynamic(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Callable[..., Any], list[Any], list[bool]]:
    """Return a function of the arrays alone, the arrays, and which leaves these are. Flags, texts and other objects
    stay as they are."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten((arguments, keywords))
    kept = [_is_array(leaf) for leaf in leaves]

    def call(*arrays: Any) -> Any:
        rest = iter(arrays)
        filled = [next(rest) if dynamic else leaf for leaf, dynamic in zip(leaves, kept, strict=True)]
        positional, named = jax.tree_util.tree_unflatten(tree, filled)
        return function(*positional, **named)

    call.__name__ = str(getattr(function, "__name__", "function"))
    return call, [leaf for leaf, dynamic in zip(leaves, kept, strict=True) if dynamic], kept


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, bool):
        return False
    return isinstance(leaf, int | float | complex) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _is_keras(function: Any) -> bool:
    """Tell a Keras model; its backend is JAX, as its arguments are."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(function, keras.Model) and keras.backend.backend() == "jax"


def _stateless(
    model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function of the variables of a Keras model, by their paths, and of its inputs; and these arguments."""
    trained = {variable.path.replace("/", "."): variable.value for variable in model.trainable_variables}
    others = {variable.path.replace("/", "."): variable.value for variable in model.non_trainable_variables}
    order = [*trained], [*others]  # JAX sorts the keys of dictionaries

    def pure(trained: Any, others: Any, inputs: Any) -> Any:
        values = [[group[path] for path in paths] for group, paths in zip((trained, others), order, strict=True)]
        return model.stateless_call(*values, *inputs, **keywords)

    return pure, (trained, others, arguments)


def _is_module(value: Any) -> bool:
    """Tell an object of Flax NNX, whose state a function may change."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Module | nnx.Optimizer)


def _holds_modules(values: Any) -> bool:
    import jax

    return any(map(_is_module, jax.tree_util.tree_leaves(values, is_leaf=_is_module)))


def _split(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], names: tuple[str, ...]
) -> tuple[Callable[..., Any], tuple[Any, Any]]:
    """Return a function of the state of the NNX objects among the arguments and of the arrays, both by name, that
    returns the new state too; and these arguments."""
    import jax
    from flax import nnx

    entries, tree = jax.tree_util.tree_flatten_with_path((arguments, keywords), is_leaf=_is_module)
    keys = [".".join(path_of(path, names)) for path, _ in entries]
    graph, state = nnx.split({key: leaf for key, (_, leaf) in zip(keys, entries, strict=True) if _is_module(leaf)})
    arrays = {key: leaf for key, (_, leaf) in zip(keys, entries, strict=True) if _is_array(leaf)}
    plain = getattr(function, "__wrapped__", function)

    def pure(state: Any, arrays: Any) -> Any:
        objects = nnx.merge(graph, state)
        found = {**objects, **arrays}
        filled = [found.get(key, leaf) for key, (_, leaf) in zip(keys, entries, strict=True)]
        positional, named = jax.tree_util.tree_unflatten(tree, filled)
        out = plain(*positional, **named)
        return out, nnx.split(objects)[1]

    return pure, (state, arrays)


def _of_stage(
    stage: Any,
    given: Any,
    name: str,
    names: tuple[str, ...],
    trips: Mapping[str, int],
    kept: Sequence[bool] | None = None,
) -> Program:
    """Make the Program of a traced call. ``kept``: which leaves of the arguments ``given`` are operands."""
    import jax

    jaxpr = stage.jaxpr
    flattener = Flattener(trips)
    invars = compat.opened(jaxpr)[0].invars
    paths, _ = jax.tree_util.tree_flatten_with_path(given)
    held = containers(given)
    entries = [entry for i, entry in enumerate(paths) if kept is None or kept[i]]
    if len(entries) != len(invars):  # static arguments of a jitted function have no operand
        entries, _ = jax.tree_util.tree_flatten_with_path(stage.args_info)
    donated = _donated(stage, len(invars))
    arrays = jax.tree_util.tree_leaves(given)
    flattener.partitioned = compat.devices_of(getattr(array, "sharding", None) for array in arrays)
    leaves = [
        leaf_of(path_of(path, names), cell_of(var.aval), held.get(path, ()), gives)
        for (path, _), var, gives in zip(entries, invars, donated, strict=True)
    ]
    for leaf in leaves:
        leaf.cell.name = name_of(leaf.path)
    nodes, results = flattener.run(jaxpr, [leaf.cell for leaf in leaves], Scope())
    trees = [jax.tree_util.tree_structure(given), jax.tree_util.tree_structure(stage.out_info)]
    positions = [i for i in range(trees[0].num_leaves) if kept is None or kept[i]]
    updates: list[tuple[Leaf, Cell]] = []
    if len(positions) == len(leaves):
        whole: list[Leaf | None] = [None] * trees[0].num_leaves
        for i, leaf in zip(positions, leaves, strict=True):
            whole[i] = leaf
        updates = paired(trees[0], whole, trees[1], results)
    return _program(name, flattener, nodes, leaves, results, updates)


def _donated(stage: Any, count: int) -> list[bool]:
    import jax

    infos = jax.tree_util.tree_leaves(stage.args_info)
    return [bool(getattr(info, "donated", False)) for info in infos] if len(infos) == count else [False] * count


def _of_jaxpr(jaxpr: Any, trips: Mapping[str, int]) -> Program:
    inner, _ = compat.opened(jaxpr)
    names = getattr(getattr(inner, "debug_info", None), "arg_names", None) or ()
    names = [str(name) for name in names] if len(names) == len(inner.invars) else []
    cells = [cell_of(var.aval) for var in inner.invars]
    leaves = [Leaf((names[i] if names else f"x{i}",), cell) for i, cell in enumerate(cells)]
    for leaf in leaves:
        leaf.cell.name = name_of(leaf.path)
    flattener = Flattener(trips)
    nodes, results = flattener.run(jaxpr, cells, Scope())
    return _program(compat.function_of(jaxpr)[0] or "jaxpr", flattener, nodes, leaves, results, [])


def _program(
    name: str,
    flattener: Flattener,
    nodes: list[Any],
    leaves: list[Leaf],
    results: list[Cell],
    updates: list[tuple[Leaf, Cell]],
) -> Program:
    import jax

    if unknown := sorted(set(flattener.trips) - flattener.used):
        known: list[str] = [loop.name for loop in _whiles(nodes)]
        raise WorkloadError(f"no loop {unknown[0]!r}. Its loops: {', '.join(known) or 'none'}")
    made = Program(name, nodes, leaves, flattener.constants, results, updates)
    made.devices, made.version = flattener.devices, f"jax {jax.__version__}"
    made.partitioned = flattener.partitioned
    return made


def _whiles(nodes: list[Any]) -> list[Loop]:
    return [loop for loop in loops(nodes) if loop.name.startswith("while")]
