"""`orchard list`, which scripts and prompts ask often: it opens all of `App` only for a plan that must be replayed."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import get_args

import click

from orchard.config.load import load_settings
from orchard.config.user_dirs import user_dirs
from orchard.core.views.documents import PlanSummary
from orchard.git.repository import find_repository
from orchard.model.names import PlanId
from orchard.model.statuses import PlanStatusName
from orchard.store.plan_list import JOURNAL_FILE, PlanList, listed
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Piece, cells, padded, safe, table
from orchard.surfaces.cli.terminal import Terminal, is_terminal
from orchard.surfaces.next_steps import in_commands


@verb("list")
@click.option("--status", type=click.Choice(get_args(PlanStatusName)), help="Show only plans of this status.")
@click.option("--deleted", is_flag=True, help="Show deleted plans as well.")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="Show only the newest N.")
def list_plans(terminal: Terminal, deleted: bool, status: str | None, limit: int | None) -> None:
    """A plan that landed and was then undone is shown as undone."""
    repo = find_repository(terminal.repo)
    settings = load_settings(repo.main_top or repo.top, {}, os.environ, common_dir=repo.common_dir)
    terminal.note(*[text.warning(warning) for warning in settings.warnings])

    @cache
    def summary() -> Callable[[PlanId], PlanSummary]:
        from orchard.app import App

        return App(repo, settings, user_dirs(), in_commands).summary

    def replayed(plan: PlanId) -> PlanSummary:
        return summary()(plan)

    plans = listed(PlanList(repo.state / JOURNAL_FILE).plans(), replayed, deleted=deleted)
    plans = [plan for plan in plans if status in (None, plan.status)][-limit if limit else None :]
    if not plans:
        terminal.note(text.done(text.NO_PLANS))
    if is_terminal(sys.stdout) and plans:
        terminal.answer(plans, *_fitted(plans, shutil.get_terminal_size().columns))
    else:
        terminal.answer(plans, *table([_plan_row(plan, text.day(plan.created_at)) for plan in plans]))


HEADS = ("PLAN", "STATUS", "CREATED", "NAME", "TARGET", "JOBS")
MAY_SHRINK = ((3, 12), (4, 12), (5, 8), (3, 6), (4, 6), (5, 6), (0, 12))
"""Columns that are cut where the screen is narrow, the first first, and how much of each is left at least."""


def _fitted(plans: Sequence[PlanSummary], width: int) -> list[Line]:
    """The plans under a heading, in lines that fit on the screen."""
    now = time.time()
    heads: list[Piece] = [(head, "dim") for head in HEADS]
    rows = [heads, *(_plan_row(plan, text.when(plan.created_at, now)) for plan in plans)]
    widths = [max(cells(row[at][0]) for row in rows) for at in range(len(HEADS))]
    for at, least in MAY_SHRINK:
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[at] -= max(0, min(over, widths[at] - least))
    return [_cut(row, widths) for row in rows]


def _cut(row: Sequence[Piece], widths: Sequence[int]) -> Line:
    line: Line = []
    for (shown, meaning), most in zip(row, widths, strict=True):
        line += [(padded(shown, most), meaning), ("  ", "")]
    return line[:-1]


def _plan_row(plan: PlanSummary, created: str) -> list[Piece]:
    status = "deleted" if plan.deleted else "undone" if plan.undone else plan.status
    return [
        (safe(plan.id), "strong"),
        text.status_piece(status),
        (created, "dim"),
        (safe(plan.name, 60), ""),
        (safe(plan.target.branch or ""), "dim"),
        (text.counts(plan.counts, plan.validation), "dim"),
    ]
