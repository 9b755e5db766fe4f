"""How the procedural brains choose skills, as pure rules."""

import json
from itertools import product

import pytest

from services.kernel.agent.conversation import Observation
from services.kernel.skills.catalogue import SKILLS
from services.proposer.authoring.order import Order, OrderError, Record, read_notes, read_order, read_skills, read_tally
from services.proposer.authoring.plan import Plan, Trouble, plan_task
from services.proposer.authoring.procedural import BRAINS, STYLES, lesson
from services.proposer.authoring.skills.catalogue import WIDE

PARENTS = (
    ("sort_numbers",),
    ("sort_numbers", "copy_file"),
    ("note_delete", "json_set", "tar_pack"),
    tuple(SKILLS)[8:12],
)
EVERY = [(style, parent, seed) for style, parent, seed in product(STYLES.values(), PARENTS, range(8))]


def _order(direction: str, seed: int, parent: tuple[str, ...] = ("x",), **more: object) -> Order:
    return Order(direction=direction, domain="any", seed=seed, parent="p" if parent else None, **more)  # type: ignore[arg-type]


def _weight(skills: tuple[str, ...]) -> int:
    return Plan(skills, 0).weight


def test_simpler_is_never_heavier_and_keeps_the_failing_skill_alone() -> None:
    for style, parent, seed in EVERY:
        plan = plan_task(_order("simpler", seed), Record(parent=parent), style)
        assert len(plan.skills) <= len(parent)
        assert plan.weight < _weight(parent) or len(parent) == 1
        focused = plan_task(_order("simpler", seed, focus=parent[0]), Record(parent=parent), style)
        assert focused.skills == (parent[0],)


def test_harder_is_heavier_and_keeps_the_failing_skill() -> None:
    for style, parent, seed in EVERY:
        plan = plan_task(_order("harder", seed, focus=parent[-1]), Record(parent=parent), style)
        assert plan.weight > _weight(parent)
        assert parent[-1] in plan.skills
        assert len(plan.skills) in {len(parent), len(parent) + 1}


def test_another_failure_gives_another_skill_at_the_same_pass_rate() -> None:
    for style, skill, seed in product(STYLES.values(), SKILLS, range(2)):
        for direction in ("simpler", "harder", "new"):
            assert (
                skill in plan_task(_order(direction, seed, focus=skill), Record(parent=("write_line",)), style).skills
            )


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_every_skill_is_reachable_and_a_domain_is_kept(style: object) -> None:
    chosen = STYLES[getattr(style, "name")]  # noqa: B009
    reached = {
        skill for seed in range(2000) for skill in plan_task(_order("new", seed, ()), Record(), chosen).skills[:1]
    }
    known = chosen.catalogue
    assert reached == set(known.skills)
    for family in known.families:
        order = Order(direction="new", domain=family, seed=3)
        assert known.skills[plan_task(order, Record(), chosen).skills[0]].family == family


def test_revisions_follow_the_evidence() -> None:
    for style, before, seed in EVERY:
        record = Record(previous=before, solved=frozenset({"write_line"}))

        def revised(kind: str, detail: str, record: Record = record, seed: int = seed, style: str = style.name) -> Plan:
            order = _order("new", seed, (), revision=1, evidence_kind=kind, evidence_detail=detail)
            return plan_task(order, record, STYLES[style])

        assert revised("calibration", "too_easy").weight > _weight(before)
        easier = revised("calibration", "too_hard").skills
        assert easier == (*before, "write_line") if len(before) == 1 else set(easier) < set(before)
        mixed = revised("calibration", "flat").skills
        assert set(mixed) & set(before) == {before[0]}
        assert len(mixed) == 2
        assert revised("gate", "duplicate: near 12ab").skills == before
        assert set(revised("gate", "oracle: reward 0.5").skills) & set(before) == set()
        assert revised("rumour", "bad").skills == before


def test_trouble_in_a_session_changes_words_first_and_then_the_mix_but_never_drops_the_focus() -> None:
    style = STYLES["procedural"]
    order = _order("simpler", 4, focus="sort_lines")
    record = Record(parent=("sort_lines", "copy_file"))
    plan = plan_task(order, record, style)
    near = Trouble().after("duplicate", plan, order.focus)
    assert plan_task(order, record, style, near).skills == plan.skills
    assert plan_task(order, record, style, near).distractors == 1
    again = near.after("duplicate", plan, order.focus)
    assert set(plan_task(order, record, style, again).skills) > {"sort_lines"}
    broken = Trouble().after("oracle", Plan(("sort_lines", "copy_file"), 0), order.focus)
    assert broken.avoid == {"copy_file"}
    assert "copy_file" not in plan_task(_order("harder", 4, focus="sort_lines"), record, style, broken).skills


