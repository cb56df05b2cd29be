"""`orchard doctor`: the findings, the bad ones last so that they are what is seen."""

from collections.abc import Mapping

from orchard.app import App
from orchard.config.user_dirs import user_dirs
from orchard.engine.machine.doctor import Finding, examine, health, healthy
from orchard.errors import EXIT_DONE, EXIT_FAILED
from orchard.surfaces.cli.render.lines import Line, Meaning, Piece, safe
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands

LEVELS: Mapping[str, Meaning] = {"ok": "good", "note": "dim", "warning": "wait", "problem": "bad"}


def run_doctor(terminal: Terminal, app: App) -> int:
    findings = examine(app.repo, app.settings, user_dirs(), engine_alive=app.engine_alive())
    terminal.answer(health(findings, in_commands), *finding_lines(findings))
    return EXIT_DONE if healthy(findings) else EXIT_FAILED


def finding_lines(findings: list[Finding]) -> list[Line]:
    order = list(LEVELS)
    lines: list[Line] = []
    for one in sorted(findings, key=lambda one: order.index(one.level)):
        said: Piece = (safe(one.message, 2000), "bad" if one.alarming else "")
        lines.append([(f"{one.level:<8}", LEVELS[one.level]), (f"{safe(one.topic):<12} ", "dim"), said])
        if one.hint:
            lines.append([(" " * 21, ""), (safe(in_commands(one.hint), 2000), "dim")])
    return [*lines, _verdict(findings)]


def _verdict(findings: list[Finding]) -> Line:
    counted = {level: sum(one.level == level for one in findings) for level in ("problem", "warning")}
    if counted["problem"]:
        return [(f"{counted['problem']} problem{'s' * (counted['problem'] > 1)} to fix before plans can run", "bad")]
    if counted["warning"]:
        return [(f"Plans can run; {counted['warning']} warning{'s' * (counted['warning'] > 1)} above", "wait")]
    return [("Everything is fine.", "good")]
