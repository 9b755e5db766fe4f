"""What a person sees when a run has finished: its table, its rates, where everything is, and the replay's verdict."""

from services.cli.commands.audit import verdict_lines
from services.cli.connect import OpenRun
from services.cli.live import COLUMNS, table_rows
from services.cli.outcome import Exit, say, say_table
from services.cli.replaying import TRACES, means_of
from services.kernel.skills.catalogue import SKILLS
from services.observer.policy import Progress
from services.observer.views.replay import replay
from services.observer.views.report import Report, Spent, report
from services.observer.views.source import read_log


async def conclude(run: OpenRun, progress: Progress) -> int:
    """Prints it all; 1 where replay finds a difference."""
    data = report(progress, SKILLS)
    say()
    say(f"finished: {data.finished}, {data.wall_s:.0f} s")
    say_table(COLUMNS[:-1], [row[:-1] for row in table_rows(progress)])
    say()
    for line in figures(data):
        say(line)
    say()
    views = run.folder.views
    places = {
        "log": run.folder.nats,
        "artifacts": run.folder.artifacts,
        "traces": views / TRACES,
        "report": views / "report.md",
    }
    for name, place in places.items():
        say(f"{name:<10} {place}")
    say()
    say("replay: log, views, decisions, training")
    source = await read_log(run.name, run.log, run.artifacts)
    reports = replay(source, means=means_of(source, views))
    for line in verdict_lines(reports):
        say(line)
    return Exit.ok if all(each.equal for each in reports) else Exit.difference


def figures(data: Report) -> list[str]:
    """Valid rate, costs, and the held-out pass rate of each checkpoint, with 95% Wilson intervals."""
    low, high = data.valid.interval
    lines = [
        f"valid rate {data.valid.rate:.3f} [{low:.3f}, {high:.3f}] ({data.valid.count} of {data.valid.of} answers)",
        f"cost per valid environment: {_cost(data.making_per_valid)}",
    ]
    if data.base_kind == "host":
        lines.append("sandboxes show this machine's own /usr: results hold for this machine's software")
    degraded = [str(row.round) for row in data.rounds if row.degraded]
    if degraded:
        lines.append(f"rounds {', '.join(degraded)}: degraded, digest not comparable")
    for score in data.held_out:
        low, high = score.pass_interval
        lines.append(
            f"{score.set_name:<5} checkpoint {score.checkpoint_version:>3}: pass rate {score.pass_rate:.3f} "
            f"[{low:.3f}, {high:.3f}], mean reward {score.mean_reward:.3f}, {score.rollouts} rollouts"
        )
    for family in data.families:
        if family.multi_turn and family.checkpoint_version in _ends(data):
            low, high = family.interval
            lines.append(
                f"{family.set_name:<5} checkpoint {family.checkpoint_version:>3}: family {family.family} "
                f"(two or more turns) {family.rate:.3f} [{low:.3f}, {high:.3f}], {family.trials} trials"
            )
    return lines


def _ends(data: Report) -> set[int]:
    versions = [score.checkpoint_version for score in data.held_out]
    return {min(versions), max(versions)} if versions else set()


def _cost(cost: Spent | None) -> str:
    if cost is None:
        return "none was valid"
    return f"{cost.tokens} tokens, {cost.cpu_s:.2f} CPU s, {cost.sandbox_cpu_s:.2f} of it in sandboxes"
