import { expect, test } from "vitest";
import { applied, isChanges, jobsOf, listed, type Plan } from "../src/deltas";
import type { PlanSummary, PlanView } from "../src/generated/api";
import { between, changes, whole } from "./recorded";

function same(plan: Plan | undefined, view: PlanView): void {
  expect(plan && { plan: plan.plan, jobs: jobsOf(plan), seq: plan.seq }).toEqual(view);
}

test("recorded changes, one after the other, make the plan that a whole reading gives", () => {
  let plan: Plan | undefined;
  for (const one of changes) plan = applied(plan, one);
  same(plan, whole);
});

test("however few of them are asked for, the end is the same", () => {
  for (let step = 1; step <= changes.length; step += 1) {
    let plan: Plan | undefined;
    for (let now = Math.min(step, changes.length); ; now = Math.min(now + step, changes.length)) {
      plan = applied(plan, between(plan?.seq ?? 0, now));
      if (now === changes.length) break;
    }
    same(plan, whole);
  }
});

test("an answer that was overtaken changes nothing, and one that does not follow is not believed", () => {
  const early = applied(undefined, between(0, 5)) as Plan;
  const late = applied(early, between(early.seq, 12)) as Plan;
  expect(applied(late, between(early.seq, 8))).toBe(late);
  expect(applied(early, { ...between(late.seq, 14) })).toBeUndefined();
  expect(applied(undefined, between(early.seq, 8))).toBeUndefined();
});

test("a job that the held plan does not know is no reason to show half a plan", () => {
  const early = applied(undefined, between(0, 3)) as Plan;
  const odd = between(early.seq, 6);
  expect(applied(early, { ...odd, order: [...early.order, "unknown"] })).toBeUndefined();
});

test("a whole answer replaces what is held", () => {
  expect(isChanges(whole)).toBe(false);
  same(applied(applied(undefined, between(0, 2)), whole), whole);
});

test("the list has new plans where they belong, and no deleted ones", () => {
  const plan = (id: string, created_at: string, more: Partial<PlanSummary> = {}): PlanSummary => ({ ...whole.plan, id, created_at, ...more });
  const plans = [plan("c", "2026-03"), plan("a", "2026-01")];
  expect(listed(plans, plan("b", "2026-02")).map((one) => one.id)).toEqual(["c", "b", "a"]);
  expect(listed(plans, plan("d", "2026-04")).map((one) => one.id)).toEqual(["d", "c", "a"]);
  expect(listed(plans, plan("a", "2026-01", { name: "new" }))[1]?.name).toBe("new");
  expect(listed(plans, plan("a", "2026-01", { deleted: true })).map((one) => one.id)).toEqual(["c"]);
});
