"""Requests: the options of a question. A request is a frozen dataclass, and each of its fields is an option, written
once: the command line parses it, Python takes it, and ``--help`` and the tables of the docs are made of it.

A field is annotated with an Opt (an Arg: it stands without a name), or is a request itself, whose options are as its
own::

    @dataclass(frozen=True, kw_only=True)
    class PlanRequest(Request):
        target: Annotated[str, Arg("A workload, ...")]
        budget: Annotated[int | None, Opt("Memory budget: 8GiB.", read=parse_bytes)] = None
        capture: CaptureRequest = CaptureRequest()
        RULES = (needs("host_link", "offload"),)
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from tensortide.errors import RequestError, TensortideError
from tensortide.write import check_writable


@dataclass(frozen=True)
class Opt:
    """An option: what it is for, and which values it takes.

    Args:
        help: a sentence or two. A default that is a number or a word is shown after it, unless the
            sentence speaks of a default; and that it may be repeated.
        names: on the command line, ``"--output -o"`` (default: that of the field).
        least, above, most: the range of a number, or of each number of a tuple. Numbers are finite unless ``infinite``.
        read: the value that a text means, of each text of a tuple: ``parse_bytes``. It raises ValueError or a
            TensortideError for a text that means nothing, and leaves a text that it has returned as it is.
        writes: a file that is written: one that cannot be, or that another option names too, is an error before any
            work is done. ``replaces``: as for ``write_file``, or a function that says it of a path.
        common: ``--help`` shows it; the others are shown by ``--help-all``.
        value: the word for its value in ``--help``, ``"KEY=VALUE"`` (default: that of its type or reader).
        group: the heading above it in ``--help-all`` (default: that of the request).
        of: the kinds of targets that it goes with (default: all).
        hidden: neither ``--help-all`` nor the docs show it.
    """

    help: str
    names: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    infinite: bool = False
    read: Callable[[Any], Any] | None = None
    writes: bool = False
    replaces: str | Callable[[Path], str] = ""
    common: bool = False
    value: str = ""
    group: str = ""
    of: tuple[str, ...] = ()
    hidden: bool = False


OutFile = partial(Opt, writes=True, common=True, group="Output")
"""An option that names a file for a result."""
OutFolder = partial(Opt, common=True, value="FOLDER", group="Output")
"""An option that names a folder for results."""


@dataclass(frozen=True)
class Arg(Opt):
    """An option that is given by its place."""


class Option(NamedTuple):
    """A field that is an option. ``hint`` is its type, ``path`` the fields of requests that lead to it."""

    field: dataclasses.Field[Any]
    hint: Any
    opt: Opt
    path: tuple[str, ...]
    group: str

    @property
    def name(self) -> str:
        """The name that errors call it by, as on the command line: ``--time-limit``."""
        return self.names[0] if self.names else self.field.name.upper()

    @property
    def names(self) -> tuple[str, ...]:
        """The names on the command line; of an argument none."""
        usual = f"--{self.field.name.replace('_', '-')}"
        return () if isinstance(self.opt, Arg) else tuple(self.opt.names.split()) or (usual,)

    @property
    def default(self) -> Any:
        """The default; ``dataclasses.MISSING`` if it must be given."""
        make = self.field.default_factory
        return self.field.default if make is dataclasses.MISSING else make()

    @property
    def is_tuple(self) -> bool:
        """True if it may be repeated."""
        return get_origin(self.hint) is tuple

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of a single value, those of Literals among them."""
        return _parts(self.hint)

    @property
    def takes(self) -> str:
        """The values that it takes, in words: ``a whole number from 1``."""
        return " or ".join(_words(self.kinds, self.opt))

    def typed(self, text: str) -> Any:
        """The number or the word that ``text`` is. Raises RequestError if it is none that the option takes."""
        for kind in self.kinds:
            if get_origin(kind) is Literal:
                if found := [word for word in get_args(kind) if str(word) == text]:
                    return found[0]
            elif kind is not NoneType:
                try:
                    return kind(text)
                except ValueError:
                    continue
        raise self.refusal(text)

    def refusal(self, value: object) -> RequestError:
        """The error that it does not take ``value``."""
        return RequestError(f"{self.name} takes {self.takes}, not {_shown(value)}")


def _parts(hint: Any) -> tuple[Any, ...]:
    """The types that ``hint`` allows for a single value."""
    if get_origin(hint) in (tuple, Annotated):
        inner = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
        return tuple(part for one in inner if one is not Ellipsis for part in _parts(one))
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _words(kinds: tuple[Any, ...], opt: Opt) -> list[str]:
    """Words for values of these ``kinds``, one after the other."""
    names: dict[Any, str] = {bool: "True or False", str: "a text", Path: "a file"}
    words: list[str] = []
    for kind in kinds:
        if get_origin(kind) is Literal:
            *others, last = map(str, get_args(kind))
            words += [f"{', '.join(others)} or {last}" if others else last]
        elif kind is int and float not in kinds:
            words.append(_range("a whole number", opt))
        elif kind is float:
            words.append(_range("a number" if opt.infinite else "a finite number", opt))
        elif kind not in (int, NoneType):
            words.append(names.get(kind, getattr(kind, "__name__", str(kind))))
    return words


