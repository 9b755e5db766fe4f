"""One table per message, made from the message itself: columns for plain values, JSON text for nested ones."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from schemas.envelope import Event
from schemas.messages import MESSAGES, Message

Cell = str | int | float | bool | None
Row = tuple[Cell, ...]

COMMON: tuple[tuple[str, str], ...] = (
    ("seq", "BIGINT PRIMARY KEY"),
    ("id", "VARCHAR NOT NULL"),
    ("subject", "VARCHAR NOT NULL"),
    ("body_digest", "VARCHAR NOT NULL"),
    ("appended_at_ns", "BIGINT NOT NULL"),
    ("at_ns", "BIGINT NOT NULL"),
    ("started_ns", "BIGINT"),
    ("service", "VARCHAR NOT NULL"),
    ("replica", "VARCHAR NOT NULL"),
    ("host", "VARCHAR NOT NULL"),
    ("cause_id", "VARCHAR"),
    ("cpu_s", "DOUBLE"),
    ("wall_s", "DOUBLE"),
    ("sandbox_cpu_s", "DOUBLE"),
    ("money_usd", "DOUBLE"),
    ("observation", "VARCHAR"),
)
"""Columns of every table, from the record and its meta; those of the body follow. A field of a body that is named like
one of these has `body_` before its column's name."""

_PLAIN = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bool: "BOOLEAN"}
_INT64 = range(-(2**63), 2**63)
_json = msgspec.json.Encoder(order="deterministic")


class ProjectionError(ValueError):
    """A value does not fit its column. The projection stops there; it never goes on with a hole."""


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    cell: Callable[[Any], Cell]


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    fields: tuple[str, ...]
    """Names of the body's fields, in the order of `columns`."""

    def ddl(self) -> str:
        names = [f'"{name}" {type_}' for name, type_ in COMMON] + [f'"{c.name}" {c.type}' for c in self.columns]
        return f'CREATE TABLE "{self.name}" ({", ".join(names)})'

    def row(self, event: Event, appended_at_ns: int) -> Row:
        """Raises: ProjectionError."""
        meta = event.meta
        common: Row = (
            event.seq, event.id, event.subject, event.body_digest, appended_at_ns, meta.at_ns, meta.started_ns,
            meta.service, meta.replica, meta.host, meta.cause, meta.cpu_s, meta.wall_s, meta.sandbox_cpu_s,
            meta.money_usd, meta.observation,
        )  # fmt: skip
        cells = tuple(
            column.cell(getattr(event.body, name)) for name, column in zip(self.fields, self.columns, strict=True)
        )
        for cell in (*common, *cells):
            if type(cell) is int and cell not in _INT64:
                raise ProjectionError(f"record {event.seq} ({event.subject}): {cell} does not fit into 64 bits")
        return common + cells


@cache
def tables() -> dict[str, Table]:
    """By message name, in the order of the messages."""
    return {message.name: _table(message) for message in MESSAGES}


@cache
def tables_digest() -> str:
    """Changes when any table does: a database of another digest is made anew."""
    return sha256("\n".join(table.ddl() for table in tables().values()).encode()).hexdigest()


def _table(message: type[Message]) -> Table:
    hints = get_type_hints(message)
    fields = msgspec.structs.fields(message)
    taken = {name for name, _ in COMMON}
    names = [f"body_{f.encode_name}" if f.encode_name in taken else f.encode_name for f in fields]
    columns = tuple(_column(name, hints[field.name]) for name, field in zip(names, fields, strict=True))
    return Table(message.name, columns, tuple(field.name for field in fields))


def _column(name: str, hint: Any) -> Column:
    required = True
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind not in (NoneType, UnsetType)]
        hint, required = (kinds[0], False) if len(kinds) == 1 else (object, False)
    end = " NOT NULL" if required else ""
    if hint in _PLAIN:
        return Column(name, _PLAIN[hint] + end, _same)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Column(name, "VARCHAR" + end, _value)
    return Column(name, "VARCHAR" + end, _nested)


def _same(value: Cell) -> Cell:
    return value


def _value(value: StrEnum | None) -> Cell:
    return None if value is None else value.value


def _nested(value: object) -> Cell:
    return None if value is None or value is UNSET else _json.encode(value).decode()
