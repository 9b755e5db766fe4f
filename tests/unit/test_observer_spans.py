"""Spans: one trace a slot and one a round, from the log alone, byte-equal whenever they are made."""

from collections import defaultdict
from typing import Any

import msgspec

from schemas.codec import decode, encode
from schemas.envelope import Meta
from schemas.messages import Message, RunFinished, WorkFailed, WorkStarted
from schemas.outcomes import Role
from schemas.parts import WorkError
from schemas.subjects import subject_of
from services.observer.views.otlp import encode_spans
from services.observer.views.spans import RoundEvents, spans_of
from services.observer.views.views_level import span_files
from tests.support.histories import START_NS, STEP_NS, whole_run
from tests.support.wheel import RUN

Span = dict[str, Any]


def spans_in(data: bytes) -> list[Span]:
    return [
        {**span, "service": resource["resource"]["attributes"][0]["value"]["stringValue"]}
        for resource in msgspec.json.decode(data)["resourceSpans"]
        for span in resource["scopeSpans"][0]["spans"]
    ]


def files() -> dict[str, bytes]:
    return span_files(whole_run().source())


def all_spans() -> list[Span]:
    return [span for data in files().values() for span in spans_in(data)]


def attributes(span: Span) -> dict[str, Any]:
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


def of_messages(*messages: Message) -> bytes:
    collected = RoundEvents(RUN)
    for seq, message in enumerate((*messages, RunFinished(why="done")), 1):
        meta = Meta(at_ns=seq * 1000, service="solver")
        event = decode(encode(message, meta), subject=subject_of(RUN, message), seq=seq)
        if done := collected.add(event, seq * 1000 + 1):
            return encode_spans(spans_of(done))
    raise AssertionError("no end")


def test_two_builds_give_the_same_bytes() -> None:
    assert files() == files()


def test_there_is_a_file_a_round_and_one_for_what_follows_the_last() -> None:
    assert list(files()) == ["round-0.json", "round-1.json", "round-2.json", "end.json"]


def test_every_message_has_one_span_named_by_its_id_and_no_id_comes_twice() -> None:
    spans = all_spans()
    said = [attributes(span).get("messaging.message.id") for span in spans]
    assert sorted(filter(None, said)) == sorted(event.id for event in whole_run().events)
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert all(len(span["spanId"]) == 16 and len(span["traceId"]) == 32 for span in spans)


def test_parents_stand_in_the_same_trace_and_no_span_hangs_in_the_air() -> None:
    spans = {span["spanId"]: span for span in all_spans()}
    for span in spans.values():
        if "parentSpanId" in span:
            assert spans[span["parentSpanId"]]["traceId"] == span["traceId"]
    roots = [span for span in spans.values() if "parentSpanId" not in span]
    assert {span["name"].split()[0] for span in roots} == {"round", "assignment"}


def test_a_trace_of_an_assignment_goes_from_the_request_to_the_rollouts() -> None:
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in all_spans():
        traces[span["traceId"]].append(span)
    whole = [spans for spans in traces.values() if any(s["name"].startswith("assignment") for s in spans)]
    assert len(whole) == len({(slot["name"]) for spans in whole for slot in spans if "parentSpanId" not in slot})
    names = [{span["name"] for span in spans} for spans in whole]
    assert {
        "send env_requested", "invoke_agent proposer", "process env_validated", "send rollout_requested",
        "invoke_agent solver", "process env_calibrated",
    } <= names[0]  # fmt: skip
    for spans in whole:
        parents = {span["spanId"]: span["name"] for span in spans}
        for span in spans:
            if span["name"] == "invoke_agent solver":
                assert parents[span["parentSpanId"]] == "send rollout_requested"
            if span["name"] == "invoke_agent proposer":
                assert parents[span["parentSpanId"]] == "send env_requested"


def test_times_are_those_of_the_metas_and_roots_span_their_traces() -> None:
    by_id = {attributes(span).get("messaging.message.id"): span for span in all_spans()}
    for event in whole_run().events:
        span = by_id[event.id]
        assert int(span["endTimeUnixNano"]) == START_NS + event.seq * STEP_NS == event.meta.at_ns
        assert int(span["startTimeUnixNano"]) == (event.meta.started_ns or event.meta.at_ns)
    for data in files().values():
        bounds: dict[str, list[int]] = defaultdict(list)
        for span in spans_in(data):
            bounds[span["traceId"]] += [int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])]
        for span in spans_in(data):
            if "parentSpanId" not in span:
                times = bounds[span["traceId"]]
                assert [int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])] == [min(times), max(times)]


def test_rounds_and_assignments_are_linked_both_ways() -> None:
    spans = {span["spanId"]: span for span in spans_in(files()["round-1.json"])}
    round_root = next(span for span in spans.values() if span["name"] == "round 1")
    assignments = [span for span in spans.values() if span["name"].startswith("assignment 1/")]
    assert {link["spanId"] for link in round_root["links"]} == {span["spanId"] for span in assignments}
    assert all([link["spanId"] for link in span["links"]] == [round_root["spanId"]] for span in assignments)


def test_an_update_is_linked_to_the_groups_it_learns_from() -> None:
    spans = {span["spanId"]: span for span in all_spans()}
    updates = [span for span in spans.values() if span["name"] == "create update_planned"]
    linked = [spans[link["spanId"]]["name"] for span in updates for link in span["links"]]
    assert linked
    assert set(linked) <= {"send rollout_requested", "invoke_agent solver"}


def test_a_failed_try_is_an_error_and_tries_are_counted_on_the_work() -> None:
    work_id = RunFinished(why="done").id
    error = WorkError(boundary="sandbox", kind="disk_full", detail="no space")
    data = of_messages(
        WorkStarted(role=Role.solver, work_id=work_id, try_=1),
        WorkFailed(role=Role.solver, work_id=work_id, try_=1, error=error),
        WorkStarted(role=Role.solver, work_id=work_id, try_=2),
    )
    by_name = {span["name"]: span for span in spans_in(data)}
    assert by_name["create work_failed"]["status"] == {"code": 2, "message": "disk_full: no space"}
    assert attributes(by_name["create work_failed"])["error.type"] == "disk_full"
    assert attributes(by_name["create run_finished"])["envwheel.work.tries"] == "2"
    assert "create work_started" not in by_name


def test_another_run_of_the_same_messages_has_other_traces() -> None:
    other = RoundEvents("other")
    for record, event in zip(whole_run().records, whole_run().events, strict=True):
        if done := other.add(event, record.appended_at_ns):
            theirs = {span["traceId"] for span in spans_in(encode_spans(spans_of(done)))}
            assert not theirs & {span["traceId"] for span in all_spans()}
            return


def test_spans_carry_the_conventions_names() -> None:
    rollout = next(span for span in all_spans() if span["name"] == "invoke_agent solver")
    said = attributes(rollout)
    assert rollout["service"] == "solver"
    assert rollout["kind"] == 5
    assert said["gen_ai.operation.name"] == "invoke_agent"
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == ("20", "10")
    assert said["gen_ai.evaluation.score.value"] in (0.0, 1.0)
    assert said["messaging.system"] == "nats"
    assert said["messaging.destination.name"].startswith("test.rollout_completed.")
