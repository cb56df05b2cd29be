// What can be done with plans and jobs: the same operations as everywhere, and a question first where work is stopped.
import { phaseWords } from "./format";
import { Refused, ask, operationOf, sentence, text, type Answer, type Name } from "./api";
import type { Beginning, JobView, Next, Operations, PlanSummary } from "./generated/api";
import { asked, note, type Question } from "./parts/overlay";
import { leftOut, parsePatch } from "./patch";
import { store } from "./state";

type Change = NonNullable<Operations["reshapePlan"]["body"]>["changes"][number];
const PHASES = ["merge-fi", "setup", "prechecks", "work", "commit", "postchecks", "merge-ri"] as const;

/** Do it, and show the plan as it is then; a refusal is thrown, for the dialog that asked. */
export async function perform<N extends Name>(name: N, parameters: Operations[N]["parameters"], body?: Operations[N]["body"], done?: string): Promise<Answer<N>> {
  const answer = await ask(name, parameters, body);
  if (done) note(done);
  const { repo, plan } = parameters as { repo?: string; plan?: string };
  if (repo && plan) {
    // It is done, whatever becomes of looking at it.
    await Promise.all([store.refresh(repo, plan), store.lookAround(repo)]).catch(() => store.load(repo, plan));
  }
  return answer;
}

/** The same where no dialog is open: a note says what went wrong; whether it was done. */
export async function run<N extends Name>(name: N, parameters: Operations[N]["parameters"], body?: Operations[N]["body"], done?: string): Promise<Answer<N> | null> {
  try {
    return await perform(name, parameters, body, done);
  } catch (error) {
    note(sentence(error), "bad");
    return null;
  }
}

export interface Action {
  name: string;
  label: string;
  icon: string;
  danger?: boolean;
  main?: boolean;
  run: () => Promise<unknown>;
}

const OVER = new Set(["succeeded", "failed", "canceled"]);
const CANCEL: Omit<Question, "title"> = {
  told: "Everything of it that runs is stopped. Its worktrees are kept, and no commit is lost; it can be retried.",
  yes: "Cancel it",
  danger: true,
  field: { label: "Why (for those who read the plan later)" },
};

const DELETE = "What runs is stopped. What is in worktrees is saved before they are removed, and commits are kept until a plan is purged.";

/** What can be done with a plan as it is now. */
export function planActions(repo: string, plan: PlanSummary): Action[] {
  const at = { repo, plan: plan.id };
  const found: Action[] = [];
  const add = (action: Action, possible: boolean) => possible && found.push(action);
  const over = OVER.has(plan.status);
  const counts = plan.counts;
  add({ name: "finalize", label: "Finalize", icon: "play", main: true, run: () => run("finalizePlan", at, {}, "It starts.") }, plan.status === "scaffolding");
  add({ name: "resume", label: "Resume", icon: "play", main: true, run: () => run("resumePlan", at, {}, "It goes on.") }, plan.status === "paused" || Boolean(plan.paused) || Boolean(plan.idle_since));
  const lands = plan.waiting?.some((one) => one.kind === "landing") || (plan.status === "succeeded" && !plan.landed && !plan.reverted && !plan.pull_request && Boolean(plan.result));
  add({ name: "land", label: "Land", icon: "land", main: true, run: () => run("landPlan", at, undefined, "It lands.") }, Boolean(lands));
  const proposes = plan.waiting?.some((one) => one.kind === "landing" || one.kind === "pr") || (plan.status === "succeeded" && !plan.undone && !plan.landed && Boolean(plan.result?.commit));
  const pull = plan.pull_request ? "Update pull request" : "Open pull request";
  add({ name: "propose", label: pull, icon: "branch", main: plan.waiting?.some((one) => one.kind === "pr"), run: () => run("proposePlan", at, {}, "The result goes to a pull request.") }, Boolean(proposes));
  add({ name: "retry", label: "Retry failed", icon: "retry", main: true, run: () => run("retryPlan", at, {}, "It is tried again.") }, over && !plan.deleted && ((counts["failed"] ?? 0) > 0 || (counts["canceled"] ?? 0) > 0));
  add({ name: "pause", label: "Pause", icon: "pause", run: () => run("pausePlan", at, undefined, "Running jobs finish; nothing new starts.") }, ["running", "pending", "waiting"].includes(plan.status) && !plan.paused);
  add({ name: "undo", label: "Undo landing", icon: "undo", run: () => undo(repo, plan) }, plan.landed && !plan.undone);
  add({ name: "clone", label: "Run again", icon: "copy", run: () => clone(repo, plan) }, over);
  add({ name: "cancel", label: "Cancel", icon: "stop", danger: true, run: () => cancelPlan(repo, plan) }, !over);
  add({ name: "delete", label: "Delete", icon: "trash", danger: true, run: () => removePlan(repo, plan) }, !plan.deleted);
  return found;
}

