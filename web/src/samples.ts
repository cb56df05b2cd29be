// How much the processes of a job used over time: what the page saw while it was open.
import type { ProcessView } from "./generated/api";

export interface Sample {
  at: number;
  /** Percent of one core, of all processes together. */
  cpu: number;
  /** Bytes. */
  memory: number;
}

const MOST = 240;
const JOBS = 20;
const seen = new Map<string, readonly Sample[]>();

/** Put in what runs now, and get all that was seen of this attempt; of many jobs, those looked at last are remembered. */
export function sampled(job: string, processes: readonly ProcessView[], at: number): readonly Sample[] {
  const before = seen.get(job) ?? [];
  if (processes.length === 0 || (before.at(-1)?.at ?? 0) >= at) return before;
  const sum = (of: (one: ProcessView) => number) => processes.reduce((total, one) => total + of(one), 0);
  const now = [...before, { at, cpu: sum((one) => one.cpu_percent ?? 0), memory: sum((one) => one.rss) }].slice(-MOST);
  seen.delete(job);
  seen.set(job, now);
  for (const name of seen.keys()) if (seen.size > JOBS) seen.delete(name);
  return now;
}

/** The points of a line through values, in a box of this size; a line of nothing lies at the bottom. */
export function line(values: readonly number[], width: number, height: number): string {
  const most = Math.max(...values, 0);
  const step = width / Math.max(1, values.length - 1);
  return values.map((value, at) => `${(at * step).toFixed(1)},${(most > 0 ? height - (value / most) * height : height).toFixed(1)}`).join(" ");
}
