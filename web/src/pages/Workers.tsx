// All agents at work, with the subtasks that they handed to others, and the tasks that wait for one.
import { useState } from "react";
import { run, type Action } from "../actions";
import { ask } from "../api";
import type { PlanRow, SubtaskRow, WorkerRow } from "../generated/api";
import { ago, count, duration, elapsed, large, money, spoken, visibleName } from "../format";
import { ActionButton, Empty, Failed, Loading } from "../parts/bits";
import { Icon } from "../parts/icons";
import { Badge, type Tone } from "../parts/status";
import { href } from "../route";
import { useAsked, useNow, useStore } from "../state";
import { TalkTab } from "./Talk";

const TONES: Record<WorkerRow["state"], Tone> = { created: "off", running: "run", idle: "ask", paused: "wait", completed: "ok", error: "bad" };

export function WorkersPage() {
  const repos = useStore((state) => state.repos);
  const changed = useStore((state) => state.plans);
  const now = useNow(true);
  const { value, error } = useAsked(
    async () => Promise.all(repos.map(async (one) => ({ repo: one.id, name: one.name, list: await ask("listWorkers", { repo: one.id }) }))),
    [repos.map((one) => one.id).join(), changed, Math.floor(now / 3000)],
  );
  if (error !== undefined && !value) return <Failed error={error} />;
  if (!value) return <Loading />;
  const all = value.flatMap(({ repo, list }) => list.workers.map((worker) => ({ repo, worker, plan: list.plans.find((one) => one.plan === worker.plan)?.name ?? changed.get(repo)?.find((one) => one.id === worker.plan)?.name ?? worker.plan })));
  const total = all.filter((one) => isAtWork(one.worker)).length;
  const done = all.length - total;
  const shown = [...all.filter((one) => isAtWork(one.worker)), ...all.filter((one) => !isAtWork(one.worker))];
  const tasks = value.flatMap(({ repo, list }) => list.plans.filter((plan) => plan.tasks.some((task) => waits(task))).map((plan) => ({ repo, plan })));
  return (
    <div className="content" style={{ maxWidth: 1100 }}>
      <div className="stack tight">
        <h1>Workers</h1>
        <p className="soft">{total === 0 ? "No agent is at work." : `${count(total, "agent")} at work or waiting.`}{done > 0 && ` ${count(done, "agent is", "agents are")} done.`}</p>
      </div>
      {shown.map(({ repo, worker, plan }) => (
        <Worker key={`${repo} ${worker.plan} ${worker.job}`} repo={repo} plan={plan} worker={worker} now={now} />
      ))}
      {tasks.length > 0 && <h2>Tasks that wait</h2>}
      {tasks.map(({ repo, plan }) => (
        <Tasks key={`${repo} ${plan.plan}`} repo={repo} plan={plan} />
      ))}
      {all.length === 0 && tasks.length === 0 && (
        <Empty title="Nobody is here">
          <p>Agents appear here while they work on a job, and while they wait for you. A plan with an agent job starts one:</p>
          <a className="button main" href={href({ page: "new" })}>
            <Icon shape="plus" size={14} />
            New plan
          </a>
        </Empty>
      )}
    </div>
  );
}

type Row = Pick<WorkerRow, "state" | "started_at" | "usage">;

export function isAtWork({ state }: Pick<Row, "state">): boolean {
  return state !== "completed" && state !== "error";
}

/** For how long an agent has worked, in seconds; `null`: nobody knows. */
export function workedFor(worker: Row, now: number): number | null {
  return isAtWork(worker) ? elapsed(worker.started_at, null, now) : (worker.usage.seconds ?? null);
}

function waits(task: PlanRow["tasks"][number]): boolean {
  return !task.deployed && task.status === "pending";
}

