"""Our MCP server: tools, resources, prompts and completions on the wire, in both eras of the protocol.

One server answers for whatever repository a request is about; whoever holds the connection says which that is, what is
offered, and for whom (`Host`). Nothing here knows plans: tools are the `toolbox`'s, resources are read from the App.
"""

import json
import logging
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from orchard import __version__
from orchard.engine.turns.job_tokens import Scope
from orchard.errors import OrchardError
from orchard.model.events.plans import Json
from orchard.surfaces.mcp import prompts, resources, tool_list, toolbox
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server.elicitation import AnswerNeeded, elicit_for
from orchard.surfaces.mcp.server.subscriptions import Context, Listeners, Subscribers, is_known
from orchard.surfaces.mcp.tool import Answer, Call, Progress, Tool
from orchard.surfaces.next_steps import in_tools
from orchard.surfaces.served import Served

logger = logging.getLogger("orchard.mcp")
# Without a handler of its own Python prints warnings of the SDK on stderr, which is a person's screen now and then.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logger.addHandler(logging.NullHandler())

HOUR = 3_600_000
HINTS: dict[CacheableMethod, CacheHint] = {
    "tools/list": CacheHint(HOUR),
    "prompts/list": CacheHint(HOUR),
    "resources/templates/list": CacheHint(HOUR),
    "server/discover": CacheHint(HOUR),
}
"""What does not change while a daemon runs; everything else is stale at once."""


class Host(Struct, frozen=True):
    """What a request is about: a repository, the tools that are offered, and for whom."""

    served: Served
    selection: Selection
    scope: Scope | None = None


HostOf = Callable[[Context], Host]


def make_server(host_of: HostOf, listeners: Listeners, subscribers: Subscribers) -> Server[None]:
    """A server whose every request is about what `host_of` says."""
    handlers = _Handlers(host_of, listeners, subscribers)
    return Server(
        "orchard",
        version=__version__,
        title="Orchard",
        instructions=prompts.INSTRUCTIONS,
        cache_hints=HINTS,
        get_tool_input_schema=_input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_subscribe_resource=handlers.subscribe,
        on_unsubscribe_resource=handlers.unsubscribe,
        on_subscriptions_listen=handlers.listen,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_completion=handlers.complete,
    )


class _Handlers:
    """One method for each request of the protocol."""

    def __init__(self, host_of: HostOf, listeners: Listeners, subscribers: Subscribers) -> None:
        self._host_of, self._listeners, self._subscribers = host_of, listeners, subscribers

    # ------------------------------------------------------------------------------------- tools

    async def list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        _no_cursor(params)
        host = self._host_of(ctx)
        return types.ListToolsResult(tools=list(listed_tools(host.selection, host.scope)))

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        host = self._host_of(ctx)
        call = Call(host.served, host.scope, _progress(ctx), elicit_for(ctx, params))
        try:
            answer = await toolbox.call(call, host.selection, params.name, params.arguments or {})
        except AnswerNeeded as needed:
            return needed.result
        except OrchardError as error:
            answer = Answer(_sentence(error), is_error=True)
        except Exception:
            logger.exception("tool %r failed", params.name)
            answer = Answer(
                "Orchard failed at this, which is a mistake of its own. Ask with get_plan what was done.", is_error=True
            )
        return _result(answer)

    # --------------------------------------------------------------------------------- resources

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        _no_cursor(params)
        host = self._host_of(ctx)
        rows = await _reading(host, resources.listed, host.served.app, host.scope)
        return types.ListResourcesResult(
            resources=[types.Resource(**{"mimeType": "application/json", **_clean(row)}) for row in rows]
        )

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        _no_cursor(params)
        return types.ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        host = self._host_of(ctx)
        try:
            found = await _reading(host, resources.read_resource, host.served.app, params.uri, host.scope)
        except MCPError as error:
            raise MCPError(error.code, error.message, {"uri": params.uri}) from error
        content = types.TextResourceContents(uri=params.uri, mime_type=found.mime_type, text=_clean(found.text))
        return types.ReadResourceResult(contents=[content])

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        host = self._host_of(ctx)
        if not is_known(params.uri, host.scope):
            raise MCPError(types.INVALID_PARAMS, f"There is no resource '{params.uri[:200]}'.")
        self._subscribers.subscribe(ctx, host.served, params.uri)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._subscribers.unsubscribe(ctx, self._host_of(ctx).served, params.uri)
        return types.EmptyResult()

    async def listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        host = self._host_of(ctx)
        return await self._listeners.listen(ctx, params, host.served, host.scope)

    # ----------------------------------------------------------------------------------- prompts

    async def list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        _no_cursor(params)
        # An agent in a job has its task; beginnings are for people.
        offered = prompts.PROMPTS if self._host_of(ctx).scope is None else ()
        return types.ListPromptsResult(prompts=[_prompt(one) for one in offered])

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        host = self._host_of(ctx)
        if host.scope is not None:
            raise MCPError(types.INVALID_PARAMS, "There are no prompts here.")
        found, text = await _reading(
            host, prompts.prompt_text, host.served.app, params.name, dict(params.arguments or {})
        )
        message = types.PromptMessage(role="user", content=types.TextContent(text=_clean(text)))
        return types.GetPromptResult(description=found.description, messages=[message])

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        host, begun = self._host_of(ctx), params.argument.value
        known = (params.context.arguments if params.context is not None else None) or {}
        names: list[str] = []
        if params.argument.name == "plan":
            names = await _reading(host, resources.complete_plan, host.served.app, begun, host.scope)
        elif params.argument.name == "job":
            names = await _reading(host, resources.complete_job, host.served.app, begun, known.get("plan"), host.scope)
        most = resources.COMPLETIONS
        return types.CompleteResult(
            completion=types.Completion(values=names[:most], total=len(names), has_more=len(names) > most)
        )


