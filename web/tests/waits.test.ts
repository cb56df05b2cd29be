import { expect, test } from "vitest";
import { planActions } from "../src/actions";
import { applied, type Plan } from "../src/deltas";
import type { JobView, PlanSummary } from "../src/generated/api";
import { heldBack, jobWord, unmet, waitWords } from "../src/waits";
import { whole } from "./recorded";

const recorded = applied(undefined, whole) as Plan;
const [some] = recorded.jobs.values();
const job = (id: string, change: Partial<JobView> = {}): JobView => ({ ...(some as JobView), id, name: id, needs: [], status: "ready", waiting: null, deployed: true, ...change });
const plan = (change: Partial<PlanSummary>, ...jobs: JobView[]): Plan => ({ ...recorded, plan: { ...recorded.plan, ended_at: null, paused: null, idle_since: null, after: null, ...change }, jobs: new Map(jobs.map((one) => [one.id, one])), order: jobs.map((one) => one.id) });

test("a job waits for a slot only where nothing else holds it back", () => {
  const one = job("one");
  expect(waitWords(one, plan({ status: "running" }, one))).toBe("waits for a slot");
  expect(waitWords(one, plan({ status: "paused", paused: "by the user" }, one))).toBe("paused with its plan");
  expect(waitWords(one, plan({ status: "waiting", paused: "The plan before it failed." }, one))).toBe("paused with its plan");
  expect(waitWords(one, plan({ status: "pending", after: "first-1" }, one))).toBe("waits for the plan first-1");
  expect(waitWords(one, plan({ status: "paused", idle_since: "2026-01-01T00:00:00Z" }, one))).toContain("paused");
  expect(heldBack(plan({ status: "running", after: "first-1" }, one).plan)).toBeNull();
});

test("a job waits for what it needs, and not for what was allowed to fail", () => {
  const [a, b] = [job("a", { status: "failed", allowed: true }), job("b", { status: "running" })];
  const c = job("c", { needs: ["a", "b"], status: "pending" });
  expect(unmet(c, plan({ status: "running" }, a, b, c))).toEqual(["b"]);
  expect(waitWords(c, plan({ status: "running" }, a, b, c))).toBe("waits for b");
  expect(jobWord("__snapshot-validation__")).toBe("verify and land");
});

test("a plan that is paused is resumed and not paused, and a deleted one is left alone", () => {
  const names = (change: Partial<PlanSummary>) => planActions("r", plan(change).plan).map((one) => one.name);
  const held = names({ status: "waiting", paused: "The plan before it failed." });
  expect(held).toContain("resume");
  expect(held).not.toContain("pause");
  expect(names({ status: "pending", after: "first-1" })).toContain("pause");
  const deleted = names({ status: "failed", deleted: true, counts: { failed: 1, total: 1 } });
  expect(deleted).not.toContain("retry");
  expect(deleted).not.toContain("delete");
});