function Worker({ repo, plan, worker, now }: { repo: string; plan: string; worker: WorkerRow; now: number }) {
  const [open, setOpen] = useState("");
  const at = { repo, plan: worker.plan, job: worker.job };
  const took = workedFor(worker, now);
  const actions: Action[] = [];
  if (worker.state === "running") actions.push({ name: "interrupt", label: "Interrupt", icon: "pause", run: () => run("interruptWorker", at, undefined, "The turn of the agent ends.") });
  if (worker.state === "running" || worker.state === "idle") actions.push({ name: "pause", label: "Pause", icon: "pause", run: () => run("pauseWorker", at, undefined, "The agent waits until it is resumed.") });
  if (worker.state === "paused") actions.push({ name: "resume", label: "Resume", icon: "play", main: true, run: () => run("resumeWorker", at, undefined, "The agent goes on.") });
  if (worker.state === "idle") actions.push({ name: "complete", label: "Call it done", icon: "ok", run: () => run("completeWorker", at, {}, "It was called done.") });
  return (
    <article className="card pad stack">
      <div className="row top wrap">
        <div className="grow stack tight">
          <div className="row wrap">
            <Badge tone={TONES[worker.state]}>{worker.state}</Badge>
            <a className="link" href={href({ page: "job", repo, plan: worker.plan, job: worker.job, tab: "log" })}>
              <b>{visibleName(worker.name)}</b>
            </a>
            <span className="soft small">
              {worker.agent} {worker.model ?? ""} · {visibleName(plan)}
            </span>
          </div>
          <p className="soft words small clamp">{spoken(worker.activity?.doing || worker.progress?.message || worker.said || "").slice(-400)}</p>
        </div>
        <span className="facts small num">
          {took !== null && <span>{duration(took)}</span>}
          <span>{count(worker.turns, "turn")}</span>
          {worker.queued > 0 && <span className="t-ask">{worker.queued} queued</span>}
          {Boolean(worker.usage.tokens) && <span>{large(worker.usage.tokens ?? 0)} tokens</span>}
          {worker.usage.cost ? <span>{money(worker.usage.cost)}</span> : null}
          {worker.activity?.active_at && <span>active {ago(worker.activity.active_at, now)}</span>}
        </span>
      </div>
      {worker.asks.map((one) => (
        <p key={one.number} className="t-ask small words">
          Asks whether it may use {spoken(one.about ? `${one.tool}: ${one.about}` : one.tool)}
        </p>
      ))}
      {worker.health?.map((one) => (
        <p key={one.condition} className="t-wait small words">
          <Icon shape="heart" size={13} /> {one.condition}: {spoken(one.evidence)}
        </p>
      ))}
      {worker.subtasks.length > 0 && <Subtasks all={worker.subtasks} parent={null} open={setOpen} />}
      <div className="row wrap">
        {actions.map((one) => (
          <ActionButton key={one.name} tiny action={one} />
        ))}
        <button className="button tiny" aria-expanded={open !== ""} onClick={() => setOpen(open ? "" : worker.job)}>
          {open ? "Hide the conversation" : "Conversation"}
        </button>
      </div>
      {open && <TalkTab repo={repo} plan={worker.plan} job={{ id: worker.job, worker, status: worker.status }} {...(open === worker.job ? {} : { subtask: open })} seq={Math.floor(now / 2000)} />}
    </article>
  );
}

function Subtasks({ all, parent, open }: { all: readonly SubtaskRow[]; parent: string | null; open: (name: string) => void }) {
  const known = new Set(all.map((one) => one.subtask));
  const found = all.filter((one) => (parent === null ? one.parent === null || !known.has(one.parent) : one.parent === parent));
  if (found.length === 0) return null;
  return (
    <ul className={parent === null ? "tree" : undefined}>
      {found.map((one) => (
        <li key={one.subtask}>
          <div className="row wrap small" style={{ padding: "3px 0" }}>
            <Badge tone={TONES[one.state]}>{one.state}</Badge>
            <b>{visibleName(one.name)}</b>
            <span className="soft">
              {one.agent} {one.model ?? ""}
            </span>
            {one.asks.length > 0 && <span className="t-ask">asks whether it may use {spoken(one.asks[0]?.tool ?? "")}</span>}
            <span className="soft cut grow">{spoken(one.activity?.doing || one.progress?.message || one.said || "").slice(0, 200)}</span>
            <button className="button bare tiny" onClick={() => open(one.subtask)}>
              Conversation
            </button>
          </div>
          <Subtasks all={all} parent={one.subtask} open={open} />
        </li>
      ))}
    </ul>
  );
}

function Tasks({ repo, plan }: { repo: string; plan: PlanRow }) {
  const waiting = plan.tasks.filter(waits);
  return (
    <section className="card">
      <div className="row pad">
        <a className="link grow" href={href({ page: "plan", repo, plan: plan.plan, tab: "graph" })}>
          <b>{visibleName(plan.name)}</b>
        </a>
        <ActionButton tiny action={{ name: "all", label: "Deploy all", icon: "play", run: () => run("deployJobs", { repo, plan: plan.plan }, { jobs: waiting.map((one) => one.job) }, "They may run now.") }} />
      </div>
      <table className="list">
        <tbody>
          {waiting.map((task) => (
            <tr key={task.job}>
              <td>
                <a className="link" href={href({ page: "job", repo, plan: plan.plan, job: task.job, tab: "details" })}>
                  {visibleName(task.name)}
                </a>
              </td>
              <td className="soft">{task.agent ?? (task.is_for_agent ? "an agent" : "a program")}</td>
              <td className="soft">{task.waits_for.length > 0 ? `waits for ${task.waits_for.map(visibleName).join(", ")}` : "ready"}</td>
              <td className="num">
                <ActionButton tiny action={{ name: "deploy", label: "Deploy", icon: "play", run: () => run("deployTask", { repo, plan: plan.plan, job: task.job }, undefined, "It may run now.") }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
