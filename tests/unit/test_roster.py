"""Who plays, who will, with which work in flight; and who answers the slots of a pair."""

from collections import Counter

import pytest

from schemas.messages import EnvProposed, EnvRequested, Message, RosterChanged, RoundPlanned
from schemas.models import ModelRules
from schemas.outcomes import Role
from schemas.parts import RosterEntry
from schemas.roster import by_share, for_pair, in_force, same_maker
from schemas.science import PoolRules, ProposalRules
from services.cli.commands.roster import Place, entries_of, new_entry, places_of, shared_out, undone_by
from services.cli.outcome import CliError
from tests.support.feeding import as_event
from tests.support.wheel import Wheel, opening, small_science

A, B, C = (RosterEntry(name=name, model=name) for name in "abc")


def change(ordinal: int, *entries: RosterEntry, from_round: int | None = None) -> RosterChanged:
    return RosterChanged(ordinal=ordinal, role=Role.proposer, entries=entries, from_round=from_round)


def places(*bodies: Message) -> list[Place]:
    return places_of([as_event(body) for body in bodies])


def test_of_the_changes_that_hold_for_a_round_the_last_said_counts() -> None:
    changes = [change(0, A), change(1, B, from_round=2), change(2, C, from_round=1)]
    held = [in_force(changes, Role.proposer, round_) for round_ in range(3)]
    assert [each.entries for each in held if each] == [(A,), (C,), (C,)]
    assert in_force(changes, Role.solver, 2) is None


MODELS = {"big": ModelRules(endpoint="local", model="org/big-7b", speech="block")}


def test_an_entry_is_a_built_in_brain_or_a_model_of_run_toml_with_its_settings() -> None:
    assert new_entry("procedural", "prompt", None, MODELS) == RosterEntry(
        name="procedural", model="procedural", arm="prompt"
    )
    rules = MODELS["big"]
    assert new_entry("big", "terminal", None, MODELS) == RosterEntry(name="big", model="org/big-7b", rules=rules)
    other = new_entry("mine", "prompt+feedback", "big", MODELS)
    assert (other.name, other.model, other.arm, other.rules) == ("mine", "org/big-7b", "prompt+feedback", rules)
    for name, model in (("gpt", None), ("mine", "gpt"), ("procedural", "gpt")):
        with pytest.raises(CliError, match=r"no proposer 'gpt'.*run.toml: big"):
            new_entry(name, "terminal", model, MODELS)
    with pytest.raises(CliError, match="give the model another name"):
        new_entry("procedural", "terminal", "big", MODELS)


def test_a_swap_for_now_shares_with_those_who_play_now_and_says_what_it_undoes() -> None:
    changes = [change(0, A), change(1, B, from_round=3)]
    assert entries_of(changes, 1) == (A,)
    assert entries_of(changes, 3) == (B,)
    assert [each.ordinal for each in undone_by(changes, None, 1)] == [1]
    assert [each.ordinal for each in undone_by(changes, 2, 1)] == [1]
    assert undone_by(changes, 4, 1) == []
    assert undone_by(changes, None, 3) == [], "it plays already"


def test_two_arms_of_one_model_can_share_the_work() -> None:
    prompt = RosterEntry(name="a", model="a", arm="prompt")
    assert [(each.arm, each.share) for each in shared_out((A,), prompt, 0.5)] == [("terminal", 0.5), ("prompt", 0.5)]
    again = shared_out(shared_out((A,), prompt, 0.5), prompt, 0.25)
    assert [(each.arm, each.share) for each in again] == [("terminal", 0.75), ("prompt", 0.25)]


def test_the_roster_shows_work_in_flight_under_the_entry_that_it_was_bound_to() -> None:
    events = Wheel().turn(opening())
    requests = [event.body for event in events if isinstance(event.body, EnvRequested)][:3]
    plan = next(event.body for event in events if isinstance(event.body, RoundPlanned))
    answered = {body.key(): body for event in events if isinstance(body := event.body, EnvProposed)}
    done = next(answered[request.key()] for request in requests if request.key() in answered)
    before = opening()[1]
    told = places(before, plan, *requests, change(1, B), change(2, C, from_round=2), done)
    assert [(each.entry.name, each.state, each.in_flight) for each in told] == [
        ("procedural", "past", 2),
        ("b", "plays", 0),
        ("c", "will play", 0),
    ]


def test_shares_hold_in_every_stretch_of_slots() -> None:
    entries = (RosterEntry(name="a", model="a", share=0.7), RosterEntry(name="b", model="b", share=0.3))
    for start in range(0, 200, 10):
        names = [by_share(entries, slot).name for slot in range(start, start + 20)]
        assert names.count("b") in (5, 6, 7)


@pytest.mark.parametrize("entries", [(A, B), (A, B, C)])
def test_every_two_entries_meet_equally_often_and_each_comes_first_equally_often(
    entries: tuple[RosterEntry, ...],
) -> None:
    couples: Counter[tuple[str, str]] = Counter()
    for pair in range(120):
        first = for_pair(entries, pair, None)
        couples[first.name, for_pair(entries, pair, first).name] += 1
    expected = 120 / (len(entries) * (len(entries) - 1))
    assert len(couples) == len(entries) * (len(entries) - 1)
    assert all(one != other and abs(count - expected) <= 2 for (one, other), count in couples.items())


def test_who_has_one_slot_of_a_pair_does_not_get_the_other_after_a_swap() -> None:
    assert for_pair((A, C), 1, A) == C
    assert for_pair((A,), 1, A) == A, "there is nobody else"
    assert same_maker(A, RosterEntry(name="a", model="a", share=0.1))


def test_paired_slots_have_one_assignment_and_two_entries_that_keep_their_revisions() -> None:
    science = small_science(
        rounds=2,
        proposal=ProposalRules(open_max=3, revisions_max=2, past_max=2, paired=True),
        pool=PoolRules(target=12, admit_per_round=7, waves_max=2),
    )
    entries = (A, RosterEntry(name="b", model="b", share=0.1))
    start, _ = opening(science=science)
    events = Wheel().turn([start, change(0, *entries)])
    requests = [event.body for event in events if isinstance(event.body, EnvRequested)]
    slots: dict[tuple[int, int], list[EnvRequested]] = {}
    for request in requests:
        slots.setdefault((request.round, request.slot), []).append(request)
    assert {round_ for round_, _ in slots} == {0, 1}
    assert all(len({each.entry.name for each in of_slot}) == 1 for of_slot in slots.values())
    assert any(len(of_slot) > 1 for of_slot in slots.values())
    pairs = [
        (slots[key][0], slots[key[0], key[1] + 1][0])
        for key in slots
        if key[1] % 2 == 0 and (key[0], key[1] + 1) in slots
    ]
    assert len(pairs) > 6
    assert all(one.assignment == other.assignment for one, other in pairs)
    assert all({one.entry.name, other.entry.name} == {"a", "b"} for one, other in pairs)
    assert len({one.assignment.seed for one, _ in pairs}) == len(pairs)


def test_a_roster_of_one_gives_paired_slots_assignments_of_their_own() -> None:
    science = small_science(rounds=1, proposal=ProposalRules(paired=True))
    plan = next(event.body for event in Wheel().turn(opening(science=science)) if isinstance(event.body, RoundPlanned))
    assert len({slot.assignment.seed for slot in plan.slots}) == len(plan.slots) > 1
