"""The costs of a run by hand: from the raw records alone, without any of the code that is under test."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

from services.kernel.delivery import read_event
from services.kernel.log import Stored
from services.observer.views.costs import GROUPS, CostLine, cost_table
from services.observer.views.projector import Projector
from services.observer.views.report import progress_of

INTS = (
    "messages",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "making_tokens",
    "tokens_unknown",
    "in_flight",
)
FLOATS = ("usd", "cpu_s", "sandbox_cpu_s", "making_usd", "making_cpu_s")
COSTLY = (
    "env_proposed", "env_abandoned", "draft_checked", "env_validated", "rollout_completed", "checkpoint_published",
    "env_rechecked", "work_failed",
)  # fmt: skip


@dataclass
class ByHand:
    events: set[str] = field(default_factory=set)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    cpu_s: float = 0.0


def by_hand(records: Sequence[Stored]) -> ByHand:
    found, entries = ByHand(), {}
    for stored in records:
        record = json.loads(stored.data)
        body, meta, message = record["data"]["body"], record["data"]["meta"], stored.subject.split(".")[1]
        if message == "env_requested":
            entries[record["id"]] = body["entry"]
        if message not in COSTLY:
            continue
        found.events.add(record["id"])
        usage = body.get("usage", {})
        prompt, cached, completion = (
            usage.get(name, 0) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
        )
        price = _price(body.get("entry") or entries.get(body.get("work_id")))
        found.prompt_tokens += prompt
        found.cached_tokens += cached
        found.completion_tokens += completion
        found.usd += ((prompt - cached) * price[0] + cached * price[1] + completion * price[2]) / 1e6
        found.cpu_s += meta.get("cpu_s", 0.0)
    return found


def _price(entry: dict[str, Any] | None) -> tuple[float, float, float]:
    price = (entry or {}).get("rules", {}).get("price", {})
    return price.get("prompt_usd", 0.0), price.get("cached_usd", 0.0), price.get("completion_usd", 0.0)


def check_costs(run: str, records: Sequence[Stored], folder: Path) -> CostLine:
    """Every figure adds up to the events it came from; every event is there once. Gives the total."""
    events = [read_event(run, stored) for stored in records]
    with Projector(folder / "views.duckdb", run) as projector:
        for stored, event in zip(records, events, strict=True):
            projector.add(event, stored.appended_at_ns)
    wanted = by_hand(records)
    with duckdb.connect(str(folder / "views.duckdb"), read_only=True) as db:
        total = cost_table(db, ()).total
        counted = db.execute("SELECT event, count(*) FROM costs WHERE outcome <> 'started' GROUP BY event").fetchall()
        assert {times for _, times in counted} == {1}
        assert {event for event, _ in counted} == wanted.events
        for by in [*((name,) for name in GROUPS), ("role", "purpose"), ("entry", "arm", "round")]:
            lines = cost_table(db, by).lines
            for name in INTS:
                assert sum(getattr(line, name) for line in lines) == getattr(total, name), (by, name)
            for name in FLOATS:
                sums = sum(getattr(line, name) for line in lines)
                assert sums == pytest.approx(getattr(total, name), rel=1e-9), (by, name)
    assert total.messages == len(wanted.events)
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
        assert getattr(total, name) == getattr(wanted, name)
    assert (total.usd, total.cpu_s) == pytest.approx((wanted.usd, wanted.cpu_s), rel=1e-9)
    progress = progress_of(events)
    spent = progress.spent.values()
    assert sum(each.tokens for each in spent) == wanted.prompt_tokens + wanted.completion_tokens
    assert sum(each.usd for each in spent) == pytest.approx(wanted.usd, rel=1e-9)
    unsaid = [row for row in progress.costs.unknown() if row.event not in wanted.events]
    started = len(progress.costs.open)
    assert len(unsaid) == started - total.in_flight
    return total