_R = TypeVar("_R", bound="Request")
_KNOWN: dict[type[Request], tuple[Option, ...]] = {}
_HINTS: dict[type[Request], dict[str, Any]] = {}


class Rule(NamedTuple):
    """Options that exclude each other, or go with others. ``fault`` is what is wrong with a request, None if nothing
    is; ``names`` are the fields that it is about."""

    names: tuple[str, ...]
    fault: Callable[[Request], str | None]


def exclusive(*names: str, why: str = "") -> Rule:
    """At most one of these options is given."""

    def fault(request: Request) -> str | None:
        found = [option_of(type(request), name).name for name in names if request.has(name)]
        return f"{' and '.join(found)} exclude each other{why and f': {why}'}" if len(found) > 1 else None

    return Rule(names, fault)


def needs(name: str, *others: str, why: str = "", **values: object) -> Rule:
    """The option ``name`` goes with one of the ``others``, or with those that have one of these ``values``."""
    allowed = {other: value if isinstance(value, tuple) else (value,) for other, value in values.items()}

    def fault(request: Request) -> str | None:
        kind = type(request)
        found = [*map(request.has, others), *(request.get(other) in some for other, some in allowed.items())]
        if any(found) or not request.has(name):
            return None
        one = [option_of(kind, other).name for other in others]
        one += [f"{option_of(kind, other).name} {' or '.join(map(str, some))}" for other, some in allowed.items()]
        return f"{option_of(kind, name).name} goes with {' or '.join(one)}{why and f': {why}'}"

    return Rule((name, *others, *values), fault)