/** The same for several plans: one question for all of them. */
export async function bulk(name: string, plans: readonly { repo: string; plan: PlanSummary }[]): Promise<boolean> {
  const names = plans.map((one) => `'${one.plan.name}'`).join(", ");
  const title = `${name === "delete" ? "Delete" : "Cancel"} ${plans.length === 1 ? names : `${plans.length} plans`}?`;
  const told = name === "delete" ? DELETE : CANCEL.told;
  const each = async () => {
    for (const { repo, plan } of plans) {
      const at = { repo, plan: plan.id };
      if (name === "delete") await run("deletePlan", at);
      else if (name === "cancel") await run("cancelPlan", at, {});
      else await planActions(repo, plan).find((one) => one.name === name)?.run();
    }
    for (const repo of new Set(plans.map((one) => one.repo))) await store.list(repo);
    return true;
  };
  if (name !== "delete" && name !== "cancel") return each();
  return (await asked({ title, told: `${plans.length === 1 ? "" : `${names}. `}${told}`, yes: name === "delete" ? "Delete" : "Cancel them", danger: true }, each)) ?? false;
}

async function cancelPlan(repo: string, plan: PlanSummary): Promise<unknown> {
  return asked({ title: `Cancel '${plan.name}'?`, ...CANCEL }, (said) => perform("cancelPlan", { repo, plan: plan.id }, said.text ? { reason: said.text } : {}, "It was canceled."));
}

async function undo(repo: string, plan: PlanSummary): Promise<unknown> {
  const told = `${plan.target.branch ?? "The target"} goes back to where it was before this plan landed, unless it has moved since. The result is kept, and can be landed again. Where the branch has moved on, a new commit on top can take the landing back.`;
  const how = { name: "how", label: "How", options: [{ value: "", label: "the branch moves back" }, { value: "revert", label: "by a new commit on top" }] };
  return asked({ title: `Take the landing of '${plan.name}' back?`, told, yes: "Undo", danger: true, choices: [how] }, (said) => perform("undoPlan", { repo, plan: plan.id }, said.choices["how"] ? { revert: true } : {}, "The landing was taken back."));
}

async function clone(repo: string, plan: PlanSummary): Promise<unknown> {
  const told = "A new plan with the same jobs starts from the base branch as it is now.";
  const made = await asked({ title: `Run '${plan.name}' again?`, told, yes: "Run again" }, () => perform("clonePlan", { repo, plan: plan.id }, {}, "A new plan was made."));
  if (made) location.hash = `#/r/${encodeURIComponent(repo)}/${encodeURIComponent(made.plan)}`;
  return made;
}

async function removePlan(repo: string, plan: PlanSummary): Promise<unknown> {
  const done = await asked({ title: `Delete '${plan.name}'?`, told: DELETE, yes: "Delete", danger: true }, () => perform("deletePlan", { repo, plan: plan.id }, undefined, "It was deleted."));
  if (done) await store.list(repo);
  return done;
}

