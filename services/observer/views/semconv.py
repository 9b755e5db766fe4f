"""Attribute names of spans, pinned: OpenTelemetry messaging conventions 1.44, GenAI conventions 0.1, and our own.

The GenAI names left the main conventions for a repository of their own, so they are written down here.
"""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

MESSAGING_SYSTEM = "messaging.system"
MESSAGING_OPERATION_TYPE = "messaging.operation.type"
MESSAGING_OPERATION_NAME = "messaging.operation.name"
MESSAGING_DESTINATION = "messaging.destination.name"
MESSAGING_DESTINATION_TEMPLATE = "messaging.destination.template"
MESSAGING_MESSAGE_ID = "messaging.message.id"
DESTINATION_TEMPLATE = "{run}.{message}.{round}.{lane}.{id}"

GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_AGENT = "gen_ai.agent.name"
GEN_AI_MODEL = "gen_ai.request.model"
GEN_AI_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_EVALUATION = "gen_ai.evaluation.name"
GEN_AI_SCORE = "gen_ai.evaluation.score.value"
GEN_AI_SCORE_LABEL = "gen_ai.evaluation.score.label"

ERROR_TYPE = "error.type"
SERVICE_NAME = "service.name"
SERVICE_NAMESPACE = "service.namespace"

ROUND = "envwheel.round"
SLOT = "envwheel.slot"
REVISION = "envwheel.revision"
ENV = "envwheel.env"
CHECKPOINT_VERSION = "envwheel.checkpoint.version"
PURPOSE = "envwheel.purpose"
ATTEMPT = "envwheel.attempt"
OUTCOME = "envwheel.outcome"
TRIES = "envwheel.work.tries"
CPU_S = "envwheel.cpu_s"
SANDBOX_CPU_S = "envwheel.sandbox.cpu_s"
DIGEST = "envwheel.digest"
GATE = "envwheel.gate"
EVIDENCE = "envwheel.evidence"
"""Digest of the artifact with the transcript or the gate's evidence."""
