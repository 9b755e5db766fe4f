"""The table of costs, and sums over it by any of its columns."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import duckdb
import msgspec

from schemas.costs import Cost
from services.observer.views.tables import Cell, Row

TABLE = "cost_events"
COLUMNS: tuple[tuple[str, str], ...] = (
    ("seq", "BIGINT PRIMARY KEY"),
    ("event", "VARCHAR NOT NULL"),
    ("message", "VARCHAR NOT NULL"),
    ("outcome", "VARCHAR NOT NULL"),
    ("work_id", "VARCHAR NOT NULL"),
    ("try", "BIGINT"),
    ("role", "VARCHAR NOT NULL"),
    ("entry", "VARCHAR"),
    ("model", "VARCHAR"),
    ("arm", "VARCHAR"),
    ("purpose", "VARCHAR NOT NULL"),
    ("stage", "VARCHAR NOT NULL"),
    ("round", "BIGINT NOT NULL"),
    ("slot", "BIGINT"),
    ("revision", "BIGINT"),
    ("env", "VARCHAR"),
    ("prompt_tokens", "BIGINT"),
    ("cached_tokens", "BIGINT"),
    ("completion_tokens", "BIGINT"),
    ("usd", "DOUBLE"),
    ("cpu_s", "DOUBLE"),
    ("sandbox_cpu_s", "DOUBLE"),
    ("wall_s", "DOUBLE"),
)
"""In the order of the fields of `Cost`."""
DDL = f'CREATE TABLE "{TABLE}" ({", ".join(f"{chr(34)}{name}{chr(34)} {type_}" for name, type_ in COLUMNS)})'

GROUPS = ("role", "entry", "model", "arm", "purpose", "stage", "round", "env", "outcome")
"""What can be asked for the costs by."""
MAKERS = ("entry", "model", "arm", "round", "env")
"""Those by which environments can be counted too."""


class CostLine(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of one group. What is not known is in none of them, and counted in `..._unknown`."""

    by: dict[str, str | int | None]
    messages: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    usd: float
    cpu_s: float
    sandbox_cpu_s: float
    wall_s: float
    tokens_unknown: int
    """Failed or killed tries whose tokens nobody knows."""
    cpu_unknown: int
    in_flight: int
    """Tries that may still say what they cost."""
    making_tokens: int
    making_usd: float
    making_cpu_s: float
    """Of it, what environments cost: proposals, draft checks, gates, calibrations."""
    valid: int
    """Environments. By role, purpose, stage or outcome: those of the whole run."""
    admitted: int


class CostTable(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    """Of the last record counted."""
    lines: tuple[CostLine, ...]
    total: CostLine


def cost_row(cost: Cost) -> Row:
    return tuple(_cell(getattr(cost, name)) for name in cost.__struct_fields__)


def cost_table(db: duckdb.DuckDBPyConnection, by: Sequence[str]) -> CostTable:
    """Costs by columns of `GROUPS`, dearest first; over a database that the projector made."""
    position = int(db.execute("SELECT position FROM pos").fetchall()[0][0])
    return CostTable(position=position, lines=tuple(_lines(db, by)) if by else (), total=_lines(db, ())[0])


_SUMS = """
    count(*) FILTER (outcome <> 'started') AS messages,
    coalesce(sum(prompt_tokens), 0) AS prompt_tokens, coalesce(sum(cached_tokens), 0) AS cached_tokens,
    coalesce(sum(completion_tokens), 0) AS completion_tokens, coalesce(sum(usd), 0.0) AS usd,
    coalesce(sum(cpu_s), 0.0) AS cpu_s, coalesce(sum(sandbox_cpu_s), 0.0) AS sandbox_cpu_s,
    coalesce(sum(wall_s), 0.0) AS wall_s,
    count(*) FILTER (prompt_tokens IS NULL AND NOT in_flight) AS tokens_unknown,
    count(*) FILTER (cpu_s IS NULL AND NOT in_flight) AS cpu_unknown, count(*) FILTER (in_flight) AS in_flight,
    coalesce(sum(prompt_tokens + completion_tokens) FILTER (stage = 'making'), 0) AS making_tokens,
    coalesce(sum(usd) FILTER (stage = 'making'), 0.0) AS making_usd,
    coalesce(sum(cpu_s) FILTER (stage = 'making'), 0.0) AS making_cpu_s"""


def _lines(db: duckdb.DuckDBPyConnection, by: Sequence[str]) -> list[CostLine]:
    if unknown := set(by) - set(GROUPS):
        raise ValueError(f"no costs by {min(unknown)}: {', '.join(GROUPS)}")
    names = ", ".join(f'"{name}"' for name in by)
    group = f"GROUP BY {names} ORDER BY usd DESC, making_tokens DESC, cpu_s DESC, {names}" if by else ""
    query = f"SELECT {names + ', ' if by else ''}{_SUMS} FROM costs {group}"  # noqa: S608 - names of our own
    counted = [name for name in by if name in MAKERS]
    made = _made(db, counted)
    lines = []
    for (*values,) in db.execute(query).fetchall():
        labels = dict(zip(by, values[: len(by)], strict=True))
        valid, admitted = made.get(tuple(labels[name] for name in counted), (0, 0))
        sums: dict[str, Any] = dict(zip(_names(), values[len(by) :], strict=True))
        lines.append(CostLine(by=labels, **sums, valid=valid, admitted=admitted))
    return lines


def _names() -> list[str]:
    fields = [field.name for field in msgspec.structs.fields(CostLine)]
    return [name for name in fields if name not in ("by", "valid", "admitted")]


def _made(db: duckdb.DuckDBPyConnection, by: Sequence[str]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Valid and admitted environments."""
    names = "".join(f'"{name}", ' for name in by)
    group = f"GROUP BY {names.removesuffix(', ')}" if by else ""
    query = f"""SELECT {names} count(*) FILTER (verdict = 'valid'), count(*) FILTER (calibration = 'admitted')
                FROM envs {group}"""  # noqa: S608 - names of our own
    return {tuple(values): (valid, admitted) for *values, valid, admitted in db.execute(query).fetchall()}


def _cell(value: Cell | StrEnum) -> Cell:
    return value.value if isinstance(value, StrEnum) else value
