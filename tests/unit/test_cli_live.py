"""Progress and the closing figures, from the events of a scripted wheel."""

import pytest

from schemas.messages import RoundPlanned
from schemas.parts import RosterEntry
from services.cli.commands.env import environments
from services.cli.commands.roster import shared_out
from services.cli.commands.status import open_requests, parked
from services.cli.live import COLUMNS, Live, share_done, table_rows
from services.cli.outcome import CliError
from services.cli.summary import figures
from services.kernel.skills.catalogue import SKILLS
from services.observer.policy import initial
from services.observer.views.report import progress_of, report
from tests.support.wheel import Wheel, opening


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    wheel = Wheel()
    wheel.turn(opening())
    return wheel


def test_there_is_one_row_a_round_and_it_says_what_the_log_says(wheel: Wheel) -> None:
    progress = progress_of(wheel.events)
    rows = table_rows(progress)
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert all(len(row) == len(COLUMNS) for row in rows)
    plans = [event.body for event in wheel.events if isinstance(event.body, RoundPlanned)]
    planned = [sum(len(plan.slots) for plan in plans if plan.round == number) for number in range(3)]
    assert [int(row[1]) for row in rows] == planned
    assert [row[COLUMNS.index("update")] for row in rows] == ["2/2", "2/2", "2/2"]


def test_the_share_done_only_grows_and_ends_at_one(wheel: Wheel) -> None:
    live = Live(quiet=True)
    shares = []
    for event in wheel.events:
        live.take(event)
        shares.append(share_done(live.progress))
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert share_done(initial()) == 0.0


def test_plain_lines_come_on_change_alone(wheel: Wheel, capsys: pytest.CaptureFixture[str]) -> None:
    live = Live()
    with live:
        for event in wheel.events:
            live.take(event)
        for _ in range(3):
            live.show(now=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("round 2, planned ")


def test_closing_figures_have_intervals_costs_and_scores_by_checkpoint(wheel: Wheel) -> None:
    lines = figures(report(progress_of(wheel.events), SKILLS))
    assert lines[0].startswith("valid rate ")
    assert "[" in lines[0]
    assert lines[1].startswith("cost per valid environment: ")
    versions = {line.split(":")[0] for line in lines if line.startswith("near") and "pass rate" in line}
    assert len(versions) >= 3


def test_a_finished_wheel_has_no_open_request_and_no_parked_work(wheel: Wheel) -> None:
    assert parked(wheel.events) == {}
    listed = environments(wheel.events)
    assert listed
    assert {each.verdict for each in listed} <= {"valid", "invalid", "infra_failed"}
    assert any(each.state.startswith("since version") for each in listed)
    begun = [event for event in wheel.events if event.body.name == "run_started"]
    assert open_requests(begun) == {}


def test_a_share_leaves_the_rest_to_those_who_are_there() -> None:
    present = (RosterEntry(name="a", model="a", share=1.0), RosterEntry(name="b", model="b", share=3.0))
    new = RosterEntry(name="c", model="c")
    assert shared_out(present, new, 1.0) == (new,)
    shares = {entry.name: entry.share for entry in shared_out(present, new, 0.2)}
    assert shares == pytest.approx({"a": 0.2, "b": 0.6, "c": 0.2})
    with pytest.raises(CliError, match="only proposer"):
        shared_out((new,), new, 0.5)
