"""`orchard list`, which scripts and prompts ask often: it opens all of `App` only for a plan that must be replayed."""

import os
from collections.abc import Callable
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
from orchard.surfaces.cli.render.lines import Piece, safe, table
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands


@verb("list")
@click.option("--status", type=click.Choice(get_args(PlanStatusName)), help="Show only plans of this status.")
@click.option("--deleted", is_flag=True, help="Show deleted plans as well.")
def list_plans(terminal: Terminal, deleted: bool, status: str | None) -> None:
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
    plans = [plan for plan in plans if status in (None, plan.status)]
    if not plans:
        terminal.note(text.done(text.NO_PLANS))
    terminal.answer(plans, *table([_plan_row(plan) for plan in plans]))


def _plan_row(plan: PlanSummary) -> list[Piece]:
    status = "deleted" if plan.deleted else plan.status
    return [
        (safe(plan.id), "strong"),
        text.status_piece(status),
        (text.day(plan.created_at), "dim"),
        (safe(plan.name, 60), ""),
        (safe(plan.target.branch or ""), "dim"),
        (text.counts(plan.counts), "dim"),
    ]
