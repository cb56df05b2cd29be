"""Which environment variables hold secrets, judged by their names.

Names decide because values cannot: a password may look like any word. A name that is judged wrongly
costs little (a job names it in `pass_env`, a log shows `[redacted]`), a missed one costs the secret.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orchard.model.plan import Job, Plan
from orchard.patterns import later

SECRET_LENGTH = 6
"""Shorter values are not looked for in logs: they would be found everywhere."""

_SECRET = later(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY|CREDENTIAL|AUTHORIZATION|COOKIE"
    r"|CONNECTION_?STRING|DOCKER_AUTH|SSHPASS|WEBHOOK|HEADERS?$|(?:^|_)(?:AUTH|CREDS?)(?:_|$)"
    r"|(?:^|_)(?:PASS|PAT|KEY|JWT|DSN|BEARER)$|[A-Z0-9]PASS$|_PWD$"
)
# Settings of language models and tokenizers, which count tokens rather than hold one.
_HARMLESS = later(
    r"^TOKENIZERS_|^(?:SSH_AUTH_SOCK|OLD_?PWD)$|(?:^|_)(?:BY|COM)PASS$|(?:MAX|MIN|NUM|THINKING|OUTPUT|INPUT)_(?:\w+_)?TOKENS?$"
)
_NAMES_A_PLACE = later(r"_(?:FILE|PATH|DIR|DIRECTORY|SOCK|HOME)$|^GOOGLE_APPLICATION_CREDENTIALS$")
_PASSWORD_IN_URL = later(r"://[^\s/:@]*:([^\s/@]+)@")


def looks_secret(name: str, value: str = "") -> bool:
    """Whether a variable is kept from programs that were not promised it: by its name, or for a password in a URL."""
    upper = name.upper()
    named = _SECRET.search(upper) is not None and _HARMLESS.search(upper) is None
    return named or (_PASSWORD_IN_URL.search(value) is not None and not upper.endswith("_PROXY"))


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """The values to be kept out of sight: those of secret names, and passwords inside URLs."""
    found: dict[str, None] = {}
    for name, value in environment.items():
        if looks_secret(name) and not (_NAMES_A_PLACE.search(name.upper()) and value.startswith(("/", "~", "."))):
            found[value] = None
        found.update((password, None) for password in _PASSWORD_IN_URL.findall(value))
    return [value for value in found if len(value.strip()) >= SECRET_LENGTH]


def secrets_in(host: Mapping[str, str], plan: Plan | None, past: Iterable[str] = ()) -> list[str]:
    """The values that people who look at a plan do not see: the host's, those it sets, and those it has set before."""
    own = secrets_of_plan(plan) if plan is not None else ()
    return list(dict.fromkeys([*secrets_of(host), *own, *past]))


def secrets_of_plan(plan: Plan) -> Iterator[str]:
    """The secrets that a plan sets: for all jobs, for one, and for a single work of it."""
    works = (work for work in (plan.verify, *(plan.setup or ())) if work is not None)
    for env in (plan.env, *(work.env for work in works)):
        yield from secrets_of(env) if env else ()
    for job in plan.jobs.values():
        yield from secrets_of_job(job)


def secrets_of_job(job: Job) -> Iterator[str]:
    works = (work for work in (job.work, *job.prechecks, *job.postchecks, *(job.setup or ())) if work is not None)
    for env in (job.env, *(work.env for work in works)):
        yield from secrets_of(env) if env else ()


def masked(body: dict[str, Any]) -> dict[str, Any]:
    """The same with every secret-looking variable's value hidden, however deep it lies."""
    shown: dict[str, Any] = {}
    for name, value in body.items():
        if name == "env" and isinstance(value, dict):
            shown[name] = {key: "[hidden]" if looks_secret(key, str(text)) else text for key, text in value.items()}
        elif isinstance(value, dict):
            shown[name] = masked(value)
        elif isinstance(value, list | tuple):
            shown[name] = [masked(one) if isinstance(one, dict) else one for one in value]
        else:
            shown[name] = value
    return shown
