"""OpenTelemetry spans from the log: one trace an assignment (slot), one a round, with links between them.

A span is named by the run and the id of its event, its times are those that the event tells, so the same log gives the
same spans, byte for byte. They are built finished: a tracer would ask this machine for clock, chance and settings.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event as SpanEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from schemas.envelope import Event
from schemas.identity import event_id
from schemas.messages import (
    EnvAbandoned,
    EnvProposed,
    EnvRequested,
    RolloutCompleted,
    RolloutRequested,
    RoundClosed,
    RunFinished,
    SegmentSealed,
    SlotMessage,
    UpdatePlanned,
    WorkFailed,
    WorkParked,
    WorkStarted,
)
from schemas.topology import EDGES
from services.observer.views import semconv
from services.observer.views.attributes import attributes_of, gate_events, kind_of, name_of, status_of

_SCOPE = InstrumentationScope("envwheel.observer", "1", semconv.SCHEMA_URL)
_OBSERVER = "observer"


@dataclass(frozen=True, slots=True)
class Timed:
    """An event, and when the log took it: the time of those that tell none."""

    event: Event
    appended_at_ns: int

    @property
    def end_ns(self) -> int:
        return self.event.meta.at_ns or self.appended_at_ns

    @property
    def start_ns(self) -> int:
        started_ns = self.event.meta.started_ns
        return self.end_ns if started_ns is None else min(started_ns, self.end_ns)


@dataclass
class RoundEvents:
    """Collects the events of one trace file: from behind the last RoundClosed to the next one, or to the run's end."""

    run: str
    number: int = 0
    events: list[Timed] = field(default_factory=list)
    traces: dict[str, str] = field(default_factory=dict)
    """Label of the trace by event id."""
    rooted: frozenset[str] = frozenset()
    """Traces whose root is in an earlier file: what comes late hangs on it."""

    def add(self, event: Event, appended_at_ns: int) -> "RoundEvents | None":
        """Takes the next event of the log in; returns the collection when it is complete, and starts anew."""
        if isinstance(event.body, SegmentSealed):
            return None
        self.events.append(Timed(event, appended_at_ns))
        self.traces[event.id] = self._label(event)
        if not isinstance(event.body, RoundClosed | RunFinished):
            return None
        done = replace(self)
        self.number, self.events, self.traces = self.number + 1, [], {}
        self.rooted = done.rooted | frozenset(done.traces.values())
        return done

    @property
    def file_name(self) -> str:
        known = any(timed.event.body.round == self.number for timed in self.events)
        return f"round-{self.number}.json" if known else "end.json"

    def _label(self, event: Event) -> str:
        """The trace of an event: that of its slot if it is about one, else that of its round."""
        body = event.body
        if isinstance(body, SlotMessage) or (isinstance(body, RolloutRequested) and body.slot is not None):
            return f"assignment/{body.round}/{body.slot}"
        about = _about(event)
        if isinstance(body, RolloutCompleted | WorkFailed | WorkParked | WorkStarted) and about in self.traces:
            return self.traces[about]
        return f"round/{body.round}"


def spans_of(collected: RoundEvents) -> list[ReadableSpan]:
    """All spans of one trace file: roots first, then one a message in the order of the log."""
    builder = _Builder(collected)
    spans = [builder.span(timed) for timed in collected.events if not isinstance(timed.event.body, WorkStarted)]
    return builder.roots() + spans


