// How a plan went over time, read from its events: attempts, their phases, and what was healed or retried.
import type { Happened } from "./store";

export interface Stretch {
  phase: string;
  from: number;
  to: number | null;
  failed: boolean;
}

export interface Mark {
  at: number;
  what: string;
}

export interface Lane {
  job: string;
  phases: Stretch[];
  marks: Mark[];
  from: number;
  to: number | null;
}

const ENDS = new Set(["JobSucceeded", "JobFailed", "JobCanceled", "JobHeld"]);

export function lanes(events: readonly Happened[]): Lane[] {
  const found = new Map<string, Lane>();
  for (const event of events) {
    const job = event["job"];
    if (typeof job !== "string" || event.at === null) continue;
    const at = Date.parse(event.at);
    let lane = found.get(job);
    if (event.type === "JobStarted") {
      if (!lane) found.set(job, (lane = { job, phases: [], marks: [], from: at, to: null }));
      lane.to = null;
      if (Number(event["attempt"]) > 1) lane.marks.push({ at, what: `attempt ${String(event["attempt"])}` });
    }
    if (!lane) continue;
    if (event.type === "PhaseStarted") lane.phases.push({ phase: String(event["phase"]), from: at, to: null, failed: false });
    else if (event.type === "PhaseEnded") end(lane, at, String(event["phase"]), String(event["outcome"]));
    else if (event.type === "TurnStarted" && event["trigger"] === "heal") lane.marks.push({ at, what: `${String(event["agent"])} heals` });
    else if (ENDS.has(event.type)) {
      lane.to = at;
      const last = lane.phases.at(-1);
      if (last && last.to === null) last.to = at;
      if (last && event.type === "JobFailed") last.failed = true;
    }
  }
  return [...found.values()];
}

function end(lane: Lane, at: number, phase: string, outcome: string): void {
  const open = lane.phases.findLast((one) => one.phase === phase && one.to === null);
  if (!open) return;
  open.to = at;
  open.failed = outcome === "failed";
}