def either(*names: str, why: str = "") -> Rule:
    """Exactly one of these options is given."""

    def fault(request: Request) -> str | None:
        found = [name for name in names if request.has(name)]
        shown = " or ".join(option_of(type(request), name).name for name in names)
        return None if len(found) == 1 else f"{why and f'{why}: '}give either {shown}"

    return Rule(names, fault)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A question's options; a subclass is a frozen dataclass, made with names.

    ``GROUP`` is the heading above its options in ``--help-all``. ``RULES`` say which options exclude each other or go
    together, also those of requests inside.

    Raises:
        RequestError: a value that is out of its range or means nothing, or options that do not go together.
    """

    GROUP: ClassVar[str] = ""
    RULES: ClassVar[tuple[Rule, ...]] = ()

    def __post_init__(self) -> None:
        """Read texts, and check values and rules."""
        for option in options(type(self)):
            if len(option.path) == 1:
                value = _read(option, getattr(self, option.field.name))
                object.__setattr__(self, option.field.name, value)  # a frozen field is set once, as it is read
                _check(option, value)
        for name, inner in _inside(type(self)):
            if not isinstance(getattr(self, name), inner):
                raise RequestError(f"{name} takes a {inner.__name__}, not {_shown(getattr(self, name))}")
        for rule in self.RULES:
            if (fault := rule.fault(self)) is not None:
                raise RequestError(fault)

    def get(self, name: str) -> Any:
        """The value of the option ``name``, whichever request has it."""
        value: Any = self
        for part in option_of(type(self), name).path:
            value = getattr(value, part)
        return value

    def has(self, name: str) -> bool:
        """Tell whether the option ``name`` is given: it is not at its default."""
        return bool(self.get(name) != option_of(type(self), name).default)

    def given(self) -> list[Option]:
        """The options that are given."""
        return [one for one in options(type(self)) if self.has(one.field.name)]

    def named_files(self) -> Iterator[tuple[Option, Path]]:
        """The files that options name, and those that their texts, as that of the target, are names of."""
        for option in options(type(self)):
            value = self.get(option.field.name)
            for one in value if option.is_tuple else (value,):
                if isinstance(one, Path) or (isinstance(one, str) and os.path.isfile(one)):  # noqa: PTH113 # any text
                    yield option, Path(one)

    def check_files(self) -> None:
        """Raise OutputError for a file that cannot be written."""
        for option, path in self.named_files():
            if option.opt.writes:
                replaces = option.opt.replaces
                check_writable(path, replaces=replaces if isinstance(replaces, str) else replaces(path))


def options(kind: type[Request]) -> tuple[Option, ...]:
    """The options of a request, arguments first, and its own before those of the requests inside.

    Raises TypeError for a request that is not as it must be: two options of one name, a rule about none, or a request
    inside with other defaults than its own.
    """
    if kind not in _KNOWN:
        found = distinct(kind.__name__, sorted(_options(kind, ()), key=lambda one: len(one.path)))
        about = {name for rule in kind.RULES for name in rule.names}
        if wrong := about - {one.field.name for one in found}:
            raise TypeError(f"{kind.__name__} has rules about {', '.join(sorted(wrong))}, which are no options")
        _KNOWN[kind] = found
    return _KNOWN[kind]


def distinct(owner: str, found: Iterable[Option]) -> tuple[Option, ...]:
    """The options ``found``, arguments first. Raises TypeError where two of ``owner`` have one name."""
    every = sorted(found, key=lambda one: not isinstance(one.opt, Arg))
    names = [name for one in every for name in (one.field.name, *one.names)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TypeError(f"{owner} has two options {', '.join(sorted(twice))}")
    return tuple(every)


def option_of(kind: type[Request], name: str) -> Option:
    """The option whose field is ``name``."""
    return next(one for one in options(kind) if one.field.name == name)


def made(kind: type[_R], values: Mapping[str, Any]) -> _R:
    """The request with these values of its options, by the names of their fields; others may be among them."""
    own = {one.field.name for one in options(kind) if len(one.path) == 1}
    given = {name: value for name, value in values.items() if name in own}
    return kind(**given, **{name: made(inner, values) for name, inner in _inside(kind)})


def _hints(kind: type[Request]) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind, include_extras=True)
    return _HINTS[kind]


def _inside(kind: type[Request]) -> Iterator[tuple[str, type[Request]]]:
    """The fields of ``kind`` that are requests."""
    for field in dataclasses.fields(kind):
        hint = _hints(kind)[field.name]
        if isinstance(hint, type) and issubclass(hint, Request):
            yield field.name, hint


def _options(kind: type[Request], path: tuple[str, ...]) -> Iterator[Option]:
    inside = dict(_inside(kind))
    for field in dataclasses.fields(kind):
        hint, here = _hints(kind)[field.name], (*path, field.name)
        if (inner := inside.get(field.name)) is not None:
            _check_defaults(kind, field, inner)
            yield from _options(inner, here)
        elif opts := [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Opt)]:
            yield Option(field, get_args(hint)[0], opts[0], here, opts[0].group or kind.GROUP)


def _check_defaults(kind: type[Request], field: dataclasses.Field[Any], inner: type[Request]) -> None:
    """Raise TypeError for a request inside with another default than its options, which the command line has."""
    default = field.default
    if isinstance(default, Request) and (wrong := [one.name for one in options(inner) if default.has(one.field.name)]):
        raise TypeError(f"{kind.__name__}.{field.name} has other defaults than {inner.__name__}: {', '.join(wrong)}")


def _read(option: Option, value: Any) -> Any:
    """``value``, or what its text means. Of an option that may be repeated a single text is one, and a mapping has the
    texts ``key=value``."""
    if not option.is_tuple:
        return _read_one(option, value)
    if isinstance(value, Mapping):
        value = tuple(f"{name}={each}" for name, each in value.items())
    values = (value,) if isinstance(value, str | os.PathLike) else value
    if not isinstance(values, tuple | list):
        raise RequestError(f"{option.name} takes a tuple, not {_shown(value)}")
    return tuple(_read_one(option, one) for one in values)


def _read_one(option: Option, value: Any) -> Any:
    read, is_text = option.opt.read, isinstance(value, str)
    if isinstance(value, os.PathLike) and Path not in option.kinds and str in option.kinds:
        return os.fspath(value)
    if read is None:
        return Path(value) if is_text and Path in option.kinds and str not in option.kinds else value
    if not is_text and (any(_is(value, kind) for kind in option.kinds) or not _is(value, float)):
        return value
    try:
        return read(str(value))  # a number is read as it would be typed: 0.6 of a peak
    except (ValueError, TensortideError) as error:
        reason = str(error)
        named = option.name if str(value) in reason else f"{option.name} {value}"
        raise RequestError(reason if reason.startswith(option.name) else f"{named}: {reason}") from error


def _check(option: Option, value: Any) -> None:
    """Raise RequestError for a value of another type, a number out of range, or a word that is none of the choices."""
    opt, kinds = option.opt, option.kinds
    for one in value if option.is_tuple else (value,):
        if not any(_is(one, kind) for kind in kinds):
            raise option.refusal(one)
        if isinstance(one, bool) or not isinstance(one, int | float):
            continue
        finite = isinstance(one, int) or math.isfinite(one) or (opt.infinite and one == math.inf)
        low = (opt.least is None or one >= opt.least) and (opt.above is None or one > opt.above)
        if not (finite and low and (opt.most is None or one <= opt.most)):
            raise option.refusal(one)


def _is(value: object, kind: Any) -> bool:
    """True if ``value`` is of this ``kind``, as far as can be told of a type."""
    if get_origin(kind) is Literal:
        return any(type(value) is type(word) and value == word for word in get_args(kind))
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)  # True is an int to Python
    plain = get_origin(kind) or kind
    return plain is Any or not isinstance(plain, type) or isinstance(value, plain)


def _shown(value: object) -> str:
    """A value in an error: whole numbers without a fraction, a text that is nothing in quotes."""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value) or repr(value)


def _range(what: str, opt: Opt) -> str:
    """The numbers that ``opt`` takes, in words."""
    bounds = {"from": opt.least, "above": opt.above, "up to": opt.most}
    return " ".join([what, *(f"{word} {_shown(bound)}" for word, bound in bounds.items() if bound is not None)])
