// Why a job has not started, in words: what it needs, its plan, or a slot. And what people call a job.
import type { Plan } from "./deltas";
import { count, visibleName } from "./format";
import type { JobView, PlanSummary } from "./generated/api";

const VALIDATION = "__snapshot-validation__";

/** What people call a job of which only the id is known: nobody wrote the one that checks and lands. */
export function jobWord(id: string): string {
  return id === VALIDATION ? "verify and land" : visibleName(id);
}

/** Why nothing of a plan starts, as the end of "it waits …"; `null`: the plan holds nothing back. */
export function heldBack(plan: PlanSummary): string | null {
  if (plan.idle_since) return "for an engine: the plan was interrupted";
  if (plan.paused || plan.status === "paused") return "until the plan is resumed";
  if (plan.status === "scaffolding") return "until the plan is finalized";
  if (plan.status === "pending" && plan.after) return `for the plan ${visibleName(plan.after)}`;
  return null;
}

/** The jobs that a job still waits for; one that was allowed to fail holds nobody back. */
export function unmet(job: JobView, plan: Plan): string[] {
  return job.needs.filter((need) => {
    const other = plan.jobs.get(need);
    return other?.status !== "succeeded" && !other?.allowed;
  });
}

/** The same in a few words, for a node of the graph. */
export function waitWords(job: JobView, plan: Plan): string {
  const open = unmet(job, plan);
  if (!job.deployed) return "waits to be deployed";
  if (open.length > 0) return `waits for ${open.length === 1 ? jobWord(open[0] ?? "") : count(open.length, "job")}`;
  if (plan.plan.paused || plan.plan.status === "paused") return "paused with its plan";
  return `waits ${heldBack(plan.plan) ?? "for a slot"}`;
}
