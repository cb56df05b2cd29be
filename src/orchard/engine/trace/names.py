"""Every name that a trace carries: of spans, of their attributes, and of the variables that switch it on.

Those that begin with `gen_ai` are OpenTelemetry's names for work with language models. They are still in development
there, so nothing else in this program spells them. Those that begin with `orchard` are ours.
"""

# ----------------------------------------------------------------------------------------- spans

INVOKE_WORKFLOW = "invoke_workflow"
"""A plan, from its start until nothing happens any more by itself."""
JOB = "job {job}"
"""A stretch of an attempt: until it ends, is held for a person, or is interrupted."""
PHASE = "phase {phase}"
INVOKE_AGENT = "invoke_agent {agent}"
EXECUTE_TOOL = "execute_tool {tool}"

# ------------------------------------------------------------------------------- OpenTelemetry's

OPERATION = "gen_ai.operation.name"
WORKFLOW = "gen_ai.workflow.name"
AGENT = "gen_ai.agent.name"
MODEL = "gen_ai.request.model"
CONVERSATION = "gen_ai.conversation.id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
"""All of them, with those that were read from a cache or put into one."""
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL = "gen_ai.tool.name"
ERROR = "error.type"
"""The word for why something failed; it is the text of the span's status as well."""
EXIT_CODE = "process.exit.code"
SERVICE = "service.name"

OPERATION_WORKFLOW = "invoke_workflow"
OPERATION_AGENT = "invoke_agent"
OPERATION_TOOL = "execute_tool"

# ------------------------------------------------------------------------------------------ ours

PLAN_ID = "orchard.plan.id"
JOB_ID = "orchard.job.id"
ATTEMPT = "orchard.attempt"
PHASE_NAME = "orchard.phase"
PURPOSE = "orchard.purpose"
"""What an agent's turn is for: `work`, `check`, `heal`, `resolve` or `subtask`."""
TURN = "orchard.turn"
"""Counts the tries of a turn."""
SUBTASK = "orchard.subtask.id"
HEALTH = "orchard.health"
"""The conditions that a worker was in during its turn, each once: `slow,stuck`."""
SANDBOX = "orchard.sandbox"
"""The wall around the programs: `bwrap`, `landlock` or `off`."""
OUTCOME = "orchard.outcome"
REASON = "orchard.reason"

SCOPE = "orchard"
"""Who made the spans, and the name of the service where nobody gives another."""

# ------------------------------------------------------------------------------------- variables

TRACEPARENT = "TRACEPARENT"
TRACESTATE = "TRACESTATE"
DISABLED = "OTEL_SDK_DISABLED"
EXPORTER = "OTEL_TRACES_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
QUEUE_SIZE = "OTEL_BSP_MAX_QUEUE_SIZE"
