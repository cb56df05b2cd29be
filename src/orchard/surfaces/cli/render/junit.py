"""A plan's end as JUnit XML, which CI servers read: a suite for the plan, and a test case for each job."""

import re
import time
from xml.etree import ElementTree

from orchard.core.run import Run
from orchard.core.views.documents import JobView, PlanView
from orchard.core.views.markdown import Hide, tail_of
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may hold, not even as a reference."""

VALIDATION_CASE = "validation"


def plan_junit(document: PlanView, run: Run, hide: Hide) -> bytes:
    """A job that succeeded passes and one that failed fails, unless the plan allows it; any other is skipped."""
    plan = document.plan
    suite = ElementTree.Element("testsuite")
    facts = ElementTree.SubElement(suite, "properties")
    for name, value in (("plan", plan.id), ("status", plan.status), ("commit", plan.target.commit)):
        if value:
            ElementTree.SubElement(facts, "property", name=name, value=_plain(value))
    for job in document.jobs:
        suite.append(_case(job, plan.name, run, hide))
    whole = {
        "name": _plain(hide(plan.name)),
        "tests": str(len(document.jobs)),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": "0",
        "skipped": str(len(suite.findall("testcase/skipped"))),
        "time": _seconds(plan.started_at, plan.ended_at, plan.idle_seconds),
    }
    suite.attrib |= whole | ({"timestamp": plan.started_at} if plan.started_at else {})
    top = ElementTree.Element("testsuites", whole)
    top.append(suite)
    ElementTree.indent(top)
    shown: bytes = ElementTree.tostring(top, encoding="utf-8", xml_declaration=True)
    return shown + b"\n"


def _case(job: JobView, plan: str, run: Run, hide: Hide) -> ElementTree.Element:
    name = VALIDATION_CASE if job.validation else job.id.rpartition("/")[2]
    of = "/".join(filter(None, (plan, job.group)))
    took = _seconds(job.started_at, job.ended_at, job.idle_seconds) if job.attempts else "0.000"
    case = ElementTree.Element("testcase", name=_plain(hide(name)), classname=_plain(hide(of)), time=took)
    if job.status == "failed" and not job.allowed:
        said = _plain(hide(job.error or ""), 2000)
        failure = ElementTree.SubElement(case, "failure", message=said, type=_plain(job.reason or "failed"))
        failure.text = _lines(tail_of(run, job, hide))
    elif job.status != "succeeded":
        ElementTree.SubElement(case, "skipped", message=_plain(hide(_why(job)), 2000))
    return case


def _why(job: JobView) -> str:
    if job.waiting is not None:
        return f"waiting: {job.waiting.reason}"
    if job.allowed:
        return f"failed, which the plan allows: {job.error or ''}"
    return str(job.status)


def _seconds(started: str | None, ended: str | None, idle: float) -> str:
    begin, end = text.moment(started), text.moment(ended)
    return "0.000" if begin is None else f"{max(0.0, (time.time() if end is None else end) - begin - idle):.3f}"


def _plain(words: object, most: int = 500) -> str:
    return _NOT_XML.sub("\ufffd", safe(words, most))


def _lines(rows: list[str]) -> str:
    return _NOT_XML.sub("\ufffd", "\n".join(rows))
