"""Spans as OTLP-JSON: one line that any OTLP collector or viewer reads, equal bytes for equal spans."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.sdk.trace import Event as SpanEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext

from services.observer.views import semconv

_SAMPLED = 0x01
_HAS_REMOTE = 0x100
_encoder = msgspec.json.Encoder(order="deterministic")


def encode_spans(spans: Iterable[ReadableSpan]) -> bytes:
    """An ExportTraceServiceRequest, grouped by resource in the order of service names, spans as they come."""
    groups: dict[str, list[ReadableSpan]] = {}
    for span in spans:
        groups.setdefault(str(span.resource.attributes[semconv.SERVICE_NAME]), []).append(span)
    return _encoder.encode({"resourceSpans": [_resource_spans(groups[name]) for name in sorted(groups)]}) + b"\n"


def write_spans(path: Path, spans: Iterable[ReadableSpan]) -> None:
    """Replaces the file; a reader sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(encode_spans(spans))
    temporary.replace(path)


def _resource_spans(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    scope = spans[0].instrumentation_scope
    return {
        "resource": {"attributes": _attributes(spans[0].resource.attributes)},
        "scopeSpans": [
            {
                "scope": {"name": scope.name if scope else "", "version": (scope.version or "") if scope else ""},
                "spans": [_span(span) for span in spans],
                "schemaUrl": semconv.SCHEMA_URL,
            }
        ],
    }


def _span(span: ReadableSpan) -> dict[str, Any]:
    said: dict[str, Any] = {
        **_ids(span.context),
        "name": span.name,
        "kind": span.kind.value + 1,  # the SDK counts from INTERNAL = 0, OTLP from INTERNAL = 1
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes or {}),
        "events": [_event(event) for event in span.events],
        "links": [_link(link) for link in span.links],
        "status": _status(span),
        "flags": _SAMPLED | _HAS_REMOTE,
    }
    if span.parent is not None:
        said["parentSpanId"] = f"{span.parent.span_id:016x}"
    return said


def _ids(context: SpanContext) -> dict[str, str]:
    return {"traceId": f"{context.trace_id:032x}", "spanId": f"{context.span_id:016x}"}


def _event(event: SpanEvent) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.timestamp),
        "name": event.name,
        "attributes": _attributes(event.attributes or {}),
    }


def _link(link: Link) -> dict[str, Any]:
    return {**_ids(link.context), "attributes": [], "flags": _SAMPLED | _HAS_REMOTE}


def _status(span: ReadableSpan) -> dict[str, Any]:
    said: dict[str, Any] = {"code": span.status.status_code.value}
    if span.status.description:
        said["message"] = span.status.description
    return said


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(attributes[key])} for key in sorted(attributes)]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [_value(item) for item in value]}}
