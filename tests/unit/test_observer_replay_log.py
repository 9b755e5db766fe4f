"""Replay level `log`: whatever is changed, taken out or put in is named."""

import asyncio
import random
import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from schemas.codec import decode, encode, same_body
from schemas.envelope import Meta
from schemas.identity import digest_of, round_digest
from schemas.messages import MESSAGES, EnvProposed, RosterChanged, RoundClosed, RunStarted, SegmentSealed
from schemas.outcomes import Role
from schemas.parts import RosterEntry
from schemas.subjects import subject_of
from services.kernel.errors import ArtifactCorrupt
from services.kernel.log import Entry, Stored
from services.kernel.memory import MemoryLog
from services.observer.views.levels import Difference
from services.observer.views.log_level import log_level
from services.observer.views.named import ARTIFACT_FIELDS, artifacts_of
from services.observer.views.sealing import note_bytes
from services.observer.views.source import Source, read_log
from tests.support.histories import Shelf, sealed_source, whole_run
from tests.support.wheel import RUN

OTHER_TEXTS = {
    "RunStarted": "code_version base_kind", "HeldOutSet": "name digest",
    "Science": "profile model engine domains", "TrainingRules": "objective", "FailureRules": "parked",
    "RosterEntry": "name model arm", "ModelRules": "endpoint model speech", "WorkResolved": "work_id subject",
    "Assignment": "domain commonest_failure", "CitedRollout": "id", "RolloutRef": "id",
    "Evidence": "kind detail commonest_failure",
    "EnvProposed": "cited", "EnvAbandoned": "detail", "GateResult": "gate detail", "EnvValidated": "sketch",
    "EnvCalibrated": "rollouts commonest_failure", "PoolLeaving": "detail", "RolloutRequested": "set_name",
    "RolloutCompleted": "request detail", "PlannedGroup": "request", "DroppedGroup": "request",
    "CheckpointPublished": "recipe", "RoundClosed": "digest memory", "RunFinished": "why",
    "EnvImported": "source licence", "EnvRecalled": "base_digest",
    "EnvRecheckRequested": "base_digest cause", "WorkStarted": "work_id",
    "WorkFailed": "work_id", "WorkParked": "work_id subject reason", "WorkError": "boundary kind detail",
    "SegmentSealed": "root previous_root",
}  # fmt: skip
"""Text fields that name no artifact: words, ids of messages, roots."""


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Source:
    source = asyncio.run(sealed_source(tmp_path_factory.mktemp("artifacts"), whole_run()))
    contents = {digest: source.artifacts.get(digest) for event in source.events() for digest in artifacts_of(event)}
    return replace(source, artifacts=Shelf(contents))


def with_records(source: Source, records: list[Stored], *, last_seq: int | None = None) -> Source:
    return Source(source.run, records, source.artifacts, len(records) if last_seq is None else last_seq)


def with_record(source: Source, seq: int, data: bytes, subject: str | None = None) -> Source:
    records = list(source.records)
    records[seq - 1] = replace(records[seq - 1], data=data, subject=subject or records[seq - 1].subject)
    return with_records(source, records)


def with_artifact(source: Source, digest: str, data: bytes | None) -> Source:
    assert isinstance(source.artifacts, Shelf)
    contents = {name: content for name, content in source.artifacts.contents.items() if name != digest}
    return replace(source, artifacts=Hashed(contents if data is None else contents | {digest: data}))


class Hashed(Shelf):
    """A shelf that checks what it gives, as the store does."""

    def get(self, digest: str) -> bytes:
        data = super().get(digest)
        if digest_of(data) != digest:
            raise ArtifactCorrupt(digest, "other bytes")
        return data


def flipped(data: bytes, place: int, bit: int = 0) -> bytes:
    return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


def first_difference(source: Source, **options: Any) -> Difference:
    found = log_level(source, **options)
    assert not found.equal
    assert found.first_difference is not None
    return found.first_difference


def test_an_untouched_log_is_whole(sealed: Source) -> None:
    found = log_level(sealed)
    assert (found.equal, found.done, found.first_difference) == (True, 425, None)
    assert found.notes[0].startswith("consistent with itself, not anchored")
    assert found.notes[1:] == ("sealed to record 420; behind it 5 seals, 0 other records",)


def test_one_changed_byte_of_any_record_names_that_record(sealed: Source) -> None:
    chooser = random.Random(5)
    seals = [event.seq for event in sealed.events() if isinstance(event.body, SegmentSealed)]
    for seq in sorted({1, 2, 420, *seals, *chooser.sample(range(1, 421), 60)}):
        record = sealed.records[seq - 1]
        place, bit = chooser.randrange(len(record.data)), chooser.randrange(8)
        found = first_difference(with_record(sealed, seq, flipped(record.data, place, bit)))
        assert (found.seq, found.id) == (seq, record.id), f"byte {place}, bit {bit}: {found}"
        assert found.what == "changed" or (found.what == "missing" and found.artifact), found