/** What can be done with a job as it is now. */
export function jobActions(repo: string, plan: string, job: JobView): Action[] {
  const at = { repo, plan, job: job.id };
  const found: Action[] = [];
  const add = (action: Action, possible: boolean) => possible && found.push(action);
  const active = job.status === "running" || job.status === "scheduled";
  const over = ["failed", "canceled", "succeeded"].includes(job.status);
  add({ name: "approve", label: "Approve", icon: "ok", main: true, run: () => approve(repo, plan, job.id) }, job.waiting?.kind === "approval");
  add({ name: "reject", label: "Reject", icon: "bad", danger: true, run: () => reject(repo, plan, job.id) }, job.waiting?.kind === "approval");
  add({ name: "retry", label: "Retry", icon: "retry", main: true, run: () => retry(repo, plan, job) }, job.status === "failed" || job.status === "canceled");
  add({ name: "deploy", label: "Deploy", icon: "play", main: true, run: () => run("deployTask", at, undefined, "It may run now.") }, !job.deployed && !over && !active);
  const worker = job.worker;
  add({ name: "resume", label: "Resume agent", icon: "play", main: true, run: () => run("resumeWorker", at, undefined, "The agent goes on.") }, worker?.state === "paused");
  add({ name: "complete", label: "Call it done", icon: "ok", run: () => complete(repo, plan, job) }, worker?.state === "idle");
  add({ name: "interrupt", label: "Interrupt", icon: "pause", run: () => run("interruptWorker", at, undefined, "The turn of the agent ends.") }, worker?.state === "running" && active);
  add({ name: "pause", label: "Pause agent", icon: "pause", run: () => run("pauseWorker", at, undefined, "The agent waits until it is resumed.") }, (worker?.state === "running" || worker?.state === "idle") && active);
  if (["pending", "ready", "blocked"].includes(job.status) && job.attempts === 0 && !job.validation && !job.waiting) found.push(...reshapeActions(repo, plan, job));
  add({ name: "fail", label: "Force-fail", icon: "bad", danger: true, run: () => forceFail(repo, plan, job) }, active);
  add({ name: "cancel", label: "Cancel", icon: "stop", danger: true, run: () => cancelJob(repo, plan, job) }, !over);
  return found;
}

/** Let changes go on that wait for a person, who is asked first where pages cannot show all of them. */
export async function approve(repo: string, plan: string, job: string, body?: Operations["approveJob"]["body"]): Promise<unknown> {
  const at = { repo, plan, job };
  const hidden = await text("getJobDiff", at).then(
    (found) => leftOut(parsePatch(found)),
    // Where there is no change, nothing is hidden; else nobody knows what is.
    (error: unknown) => (error instanceof Refused && error.status === 404 ? null : sentence(error)),
  );
  if (hidden === null) return run("approveJob", at, body, "It goes on.");
  const told = `${hidden} To see the rest, type: orchard diff ${job} --plan ${plan}`;
  return asked({ title: `Approve what '${job}' changed, though you cannot see all of it here?`, told, yes: "Approve unseen", danger: true }, () => perform("approveJob", at, body, "It goes on."));
}

/** Send changes back that wait for a person; an agent is told why and tries again. */
export async function reject(repo: string, plan: string, job: string): Promise<unknown> {
  return asked({ title: `Reject what '${job}' changed?`, told: "An agent is told why and goes back to work; other work counts as failed. What was rejected is kept.", yes: "Reject", danger: true, field: { label: "What is wrong with it", placeholder: "The limit belongs into the settings.", lines: 3, needed: true } }, (said) => perform("rejectJob", { repo, plan, job }, { reason: said.text }, "It was rejected."));
}