def test_an_order_is_read_with_its_evidence_and_refused_when_it_says_nothing() -> None:
    text = json.dumps(
        {
            "round": 3,
            "slot": 5,
            "revision": 2,
            "direction": "harder",
            "parent": "ab12",
            "pass_rate": 0.9,
            "commonest_failure": "sort_lines__right",
            "domain": "sort",
            "seed": 17,
            "evidence": {"kind": "gate", "detail": "duplicate: near 12", "commonest_failure": None},
        }
    )
    order = read_order(text)
    assert (order.round, order.slot, order.revision, order.seed) == (3, 5, 2, 17)
    assert (order.focus, order.parent, order.gate) == ("sort_lines", "ab12", "duplicate")
    assert read_order('{"direction": "new", "seed": 1, "commonest_failure": "test_foreign"}').focus is None
    for bad in ("", "[]", '{"seed": 1}', '{"direction": "up", "seed": 1}', '{"direction": "new", "seed": "1"}'):
        with pytest.raises(OrderError):
            read_order(bad)


def test_what_only_the_wide_catalogue_knows_is_read_by_its_style_alone() -> None:
    text = json.dumps({"direction": "harder", "seed": 1, "commonest_failure": "cron_move__right"})
    assert (read_order(text).focus, read_order(text, WIDE).focus) == (None, "cron_move")
    manifest = '[metadata]\nskills = ["cron_move", "copy_file"]'
    assert (read_skills(manifest), read_skills(manifest, WIDE)) == (("copy_file",), ("cron_move", "copy_file"))
    tally = json.dumps({"cron_move__right": [0, 4]})
    assert (read_tally(tally)[0], read_tally(tally, WIDE)[2]) == ((), frozenset({"cron_move"}))
    order = _order("harder", 1, focus="cron_move")
    assert "cron_move" in plan_task(order, Record(parent=("copy_file",)), STYLES["procedural-wide"]).skills


def test_the_solvers_record_is_read_from_tests_by_name() -> None:
    tally = {"copy_file__copied": [4, 4], "copy_file__source_kept": [3, 4], "sort_lines__right": [0, 4], "x": [0, 4]}
    expected = ("copy_file", "sort_lines"), frozenset({"copy_file"}), frozenset({"sort_lines"})
    assert read_tally(json.dumps(tally)) == expected
    assert read_tally("no JSON") == ((), frozenset(), frozenset())
    assert read_skills('[metadata]\nskills = ["copy_file", "fly", "copy_file", 3]') == ("copy_file",)
    assert read_skills("no TOML at all") == ()


def test_lessons_are_read_as_they_were_written() -> None:
    order = _order("harder", 1, revision=1, evidence_kind="calibration", evidence_detail="too_hard 'x'\n; learned")
    line = lesson(order, Record(previous=("copy_file", "tar_pack")), Plan(("copy_file",), 0))
    assert line == "- round 0, slot 0, revision 1: wrote copy_file (harder); learned copy_file+tar_pack too_hard"
    other = lesson(_order("new", 1), Record(solved=frozenset({"tar_pack"})), Plan(("git_tag",), 0))
    assert read_notes(f"{line}\n{other}\n") == {"copy_file": -1, "tar_pack": 0}


def test_a_session_of_failing_drafts_stays_within_64_commands_and_submits_what_it_wrote_last() -> None:
    previous = '[metadata]\nskills = ["note_copy", "trail_delete", "find_and_delete"]'
    answers = {"cat previous/task.toml": previous, "envwheel-draft check": '{"gate": "oracle", "outcome": "failed"}'}
    for name, seed in product(BRAINS, range(40)):
        order = {"direction": "harder", "seed": seed, "revision": 1, "evidence": {"kind": "calibration"}}
        brain = BRAINS[name]()
        said = [next(brain)]
        answer = Observation(json.dumps(order), 0)
        while said[-1] != "envwheel-draft submit":
            said.append(brain.send(answer))
            answer = Observation(answers.get(said[-1], ""), said[-1] == "envwheel-draft check")
        assert len(said) <= 64
        written = next(command for command in reversed(said) if "> task/task.toml" in command)
        skills = read_skills(written.split("\n", 1)[1].rpartition("\n")[0], STYLES[name].catalogue)
        assert f"wrote {'+'.join(skills)} " in said[-2]
        assert said.count("envwheel-draft check") >= 2