def test_no_byte_of_the_last_seal_can_change_unseen(sealed: Source) -> None:
    last = sealed.records[-1]
    for place in range(0, len(last.data), 5):
        found = first_difference(with_record(sealed, last.seq, flipped(last.data, place)))
        assert (found.seq, found.id) == (last.seq, last.id), f"byte {place}: {found}"


def test_another_body_under_the_same_id_is_found_by_the_seal(sealed: Source) -> None:
    event = next(event for event in sealed.events() if isinstance(event.body, EnvProposed))
    assert isinstance(event.body, EnvProposed)
    other = msgspec.structs.replace(event.body, entry=RosterEntry(name="forged", model="m"))
    found = first_difference(with_record(sealed, event.seq, encode(other, event.meta)))
    assert (found.what, found.seq, found.message, found.id) == ("changed", event.seq, "env_proposed", event.id)


def test_a_changed_meta_is_found_by_the_seal(sealed: Source) -> None:
    event = sealed.events()[99]
    forged = encode(event.body, msgspec.structs.replace(event.meta, cpu_s=0.0))
    found = first_difference(with_record(sealed, 100, forged))
    assert (found.what, found.seq, found.id) == ("changed", 100, event.id)


@pytest.mark.parametrize("seq", [1, 57, 100, 101, 420])
def test_a_missing_record_is_named_by_the_sealed_segment(sealed: Source, seq: int) -> None:
    records = [record for record in sealed.records if record.seq != seq]
    found = first_difference(with_records(sealed, records, last_seq=425))
    due = sealed.records[seq - 1]
    assert (found.what, found.seq, found.id, found.message) == ("missing", seq, due.id, due.subject.split(".")[1])


def test_a_record_taken_out_of_a_renumbered_log_is_named(sealed: Source) -> None:
    rest = [record for record in sealed.records if record.seq != 57]
    records = [replace(record, seq=seq) for seq, record in enumerate(rest, 1)]
    found = first_difference(with_records(sealed, records))
    assert (found.what, found.seq, found.id) == ("missing", 57, sealed.records[56].id)


def test_a_record_put_into_a_renumbered_log_is_named(sealed: Source) -> None:
    message = RosterChanged(ordinal=9, role=Role.proposer, entries=())
    extra = Stored(0, subject_of(RUN, message), encode(message, Meta()), 0)
    records = [*sealed.records[:56], extra, *sealed.records[56:]]
    found = first_difference(with_records(sealed, [replace(r, seq=seq) for seq, r in enumerate(records, 1)]))
    assert (found.what, found.seq, found.id) == ("added", 57, message.id)


def test_another_time_of_a_sealed_record_is_named(sealed: Source) -> None:
    records = list(sealed.records)
    records[6] = replace(records[6], appended_at_ns=records[6].appended_at_ns + 1)
    found = log_level(with_records(sealed, records)).first_difference
    assert found is not None
    assert (found.what, found.seq, found.id) == ("changed", 7, records[6].id)


def test_two_exchanged_records_are_found(sealed: Source) -> None:
    records = list(sealed.records)
    records[9], records[10] = replace(records[10], seq=10), replace(records[9], seq=11)
    assert first_difference(with_records(sealed, records)).seq == 10


def test_a_lost_end_is_missing(sealed: Source) -> None:
    found = first_difference(with_records(sealed, list(sealed.records[:-1]), last_seq=425))
    assert (found.what, found.seq) == ("missing", 425)


def test_a_record_said_twice_is_named(sealed: Source) -> None:
    again = replace(sealed.records[3], seq=426)
    found = first_difference(with_records(sealed, [*sealed.records, again]))
    assert (found.what, found.seq, found.id) == ("added", 426, again.id)


def test_a_record_under_another_subject_is_named(sealed: Source) -> None:
    record = sealed.records[10]
    found = first_difference(with_record(sealed, 11, record.data, record.subject.replace(".0.", ".1.")))
    assert (found.what, found.seq, found.id) == ("changed", 11, record.id)


def test_a_record_that_is_no_message_is_named_by_its_seal(sealed: Source) -> None:
    found = first_difference(with_record(sealed, 30, b"\x00garbage", "test.garbage"))
    assert (found.what, found.seq, found.id) == ("changed", 30, sealed.records[29].id)


def test_one_changed_byte_of_any_artifact_names_that_artifact(sealed: Source) -> None:
    assert isinstance(sealed.artifacts, Shelf)
    chooser = random.Random(6)
    segments = {event.body.segment or "" for event in sealed.events() if isinstance(event.body, SegmentSealed)}
    for digest in sorted(segments | set(chooser.sample(sorted(sealed.artifacts.contents), 25))):
        data = sealed.artifacts.contents[digest]
        damaged = with_artifact(sealed, digest, flipped(data, chooser.randrange(len(data))))
        found = first_difference(damaged)
        assert (found.what, found.artifact) == ("changed", digest)
        lost = first_difference(with_artifact(sealed, digest, None))
        assert (lost.what, lost.artifact) == ("missing", digest)
        assert lost.id in {event.id for event in sealed.events() if digest in artifacts_of(event)}


