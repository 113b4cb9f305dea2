"""Stand-ins for values that a step reads from fake tensors, which have none.

A fake tensor has no values. A number that the step reads is taken as 1, a truth value follows by arithmetic from the
numbers that led to it: ``isfinite(loss)`` is true, ``loss > 100`` is false. Ops whose results lie in a known range
(random numbers, indices) have another stand-in. A condition that ends a loop is not met while the loop has another end,
and one that raises an error is not met. Each is recorded as an assumption, with the line that reads it.

To find out whether ops depend on stand-ins, the step runs once more with ``other`` ones.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from tensortide.errors import CaptureError, DataDependent
from tensortide.recorder.known import KNOWN_NUMEL
from tensortide.recorder.reading import Part, Place, part_of, reader
from tensortide.recorder.remedies import FAKE, Remedy
from tensortide.recorder.rounds import STUCK_ROUNDS, Rounds
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import FakeTensor, OpOverload, disable_current_modes, pytree

Number = bool | int | float
READ_LIMIT = 10_000
"""Readings of stand-ins at one line in one step. A loop over an iterator without end would otherwise not end."""
_FEW = 20
"""Readings at one line of which nobody asks whether they end."""
_GIVEN_NUMEL = 4
"""Elements of a tensor of given numbers, such as tokens that end a sequence, at most: labels are many."""
_DECAY = 0.99


class Picked(int):
    """A stand-in for one of many numbers, such as a token that a model chooses: it equals no given number."""


class Values:
    """The stand-ins of one capture. ``given`` are values from the user, by line: ``{"train.py:41": 128}``."""

    def __init__(self, given: Mapping[str, Number] | None = None, remedy: Remedy = FAKE) -> None:
        self.given, self.remedy = dict(given or {}), remedy
        self.used: set[str] = set()
        """Places of ``given`` that have been used."""
        self.taken: dict[Place, list[Number]] = {}
        self.whole: set[Place] = set()
        """Places at which a step reads an integer stand-in."""
        self.other = False
        """True to return stand-ins other than the recorded ones."""
        self.in_step = False
        self.read_in_step = False
        """True if a step, and not only the construction of its model, read a stand-in."""
        self.picked = False
        """True if a number that the step picked was compared with a given one."""
        self._chosen: set[Place] = set()
        """Places whose values are the user's own."""
        self._going: set[Place] = set()
        """Places of conditions that would end a loop."""
        self._counts: Counter[tuple[CodeType, int]] = Counter()
        self._rounds: dict[tuple[CodeType, int], Rounds] = defaultdict(Rounds)

    def starts(self) -> None:
        """Begin a step: reset the count of readings."""
        self.in_step = True
        self._counts.clear()
        self._rounds.clear()

    def read(self, tensor: torch.Tensor) -> Number:
        """The stand-in for an element of ``tensor``. Raises DataDependent if one line reads too often."""
        frame, direct = reader(sys._getframe(1))
        value = self.standing_for(tensor)
        if frame is None:
            return value
        place, part = self._place(frame, direct)
        if type(value) is float:  # as a loss goes down: a line that reads twice finds no convergence
            value *= _DECAY ** (self._counts[frame.f_code, frame.f_lineno] - 1)
        chosen = self.chosen(place)
        if chosen is not None:
            value = typed(tensor.dtype, chosen)
        elif direct and part.wanted is not None and (tensor.dtype == torch.bool or part.tested):
            value = part.wanted
            if part.of_loop:
                self._going.add(place)
        if not self.other:
            self._note(place, value, integer=chosen is None and type(value) is int)
        return value

    def _note(self, place: Place, value: Number, *, integer: bool) -> None:
        before = self.taken.setdefault(place, [])
        if value not in before and len(before) < 4:
            before.append(value)
        self.read_in_step = self.read_in_step or self.in_step
        if integer and self.in_step:
            self.whole.add(place)

    def equal(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        """The stand-in for whether two tensors are equal."""
        return one.shape == other.shape and _known_or_guess(self, one) == _known_or_guess(self, other)

    def standing_for(self, tensor: torch.Tensor) -> Number:
        """The stand-in for the elements of ``tensor``, at any place."""
        guess = getattr(tensor, "guess", None)
        if guess is None:
            guess = 2 if self.other else 1
        elif self.other and isinstance(guess, Picked):
            guess += 1
        elif self.other and type(guess) is int and guess > 1:
            guess -= 1
        return typed(tensor.dtype, guess)

    def chosen(self, place: Place) -> Number | None:
        """The value given by the user for ``place``, if any."""
        for key, value in self.given.items():
            file, _, line = key.rpartition(":")
            if line == str(place.line) and _names(file, place.file):
                self.used.add(key)
                self._chosen.add(place)
                return value
        return None

    def size(self) -> int | None:
        """The number of elements given by the user for an op whose result has a size that depends on values, if any."""
        frame, direct = reader(sys._getframe(1))
        if frame is None:
            return None
        place, _ = self._place(frame, direct)
        chosen = self.chosen(place)
        if chosen is not None:
            self.taken.setdefault(place, [int(chosen)])
        return None if chosen is None else int(chosen)

    def _place(self, frame: FrameType, direct: bool) -> tuple[Place, Part]:
        """The place that reads, and its part. Raises DataDependent for a loop that does not end."""
        key, part = (frame.f_code, frame.f_lineno), part_of(frame)
        self._counts[key] = count = self._counts[key] + 1
        place = Place(frame.f_code.co_filename, frame.f_lineno, part.text, direct)
        loop = self._rounds[key].stuck(frame) if direct and count > _FEW else ""
        if loop:
            raise self._endless(place, f"{loop} has come no nearer to its end in {STUCK_ROUNDS} rounds")
        if count > READ_LIMIT:
            raise self._endless(place, f"values are read over {READ_LIMIT:,} times at one line")
        return place, part

    def _endless(self, place: Place, why: str) -> DataDependent:
        """The error of a loop that does not end."""
        given = ", ".join(f"{key}={value}" for key, value in self.given.items())
        other = f": what --assume {given} says is the same in each round" if given else ""
        other = other or f", or give the value with --assume '{place}=VALUE' (assume={{'{place}': VALUE}})"
        error = DataDependent(
            f"a loop of the step waits for a value that fake tensors do not have: {why}\n"
            f"  at {place.file}:{place.line}: {place.text}\n"
            f"{self.remedy.sentence[:-1]}{other}."
        )
        error.reason = f"a loop waits for {place.text} at {place}"
        return error

    def check(self) -> None:
        """Raise CaptureError if a value was given for a line that reads none."""
        for key in self.given.keys() - self.used:
            read = ", ".join(sorted({str(place) for place in self.taken})) or "no line does"
            raise CaptureError(f"{key} reads no value and chooses no elements. These lines do: {read}")

    def assumptions(self, depends: bool | None) -> list[str]:
        """One sentence per line. ``depends``: whether ops of the step follow from the values; None if unknown."""
        plain = self._said([place for place in self.taken if place not in self._going])
        going = self._said([place for place in self.taken if place in self._going])
        if plain and depends is not None:
            plain[-1] += f"; other values {'' if depends else 'do not '}change the ops of the step"
        if self.picked and any(type(value) is bool for values in self.taken.values() for value in values):
            plain.append("numbers that the step picks (argmax, samples) equal no given one: no token ends a sequence")
        return plain + [f"{text}: the loop goes on until something else ends it" for text in going]

    def decisive(self, depends: bool | None) -> tuple[list[str], list[str]]:
        """Sentences on readings that ops or sizes of the step follow from, and on those that they may follow from."""
        own = [place for place in self.taken if place not in self._chosen]
        going = self._said([place for place in own if place in self._going])
        plain = self._said([place for place in own if place not in self._going])
        return [*going, *(plain if depends else [])], plain if depends is None else []

    def _said(self, places: Sequence[Place]) -> list[str]:
        lines: dict[str, list[str]] = {}
        for place in sorted(places, key=lambda place: place[:2]):
            what = place.text if place.direct else f"a value that {place.text} reads"
            lines.setdefault(str(place), []).append(f"{what} taken as {_listed(self.taken[place])}")
        return [f"{', '.join(reads)} at {place}" for place, reads in lines.items()]


def _names(file: str, path: str) -> bool:
    """True if ``file``, as a user writes it, is the end of ``path`` or leads to it from the working directory."""
    end = Path(file).parts
    return Path(path).parts[-len(end) :] == end or Path(file).resolve() == Path(path).resolve()


def _listed(values: Sequence[Number]) -> str:
    texts = [f"{value:.4g}" if type(value) is float and value != int(value) else repr(value) for value in values]
    return ", then ".join(texts[:3]) + (", ..." if len(texts) > 3 else "")


def typed(dtype: torch.dtype, value: Number) -> Number:
    """``value`` as an element of ``dtype``."""
    if dtype == torch.bool:
        return bool(value)
    return float(value) if dtype.is_floating_point else int(value)


# -- stand-ins that follow from an op ----------------------------------------------------------------

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
Rule = Callable[[Any, Values, Sequence[Any], Mapping[str, Any], Any], Any]
"""A function of the op, the Values, the arguments and the result that returns the stand-in for the result; None stands
for the default one."""


def _known_or_guess(values: Values, tensor: Any) -> Number:
    constant = getattr(tensor, "constant", None)
    if constant is not None and constant.numel():
        with disable_current_modes():
            return constant.flatten()[0].item()  # type: ignore[no-any-return]
    return values.standing_for(tensor)


def _pointwise(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """Arithmetic on the stand-ins of the operands."""
    if not isinstance(result, torch.Tensor) or "out" in kwargs:
        return None
    if func._schema.is_mutable:
        func = _functional(func)
        if func is None:
            return None

    def scalar(tensor: torch.Tensor) -> torch.Tensor:
        return torch.full((), _known_or_guess(values, tensor), dtype=tensor.dtype, device="cpu")

    picked = any(type(getattr(arg, "guess", None)) is Picked for arg in args)
    name = func._schema.name.removeprefix("aten::")
    if picked and name in ("eq", "ne") and any(_is_given(arg) for arg in args):
        values.picked = True
        return name == "ne"
    with disable_current_modes():
        positional, named = pytree.tree_map_only(torch.Tensor, scalar, (list(args), dict(kwargs)))
        named.pop("device", None)
        try:
            found = func(*positional, **named).item()
        except (RuntimeError, TypeError, NotImplementedError):
            return None
    return Picked(found) if picked and type(found) is int else found


def _is_given(arg: Any) -> bool:
    """True for a number, or a few whose values are known."""
    constant = getattr(arg, "constant", None)
    return isinstance(arg, (int, float)) or (constant is not None and constant.numel() <= _GIVEN_NUMEL)


@functools.cache
def _functional(func: Any) -> Any:
    packet = getattr(torch.ops.aten, func._schema.name.removeprefix("aten::").rstrip("_"), None)
    return getattr(packet, func._overloadname, None)


def _same(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """The stand-in of the first operand, which views, copies, and reductions of equal elements preserve."""
    del func, kwargs, result
    parts = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
    picked = [each.guess for each in parts if type(getattr(each, "guess", None)) is Picked]
    return picked[0] if picked else _known_or_guess(values, parts[0])


def _summed(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    return _same(func, values, args, kwargs, result) * args[0].numel() // max(1, result.numel())


def _within(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """The middle of the range of ``randint`` and ``random_``."""
    del values, result, kwargs
    given: dict[str, Any] = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False))
    low = given["low"] if "low" in given else given.get("from", 0)
    high = given["high"] if "high" in given else given.get("to")
    return low + 1 if high is None else (low + high) // 2


def _isin(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    del func, kwargs, result
    values.picked |= type(getattr(args[0], "guess", None)) is Picked
    return False


def _always(value: Number) -> Rule:
    return lambda *_: value


_SAME = (
    "all any max min amax amin mean median nanmedian mode clone _to_copy contiguous index_select gather take repeat "
    "lift_fresh flip roll sort cummax cummin constant_pad_nd cat stack index masked_select"
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME.split(), _same),
    "sum": _summed,
    "randint": _within,
    "randint_like": _within,
    "random": _within,
    "rand": _always(0.5),
    "rand_like": _always(0.5),
    **dict.fromkeys(("argmax", "argmin", "argsort", "multinomial"), _always(Picked(0))),
    "searchsorted": _always(0),
    "bucketize": _always(0),
    "isin": _isin,
}
"""Rules by the name of an op, without the underscore of its in-place form."""
_MAKERS = frozenset(name for name, rule in _RULES.items() if rule not in (_same, _summed))


@functools.cache
def _rule(func: Any) -> tuple[Rule | None, bool]:
    """The rule of an op, and whether it holds whatever the operands are."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return None, False
    name = func._schema.name.removeprefix("aten::").removesuffix("_")
    if name in _RULES:
        return _RULES[name], name in _MAKERS
    if torch.Tag.pointwise in func.tags:
        return _pointwise, False
    return (_same, False) if func.is_view else (None, False)


def follow(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Give the results of an op the stand-ins that follow from its operands."""
    _follow(func, values, args, kwargs, result)
    if isinstance(result, (tuple, list)) and getattr(func, "_schema", None) is not None:
        for index in result[1:] if func._schema.name in _PICKING else ():
            if isinstance(index, FakeTensor) and index.dtype == torch.int64 and index.constant is None:
                index.guess = Picked(0)  # type: ignore[attr-defined]


_PICKING = frozenset(
    f"aten::{name}" for name in ("max", "min", "topk", "sort", "kthvalue", "median", "mode", "cummax", "cummin")
)
"""Ops whose further results are places of elements."""


def _follow(func: Any, values: Values, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    rule, always = _rule(func)
    if rule is None:
        return
    first = result[0] if isinstance(result, (tuple, list)) and result else result
    if type(first) is not FakeTensor or first.constant is not None:
        return
    if first.dtype != torch.bool:
        if first.is_floating_point() and first.numel() > KNOWN_NUMEL:  # too large to be read
            return
        if not always and not any(_guessed(arg) for arg in args):
            return
    guess = rule(func, values, args, kwargs, first)
    first.guess = guess if guess is None or math.isfinite(guess) else None  # type: ignore[attr-defined]
    for more in result[1:] if first is not result else ():
        if isinstance(more, FakeTensor):
            more.guess = guess if more.dtype == first.dtype else 0  # type: ignore[attr-defined]


def _guessed(arg: Any) -> bool:
    if isinstance(arg, (list, tuple)):
        return bool(arg) and _guessed(arg[0])
    return type(arg) is FakeTensor and (getattr(arg, "guess", None) is not None or arg.dtype == torch.bool)


# -- readings without an op --------------------------------------------------------------------------


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Make methods that read a tensor's memory return the constant or the stand-in of a fake tensor, while active."""
    methods = {
        "__deepcopy__": _deepcopy,
        "tolist": _tolist,
        "numpy": _numpy,
        "__format__": _format,
        "__array__": _array,
    }
    with contextlib.ExitStack() as stack:
        for name, method in methods.items():
            stack.enter_context(replaced(FakeTensor, name, method))
        yield


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) in memo:
        return memo[id(self)]
    if isinstance(self, torch.nn.Parameter):  # which is copied without its gradient
        memo[id(self)] = copied = self.data.clone(memory_format=torch.preserve_format).requires_grad_(
            self.requires_grad
        )
        copied._is_param = True
        return copied
    constant, self.constant = self.constant, None  # PyTorch would make a fake copy of it
    try:
        if constant is None or self.requires_grad:
            return torch.Tensor.__deepcopy__(self, memo)
        with disable_current_modes():
            value = constant.clone()
        copied = self.fake_mode.fake_tensor_converter.from_real_tensor(self.fake_mode, value, make_constant=True)
        memo[id(self)] = copied
        return copied
    finally:
        self.constant = constant


def _tolist(self: Any) -> Any:
    if self.constant is not None:
        with disable_current_modes():
            return self.constant.tolist()
    value = self.fake_mode.values.read(self)

    def nested(shape: Sequence[int]) -> Any:
        return [nested(shape[1:]) for _ in range(shape[0])] if shape else value

    return nested(self.shape)


def _numpy(self: Any, *, force: bool = False) -> Any:
    import numpy

    if self.requires_grad and not force:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    self.detach()  # PyTorch does so too, and it is an op
    with disable_current_modes():
        known = (
            torch.empty(0, dtype=self.dtype, device="cpu") if self.constant is None else self.constant.detach().clone()
        )
        array = known.numpy()
    if self.constant is None:
        array = numpy.full(tuple(self.shape), self.fake_mode.values.read(self), dtype=array.dtype)
    return numpy.asarray(_Memory(self, array))


class _Memory:
    """The shared memory of an array and a tensor: whoever holds the array keeps the tensor's storage resident."""

    def __init__(self, tensor: Any, array: Any) -> None:
        self._both = tensor, array
        self.__array_interface__ = array.__array_interface__


def _array(self: Any, dtype: Any = None, copy: Any = None) -> Any:
    del copy
    array = _numpy(self)
    return array if dtype is None else array.astype(dtype, copy=False)


def _format(self: Any, spec: str) -> str:
    return format(self.detach().item(), spec) if self.dim() == 0 else object.__format__(self, spec)
