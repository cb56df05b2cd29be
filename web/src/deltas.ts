// A plan as the page holds it, and what each answer of the daemon makes of it. No clock, no network: only values.
import type { JobView, PlanChanges, PlanSummary, PlanView, WholePlan } from "./generated/api";

/** A plan with its jobs, complete up to event `seq`. */
export interface Plan {
  plan: WholePlan;
  jobs: ReadonlyMap<string, JobView>;
  /** All ids as they follow each other in the plan. */
  order: readonly string[];
  seq: number;
}

export type PlanAnswer = PlanView | PlanChanges;

export function isChanges(answer: PlanAnswer): answer is PlanChanges {
  return "since" in answer;
}

/** The plan after an answer; `undefined`: the answer does not follow on what is held, and the whole has to be read. */
export function applied(held: Plan | undefined, answer: PlanAnswer): Plan | undefined {
  if (!isChanges(answer)) return whole(answer);
  if (answer.since === 0 && answer.order) held ??= { plan: answer.plan, jobs: new Map(), order: [], seq: 0 };
  if (held === undefined || answer.since > held.seq) return undefined;
  if (answer.seq < held.seq) return held; // an answer that was overtaken by a later one
  const jobs = new Map(held.jobs);
  for (const id of answer.removed) jobs.delete(id);
  for (const job of answer.jobs) jobs.set(job.id, job);
  const order = answer.order ?? held.order;
  if (order.length !== jobs.size || !order.every((id) => jobs.has(id))) return undefined;
  return { plan: answer.plan, jobs, order, seq: answer.seq };
}

function whole(answer: PlanView): Plan {
  const jobs = new Map(answer.jobs.map((job) => [job.id, job]));
  return { plan: answer.plan, jobs, order: answer.jobs.map((job) => job.id), seq: answer.seq };
}

export function jobsOf(plan: Plan): JobView[] {
  return plan.order.map((id) => plan.jobs.get(id)).filter((job) => job !== undefined);
}

/** The list of plans with one of them as it is now: in its place, new at the top, or gone. */
export function listed(plans: readonly PlanSummary[], now: PlanSummary): PlanSummary[] {
  if (now.deleted) return plans.filter((one) => one.id !== now.id);
  const at = plans.findIndex((one) => one.id === now.id);
  if (at >= 0) return plans.map((one, place) => (place === at ? now : one));
  const later = plans.findIndex((one) => (one.created_at ?? "") < (now.created_at ?? ""));
  return later < 0 ? [...plans, now] : [...plans.slice(0, later), now, ...plans.slice(later)];
}
