"""Workloads that build no PyTorch step but an object of a framework, which an importer converts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import CodeType, ModuleType
from typing import Any

import msgspec

from tensortide.errors import ProgramFailed, TensortideError, WorkloadError
from tensortide.graph import Graph, unrolled, with_trips
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, importers
from tensortide.python_object import failure
from tensortide.recorder.target import Scalar, Workload, parse_settings

_DEEP = 12
"""Most functions and classes from one to the next that are looked through for what they use."""


def frameworks_of(function: Callable[..., Any]) -> frozenset[str]:
    """Return the dotted names of modules that ``function`` uses, directly or through functions and classes of its own
    module: ``jax``, ``jax.numpy``, ``torch.export``. Nothing is called or imported for it."""
    return frozenset(_names(function, set(), _DEEP))


def _names(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    if id(value) in seen or depth < 0:
        return
    seen.add(id(value))
    if isinstance(value, type):
        for base in value.__mro__:
            yield base.__module__
        for member in vars(value).values():
            yield from _names(member, seen, depth - 1)
        return
    plain = inspect.unwrap(value) if callable(value) else value
    if plain is not value:
        yield str(getattr(type(value), "__module__", ""))
    code, spaces = getattr(plain, "__code__", None), getattr(plain, "__globals__", {})
    if not isinstance(code, CodeType):
        return
    home = getattr(plain, "__module__", None)
    for name, attributes in _used(code):
        found = spaces.get(name)
        if isinstance(found, ModuleType):
            yield found.__name__
            yield from (f"{found.__name__}.{attribute}" for attribute in attributes)
        elif found is None:
            yield name  # a module that the function itself imports
            yield from (f"{name}.{attribute}" for attribute in attributes if name == "torch")
        else:
            yield str(getattr(found, "__module__", None) or type(found).__module__)
            if getattr(found, "__module__", None) == home:
                yield from _names(found, seen, depth - 1)


def _used(code: CodeType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every name in a function's code, in functions inside it too, with all names beside it: its attributes are
    among them."""
    for name in code.co_names:
        yield name, code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant)


def candidates(function: Callable[..., Any]) -> tuple[Importer, ...]:
    """Return the importers whose frameworks ``function`` uses, or whose object it is itself."""
    known = [importer for importer in importers() if importer.convert is not None and importer.modules]
    if not known or not callable(function):
        return ()
    used = frameworks_of(function)
    return tuple(importer for importer in known if _uses(used, importer.modules) or importer.accepts(function))


def _uses(used: Iterable[str], modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for name in used for module in modules)


def build(found: Workload, hyperparameters: Mapping[str, Scalar]) -> Any:
    """Call the function of a workload. Raises WorkloadError with the user's line for whatever it raises."""
    try:
        return found.function(**hyperparameters)
    except TensortideError:
        raise
    except Exception as error:
        raise ProgramFailed(failure(found.name, error)) from error


def settings_of(found: Workload, settings: Iterable[str]) -> dict[str, Scalar]:
    """Return hyperparameters, and values of symbols of the importer (``trips.while=8``), from ``key=value`` texts."""
    own, symbols = [], dict[str, Scalar]()
    texts = [setting.partition("=") for setting in settings]
    named = _symbols(found, [key.strip() for key, equals, _ in texts if equals])
    for key, equals, text in texts:
        if key.strip() in named and equals:
            symbols[key.strip()] = int(text) if text.strip().isdecimal() else text.strip()
        else:
            own.append(key + equals + text)
    return {**(parse_settings(own, found.function, found.name) if own or not _is_object(found) else {}), **symbols}


def _symbols(found: Workload, names: Iterable[str]) -> set[str]:
    """Tell which settings are symbols of the importer: trip counts, and where objects of the framework leave sizes
    open, what the function does not take itself."""
    if _is_object(found):
        return set(names)
    takes = inspect.signature(found.function).parameters
    everything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    sizes = not everything and any(one.open_sizes for one in candidates(found.function))
    return {name for name in names if "." in name or (sizes and name not in takes)}


def _is_object(found: Workload) -> bool:
    """Tell whether the target is no function that returns an object of a framework, but the object itself."""
    return any(one.convert is not None and one.accepts(found.function) for one in importers())


def converted(found: Workload, settings: Mapping[str, Scalar], options: Mapping[str, object]) -> Imported | None:
    """Build what the function of ``found`` returns and convert it; None if no importer accepts it and it may be a step.

    Names with a dot among ``settings`` are symbols of the importer, and so are names that the function does not take
    where objects of its framework leave sizes open; all others are hyperparameters. Raises WorkloadError for an object
    that nobody takes.
    """
    takes = candidates(found.function)
    make = functools.partial(_made, found, settings, options)
    step = takes[0].abstractly(make) if takes else make()
    if step is None:
        return None
    symbols = _symbols(found, settings)
    hyperparameters = {**step.graph.meta.hyperparameters, **{n: v for n, v in settings.items() if n not in symbols}}
    meta = msgspec.structs.replace(step.graph.meta, workload=found.name, hyperparameters=hyperparameters)
    return replace(step, graph=msgspec.structs.replace(step.graph, meta=meta))


def _made(found: Workload, settings: Mapping[str, Scalar], options: Mapping[str, object]) -> Imported | None:
    """Call the function of a workload and convert what it returns."""
    named = _symbols(found, settings)
    own = {name: value for name, value in settings.items() if name not in named}
    made = found.function if _is_object(found) else build(found, own)
    importer = next((one for one in importers() if one.convert is not None and one.accepts(made)), None)
    if importer is not None and importer.convert is not None:
        symbols, trips = importer.split({name: value for name, value in settings.items() if name in named})
        given = {**options, **({"symbols": symbols} if symbols else {})}
        step = importer.convert(made, importer.options_of(given, found.name))
        return replace(step, graph=with_trips(step.graph, trips))
    if callable(made):
        return None
    kinds = "; ".join(one.kind for one in candidates(found.function))
    raise WorkloadError(
        f"{found.name} returns a {_described(made)}, which nothing converts. It may return {kinds}; "
        "or a function that takes one step of PyTorch"
    )


def captured(function: Callable[..., Any], *, hyperparameters: Mapping[str, Any], name: str = "", **how: Any) -> Graph:
    """Return the Graph of a workload at these settings, whatever its function returns, its loops written out; ``how``
    are options of ``tensortide.capture``, for steps of PyTorch."""
    if _candidates(function):
        step = converted(Workload(name or function.__name__, function), hyperparameters, {})
        if step is not None:
            return unrolled(step.graph)
    from tensortide.recorder import capture

    return capture(function, hyperparameters=hyperparameters, name=name, **how)


_candidates = functools.lru_cache(maxsize=64)(candidates)


def _described(made: object) -> str:
    """Return the type of an object, and of the members of a tuple."""
    if isinstance(made, tuple | list) and made:
        return f"{type(made).__name__} of {', '.join(type(part).__name__ for part in made[:4])}"
    return type(made).__name__
