"""A reader of pickles that builds plain containers, texts and numbers, and runs nothing.

A pickle is a program; unpickling it may call any function. Here its opcodes are listed, not executed, and those that
import, call or build objects are refused by name.
"""

from __future__ import annotations

import pickletools
from typing import Any, Final

from tensortide.errors import TraceError

_LEAVES: Final = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    }
)
_CONSTANTS: Final[dict[str, object]] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PUTS: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})
_TUPLES: Final = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED: Final = frozenset({"PROTO", "FRAME"})


class _Mark:
    """The mark on the stack."""


_MARK: Final = _Mark()


def read_plain(data: bytes, name: str) -> Any:
    """Return what the pickle ``data`` holds. ``name`` is that of its file, for errors.

    Parts that the pickle mentions several times are one object. Raises TraceError, which names opcode and byte, for a
    pickle that holds anything but dicts, lists, tuples, texts, bytes, numbers, booleans and None, or that is damaged.
    """
    machine, at = _Machine(), 0
    try:
        for opcode, argument, place in pickletools.genops(data):
            at = place or 0
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except _Refused as refused:
        raise TraceError(
            f"{name}: byte {at} of the pickle is {refused}, which a memory snapshot does not need and which may run "
            "code; nothing was run"
        ) from None
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise TraceError(f"{name}: the pickle is damaged after byte {at}: {error}") from None
    raise TraceError(f"{name}: the pickle is cut off")


class _Refused(Exception):
    """An opcode that is not for plain data."""


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        """Take the top of the stack, which must be a value."""
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value is needed")
        return value

    def step(self, name: str, argument: Any) -> None:
        """Take one opcode. Raises _Refused for one that is not for plain data, others if the pickle is damaged."""
        stack = self.stack
        if name in _LEAVES:
            stack.append(argument)
        elif name in _GETS:
            stack.append(self.memo[int(argument)])
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in _PUTS:
            self.memo[int(argument)] = stack[-1]
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            stack.append(_MARK)
        elif name not in _IGNORED:
            self._container(name, argument)

    def _container(self, name: str, argument: object) -> None:
        stack = self.stack
        if name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name == "APPEND":
            item = self.pop()
            _list(stack[-1]).append(item)
        elif name == "SETITEM":
            value, key = self.pop(), self.pop()
            _dict(stack[-1])[key] = value
        elif name == "APPENDS":
            items = self._marked()
            _list(stack[-1]).extend(items)
        elif name == "SETITEMS":
            items = self._marked()
            _dict(stack[-1]).update(zip(items[::2], items[1::2], strict=True))
        elif name in _TUPLES:
            items = [self.pop() for _ in range(_TUPLES[name])]
            stack.append(tuple(reversed(items)))
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self._marked()
            pairs = zip(items[::2], items[1::2], strict=True) if name == "DICT" else ()
            stack.append(tuple(items) if name == "TUPLE" else items if name == "LIST" else dict(pairs))
        else:
            raise _Refused(name if argument is None else f"{name} ({str(argument)[:80]})")

    def _marked(self) -> list[Any]:
        """Take what stands above the last mark."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:  # an IndexError below the first
            at -= 1
            if at < 0:
                raise IndexError("no mark")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"an item for a {type(value).__name__}")
    return value


def _dict(value: object) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"an entry for a {type(value).__name__}")
    return value
