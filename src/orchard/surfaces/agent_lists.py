"""Which agents and models there are, as documents. Programs and providers are asked, so it takes a while."""

import os

from orchard.app import App
from orchard.errors import NotFound
from orchard.model.events.plans import Json


def agent_list(app: App) -> Json:
    """Every agent, whether it can be used, and why not."""
    from orchard.agents.cache import user_cache
    from orchard.agents.describe import describe
    from orchard.agents.registry import Agents

    infos = describe(Agents(app.settings.config, os.environ), cache=user_cache())
    default = next((info.name for info in infos if info.default), app.settings.config.agent)
    return {"default": default, "agents": [info.as_json() for info in infos]}


def model_list(app: App, agent: str | None) -> Json:
    """The models of one agent, or of all that are installed."""
    from orchard.agents.cache import user_cache
    from orchard.agents.models import Models, model_document
    from orchard.agents.registry import Agents

    found = Agents(app.settings.config, os.environ)
    if agent is not None and agent not in found.names:
        raise NotFound(f"There is no agent '{agent}'.", f"There is: {', '.join(found.names)}")
    names = [agent] if agent else [name for name in found.names if found.missing(name) is None]
    return model_document(Models(found, user_cache()).all(names))
