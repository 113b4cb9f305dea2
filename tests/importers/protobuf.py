"""Messages of our tables as Google's library for protocol buffers has them: an independent writer and reader."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


@functools.cache
def _pool(table: str) -> Any:
    """Describe a table to the library."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="table.proto", package="table", syntax="proto3")
    for line in table.replace(",\n    ", ", ").strip().splitlines():
        name, _, fields = line.partition(": ")
        entry = file.message_type.add(name=name)
        for text in fields.split(", "):
            kind, field, number = text.replace("=", " ").split()
            base = kind.rstrip("*|")
            label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            added = entry.field.add(name=field, number=int(number), label=label)
            if kind.endswith("|"):
                added.oneof_index = 0
                if not entry.oneof_decl:
                    entry.oneof_decl.add(name="value")
            if base[0].isupper():
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".table.{base}"
            else:
                added.type = getattr(kinds, f"TYPE_{base.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def message(table: str, name: str) -> Any:
    """Return the class of a message: ``FromString`` reads, ``SerializeToString`` writes."""
    return message_factory.GetMessageClass(_pool(table).FindMessageTypeByName(f"table.{name}"))
