"""What a span says of its message: name, kind, attributes, status, and the gates of a verdict as events."""

from opentelemetry.trace import SpanKind, Status, StatusCode

from schemas.envelope import Event
from schemas.messages import (
    CheckpointPublished,
    DraftChecked,
    EnvAbandoned,
    EnvCalibrated,
    EnvProposed,
    EnvRechecked,
    EnvValidated,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RoundClosed,
    WorkFailed,
    WorkParked,
)
from schemas.outcomes import Nature
from services.observer.views import semconv

Attributes = dict[str, str | int | float | bool]

_INFRA_FAILED = "infra_failed"
_PLAIN = {
    "round": semconv.ROUND,
    "slot": semconv.SLOT,
    "revision": semconv.REVISION,
    "env": semconv.ENV,
    "checkpoint_version": semconv.CHECKPOINT_VERSION,
    "attempt": semconv.ATTEMPT,
    "purpose": semconv.PURPOSE,
    "outcome": semconv.OUTCOME,
    "verdict": semconv.OUTCOME,
    "reason": semconv.OUTCOME,
    "transcript": semconv.EVIDENCE,
    "content": semconv.EVIDENCE,
}
"""Fields that become attributes wherever a message has them."""


def name_of(body: Message) -> str:
    match body:
        case EnvProposed() | EnvAbandoned():
            return "invoke_agent proposer"
        case RolloutCompleted():
            return "invoke_agent solver"
        case CheckpointPublished():
            return f"train {body.role.value} {body.checkpoint_version}"
        case _:
            return f"{_operation(body)} {body.name}"


def kind_of(body: Message) -> SpanKind:
    """Requests are sent, facts are work that was processed, all else happens inside."""
    match body.nature:
        case Nature.request:
            return SpanKind.PRODUCER
        case Nature.fact:
            return SpanKind.CONSUMER
        case _:
            return SpanKind.INTERNAL


def status_of(body: Message) -> Status:
    match body:
        case WorkFailed():
            return Status(StatusCode.ERROR, f"{body.error.kind}: {body.error.detail}")
        case WorkParked():
            return Status(StatusCode.ERROR, body.reason)
        case _:
            failed = any(getattr(body, name, "") == _INFRA_FAILED for name in ("outcome", "verdict", "reason"))
            return Status(StatusCode.ERROR, _INFRA_FAILED) if failed else Status(StatusCode.UNSET)


def attributes_of(event: Event) -> Attributes:
    body, meta = event.body, event.meta
    said: Attributes = {
        semconv.MESSAGING_SYSTEM: "nats",
        semconv.MESSAGING_OPERATION_TYPE: _operation(body),
        semconv.MESSAGING_OPERATION_NAME: _operation(body),
        semconv.MESSAGING_DESTINATION: event.subject,
        semconv.MESSAGING_DESTINATION_TEMPLATE: semconv.DESTINATION_TEMPLATE,
        semconv.MESSAGING_MESSAGE_ID: event.id,
    }
    for name, key in _PLAIN.items():
        value = getattr(body, name, None)
        if value is not None:
            said[key] = value if isinstance(value, int | float) else str(value)
    if meta.cpu_s is not None:
        said[semconv.CPU_S] = meta.cpu_s
    if meta.sandbox_cpu_s is not None:
        said[semconv.SANDBOX_CPU_S] = meta.sandbox_cpu_s
    return said | _gen_ai(body) | _own(body)


def _gen_ai(body: Message) -> Attributes:
    match body:
        case EnvProposed() | EnvAbandoned():
            who: Attributes = {semconv.GEN_AI_AGENT: body.entry.name, semconv.GEN_AI_MODEL: body.entry.model}
        case RolloutCompleted():
            who = {semconv.GEN_AI_AGENT: "solver"}
            if body.reward is not None:
                who[semconv.GEN_AI_EVALUATION] = "reward"
                who[semconv.GEN_AI_SCORE] = body.reward
                who[semconv.GEN_AI_SCORE_LABEL] = body.outcome.value
        case _:
            return {}
    return who | {
        semconv.GEN_AI_OPERATION: "invoke_agent",
        semconv.GEN_AI_INPUT_TOKENS: body.usage.prompt_tokens,
        semconv.GEN_AI_OUTPUT_TOKENS: body.usage.completion_tokens,
    }


def _own(body: Message) -> Attributes:
    match body:
        case EnvCalibrated():
            return {"envwheel.calibration.mean": body.mean, "envwheel.calibration.std": body.std}
        case RolloutRequested():
            return {"envwheel.attempts": body.attempts}
        case CheckpointPublished():
            return {f"envwheel.metric.{name}": value for name, value in body.metrics.items()}
        case RoundClosed():
            return {semconv.DIGEST: body.digest, "envwheel.degraded": body.degraded}
        case WorkFailed():
            return {semconv.ERROR_TYPE: body.error.kind}
        case _:
            return {}


def gate_events(body: Message) -> list[tuple[str, Attributes]]:
    if not isinstance(body, EnvValidated | DraftChecked | EnvRechecked):
        return []
    said: list[tuple[str, Attributes]] = []
    for gate in body.gates:
        attributes: Attributes = {semconv.GATE: gate.gate, semconv.OUTCOME: gate.outcome.value}
        if gate.evidence is not None:
            attributes[semconv.EVIDENCE] = gate.evidence
        said.append((f"gate {gate.gate}", attributes))
    return said


def _operation(body: Message) -> str:
    return {Nature.request: "send", Nature.fact: "process"}.get(body.nature, "create")