/** Changes of the graph around a job that has not started. */
function reshapeActions(repo: string, plan: string, job: JobView): Action[] {
  const reshape = (change: Change, done: string) => perform("reshapePlan", { repo, plan }, { changes: [change] }, done);
  const add = (op: "add_before" | "add_after", where: string): Action => ({
    name: op,
    label: `Add a job ${where}`,
    icon: "plus",
    run: () =>
      asked({ title: `Add a job ${where} '${job.name}'`, told: `What needs are changed for it follows by itself. Write its id, a colon, and its work.`, yes: "Add it", field: { label: "The job", placeholder: "lint: ruff check .   or   review: @agent Review the change", lines: 3, needed: true } }, async (said) => {
        const found = /^\s*([^\s:]+)\s*:\s*([\s\S]+)$/.exec(said.text);
        if (!found) throw new Error("Write its id (without blanks), a colon, and its work.");
        return reshape({ op, id: job.id, job: { id: found[1] ?? "", work: found[2] ?? "" } }, "It was added.");
      }),
  });
  return [
    add("add_before", "before"),
    add("add_after", "after"),
    {
      name: "needs",
      label: "Change needs",
      icon: "branch",
      run: () =>
        asked({ title: `What does '${job.name}' need?`, told: `Now: ${job.needs.join(", ") || "nothing"}. Write the ids of all jobs that it is to wait for, with blanks between them; nothing means that it waits for none.`, yes: "Change it", field: { label: "Ids of jobs", placeholder: job.needs.join(" ") } }, (said) =>
          reshape({ op: "set_needs", id: job.id, needs: said.text.split(/[\s,]+/).filter(Boolean) }, "Its needs were changed."),
        ),
    },
    {
      name: "remove",
      label: "Remove",
      icon: "trash",
      danger: true,
      run: async () => {
        const told = "It has not started, so no work is lost. What needs it waits for what it needed instead.";
        const done = await asked({ title: `Remove '${job.name}' from the plan?`, told, yes: "Remove it", danger: true }, () => reshape({ op: "remove", id: job.id }, "It was removed."));
        if (done) location.hash = `#/r/${encodeURIComponent(repo)}/${encodeURIComponent(plan)}`;
        return done;
      },
    },
  ];
}

async function retry(repo: string, plan: string, job: JobView): Promise<unknown> {
  const question: Question = {
    title: `Retry '${job.name}'?`,
    told: "A new attempt resumes at the phase that failed. A command begins in a clean worktree, unless you edited the one it has; an agent goes on in its own. What lies in the old one is saved.",
    yes: "Retry",
    field: { label: "New work (left empty: as before)", placeholder: "@agent Fix the import error in api.py", lines: 4 },
    choices: [
      { name: "from", label: "Begin at", options: [{ value: "", label: "the phase that failed" }, ...PHASES.map((phase) => ({ value: phase, label: phaseWords(phase) }))] },
      { name: "fresh", label: "Worktree", options: [{ value: "", label: "clean for a command" }, { value: "keep", label: "the same" }, { value: "fresh", label: "a fresh one" }] },
      { name: "session", label: "Agent", options: [{ value: "", label: "goes on in its session" }, { value: "fresh", label: "begins a new session" }] },
    ],
  };
  const answer = await asked(question, (said) => {
    const phase = PHASES.find((one) => one === said.choices["from"]);
    return perform(
      "retryJob",
      { repo, plan, job: job.id },
      { ...(phase ? { from_phase: phase } : {}), ...(said.choices["fresh"] ? { [said.choices["fresh"]]: true } : {}), ...(said.choices["session"] ? { fresh_session: true } : {}), ...(said.text ? { work: said.text } : {}) },
    );
  });
  if (answer) note(begun(answer.begins ?? []));
  return answer;
}

/** In which worktree a job begins that is tried again. */
export function begun(begins: readonly Beginning[]): string {
  const [one] = begins;
  if (one?.worktree === "clean") return `It is tried again in a clean worktree. What attempt ${one.attempt} left is saved.`;
  if (one?.worktree === "kept") return one.edited ? "It is tried again and goes on with what was edited in its worktree." : `It is tried again and goes on with what attempt ${one.attempt} left.`;
  return "It is tried again.";
}