class _Builder:
    def __init__(self, collected: RoundEvents) -> None:
        self._run = collected.run
        self._traces = collected.traces
        self._rooted = collected.rooted
        self._resources: dict[str, Resource] = {}
        started = [t.event.body.work_id for t in collected.events if isinstance(t.event.body, WorkStarted)]
        self._tries = Counter(started)
        self._bounds: dict[str, tuple[int, int]] = {}
        for timed in collected.events:
            label = self._traces[timed.event.id]
            first, last = self._bounds.get(label, (timed.start_ns, timed.end_ns))
            self._bounds[label] = (min(first, timed.start_ns), max(last, timed.end_ns))

    def span(self, timed: Timed) -> ReadableSpan:
        event = timed.event
        label = self._traces[event.id]
        about = _about(event)
        near = about is not None and self._traces.get(about) == label
        parent = self._context(label, about if near and about is not None else label)
        linked = [] if near or about not in self._traces or about is None else [about]
        if isinstance(event.body, UpdatePlanned):
            linked += [group.request for group in event.body.groups if group.request in self._traces]
        attributes = attributes_of(event)
        if self._tries[event.id]:
            attributes[semconv.TRIES] = self._tries[event.id]
        return self._make(
            name_of(event.body),
            self._context(label, event.id),
            parent,
            (timed.start_ns, timed.end_ns),
            kind=kind_of(event.body),
            service=event.meta.service or EDGES[event.body.name].said_by[0].value,
            attributes=attributes,
            events=[SpanEvent(name, attrs, timed.end_ns) for name, attrs in gate_events(event.body)],
            links=[Link(self._context(self._traces[id_], id_)) for id_ in linked],
            status=status_of(event.body),
        )

    def roots(self) -> list[ReadableSpan]:
        """Rounds, then assignments by slot; each assignment is linked with its round, both ways."""
        new = self._bounds.keys() - self._rooted
        labels = sorted(new, key=lambda label: [label[0] == "a", *(int(n) for n in label.split("/")[1:])])
        return [self._root(label, [other for other in labels if _linked(label, other)]) for label in labels]

    def _root(self, label: str, linked: Iterable[str]) -> ReadableSpan:
        kind, _, place = label.partition("/")
        numbers = [int(number) for number in place.split("/")]
        keys = (semconv.ROUND, semconv.SLOT)
        return self._make(
            f"{kind} {place}",
            self._context(label, label),
            None,
            self._bounds[label],
            kind=SpanKind.INTERNAL,
            service=_OBSERVER,
            attributes=dict(zip(keys, numbers, strict=False)),
            events=[],
            links=[Link(self._context(other, other)) for other in linked],
            status=Status(StatusCode.UNSET),
        )

    def _make(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times_ns: tuple[int, int],
        *,
        kind: SpanKind,
        service: str,
        attributes: dict[str, str | int | float | bool],
        events: Sequence[SpanEvent],
        links: Sequence[Link],
        status: Status,
    ) -> ReadableSpan:
        return ReadableSpan(
            name=name,
            context=context,
            parent=parent,
            resource=self._resource(service),
            attributes=attributes,
            events=events,
            links=links,
            kind=kind,
            status=status,
            start_time=times_ns[0],
            end_time=times_ns[1],
            instrumentation_scope=_SCOPE,
        )

    def _resource(self, service: str) -> Resource:
        if service not in self._resources:
            names = {semconv.SERVICE_NAME: service, semconv.SERVICE_NAMESPACE: f"envwheel.{self._run}"}
            self._resources[service] = Resource(names)
        return self._resources[service]

    def _context(self, label: str, name: str) -> SpanContext:
        return SpanContext(
            trace_id=self._number("trace", label, 16),
            span_id=self._number("span", name, 8),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )

    def _number(self, what: str, name: str, size_bytes: int) -> int:
        digest = sha256(f"envwheel.{what}\0{self._run}\0{name}".encode()).digest()
        return int.from_bytes(digest[:size_bytes], "big")


def _about(event: Event) -> str | None:
    """The message that this one answers."""
    match event.body:
        case RolloutCompleted(request=request):
            return request
        case WorkStarted(work_id=work_id) | WorkFailed(work_id=work_id) | WorkParked(work_id=work_id):
            return work_id
        case EnvProposed() | EnvAbandoned():
            return event_id(EnvRequested.name, event.body.key())
        case _:
            return event.meta.cause


def _linked(one: str, other: str) -> bool:
    """Is one an assignment of the other, which is its round?"""
    kinds = {one[0], other[0]}
    return kinds == {"a", "r"} and one.split("/")[1] == other.split("/")[1]