def test_a_changed_record_whose_segment_is_damaged_too_names_the_segment(sealed: Source) -> None:
    note = next(event.body for event in sealed.events() if isinstance(event.body, SegmentSealed))
    damaged = with_artifact(sealed, note.segment or "", b"{}")
    event = damaged.events()[50]
    forged = encode(event.body, msgspec.structs.replace(event.meta, host="elsewhere"))
    found = first_difference(with_record(damaged, 51, forged))
    assert found.artifact == note.segment


def test_a_forged_seal_over_forged_records_breaks_the_next_one(sealed: Source) -> None:
    """Records, artifact and note changed together: the roots of later seals still say otherwise, or the kept root."""
    note = next(event for event in sealed.events() if isinstance(event.body, SegmentSealed))
    assert isinstance(note.body, SegmentSealed)
    forged = msgspec.structs.replace(note.body, root="ab" * 32)
    found = first_difference(with_record(sealed, note.seq, note_bytes(forged)))
    assert (found.what, found.seq, found.id) == ("changed", note.seq, note.id)


def test_a_root_kept_elsewhere_anchors_the_log(sealed: Source) -> None:
    told, _, head = log_level(sealed).notes[0].rpartition(": ")
    assert told == "consistent with itself, not anchored; to keep elsewhere, for --root"
    assert log_level(sealed, root=head).notes[0] == f"anchored: records 1 to 420 are those of {head}"
    note = next(event.body for event in sealed.events() if isinstance(event.body, SegmentSealed))
    assert log_level(sealed, root=note.root).notes[0].startswith("anchored: records 1 to 100")
    assert first_difference(sealed, root="ab" * 32).what == "unanchored"
    assert log_level(whole_run().source()).notes[0] == "consistent with itself, not anchored"


async def test_a_round_that_closed_with_another_digest_is_named(tmp_path: Path) -> None:
    log = MemoryLog(RUN, same_body)
    history = whole_run()
    for record, event in zip(history.records, history.events, strict=True):
        data = record.data
        if isinstance(event.body, RoundClosed) and event.body.round == 1:
            data = encode(msgspec.structs.replace(event.body, digest=round_digest({})), event.meta)
        await log.append([Entry(record.subject, record.id, data)])
    found = first_difference(await read_log(RUN, log, Shelf(history.artifacts)))
    assert (found.what, found.message) == ("changed", "round_closed")
    assert "the log gives" in found.detail


def test_an_unsealed_log_is_checked_too_and_said_to_be_unsealed() -> None:
    source = whole_run().source()
    assert log_level(source).notes[1] == "sealed to record 0; behind it 0 seals, 420 other records"
    found = first_difference(with_records(source, [r for r in source.records if r.seq != 7], last_seq=420))
    assert (found.what, found.seq, found.id) == ("missing", 7, None)
    assert "no sealed segment covers it" in found.detail


def test_the_artifacts_of_body_and_meta_are_found() -> None:
    started = next(event for event in whole_run().events if isinstance(event.body, RunStarted))
    assert isinstance(started.body, RunStarted)
    meta = Meta(observation="obs", observations={"b": "two", "a": "one"})
    event = decode(encode(started.body, meta))
    envs = [env for held_out in started.body.heldout for env in held_out.envs]
    assert list(artifacts_of(event)) == [
        started.body.checkpoint, started.body.base_digest, *envs, "obs", "one", "two",
    ]  # fmt: skip


def structs(hint: Any, seen: dict[str, type]) -> None:
    for part in get_args(hint):
        structs(part, seen)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint.__name__ not in seen:
        seen[hint.__name__] = hint
        for inner in get_type_hints(hint).values():
            structs(inner, seen)


def texts(hint: Any) -> Iterator[type]:
    """Does a field hold plain text: alone, in a list, or as a choice?"""
    if get_origin(hint) in (Union, UnionType, tuple):
        for part in get_args(hint):
            if part not in (NoneType, Ellipsis):
                yield from texts(part)
    elif hint is str or typing.get_origin(hint) is typing.Literal:
        yield str


def test_every_text_field_of_every_message_is_an_artifact_or_known_to_be_none() -> None:
    seen: dict[str, type] = {}
    for message in MESSAGES:
        structs(message, seen)
    for name, struct in seen.items():
        fields = {field.name for field in msgspec.structs.fields(struct)}
        hints = get_type_hints(struct)
        due = {field for field in fields if any(texts(hints[field]))}
        sorted_ones = set(ARTIFACT_FIELDS.get(name, ())) | set(OTHER_TEXTS.get(name, "").split())
        assert due == sorted_ones, f"{name}: sort these fields in views/named.py or here"