async function complete(repo: string, plan: string, job: JobView): Promise<unknown> {
  return asked({ title: `Is '${job.name}' done?`, told: "The agent's session ends, and its work is committed and checked.", yes: "It is done", field: { label: "What it came to" } }, (said) => perform("completeWorker", { repo, plan, job: job.id }, said.text ? { result: said.text } : {}, "It was called done."));
}

async function forceFail(repo: string, plan: string, job: JobView): Promise<unknown> {
  return asked({ title: `Force-fail '${job.name}'?`, told: "It is stopped and counts as failed; what needs it is blocked. Its worktree is kept.", yes: "Fail it", danger: true, field: { label: "Why" } }, (said) => perform("forceFailJob", { repo, plan, job: job.id }, said.text ? { reason: said.text } : {}, "It was failed."));
}

async function cancelJob(repo: string, plan: string, job: JobView): Promise<unknown> {
  return asked({ title: `Cancel '${job.name}'?`, told: "It is stopped, or kept from starting; what it wrote is kept, and what needs it is blocked.", yes: "Cancel it", danger: true, field: { label: "Why" } }, (said) => perform("cancelJob", { repo, plan, job: job.id }, said.text ? { reason: said.text } : {}, "It was canceled."));
}

const LABELS: Partial<Record<Name, string>> = {
  approveJob: "Approve",
  allowCall: "Allow",
  denyCall: "Deny",
  landPlan: "Land",
  proposePlan: "Open pull request",
  resumePlan: "Resume",
  retryJob: "Retry",
  retryPlan: "Retry failed",
  undoPlan: "Undo landing",
  cancelPlan: "Cancel plan",
  cancelJob: "Cancel job",
  completeWorker: "Call it done",
  resumeWorker: "Resume agent",
  deployTask: "Deploy",
  finalizePlan: "Finalize",
  forceFailJob: "Force-fail",
  deletePlan: "Delete",
};
const STOPS: Partial<Record<Name, string>> = {
  cancelPlan: CANCEL.told,
  cancelJob: "It is stopped; what it wrote is kept, and what needs it is blocked.",
  forceFailJob: "It is stopped and counts as failed; its worktree is kept.",
  undoPlan: "The target branch goes back to where it was, unless it has moved since.",
  deletePlan: "What its worktrees hold is saved, and its commits are kept until it is purged.",
};

/** Refuse a call that an agent asks about, with words for the agent. */
export async function denied(repo: string, next: Next): Promise<unknown> {
  const question: Question = { title: "Deny this call?", told: "The agent is told, and goes on without it.", yes: "Deny", danger: true, field: { label: "What the agent is told", placeholder: "Use the test database." } };
  const at = { repo, plan: next.plan ?? "", job: next.job ?? "" };
  return asked(question, (said) => perform("denyCall", at, { ...(next.args ?? {}), ...(said.text ? { reason: said.text } : {}) }, "The call was denied."));
}

/** A next step of the daemon's as a button; none: there is nothing to press. */
export function stepAction(repo: string, next: Next): Action | null {
  const name = operationOf(next);
  const label = name && LABELS[name];
  if (!name || !label) return null;
  const told = STOPS[name];
  return {
    name,
    label: name === "deployTask" && next.job ? `${label} ${next.job}` : label,
    icon: name === "denyCall" ? "bad" : told ? "stop" : "ok",
    danger: Boolean(told) || name === "denyCall",
    run: async () => {
      if (name === "denyCall") return denied(repo, next);
      if (name === "approveJob") return approve(repo, next.plan ?? "", next.job ?? "", (next.args ?? {}) as never);
      const parameters = { repo, plan: next.plan ?? undefined, ...(next.job ? { job: next.job } : {}) };
      const done = `Done: ${label.toLowerCase()}.`;
      if (!told) return run(name, parameters as never, (next.args ?? {}) as never, done);
      return asked({ title: `${label}?`, told, yes: label, danger: true }, () => perform(name, parameters as never, (next.args ?? {}) as never, done));
    },
  };
}
