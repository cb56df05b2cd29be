// What a status looks like: one tone and one icon for each, everywhere.
import { phaseWords } from "../format";
import type { JobStatus, JobView, PlanStatus, PlanSummary } from "../generated/api";
import { Icon } from "./icons";

export type Tone = "ok" | "run" | "bad" | "wait" | "ask" | "off";

const JOB: Record<JobStatus, Tone> = {
  pending: "off",
  ready: "off",
  scheduled: "run",
  running: "run",
  succeeded: "ok",
  failed: "bad",
  blocked: "wait",
  canceled: "off",
};
const PLAN: Record<PlanStatus, Tone> = {
  scaffolding: "off",
  pending: "off",
  running: "run",
  paused: "wait",
  waiting: "ask",
  succeeded: "ok",
  failed: "bad",
  canceled: "off",
};

export function jobTone(job: Pick<JobView, "status" | "waiting">): Tone {
  return job.waiting ? "ask" : JOB[job.status];
}

export const statusTone = (status: JobStatus): Tone => JOB[status];
export const planTone = (status: PlanStatus): Tone => PLAN[status];

export function StatusIcon({ tone, status, size = 14 }: { tone: Tone; status?: string; size?: number }) {
  const shape = status === "paused" ? "pause" : status === "canceled" ? "stop" : status === "pending" || status === "ready" ? "wait" : tone;
  return <Icon shape={shape} size={size} spin={tone === "run"} />;
}

export function Badge({ tone, status, children }: { tone: Tone; status?: string | undefined; children: string }) {
  return (
    <span className={`badge t-${tone}`}>
      <StatusIcon tone={tone} {...(status ? { status } : {})} />
      {children}
    </span>
  );
}

export function PlanBadge({ plan }: { plan: PlanSummary }) {
  const word = plan.status === "succeeded" ? (plan.undone ? "undone" : plan.landed ? "landed" : "succeeded") : plan.status;
  return <Badge tone={word === "undone" ? "off" : planTone(plan.status)} status={plan.status}>{word}</Badge>;
}

export function JobBadge({ job }: { job: Pick<JobView, "status" | "waiting" | "phase"> }) {
  return <Badge tone={jobTone(job)} status={job.status}>{job.waiting ? "waits for you" : job.phase && job.status === "running" ? phaseWords(job.phase) : job.status}</Badge>;
}

const BAR: [string, Tone][] = [
  ["succeeded", "ok"],
  ["running", "run"],
  ["scheduled", "run"],
  ["failed", "bad"],
  ["blocked", "wait"],
  ["canceled", "off"],
];

/** The jobs of a plan by status, without the validation job: nobody wrote that one. */
export function written({ counts, validation }: Pick<PlanSummary, "counts" | "validation">): Record<string, number> {
  if (!validation || !counts[validation]) return counts;
  return { ...counts, [validation]: (counts[validation] ?? 0) - 1, total: (counts["total"] ?? 0) - 1 };
}

/** How far a plan is: one stripe for each status. */
export function ProgressBar({ counts }: { counts: Record<string, number> }) {
  const total = Math.max(1, counts["total"] ?? 0);
  const done = counts["succeeded"] ?? 0;
  return (
    <div className="bar" role="img" aria-label={`${done} of ${total} jobs succeeded`}>
      {BAR.map(([status, tone]) => (counts[status] ? <i key={status} className={`b-${tone}`} style={{ width: `${(100 * (counts[status] ?? 0)) / total}%` }} /> : null))}
    </div>
  );
}
