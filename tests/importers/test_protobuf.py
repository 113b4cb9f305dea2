"""Messages are written and read as Google's library does; what is no message is an error that says why."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from tensortide.importers import protobuf
from tensortide.importers.protobuf import DEEPEST, KINDS, Schema, WireError, tagged, varint
from tests.importers.protobuf import message

TABLE = "\n".join(
    (
        "All: " + ", ".join(f"{kind} {kind}={i + 1}, {kind}* {kind}s={i + 21}" for i, kind in enumerate(KINDS))
        + ", Part part=50, Part* parts=51, int32| number=60, string| text=61, Part| whole=62",
        "Part: int64 a=1, string b=2, Part inner=3, int32* c=4",
        "Few: int32 int32=3",
    )
)  # fmt: skip
SCHEMA = Schema(TABLE)

BITS = {kind: 32 if "32" in kind else 64 for kind in KINDS if "int" in kind or "fixed" in kind}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(allow_nan=False), "float": st.floats(width=32, allow_nan=False), "bool": st.booleans(),
    "string": st.text(), "bytes": st.binary(),
    **{kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for kind, bits in BITS.items()},
    **{kind: st.integers(0, 2**bits - 1) for kind, bits in BITS.items() if kind[0] == "u" or kind[:2] == "fi"},
}  # fmt: skip
PART: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={"a": VALUES["int64"], "b": VALUES["string"], "c": st.lists(VALUES["int32"]), "inner": st.just({"a": 3})},
)
ONE = st.fixed_dictionaries({"number": VALUES["int32"]}) | st.fixed_dictionaries({"text": st.text()})
ONE |= st.fixed_dictionaries({"whole": PART}) | st.just({})
ALL = st.builds(
    lambda values, one: values | one,
    st.fixed_dictionaries(
        {}, optional=VALUES | {f"{kind}s": st.lists(values, max_size=4) for kind, values in VALUES.items()}
        | {"part": PART, "parts": st.lists(PART, max_size=2)},
    ),
    ONE,
)  # fmt: skip


def theirs(name: str, values: dict[str, Any]) -> Any:
    return message(TABLE, name)(**values)


def assert_read_alike(ours: Any, google: Any) -> None:
    for field in google.DESCRIPTOR.fields:
        mine, wanted = getattr(ours, field.name), getattr(google, field.name)
        if field.message_type is None:
            assert (list(mine) if field.is_repeated else mine) == (list(wanted) if field.is_repeated else wanted)
        elif field.is_repeated:
            assert len(mine) == len(wanted)
            for one, other in zip(mine, wanted, strict=True):
                assert_read_alike(one, other)
        else:
            assert (field.name in ours) is google.HasField(field.name)
            if field.name in ours:
                assert_read_alike(mine, wanted)
    if google.DESCRIPTOR.oneofs:
        assert ours.which == (google.WhichOneof("value") or "")


@given(ALL)
def test_messages_are_written_and_read_as_googles_library_does(values: dict[str, Any]) -> None:
    google = theirs("All", values)
    data = SCHEMA.write("All", values)
    assert data == google.SerializeToString(deterministic=True)
    assert_read_alike(SCHEMA.read("All", data), google)
    SCHEMA.read("Few", tagged(3, 0, 7) + tagged(9, 2, data))  # what it does not know is skipped


GROUP, END = b"\xa3\x06", b"\xa4\x06"  # of field 100, which is not in the table


@given(st.binary(max_size=40) | ALL.map(lambda values: SCHEMA.write("All", values)[:-1]))
@example(tagged(0, 0, 5))  # no field has the number 0
@example(tagged(0, 2, b"a"))
@example(tagged(1 << 29, 0, 1))
@example(b"\x88\x80\x80\x80\x80\x00\x01")
@example(tagged(3, 2, b"a"))  # a known field of another wire type is an unknown one
@example(GROUP + tagged(3, 0, 9) + GROUP + END + END + tagged(3, 0, 1))
@example(GROUP + tagged(3, 0, 9))
@example(GROUP + b"\xac\x06")
@example(END)
def test_what_googles_library_refuses_is_an_error_and_nothing_else(data: bytes) -> None:
    try:
        google = message(TABLE, "All").FromString(data)
    except DecodeError:
        with pytest.raises(WireError):
            SCHEMA.read("All", data)
        return
    assert_read_alike(SCHEMA.read("All", data), google)


def test_lists_stand_together_or_apart_and_parts_add_up() -> None:
    apart = b"".join(tagged(4, 0, n) for n in (1, 300)) + tagged(4, 2, varint(7) + varint(2**64 - 1))
    part = SCHEMA.read("Part", apart)
    assert part.c == [1, 300, 7, -1]
    twice = tagged(50, 2, tagged(1, 0, 5) + tagged(4, 0, 1)) + tagged(50, 2, tagged(2, 2, b"x") + tagged(4, 0, 2))
    whole = SCHEMA.read("All", twice)
    assert (whole.part.a, whole.part.b, whole.part.c) == (5, "x", [1, 2])
    assert_read_alike(whole, message(TABLE, "All").FromString(twice))
    with pytest.raises(AttributeError, match="Part has no field d"):
        _ = part.d


NUMBER, TEXT, WHOLE = tagged(60, 0, 5), tagged(61, 2, b"x"), tagged(62, 2, tagged(1, 0, 5))


@pytest.mark.parametrize("parts", [*itertools.product([NUMBER, TEXT, WHOLE], repeat=3)])
def test_of_a_choice_the_last_field_is_there_alone(parts: tuple[bytes, ...]) -> None:
    data = b"".join(parts)
    assert_read_alike(SCHEMA.read("All", data), message(TABLE, "All").FromString(data))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x08", "a number is cut off"),
        (b"\x08" + b"\xff" * 11, "more than 64 bits"),
        (b"\x0f", "field 1 has the unknown wire type 7"),
        (b"\x0b\x14", "field 2 ends a group that is not its own"),
        (b"\x0b" * (DEEPEST + 1), f"more than {DEEPEST} messages"),
        (b"\x00\x01", "there is no field 0"),
        (b"\x88\x80\x80\x80\x80\x00\x01", "more than 32 bits"),
        (b"\x12\x05ab", "field 2 is cut off"),
        (b"\x12\x01\xff", "a text is none"),
        (tagged(4, 2, b"\x80"), "a number is cut off"),
    ],
)
def test_damage_is_told(data: bytes, said: str) -> None:
    with pytest.raises(WireError, match=said):
        SCHEMA.read("Part", data)


def test_a_list_of_doubles_has_whole_ones() -> None:
    with pytest.raises(WireError, match="a list of numbers is cut off"):
        SCHEMA.read("All", tagged(21, 2, struct.pack("<d", 1.5) + b"1"))


def test_messages_in_each_other_have_a_limit() -> None:
    data = b""
    for _ in range(DEEPEST):
        data = tagged(3, 2, data)
    SCHEMA.read("Part", data)
    with pytest.raises(WireError, match=f"more than {DEEPEST} messages inside one another"):
        SCHEMA.read("Part", tagged(3, 2, data))


def test_there_is_a_limit_to_how_many_messages_a_few_bytes_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tagged(51, 2, tagged(3, 2, b"")) * 25
    assert len(SCHEMA.read("All", data).parts) == 25
    monkeypatch.setattr(protobuf, "MOST", 50)  # the whole is one, too
    with pytest.raises(WireError, match="more than 50 messages"):
        SCHEMA.read("All", data)
