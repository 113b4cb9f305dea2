"""A verb of the command line: its options are the fields of the requests that its function takes."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from cyclopts import App, Parameter, Token

from tensortide.cli.console import detailed
from tensortide.errors import ExitStatus, OutputError
from tensortide.request import Arg, Option, Request, distinct, made, options

Answer = Callable[..., ExitStatus | None]
HELP_FLAGS = ("--help", "-h", "--help-all")
"""The last one shows every option."""
_REQUESTS, _OPTIONS = "requests", "options"
_TYPED = (int, float, NoneType)


def verb(answer: Answer) -> Answer:
    """The command of ``answer``, whose parameters are requests: its parameters are their options, arguments first.

    What cannot be written is an error before it is called. Its docstring is the help.
    """
    hints = get_type_hints(answer)
    kinds: dict[str, type[Request]] = {name: hints[name] for name in inspect.signature(answer).parameters}
    asked = distinct(answer.__name__, (one for kind in kinds.values() for one in options(kind)))

    def command(*arguments: Any, **given: Any) -> ExitStatus | None:
        typed = signature.bind(*arguments, **given).arguments
        values = {name: value for name, value in typed.items() if not (name in unread and value is None)}
        requests = {name: made(kind, values) for name, kind in kinds.items()}
        prepare(*requests.values())
        with detailed(bool(values.get("verbose"))):
            return answer(**requests)

    unread = {one.field.name for one in asked if one.opt.read is not None}
    # Cyclopts reads signatures: this one is made of the fields, beside which no parameter is written.
    signature = inspect.Signature([_parameter(one) for one in asked])
    command.__signature__ = signature  # type: ignore[attr-defined] # functions may have one of their own
    command.__annotations__ = {one.field.name: _annotation(one) for one in asked}
    command.__name__, command.__module__ = answer.__name__, answer.__module__
    vars(command).update({_REQUESTS: kinds, _OPTIONS: asked})
    command.__doc__ = "\n\n".join(" ".join(part.split()) for part in (answer.__doc__ or "").split("\n\n"))
    return command


class Family(App):
    """Verbs under one name, whose help is made of their requests; ``whole`` shows every option."""

    whole = False

    def help_print(
        self,
        tokens: str | Iterable[str] | None = None,
        *,
        console: Annotated[object, Parameter(parse=False)] = None,
    ) -> None:
        """Print the first screen, or that of the verb that ``tokens`` name."""
        from tensortide.cli.help import print_first, print_verb

        names, apps, _ = self.parse_commands(tokens)
        if names:
            print_verb(apps[-1], names, whole=self.whole)
        else:
            print_first()


def family(name: str, about: str = "") -> Family:
    """Verbs under ``name``, which without a default one are ``about`` something."""
    return Family(name=name, help=about, help_flags=HELP_FLAGS)


def prepare(*requests: Request) -> None:
    """Raise OutputError for files of ``requests`` that cannot be written, and for one that would be written over
    another: before any work that would be lost."""
    known: dict[str, Option] = {}
    for request in requests:
        request.check_files()
        for option, path in request.named_files():
            place = os.path.realpath(path)  # a link is the file that it leads to
            if (other := known.get(place)) is not None and (other.opt.writes or option.opt.writes):
                raise OutputError(f"{other.name} and {option.name} are one file, {path}: give each a name of its own.")
            known[place] = option


def requests_of(command: Answer) -> dict[str, type[Request]]:
    """The requests that a command of ``verb`` takes, by the names of its function's parameters."""
    found: dict[str, type[Request]] = vars(command)[_REQUESTS]
    return found


def options_of(command: Answer) -> tuple[Option, ...]:
    """The options of a command of ``verb``, arguments first."""
    found: tuple[Option, ...] = vars(command)[_OPTIONS]
    return found


def _parameter(one: Option) -> inspect.Parameter:
    name, annotation = one.field.name, _annotation(one)
    if _takes_rest(one):
        return inspect.Parameter(name, inspect.Parameter.VAR_POSITIONAL, annotation=annotation)
    kind = inspect.Parameter.POSITIONAL_ONLY if isinstance(one.opt, Arg) else inspect.Parameter.KEYWORD_ONLY
    default = inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default
    # Cyclopts checks defaults too, by pydantic where a program has imported it: what a text means is no text.
    if one.opt.read is not None and default not in (inspect.Parameter.empty, ()) and not isinstance(default, str):
        default = None
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _takes_rest(one: Option) -> bool:
    """True for the arguments that there may be any number of, wherever they stand between options."""
    return isinstance(one.opt, Arg) and one.is_tuple


def _annotation(one: Option) -> Any:
    """The type of the option for cyclopts, and how it is typed. Texts are read by the request."""
    hint, required = one.hint, one.default is dataclasses.MISSING
    # The request reads texts, so that a wrong one is the same error from Python.
    if one.opt.read is not None:
        hint = tuple[str, ...] if one.is_tuple else str if required else str | None
    # a file may be called [1], which is no list in JSON
    typed: dict[str, Any] = {"json_list": False, "json_dict": False}
    if _takes_rest(one):
        hint, typed["required"] = get_args(hint)[0], required
    # Only a flag that is on needs another to turn it off.
    negative = one.names[0].replace("--", "--no-", 1) if one.default is True else ()
    # Cyclopts would refuse numbers and words in words of its own.
    if one.opt.read is None and all(kind in _TYPED or get_origin(kind) is Literal for kind in one.kinds):
        typed["converter"] = partial(_typed, one)
    if one.names:
        typed["name"] = one.names
    return Annotated[hint, Parameter(negative=negative, **typed)]


def _typed(one: Option, _: object, tokens: Sequence[Token]) -> Any:
    """The numbers or words that are typed. Raises RequestError as the request does, from Python."""
    values = tuple(one.typed(token.value) for token in tokens)
    return values if one.is_tuple and not _takes_rest(one) else values[0]
