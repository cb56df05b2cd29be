"""What a repository would have run, shown in full, and a person's yes to it.

Only a person agrees: at a terminal, or by the digest of exactly what was shown. A job is no person, so nothing that a
job has started can agree to anything.
"""

from msgspec import Struct

from orchard.agents.project_settings import ProjectSettings, committed, covered
from orchard.app import App
from orchard.config.trust import digest, not_agreed, trust
from orchard.engine.server.address import read_address
from orchard.errors import NeedsPerson, NotFound, UsageError
from orchard.model.events.plans import Json
from orchard.process.families.table import ancestors, inside_job
from orchard.store.repositories import known_repositories
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe, safe_lines
from orchard.surfaces.cli.terminal import Terminal, json_text

FULL = 1_000_000
"""Characters of a line: whatever one agrees to is shown whole."""


class Asked(Struct, frozen=True):
    """What the user is asked to agree to: settings of Orchard, and settings of agents' programs."""

    app: App
    project: ProjectSettings

    @property
    def digest(self) -> str | None:
        """What identifies all of it; None: there is nothing to agree to."""
        project = self.project.digests if self.project.odd is None else {}
        settings = self.app.settings.untrusted_digest
        return digest({"settings": settings, "project": project}) if settings or project else None

    @property
    def lines(self) -> list[Line]:
        lines: list[Line] = []
        if self.app.settings.untrusted:
            lines.append([(safe(not_agreed(self.app.settings.untrusted), FULL), "")])
        for key, value in self.app.settings.untrusted.items():
            shown = safe(json_text(value), 100_000)
            lines.append([("  ", ""), (safe(key), "name"), (" = ", ""), (shown, "wait")])
        return [*lines, *_project_lines(self.project)]

    @property
    def document(self) -> Json:
        files = {file.path: {"sha256": file.sha256, "text": file.text} for file in self.project.files}
        keys = dict(self.app.settings.untrusted)
        return {"untrusted": keys, "project": files, "odd": self.project.odd, "digest": self.digest}

    def agree(self) -> None:
        """Remember that the user agrees to exactly this."""
        refuse_in_job(self.app)
        top, common_dir = self.app.repo.home, self.app.repo.common_dir
        project = self.project.digests if self.project.odd is None else {}
        trust(top, self.app.settings.untrusted_digest, common_dir=common_dir, project=project)


def what_is_asked(app: App, *, project: bool) -> Asked:
    """What the user has not agreed to yet, with or without the settings of agents' programs."""
    none = ProjectSettings()
    if not project:
        return Asked(app, none)
    try:
        head = app.repo.resolve("HEAD")[1]
    except NotFound:  # nothing is committed yet
        return Asked(app, none)
    found = committed(app.repo, head)
    return Asked(app, none if covered(found, app.repo.home, app.repo.common_dir, app.dirs.state) else found)


TRUST = "orchard trust"


def refuse_in_job(app: App, agrees: str = "agree to settings", hint: str = TRUST) -> None:
    """Jobs agree to nothing: not for themselves, and not for each other."""
    known = [folder / git for folder in known_repositories(app.dirs.state) for git in (".git/orchard", "orchard")]
    states = {app.repo.state, *known}
    engines = {address.pid for state in states if (address := read_address(state)) is not None}
    if inside_job() or not engines.isdisjoint(ancestors()):
        raise NeedsPerson(f"A job cannot {agrees}: only you can.", f"Run in a terminal of yours: {hint}")


def run_trust(terminal: Terminal, app: App, *, show: bool, yes: str | None) -> int:
    asked = what_is_asked(app, project=True)
    wanted = asked.digest
    if wanted is None:
        terminal.answer({**asked.document, "trusted": asked.project.odd is None}, *_nothing(asked))
        return 0
    terminal.show(*asked.lines)
    if show or not terminal.can_ask:
        terminal.show([("Digest of all this: ", ""), (wanted, "name")])
    if not show:
        refuse_in_job(app)
    if yes is not None and yes != wanted:
        raise UsageError("The settings are not those of this digest: they have changed, or it is mistyped.", SHOW)
    if not show and yes is None and not terminal.can_ask:
        raise NeedsPerson("No person can be asked here.", f"Read the above, then: orchard trust --yes {wanted}")
    agreed = not show and (yes == wanted or terminal.agreed(text.ASK_TRUST))
    if agreed:
        asked.agree()
        terminal.show(text.done(text.TRUSTED))
    if terminal.json:
        terminal.data({**asked.document, "trusted": agreed})
    return 0 if agreed or show else 4


SHOW = "orchard trust --show"


def _nothing(asked: Asked) -> list[Line]:
    odd = asked.project.odd
    return [text.done(text.NOTHING_TO_TRUST)] if odd is None else _project_lines(asked.project)


def _project_lines(project: ProjectSettings) -> list[Line]:
    if project.odd is not None:
        said = f"Settings for agents' programs are ignored, and cannot be agreed to: {safe(project.odd, 500)}."
        return [text.warning(said)]
    lines: list[Line] = []
    if project.files:
        lines.append([("The last commit holds settings that the programs of agents read and act on:", "")])
    for file in project.files:
        lines.append([("  ", ""), (safe(file.path, FULL), "name"), (" (a link)" if file.link else "", "dim")])
        if file.text is None:
            lines.append([(f"    {len(file.data)} bytes, SHA-256 {file.sha256}", "wait")])
        else:
            lines += [[("    ", ""), (row, "wait")] for row in safe_lines(file.text, FULL)]
    return lines
