"""A reader of pickles that builds plain containers, texts and numbers, and runs nothing.

A pickle is a program; unpickling it may call any function. The reader is Python's own without the opcodes that import,
call or build objects: these are refused by name.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import pickletools
import struct
from typing import Any, ClassVar

from tensortide.errors import TraceError

_OPCODES = (
    "MARK STOP POP POP_MARK DUP PROTO FRAME NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT "
    "BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE SHORT_BINUNICODE BINUNICODE "
    "BINUNICODE8 EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 "
    "TUPLE3 PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET"
)
_PLAIN = frozenset(_OPCODES.split())
"""Opcodes of plain data."""
_DAMAGED = (
    pickle.UnpicklingError, struct.error, IndexError, KeyError, TypeError, ValueError, OverflowError, AttributeError,
)  # fmt: skip


class _Refused(Exception):
    """An opcode that is not for plain data."""


def _refuse(_: object) -> None:
    raise _Refused


class _Plain(pickle._Unpickler):  # in Python: its memo is a dict, in which a large number reserves nothing
    dispatch: ClassVar[dict[int, Any]] = {
        ord(one.code): pickle._Unpickler.dispatch[ord(one.code)] if one.name in _PLAIN else _refuse
        for one in pickletools.opcodes
    }


def read_plain(data: bytes, name: str) -> Any:
    """Return what the pickle ``data`` holds. ``name`` is that of its file, for errors.

    Parts that the pickle mentions several times are one object. Raises TraceError, which names opcode and byte, for a
    pickle that holds anything but dicts, lists, tuples, texts, bytes, numbers, booleans and None, or that is damaged.
    """
    try:
        return _Plain(io.BytesIO(data), encoding="latin-1").load()
    except _Refused:
        raise TraceError(
            f"{name}: {_refused(data)}, which a memory snapshot does not need and which may run code; nothing was run"
        ) from None
    except EOFError:
        raise TraceError(f"{name}: the pickle is cut off") from None
    except _DAMAGED as error:
        raise TraceError(f"{name}: the pickle is damaged: {error}") from None


def _refused(data: bytes) -> str:
    """Say which opcode is refused, and where it is."""
    with contextlib.suppress(ValueError):  # what precedes it may be no list of opcodes
        for opcode, argument, at in pickletools.genops(data):
            if opcode.name not in _PLAIN:
                called = opcode.name if argument is None else f"{opcode.name} ({str(argument)[:80]})"
                return f"byte {at} of the pickle is {called}"
    return "the pickle has an opcode of objects"
