"""Asking the person at the other end, in the way of either era of the protocol.

In the older one the question is a request to the client, and the tool waits for the answer. In the newer one a server
asks nobody: the call ends with what it needs to know, and the client makes it again with the answer. The tool is then
run from its beginning and finds the answer where it asked.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS, is_version_at_least

from orchard.model.events.plans import Json
from orchard.surfaces.mcp.server.subscriptions import Context
from orchard.surfaces.mcp.tool import Elicit

FIRST_VERSION = "2025-06-18"
"""The first revision in which a client can be asked."""
STATE_LENGTH = 64 * 1024


class AnswerNeeded(BaseException):
    """A tool asked something that is not answered yet: the call ends with the question.

    Not an Exception, so that no tool takes it for a failure of its own.
    """

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__()
        self.result = result


def elicit_for(ctx: Context, params: CallToolRequestParams) -> Elicit | None:
    """How the person who made this call can be asked; None where nobody can be."""
    capabilities = ctx.session.client_capabilities
    can = capabilities.elicitation if capabilities is not None else None
    if can is None or (can.form is None and can.url is not None):
        return None
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return _Rounds(params).elicit
    if ctx.session.can_send_request and is_version_at_least(ctx.protocol_version, FIRST_VERSION):
        return _Direct(ctx).elicit
    return None


class _Direct:
    """The older way: ask, and wait."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def elicit(self, message: str, schema: Mapping[str, Any]) -> Json | None:
        try:
            said = await self._ctx.session.elicit_form(message, dict(schema), self._ctx.request_id)
        except (MCPError, ValueError):
            return None  # a client that went away or cannot answer says as little as one that declines
        return _content(said)


class _Rounds:
    """The newer way: what was answered comes with the call."""

    def __init__(self, params: CallToolRequestParams) -> None:
        self._name, self._arguments = params.name, params.arguments or {}
        # The state is not sealed: it only holds what the client said itself, and could say again.
        self._known = _remembered(params.request_state)
        for key, said in (params.input_responses or {}).items():
            if isinstance(said, ElicitResult):
                self._known[key] = {"action": said.action, "content": said.content}

    async def elicit(self, message: str, schema: Mapping[str, Any]) -> Json | None:
        key = self._key(message, schema)
        if key in self._known:
            said = self._known[key]
            return _content(ElicitResult.model_validate({"action": said["action"], "content": said["content"]}))
        asked = ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=dict(schema)))
        state = json.dumps(self._known) if self._known else None
        raise AnswerNeeded(InputRequiredResult(input_requests={key: asked}, request_state=state))

    def _key(self, message: str, schema: Mapping[str, Any]) -> str:
        """An answer counts for this question of this very call, and for no other."""
        said = json.dumps([self._name, self._arguments, message, dict(schema)], sort_keys=True, default=str)
        return f"ask-{sha256(said.encode(errors='replace')).hexdigest()[:16]}"


def _remembered(state: str | None) -> dict[str, Json]:
    """The answers of earlier rounds; a state that is not ours holds none."""
    if state is None or len(state) > STATE_LENGTH:
        return {}
    try:
        known = json.loads(state)
        return {
            str(key): {"action": ElicitResult.model_validate(said).action, "content": said.get("content")}
            for key, said in known.items()
        }
    except (ValueError, RecursionError, AttributeError):
        return {}


def _content(said: ElicitResult) -> Json | None:
    return dict(said.content or {}) if said.action == "accept" else None
