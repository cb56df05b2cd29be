// A plan that was really run: each change as the daemon told it, and the whole plan at the end.
import type { PlanChanges, PlanView } from "../src/generated/api";
import recorded from "./recorded.json";

export const changes = recorded.changes as unknown as PlanChanges[];
export const whole = recorded.whole as unknown as PlanView;

/** What the daemon answers to `since`, at the moment after the first `now` changes. */
export function between(since: number, now: number): PlanChanges {
  const later = changes.slice(0, now).filter((one) => one.seq > since);
  const last = changes[now - 1] as PlanChanges;
  const jobs = new Map(later.flatMap((one) => one.jobs.map((job) => [job.id, job] as const)));
  const removed = later.flatMap((one) => one.removed);
  for (const id of removed) jobs.delete(id);
  const order = later.map((one) => one.order).findLast((one) => one !== undefined);
  return { plan: last.plan, jobs: [...jobs.values()], removed, seq: last.seq, since, ...(order ? { order } : {}) };
}
