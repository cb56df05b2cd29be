// Every plan, in one glance: what runs, what is stuck, what it cost, what needs a person.
import { useMemo, useState } from "react";
import { bulk, planActions } from "../actions";
import type { PlanStatus, PlanSummary } from "../generated/api";
import { ago, count, duration, elapsed, large, money, visibleName } from "../format";
import { ActionButton, Command, Empty } from "../parts/bits";
import { Icon } from "../parts/icons";
import { PlanBadge, ProgressBar, written } from "../parts/status";
import { href } from "../route";
import { store, useNow, useStore } from "../state";

const FILTERS: { name: string; statuses: PlanStatus[] }[] = [
  { name: "running", statuses: ["running", "pending", "scaffolding"] },
  { name: "needs you", statuses: ["waiting", "paused"] },
  { name: "failed", statuses: ["failed", "canceled"] },
  { name: "done", statuses: ["succeeded"] },
];
const BULK = ["pause", "resume", "retry", "cancel", "delete"];

interface Row {
  repo: string;
  where: string;
  plan: PlanSummary;
}

export function PlansPage() {
  const plans = useStore((state) => state.plans);
  const repos = useStore((state) => state.repos);
  const older = useStore((state) => state.older);
  const [filter, setFilter] = useState("");
  const [repo, setRepo] = useState("");
  const [search, setSearch] = useState("");
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => {
    const all = repos.flatMap((one) => (plans.get(one.id) ?? []).map((plan): Row => ({ repo: one.id, where: one.name, plan })));
    return all.sort((one, other) => (other.plan.created_at ?? "").localeCompare(one.plan.created_at ?? ""));
  }, [plans, repos]);
  const statuses = FILTERS.find((one) => one.name === filter)?.statuses;
  const words = search.toLowerCase();
  const shown = rows.filter(
    ({ plan, repo: of }) =>
      (!statuses || statuses.includes(plan.status)) && (!repo || of === repo) && (!words || `${plan.name} ${plan.id} ${plan.target.branch ?? ""}`.toLowerCase().includes(words)),
  );
  const now = useNow(rows.some((one) => one.plan.ended_at === null));
  if (rows.length === 0) return <NoPlans />;
  const toggle = (id: string) => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    setPicked(next);
  };
  const chosen = shown.filter((one) => picked.has(one.plan.id));
  return (
    <div className="content">
      <div className="head">
        <div className="grow stack tight">
          <h1>Plans</h1>
          <Overview rows={rows} />
        </div>
        <Meter />
        <a className="button main" href={href({ page: "new" })}>
          <Icon shape="plus" size={14} />
          New plan
        </a>
      </div>
      <div className="row wrap">
        <div className="chips grow" role="group" aria-label="Filter by status">
          <button className="chip" aria-pressed={filter === ""} onClick={() => setFilter("")}>
            all {rows.length}
          </button>
          {FILTERS.map((one) => (
            <button key={one.name} className="chip" aria-pressed={filter === one.name} onClick={() => setFilter(filter === one.name ? "" : one.name)}>
              {one.name} {rows.filter((row) => one.statuses.includes(row.plan.status)).length}
            </button>
          ))}
        </div>
        {repos.length > 1 && (
          <select className="input" aria-label="Repository" value={repo} onChange={(event) => setRepo(event.target.value)}>
            <option value="">all repositories</option>
            {repos.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        )}
        <input className="input" type="search" placeholder="Search  ( / )" aria-label="Search plans" value={search} onChange={(event) => setSearch(event.target.value)} />
      </div>
      <div className="plans">
        {shown.map((row) => (
          <PlanCard key={`${row.repo} ${row.plan.id}`} row={row} now={now} several={repos.length > 1} picked={picked.has(row.plan.id)} toggle={() => toggle(row.plan.id)} />
        ))}
      </div>
      {shown.length === 0 && <Empty title="No plan is like that" />}
      {[...older.keys()].map((id) => (
        <button key={id} className="button" style={{ alignSelf: "center" }} onClick={() => void store.list(id, true)}>
          Show older plans{repos.length > 1 ? ` of ${repos.find((one) => one.id === id)?.name}` : ""}
        </button>
      ))}
      {chosen.length > 0 && <Bulk rows={chosen} done={() => setPicked(new Set())} />}
    </div>
  );
}

