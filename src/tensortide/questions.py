"""Questions of the command line as functions of Python: ``tensortide.fit("gpt2", machine="t4")``.

A function takes a target, whatever it is (``importers/door.py``), and the options of the verb's request by their names
on the command line, with ``_`` for ``-`` (``from_`` for ``--from``, which is a word of Python); or the request itself.
Its signature and its help are made of the request, when it is first asked for.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from tensortide.errors import RequestError
from tensortide.request import Arg, Option, Request, options
from tensortide.targets.keywords import keyword_of, request_of

if TYPE_CHECKING:
    from tensortide.measures.request import Measured
    from tensortide.reports.drawing.request import Drawn
    from tensortide.studies.experiment.runner import Conducted
    from tensortide.studies.fit.results import Fit, FitOnMachines
    from tensortide.studies.placement.outcome import Placed
    from tensortide.studies.remat.budgeted import Budgeted
    from tensortide.studies.scale.study import Scale
    from tensortide.studies.timing.request import TimedStep

    draw: Callable[..., Drawn]
    experiment: Callable[..., Conducted]
    fit: Callable[..., Fit | FitOnMachines]
    metrics: Callable[..., Measured]
    place: Callable[..., Placed]
    scale: Callable[..., Scale]
    simulate: Callable[..., Budgeted]
    time: Callable[..., TimedStep]


class Question(NamedTuple):
    """The request of a question and the function that answers it, by their names in a ``module``.

    ``alone``: it works in the caller's process unless ``threads`` or a ``cluster`` is asked for. Its workers are
    processes, which import the caller's script once more: one that is not written for that would run in each.
    """

    module: str
    request: str
    answer: str = "answer"
    alone: bool = False


QUESTIONS = {
    "draw": Question("tensortide.reports.drawing.request", "DrawRequest"),
    "experiment": Question("tensortide.studies.experiment.request", "TrialsRequest"),
    "fit": Question("tensortide.studies.fit.request", "FitRequest", alone=True),
    "metrics": Question("tensortide.measures.request", "MetricsRequest"),
    "place": Question("tensortide.studies.placement.placed", "PlaceRequest", "place_and_run"),
    "scale": Question("tensortide.studies.scale.request", "ScaleRequest", "scale_and_run", alone=True),
    "simulate": Question("tensortide.studies.remat.simulate", "SimulateRequest", "simulate"),
    "time": Question("tensortide.studies.timing.request", "TimeRequest"),
}
"""Questions by the name of their function."""


def __getattr__(name: str) -> Any:
    if name not in QUESTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(QUESTIONS[name].module)
    kind, answer = getattr(module, QUESTIONS[name].request), getattr(module, QUESTIONS[name].answer)
    found = globals()[name] = question(name, kind, answer, alone=QUESTIONS[name].alone)
    return found


def question(
    name: str, kind: type[Request], answer: Callable[[Any], Any], *, alone: bool = False
) -> Callable[..., Any]:
    """The function ``name`` that makes a request of this ``kind`` and answers it; ``alone`` as in a Question."""
    known = {keyword_of(one): one for one in options(kind)}
    target = next(key for key, one in known.items() if isinstance(one.opt, Arg))

    def ask(*arguments: Any, **given: Any) -> Any:
        if len(arguments) > 1:
            raise RequestError(f"{name} takes one target; options are given by name: {name}(target, {_example(known)})")
        if arguments and isinstance(arguments[0], Request):
            asked = _ready(name, kind, arguments[0], given)
        else:
            if alone and "cluster" not in given:
                given.setdefault("threads", 1)
            asked = request_of(name, kind, {**dict.fromkeys((target,)[: len(arguments)], *arguments), **given})
        asked.check_files()
        return answer(asked)

    ask.__signature__ = inspect.Signature([_parameter(*each) for each in known.items() if not each[1].opt.hidden])  # type: ignore[attr-defined]
    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = _help(name, kind, answer, known)
    return ask


def _ready(name: str, kind: type[Request], asked: Request, given: Mapping[str, Any]) -> Request:
    """A request that was made before. Raises RequestError for one of another question, and for options beside it."""
    if not isinstance(asked, kind):
        raise RequestError(f"{name} takes a {kind.__name__}, not a {type(asked).__name__}")
    if given:
        raise RequestError(f"{', '.join(given)}: a request has all options; make one with dataclasses.replace")
    return asked


def _example(known: Mapping[str, Option]) -> str:
    return f"{next(key for key, one in known.items() if not isinstance(one.opt, Arg))}=..."


def _parameter(key: str, one: Option) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if isinstance(one.opt, Arg) else inspect.Parameter.KEYWORD_ONLY
    default = inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default
    return inspect.Parameter(key, kind, default=default, annotation=Any if isinstance(one.opt, Arg) else one.hint)


def _help(name: str, kind: type[Request], answer: Callable[..., Any], known: Mapping[str, Option]) -> str:
    """The text of ``help``: the question, its options, and what its answer says of itself."""
    shown = [f"    {key}: {one.opt.help}" for key, one in known.items() if not one.opt.hidden]
    docs = [inspect.cleandoc(kind.__doc__ or ""), f"Args (or one {kind.__name__}):\n" + "\n".join(shown)]
    return "\n\n".join([*docs, inspect.cleandoc(answer.__doc__ or "")])
