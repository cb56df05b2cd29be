"""Whether people are told of plans, as `[notify]` of the settings says; where it asks for none, none is imported."""

import os

from orchard.app import App
from orchard.config.layers import Notify
from orchard.engine.server.session import Companion


def add_notifier(app: App) -> None:
    """Let an engine that this process becomes tell people of its plans, if the settings ask for that."""
    settings = app.settings.config.notify
    if settings.on and (settings.desktop or settings.command or settings.webhook):
        app.companions["notices"] = lambda: _notifier(app)


def _notifier(app: App) -> Companion:
    from orchard.surfaces.notices.notifier import Notifier

    return Notifier(app, os.environ)


def rings(settings: Notify, status: str) -> bool:
    """Whether the bell is to be heard when a plan has come to this."""
    if not settings.bell:
        return False
    from orchard.surfaces.notices.notice import event_of

    return event_of(status) in settings.on