function PlanCard({ row, now, several, picked, toggle }: { row: Row; now: number; several: boolean; picked: boolean; toggle: () => void }) {
  const { plan, repo } = row;
  const took = elapsed(plan.started_at, plan.ended_at ?? plan.idle_since ?? null, now, plan.idle_seconds);
  const counts = written(plan);
  const { total = 0, succeeded = 0, failed = 0, blocked = 0, running = 0 } = counts;
  const trouble = plan.waiting?.[0]?.reason ?? plan.error ?? plan.paused;
  return (
    <article className={`card plan ${picked ? "picked" : ""}`}>
      <div className="row top">
        <div className="grow">
          <a className="whole name words" href={href({ page: "plan", repo, plan: plan.id, tab: "graph" })}>
            {visibleName(plan.name)}
          </a>
          <div className="row small faint">
            <Icon shape="branch" size={13} />
            <span className="cut">{visibleName(plan.target.branch ?? "no target")}</span>
            {several && <span className="cut">· {visibleName(row.where)}</span>}
          </div>
        </div>
        <PlanBadge plan={plan} />
        <input type="checkbox" className="pick" checked={picked} aria-label={`Pick ${plan.name}`} onChange={toggle} />
      </div>
      <ProgressBar counts={counts} />
      {trouble && <p className={`said ${plan.status === "failed" ? "t-bad" : plan.status === "waiting" ? "t-ask" : "soft"}`}>{visibleName(trouble)}</p>}
      <div className="foot num">
        <span>
          {succeeded} of {count(total, "job")}
        </span>
        {running > 0 && <span className="t-run">{running} running</span>}
        {failed > 0 && <span className="t-bad">{failed} failed</span>}
        {blocked > 0 && <span className="t-wait">{blocked} blocked</span>}
        {took !== null && <span>{duration(took)}</span>}
        {Boolean(plan.usage?.tokens) && <span>{large(plan.usage?.tokens ?? 0)} tokens</span>}
        {plan.usage?.cost ? <span>{money(plan.usage.cost)}</span> : null}
        <span style={{ marginLeft: "auto" }}>{ago(plan.created_at, now)}</span>
      </div>
    </article>
  );
}

function Overview({ rows }: { rows: readonly Row[] }) {
  const running = rows.reduce((sum, row) => sum + (row.plan.counts["running"] ?? 0), 0);
  const active = rows.filter((row) => row.plan.status === "running").length;
  const waiting = useStore((state) => state.waiting.length);
  const cost = rows.reduce((sum, row) => sum + (row.plan.usage?.cost ?? 0), 0);
  return (
    <p className="soft">
      {active === 0 ? "Nothing runs." : `${count(active, "plan")} with ${count(running, "job")} at work.`}{" "}
      {waiting > 0 && (
        <a className="link" href={href({ page: "inbox" })}>
          {count(waiting, "thing needs", "things need")} you.
        </a>
      )}{" "}
      {cost > 0 && `${money(cost)} in all.`}
    </p>
  );
}

/** How much of this machine's capacity is used, and by whom. */
function Meter() {
  const capacity = useStore((state) => state.capacity);
  if (!capacity) return null;
  const who = capacity.holders.map((one) => `${one.repository ?? `process ${one.pid}`}: ${one.slots}${one.plans?.length ? ` (${one.plans.join(", ")})` : ""}`).join("\n");
  const dots = Math.min(capacity.total, 32);
  return (
    <div className="meter" title={who || "No job holds a slot."} aria-label={`${capacity.used} of ${capacity.total || "unlimited"} slots are used. ${who}`}>
      {dots > 0 && (
        <span className="dots wide" aria-hidden="true">
          {Array.from({ length: dots }, (_, place) => (
            <i key={place} className={place < (capacity.used * dots) / capacity.total ? "on" : ""} />
          ))}
        </span>
      )}
      <span className="soft num small">
        {capacity.used}
        {capacity.total > 0 ? ` / ${capacity.total}` : ""} slots
      </span>
    </div>
  );
}

function Bulk({ rows, done }: { rows: readonly Row[]; done: () => void }) {
  const each = rows.map((row) => planActions(row.repo, row.plan));
  return (
    <div className="card bulk" role="toolbar" aria-label="Do this with all that are picked">
      <b>{count(rows.length, "plan")}</b>
      {BULK.map((name) => {
        const able = rows.filter((_, place) => each[place]?.some((one) => one.name === name));
        const first = each.flat().find((one) => one.name === name);
        if (!first) return null;
        const all = async () => {
          if (await bulk(name, able)) done();
        };
        return <ActionButton key={name} tiny action={{ ...first, main: false, label: able.length === rows.length ? first.label : `${first.label} (${able.length})`, run: all }} />;
      })}
      <button className="button bare tiny" onClick={done}>
        Clear
      </button>
    </div>
  );
}

function NoPlans() {
  return (
    <Empty title="There is no plan yet">
      <p>A plan is a list of jobs for agents and programs. Each runs in a worktree of its own; what they make is merged, checked and landed.</p>
      <a className="button main" href={href({ page: "new" })}>
        <Icon shape="plus" size={14} />
        Write a plan
      </a>
      <p>Or from a terminal:</p>
      <Command>{'orchard do "Fix the typo in the README"'}</Command>
    </Empty>
  );
}
