"""The report as Markdown, for people."""

from collections.abc import Iterable, Sequence

from services.observer.views.report import Rate, Report, Row, Spent
from services.observer.views.scores import FamilyScore, Score

_BASES = {
    "host": "the host's own /usr, read-only, so results hold for this machine's software",
    "built": "a rootfs built from a pinned list of packages",
}


def to_markdown(data: Report) -> str:
    """The whole report; ends with a newline."""
    parts = [_head(data), _rounds(data), _validity(data), _cost(data), _held_out(data), _families(data), _trouble(data)]
    return "\n".join(part for part in parts if part)


def _head(data: Report) -> str:
    base = f"{data.base_kind}: {_BASES.get(data.base_kind or '', 'see the run file')} ({(data.base_digest or '')[:16]})"
    lines = [
        "# Run report",
        "",
        f"- profile {data.profile}, seed {data.seed}, envwheel {data.code_version}",
        f"- base of all sandboxes: {base}",
        f"- {'finished: ' + data.finished if data.finished is not None else 'not finished'}; {data.wall_s:.0f} s",
        f"- {sum(data.messages.values())} messages, {data.tries} tries of work",
    ]
    return "\n".join(lines) + "\n"


def _rounds(data: Report) -> str:
    making = _table(
        "round|planned|waves|proposed|abandoned|valid|invalid by gate|revisions|calibrated"
        "|of it with more attempts|admitted|of it after revision|into the pool|retired",
        [
            [
                row.round, row.planned, row.waves, row.proposed, _counts(row.abandoned), row.valid,
                _counts(row.invalid_by_gate), row.revisions, _counts(row.calibrations), row.calibrations_long,
                row.admitted, row.admitted_after_revision, row.added, _counts(row.retired),
            ]
            for row in data.rounds
        ],
    )  # fmt: skip
    learning = _table(
        "round|rollouts|outcomes|updates|dropped groups|near|far|digest",
        [
            [
                row.round, _counts(row.rollouts), _counts(row.outcomes), _updates(row), _counts(row.dropped_groups),
                _number(row.near), _number(row.far), _digest(row),
            ]
            for row in data.rounds
        ],
    )  # fmt: skip
    return (
        "## Rounds: environments\n\n" + making + "\n## Rounds: learning\n\n" + learning
        + "\nnear and far: mean reward of the newest checkpoint evaluated in that round.\n"
    )  # fmt: skip


def _updates(row: Row) -> str:
    other = {reason: n for reason, n in row.checkpoints.items() if reason not in ("update", "cold_start")}
    return str(row.updates) + (f" ({_counts(other)})" if other else "")


def _digest(row: Row) -> str:
    if row.digest is None:
        return "open"
    return row.digest[:16] + (" degraded: digest not comparable" if row.degraded else "")


def _validity(data: Report) -> str:
    rows = [[m.entry, _share(m.valid), _share(m.valid_first), _share(m.admitted)] for m in data.makers]
    total = f"Valid: {_share(data.valid)}; first tries alone: {_share(data.valid_first)}."
    note = "95% Wilson intervals. Proposals that infrastructure failed are left out; abandoned ones count as invalid.\n"
    return f"## Valid rate\n\n{total} {note}\n" + _table("proposer|valid|valid at first try|admitted", rows)


def _cost(data: Report) -> str:
    spent = [("environments", data.making), ("learning", data.learning), ("evaluation", data.evaluating)]
    per = [("per valid environment", data.making_per_valid), ("per admitted environment", data.making_per_admitted)]
    rows = [_spent(name, cost) for name, cost in spent] + [_spent(name, cost) for name, cost in per if cost is not None]
    note = "Environments: proposals, draft checks, gates and calibrations, failed ones included.\n"
    if data.tries_unknown:
        note += f"{data.tries_unknown} tries ended without saying what they cost, which is in no sum.\n"
    return (
        "## Cost\n\n"
        + _table("what|tokens|of it completion|of it cached prompt|CPU s|of it in sandboxes|USD", rows)
        + "\n" + note
    )  # fmt: skip


def _spent(name: str, cost: Spent) -> list[object]:
    return [
        name, cost.tokens, cost.completion_tokens, cost.cached_tokens, f"{cost.cpu_s:.2f}",
        f"{cost.sandbox_cpu_s:.2f}", f"{cost.usd:g}",
    ]  # fmt: skip


def _held_out(data: Report) -> str:
    if not data.held_out:
        return ""
    note = (
        "Intervals: 95% Wilson over rollouts; `by environment` counts each environment once, "
        "as if its attempts told nothing new.\n"
    )
    rows = [_score(score) for score in data.held_out]
    return (
        "## Held out\n\n"
        + _table("set|checkpoint|environments|rollouts|masked|pass rate|by environment|mean reward", rows)
        + "\n" + note
    )  # fmt: skip


def _score(score: Score) -> list[object]:
    return [
        score.set_name, score.checkpoint_version, score.envs, score.rollouts, score.masked,
        _interval(score.pass_rate, score.pass_interval), _bounds(score.pass_interval_by_env),
        _interval(score.mean_reward, score.reward_interval),
    ]  # fmt: skip


def _families(data: Report) -> str:
    if not data.families:
        return ""
    single = [score for score in data.families if not score.multi_turn]
    multi = [score for score in data.families if score.multi_turn]
    text = "## Near by family: one turn is enough\n\n" + _family_table(single)
    if multi:
        text += "\n## Near by family: a later command depends on earlier output\n\n" + _family_table(multi)
    return text + "\nA skill passed in a rollout when all of its tests passed.\n"


def _family_table(scores: Sequence[FamilyScore]) -> str:
    versions = sorted({score.checkpoint_version for score in scores})
    shown = versions if len(versions) <= 6 else [*versions[:3], *versions[-3:]]
    cells = {(score.family, score.checkpoint_version): score for score in scores}
    rows: list[list[object]] = []
    for family in sorted({score.family for score in scores}):
        row: list[object] = [family]
        for version in shown:
            score = cells.get((family, version))
            row.append("" if score is None else f"{_interval(score.rate, score.interval)} of {score.trials}")
        rows.append(row)
    return _table("|".join(["family", *(f"checkpoint {version}" for version in shown)]), rows)


def _trouble(data: Report) -> str:
    degraded = [str(row.round) for row in data.rounds if row.degraded]
    lines = [
        f"- failed tries: {_counts(data.failures) or 'none'}",
        f"- parked work: {data.parked or 'none'}",
        f"- degraded rounds: {', '.join(degraded) or 'none'}",
        f"- second answers, which change nothing: {len(data.inert) or 'none'}",
    ]
    return "## Trouble\n\n" + "\n".join(lines) + "\n"


def _share(rate: Rate) -> str:
    return f"{rate.count} of {rate.of} = {_interval(rate.rate, rate.interval)}" if rate.of else "none"


def _interval(value: float, bounds: tuple[float, float]) -> str:
    return f"{value:.3f} {_bounds(bounds)}"


def _bounds(bounds: tuple[float, float]) -> str:
    return f"[{bounds[0]:.3f}, {bounds[1]:.3f}]"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _table(header: str, rows: Iterable[Iterable[object]]) -> str:
    names = header.split("|")
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