TEMPLATES = (
    types.ResourceTemplate(
        uri_template=resources.PLAN_TEMPLATE,
        name="plan",
        title="A plan",
        description="A plan and all its jobs: what `orchard status --json` prints.",
        mime_type="application/json",
    ),
    types.ResourceTemplate(
        uri_template=resources.JOB_TEMPLATE,
        name="job",
        title="A job",
        description="Everything about one job. A slash in its id is written %2F.",
        mime_type="application/json",
    ),
    types.ResourceTemplate(
        uri_template=resources.LOG_TEMPLATE,
        name="log",
        title="A job's log",
        description="The end of what the last attempt at a job printed, with secrets left out.",
        mime_type="text/plain",
    ),
)


@lru_cache(maxsize=32)
def listed_tools(selection: Selection, scope: Scope | None) -> tuple[types.Tool, ...]:
    """The tools of a selection as `tools/list` shows them, always in the same order."""
    offered = toolbox.tools(selection, scope)
    names = {tool.name for tool in offered}
    return tuple(_listed(tool, scope, names) for tool in tool_list.shown(offered, scope))


def _listed(tool: Tool, scope: Scope | None, offered: Collection[str]) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title if scope is None else None,
        description=tool_list.shown_words(tool, offered, scope),
        input_schema=tool_list.shown_input(tool, scope),
        output_schema=tool_list.shown_output(tool, scope),
        annotations=_hints(tool),
    )


def _hints(tool: Tool) -> types.ToolAnnotations:
    """What differs from what the protocol takes for granted."""
    if tool.read_only:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.ToolAnnotations(destructive_hint=tool.destructive, idempotent_hint=tool.idempotent or None)


def _input_schema(name: str) -> Json | None:
    """For the SDK's check of headers: no field of ours is ever carried in one."""
    return None


def _progress(ctx: Context) -> Progress:
    """How to say how far a call is; a client that did not ask for it hears nothing."""
    reached = -1.0

    async def say(progress: float, total: float | None, message: str) -> None:
        nonlocal reached
        reached = max(progress, reached + 0.001)  # the protocol wants every value above the one before
        await ctx.session.report_progress(reached, total, message)

    return say


def _result(answer: Answer) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=_clean(answer.text))],
        structured_content=None if answer.value is None else _clean(answer.value),
        is_error=answer.is_error,
    )


def _clean(value: Any) -> Any:
    """The same without half characters, which odd file names bring in and no wire carries."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode(errors="replace"))
    return value


async def _reading(host: Host, question: Callable[..., Any], *args: Any) -> Any:
    """Ask the App something; what is wrong with the question is the caller's to hear."""
    try:
        return await host.served.read(question, *args)
    except OrchardError as error:
        raise MCPError(types.INVALID_PARAMS, _sentence(error)) from error


def _sentence(error: OrchardError) -> str:
    return f"{error.message}\n{in_tools(error.hint)}" if error.hint else error.message


def _prompt(one: prompts.Prompt) -> types.Prompt:
    return types.Prompt(
        name=one.name,
        title=one.title,
        description=one.description,
        arguments=[
            types.PromptArgument(name=given.name, description=given.description, required=given.required)
            for given in one.arguments
        ],
    )


def _no_cursor(params: types.PaginatedRequestParams | None) -> None:
    """Every list of ours is one page, so nobody was ever given a cursor."""
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "There is no such page: the list is given as a whole.")
