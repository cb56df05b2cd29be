"""The names that a field of a plan file may be given by, and the forms that a value may have.

Where a field takes several forms (a work is text or one of three objects), the form is chosen by a
function before anything is checked, so that a problem is told about the form that was meant. The
names of these forms begin with NUL: pydantic puts them into the path of a problem, and no key of a
document can be mistaken for them.
"""

MARK = "\0"
"""How the name of a form begins."""

OTHER_NAMES: dict[str, str] = {
    "jobs": "nodes",
    "id": "producer_id",
    "task": "description",
    "needs": "dependencies",
    "base": "base_branch",
    "target": "target_branch",
    "verify": "verify_ri",
    "cleanup": "clean_up_successful_work",
    "setup": "worktree_init",
    "heal": "auto_heal",
    "after": "resume_after_plan",
    "tier": "model_tier",
    "resume_from": "resume_from_phase",
}
"""Names that other tools use for the same fields."""

HIDDEN = frozenset({"no_auto_heal", "expects_no_changes"})
"""Old spellings: they are read, and shown to nobody who writes a plan today."""


def camel(name: str) -> str:
    """`max_parallel` as `maxParallel`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def names_of(field: str) -> tuple[str, ...]:
    """Every name a field may be given by; its own comes first."""
    other = OTHER_NAMES.get(field)
    return tuple(dict.fromkeys([field, camel(field), *([other, camel(other)] if other else [])]))


def form_of_list(value: object) -> str:
    return MARK + ("list" if isinstance(value, list) else "one")


_FORM_BY_FIELD = {
    "command": "shell",
    "executable": "process",
    **dict.fromkeys(names_of("instructions"), "agent"),
    **dict.fromkeys(names_of("instructions_file"), "agent"),
}


def form_of_work(value: object) -> str | None:
    if isinstance(value, str):
        return MARK + "text"
    if not isinstance(value, dict):
        return None
    if "type" in value:
        named = value["type"]
        return MARK + named if named in ("shell", "process", "agent") else None
    forms = {form for name, form in _FORM_BY_FIELD.items() if name in value}
    return MARK + forms.pop() if len(forms) == 1 else None
