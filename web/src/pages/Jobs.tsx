// The jobs of a plan as a table; only the rows that can be seen are drawn.
import { useMemo, useRef, useState } from "react";
import { jobsOf, type Plan } from "../deltas";
import type { JobView } from "../generated/api";
import { duration, elapsed, money, visibleName } from "../format";
import { Empty } from "../parts/bits";
import { Badge, JobBadge, jobTone } from "../parts/status";
import { href } from "../route";
import { useNow } from "../state";

const ROW = 38;
const ORDER = ["failed", "running", "scheduled", "ready", "blocked", "pending", "canceled", "succeeded"];
type Sort = "plan" | "status" | "time" | "cost";

export function JobsTab({ repo, plan }: { repo: string; plan: Plan }) {
  const jobs = useMemo(() => jobsOf(plan), [plan]);
  const [search, setSearch] = useState("");
  const [status, setStatus] = useState("");
  const [sort, setSort] = useState<Sort>("plan");
  const now = useNow(jobs.some((job) => job.status === "running"));
  const shown = useMemo(() => sorted(jobs.filter((job) => (!status || job.status === status) && `${job.id} ${job.name} ${job.error ?? ""}`.toLowerCase().includes(search.toLowerCase())), sort, now), [jobs, search, status, sort, now]);
  const { top, height, listen } = useWindow();
  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const last = Math.min(shown.length, Math.ceil((top + height) / ROW) + 10);
  const head = (label: string, by: Sort | null, right = false) => (
    <div className={`th ${right ? "right" : ""}`} role="columnheader">
      {by ? (
        <button onClick={() => setSort(sort === by ? "plan" : by)}>
          {label} {sort === by ? "↓" : ""}
        </button>
      ) : (
        label
      )}
    </div>
  );
  return (
    <div className="stack">
      <div className="row wrap">
        <div className="chips grow" role="group" aria-label="Filter by status">
          <button className="chip" aria-pressed={status === ""} onClick={() => setStatus("")}>
            all {jobs.length}
          </button>
          {ORDER.filter((one) => plan.plan.counts[one]).map((one) => (
            <button key={one} className="chip" aria-pressed={status === one} onClick={() => setStatus(status === one ? "" : one)}>
              {one} {plan.plan.counts[one]}
            </button>
          ))}
        </div>
        <input className="input" type="search" placeholder="Search  ( / )" aria-label="Search jobs" value={search} onChange={(event) => setSearch(event.target.value)} />
      </div>
      <div className="card jobs-view" ref={listen} tabIndex={0} role="region" aria-label="Jobs">
        <div className="jobs" role="table" aria-rowcount={shown.length}>
          <div role="row" className="cells">
          {head("Job", "plan")}
          {head("Status", "status")}
          {head("Agent", null)}
          {head("Attempt", null, true)}
          {head("Files", null, true)}
          {head("Time", "time", true)}
          {head("Cost", "cost", true)}
          {head("What it says", null)}
          </div>
          <div aria-hidden="true" style={{ gridColumn: "1 / -1", height: first * ROW }} />
          {shown.slice(first, last).map((job) => (
            <Row key={job.id} repo={repo} plan={plan.plan.id} job={job} now={now} />
          ))}
          <div aria-hidden="true" style={{ gridColumn: "1 / -1", height: (shown.length - last) * ROW }} />
        </div>
      </div>
      {shown.length === 0 && <Empty title="No job is like that" />}
    </div>
  );
}

function Row({ repo, plan, job, now }: { repo: string; plan: string; job: JobView; now: number }) {
  const took = elapsed(job.started_at, job.ended_at, now, job.idle_seconds);
  const { added = 0, modified = 0, deleted = 0 } = job.summary;
  const files = added + modified + deleted;
  const says = job.waiting?.reason ?? job.error ?? job.progress?.message ?? job.agent?.doing ?? job.result ?? job.task;
  return (
    <div role="row" className="cells">
      <div role="cell">
        <a className="cut" href={href({ page: "job", repo, plan, job: job.id, tab: "log" })} title={job.id}>
          <b>{visibleName(job.validation ? "verify and land" : job.name)}</b> {job.group && <span className="faint small">{visibleName(job.group)}</span>}
        </a>
      </div>
      <div role="cell">
        <JobBadge job={job} />
      </div>
      <div role="cell" className="cut small soft">
        {job.agent?.name ?? job.worker?.agent ?? ""}
      </div>
      <div role="cell" className="right num small">
        {job.attempts || ""}
        {job.healed.length > 0 && <Badge tone="ok">healed</Badge>}
      </div>
      <div role="cell" className="right num small">
        {files > 0 ? files : ""}
      </div>
      <div role="cell" className="right num small">
        {took === null ? "" : duration(took)}
      </div>
      <div role="cell" className="right num small">
        {money(job.usage.cost)}
      </div>
      <div role="cell" className={`small t-${job.error ? jobTone(job) : ""}`}>
        <span className="cut" title={says ?? ""}>
          {visibleName(says ?? "")}
        </span>
      </div>
    </div>
  );
}

function sorted(jobs: JobView[], by: Sort, now: number): JobView[] {
  const rate = (job: JobView): number => {
    if (by === "status") return ORDER.indexOf(job.status);
    if (by === "time") return -(elapsed(job.started_at, job.ended_at, now, job.idle_seconds) ?? -1);
    return by === "cost" ? -(job.usage.cost ?? -1) : 0;
  };
  return by === "plan" ? jobs : [...jobs].sort((one, other) => rate(one) - rate(other));
}

/** Which part of a long list can be seen. */
export function useWindow(): { top: number; height: number; listen: (element: HTMLElement | null) => void; element: { current: HTMLElement | null } } {
  const [place, setPlace] = useState({ top: 0, height: 900 });
  const element = useRef<HTMLElement | null>(null);
  const listen = useRef((next: HTMLElement | null) => {
    element.current = next;
    if (!next) return;
    const look = () => setPlace((before) => (before.top === next.scrollTop && before.height === next.clientHeight ? before : { top: next.scrollTop, height: next.clientHeight }));
    next.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(next);
  });
  return { ...place, listen: listen.current, element };
}
