// A goal in words: an agent writes a plan for it, which nobody runs before a person has read it; or it is one task, and an agent starts with it.
import { useEffect, useRef, useState } from "react";
import { Refused, ask, follow, sentence } from "../api";
import type { AgentItem, Drafted, ProblemDocument } from "../generated/api";
import { count, duration, large, money, spoken, visibleName } from "../format";
import { Banner } from "../parts/bits";
import { Icon } from "../parts/icons";
import { href } from "../route";
import { useAsked, useNow } from "../state";

const SHOWN = 6;

interface Step {
  kind: "call" | "note" | "again";
  text: string;
  about: string;
  failed: boolean;
}

interface Writing {
  began: number;
  steps: readonly Step[];
}

/** What an agent wrote, and how long it took. */
export interface Written extends Drafted {
  seconds: number;
}

interface Given {
  repo: string;
  goal: string;
  setGoal: (goal: string) => void;
  busy: boolean;
  /** Takes the plan that was written. */
  written: (plan: Written) => void;
  /** Runs the goal as one task. */
  start: (goal: string, agent: string) => void;
}

export function Goal({ repo, goal, setGoal, busy, written, start }: Given) {
  const { value: agents, error: unknown } = useAsked(() => ask("listAgents", { repo }), [repo]);
  const [agent, setAgent] = useState("");
  const [error, setError] = useState<unknown>();
  const { writing, write, cancel } = useWriting(repo, written, setError);
  const usable = agents?.agents.filter(isUsable) ?? [];
  const chosen = [agent, agents?.default].find((name) => usable.some((one) => one.name === name)) ?? usable[0]?.name ?? "";
  const none = agents !== undefined && usable.length === 0;
  const words = goal.trim();
  const off = busy || writing !== null || !words || none;
  return (
    <form
      className="card pad stack"
      aria-label="From a goal"
      onSubmit={(event) => {
        event.preventDefault();
        setError(undefined);
        if (!off) write(words, chosen);
      }}
    >
      <label className="stack tight">
        <b>What do you want to reach?</b>
        <textarea className="input" rows={3} maxLength={200_000} placeholder="Export reports as CSV, from the command line and from the page" value={goal} disabled={writing !== null} onChange={(event) => setGoal(event.target.value)} />
      </label>
      {none && (
        <Banner tone="wait" actions={<a className="button tiny" href={href({ page: "system" })}>See the agents</a>}>
          No agent can be used here: none is installed and logged in. System shows how to install one, and how to log in.
        </Banner>
      )}
      {unknown !== undefined && <Banner tone="bad">{spoken(sentence(unknown))}</Banner>}
      <div className="row wrap">
        <select className="input" aria-label="Agent" value={chosen} disabled={writing !== null || usable.length === 0} onChange={(event) => setAgent(event.target.value)}>
          {usable.length === 0 && <option value="">{none ? "no agent" : "agents …"}</option>}
          {usable.map((one) => (
            <option key={one.name} value={one.name}>
              {visibleName(one.name)}
            </option>
          ))}
        </select>
        <button className="button main" type="submit" disabled={off}>
          Write a plan
        </button>
        <button className="button" type="button" disabled={off} onClick={() => start(words, chosen)}>
          Start it as one task
        </button>
        <span className="soft small grow words">The agent that writes a plan works on a copy, with your rights, as if you ran it yourself. Nothing of the plan runs until you start it.</span>
      </div>
      {writing && <Progress agent={chosen || "The agent"} writing={writing} cancel={cancel} />}
      {error !== undefined && <Banner tone="bad">{spoken(sentence(error))}</Banner>}
    </form>
  );
}

function Progress({ agent, writing, cancel }: { agent: string; writing: Writing; cancel: () => void }) {
  const now = useNow(true);
  return (
    <div className="stack tight">
      <div className="row">
        <span className="t-run">
          <Icon shape="run" size={14} spin />
        </span>
        <span className="grow words">
          {visibleName(agent)} looks at a copy of what is committed and writes a plan. <span className="soft num">{duration(Math.max(0, (now - writing.began) / 1000))}</span>
        </span>
        <button className="button tiny danger" type="button" onClick={cancel}>
          Cancel
        </button>
      </div>
      <div className="small mono" role="log" aria-label="What the agent does" tabIndex={0}>
        {writing.steps.slice(-SHOWN).map((step, place) => (
          <div key={writing.steps.length - SHOWN + place} className={`cut ${step.failed ? "t-bad" : step.kind === "call" ? "soft" : "t-wait"}`}>
            {visibleName(spoken(step.text))} {visibleName(spoken(step.about))} {step.failed && "(failed)"}
          </div>
        ))}
      </div>
    </div>
  );
}

/** Who wrote the plan, and what it took. */
export function author(plan: Written): string {
  const again = plan.problems.length > 0 ? `, corrected ${count(plan.problems.length, "time")}` : "";
  const used = [plan.usage.tokens ? `${large(plan.usage.tokens)} tokens` : "", money(plan.usage.cost)].filter(Boolean).join(", ");
  return `Written by ${visibleName(plan.agent)} in ${duration(plan.seconds)}${again}${used ? ` (${used})` : ""}.`;
}

export function isUsable(one: AgentItem): boolean {
  return one.installed && one.logged_in !== "no";
}

/** An agent that writes a plan while the page is here: who leaves it, or cancels, ends the agent. */
function useWriting(repo: string, written: (plan: Written) => void, failed: (error: unknown) => void) {
  const [writing, setWriting] = useState<Writing | null>(null);
  const ending = useRef<AbortController | null>(null);
  const end = () => {
    ending.current?.abort();
    ending.current = null;
    setWriting(null);
  };
  useEffect(() => end, [repo]);
  const write = (goal: string, agent: string) => {
    const own = new AbortController();
    const began = Date.now();
    let told = false;
    ending.current = own;
    setWriting({ began, steps: [] });
    const heard = (event: string, data: string) => {
      if (event === "step") setWriting((now) => now && { ...now, steps: [...now.steps.slice(1 - SHOWN), JSON.parse(data) as Step] });
      if (event === "plan") written({ ...(JSON.parse(data) as Drafted), seconds: (Date.now() - began) / 1000 });
      if (event === "failed") failed(refusal(data));
      told ||= event === "plan" || event === "failed";
    };
    follow("draftPlan", { repo, follow: true }, (frames) => frames.forEach((one) => heard(one.event, one.data)), own.signal, { goal, ...(agent ? { agent } : {}) })
      .then(() => !told && failed(new Error("The daemon ended before the plan was there. Ask again when it is back.")))
      .catch((error: unknown) => !own.signal.aborted && failed(error))
      .finally(() => ending.current === own && end());
  };
  return { writing, write, cancel: end };
}

function refusal(data: string): Refused {
  const problem = JSON.parse(data) as ProblemDocument;
  return new Refused(problem.status, problem);
}
