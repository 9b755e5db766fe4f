"""The nouns: ids from causes, subjects, bytes to events and back."""

import msgspec
import pytest

from schemas.codec import CodecError, decode, encode, encode_body, same_body
from schemas.envelope import Meta
from schemas.identity import derive_seed, event_id, merkle_root, permutation, round_digest
from schemas.messages import BY_NAME, MESSAGES, RolloutCompleted, RosterChanged, WorkStarted
from schemas.outcomes import Purpose, Role, RolloutOutcome
from schemas.subjects import BadSubjectError, check_run, parse_subject, subject_of
from schemas.topology import EDGES, counts_for_digest, decider_patterns, work_patterns
from services.kernel.log import matches


def attempt(reward: float | None = 1.0) -> RolloutCompleted:
    return RolloutCompleted(
        round=3,
        request="ab" * 32,
        attempt=2,
        env="cd" * 32,
        purpose=Purpose.train,
        checkpoint_version=5,
        outcome=RolloutOutcome.solved,
        reward=reward,
        tests={"b": True, "a": False},
        content=None,
    )


def test_an_id_is_sha256_over_name_and_logical_key() -> None:
    # printf 'envwheel.id\0["work_started","x",1]' | sha256sum
    assert WorkStarted(role=Role.solver, work_id="x", try_=1).id == event_id("work_started", ("x", 1))
    assert event_id("work_started", ("x", 1)) == "b98dbe22b269a47e0d6a96ed43d095dd6f23d8b8859e70256ffb0311716e694d"
    assert attempt(1.0).id == attempt(0.0).id


def test_a_record_reads_back_equal_and_meta_is_no_part_of_the_body() -> None:
    one, other = encode(attempt(), Meta(at_ns=1, host="a")), encode(attempt(), Meta(at_ns=2, host="b"))
    assert one != other
    assert same_body(one, other)
    assert decode(one).body == attempt()
    assert decode(one).body_digest == decode(other).body_digest
    assert not same_body(one, encode(attempt(0.0), Meta()))


def test_dict_order_does_not_change_the_bytes() -> None:
    swapped = msgspec.structs.replace(attempt(), tests={"a": False, "b": True})
    assert encode_body(swapped) == encode_body(attempt())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused_at_the_door(bad: float) -> None:
    with pytest.raises(CodecError, match="rollout_completed"):
        encode(attempt(bad), Meta())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((b"rollout_completed.v1", b"rollout_completed.v9"), "newer than this code"),
        ((b"rollout_completed.v1", b"rollout_finished.v1"), "unknown message type"),
        ((b'"reward":1.0', b'"reward":1.0,"bonus":2'), "bonus"),
        ((b'"attempt":2', b'"attempt":"2"'), "attempt"),
        ((b'"attempt":2', b'"attempt":3'), "is not that of this"),
        ((b'"specversion"', b'"specverzion"'), "not an envwheel record"),
    ],
)
def test_what_is_unknown_is_an_error_that_says_what(change: tuple[bytes, bytes], message: str) -> None:
    data = encode(attempt(), Meta())
    assert change[0] in data
    with pytest.raises(CodecError, match=message):
        decode(data.replace(*change))


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[]", b"null", b"{" * 10_000])
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(data)


def test_subjects_carry_run_message_round_lane_and_id() -> None:
    subject = subject_of("demo-1", attempt())
    assert subject == f"demo-1.rollout_completed.3.train.{attempt().id}"
    assert parse_subject(subject).round == 3


@pytest.mark.parametrize("run", ["", "Demo", "a.b", "a b", "-a", "x" * 64, "a*"])
def test_run_names_that_would_break_subjects_are_refused(run: str) -> None:
    with pytest.raises(BadSubjectError):
        check_run(run)


def test_topology_names_every_message_once() -> None:
    assert set(EDGES) == set(BY_NAME) == {message.name for message in MESSAGES}
    assert all(name == name.lower() for name in BY_NAME)


def test_the_proposer_has_no_right_to_evaluations() -> None:
    patterns = decider_patterns("r", Role.proposer)
    subjects = [f"r.rollout_completed.3.{purpose.value}.ab" for purpose in Purpose]
    seen = [subject for subject in subjects if any(matches(pattern, subject) for pattern in patterns)]
    assert seen == [subject for subject in subjects if ".evaluate." not in subject]


def test_the_proposer_sees_messages_of_a_type_that_it_does_not_know() -> None:
    patterns = decider_patterns("r", Role.proposer)
    assert any(matches(pattern, "r.env_melted.3.-.ab") for pattern in patterns)


def test_other_deciders_read_everything() -> None:
    assert decider_patterns("r", Role.trainer) == ("r.>",)


def test_resolved_work_is_delivered_to_the_role_that_it_names_alone() -> None:
    assert "r.work_resolved.*.solver.*" in work_patterns("r", Role.solver)
    assert "r.work_resolved.*.trainer.*" not in work_patterns("r", Role.solver)


def test_operator_messages_and_notes_stay_out_of_the_round_digest() -> None:
    assert counts_for_digest(attempt())
    assert not counts_for_digest(WorkStarted(role=Role.solver, work_id="x", try_=1))
    assert not counts_for_digest(RosterChanged(ordinal=1, role=Role.proposer, entries=()))


def test_seeds_and_orders_follow_from_seed_and_labels() -> None:
    assert derive_seed(1, "a") == derive_seed(1, "a") != derive_seed(1, "b")
    assert 0 <= derive_seed(1, "a") < 2**53
    items = [str(n) for n in range(20)]
    assert permutation(items, 1, "x") == permutation(reversed(items), 1, "x") != permutation(items, 2, "x")


def test_the_round_digest_is_the_rfc_6962_root_over_ids_in_order() -> None:
    one, two, three = ("00" * 32, "01" * 32), ("02" * 32, "03" * 32), ("04" * 32, "05" * 32)
    leaves = [bytes.fromhex(id_ + body) for id_, body in (one, two, three)]
    assert round_digest(dict([three, one, two])) == merkle_root(leaves)
    # printf '' | sha256sum
    assert merkle_root([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    # printf '\0a' | sha256sum
    assert merkle_root([b"a"]) == "022a6979e6dab7aa5ae4c3e5e45f7e977112a7e63593820dbec1ec738a24f93c"
