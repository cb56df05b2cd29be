// Everything that needs a person, in all repositories, the oldest first; each can be answered where it stands.
import { useState } from "react";
import { reject, run, stepAction, type Action } from "../actions";
import { text } from "../api";
import { ago, count, spoken, visible, visibleName } from "../format";
import { notifies, toggleNotifies } from "../notify";
import { ActionButton, Empty, Failed, Loading } from "../parts/bits";
import { Diff } from "../parts/Diff";
import { Icon } from "../parts/icons";
import { note } from "../parts/overlay";
import { Badge } from "../parts/status";
import { href } from "../route";
import { store, useAsked, useNow, useStore } from "../state";
import type { Wait } from "../store";
import { jobWord } from "../waits";
import { MessageBox } from "./Talk";

const KINDS: Record<string, string> = { approval: "approval", landing: "landing", budget: "budget", worker: "agent waits", deploy: "to deploy", permission: "permission", question: "permission" };

export function InboxPage() {
  const waiting = useStore((state) => state.waiting);
  const repos = useStore((state) => state.repos);
  const now = useNow(true);
  const [notifying, setNotifying] = useState(notifies);
  return (
    <div className="content" style={{ maxWidth: 980 }}>
      <div className="head">
        <div className="grow stack tight">
          <h1>Inbox</h1>
          <p className="soft">{waiting.length === 0 ? "Nothing needs you." : `${count(waiting.length, "thing needs", "things need")} you, the oldest first.`}</p>
        </div>
        <button className="button" aria-pressed={notifying} onClick={() => void toggleNotifies((why) => note(why, "bad")).then(setNotifying)}>
          {notifying ? "Notifies you" : "Notify me"}
        </button>
      </div>
      {waiting.length === 0 && (
        <Empty title="All clear">
          <p>Approvals, landings that your checkout refused, budgets that are used up, agents that wait for an answer and calls that need your permission appear here, from every repository that is served.</p>
        </Empty>
      )}
      {waiting.map((one) => (
        <Item key={`${one.repo} ${one.plan} ${one.job} ${one.kind} ${one.since}`} wait={one} now={now} where={repos.length > 1 ? repos.find((repo) => repo.id === one.repo)?.name : undefined} />
      ))}
    </div>
  );
}

function Item({ wait, now, where }: { wait: Wait; now: number; where: string | undefined }) {
  const [open, setOpen] = useState(false);
  const { repo, plan, job } = wait;
  const steps = wait.next.flatMap((next): Action[] => {
    const step = stepAction(repo, next);
    if (!step) return [];
    if (step.name !== "allowCall") return [step];
    const always: Action = { ...step, name: "allowAlways", label: "Allow until it ends", run: () => run("allowCall", { repo, plan, job: job ?? "" }, { ...(next.args ?? {}), always: true }, "It may use this tool.") };
    return [step, always];
  });
  const approves = wait.kind === "approval" && job;
  return (
    <article className="card pad stack">
      <div className="row top wrap">
        <div className="grow stack tight">
          <div className="row wrap">
            <Badge tone="ask">{KINDS[wait.kind] ?? wait.kind}</Badge>
            <a className="link" href={href({ page: "plan", repo, plan, tab: "graph" })}>
              {visibleName(wait.name)}
            </a>
            {job && (
              <>
                <span className="faint">/</span>
                <a className="link" href={href({ page: "job", repo, plan, job, tab: "log" })}>
                  {jobWord(job)}
                </a>
              </>
            )}
            {where && <span className="faint small">{visibleName(where)}</span>}
          </div>
          <p className="words">{spoken(wait.reason)}</p>
        </div>
        <span className="soft small num">{ago(wait.since, now)}</span>
      </div>
      {wait.input && <pre className="block">{visible(wait.input)}</pre>}
      {wait.kind === "worker" && job && <MessageBox repo={repo} plan={plan} job={job} />}
      <div className="row wrap">
        {steps.map((one, place) => (
          <ActionButton key={one.name} action={{ ...one, main: place === 0 && !one.danger }} />
        ))}
        {approves && <ActionButton action={{ name: "reject", label: "Reject", icon: "bad", danger: true, run: () => reject(repo, plan, job) }} />}
        {wait.kind === "deploy" && <Deploy wait={wait} />}
        {approves && (
          <button className="button" aria-expanded={open} onClick={() => setOpen(!open)}>
            <Icon shape={open ? "fold" : "unfold"} size={14} />
            {open ? "Hide" : "Show"} what it changed
          </button>
        )}
        <code className="faint small words wide">{wait.command}</code>
      </div>
      {open && approves && <Changed repo={repo} plan={plan} job={job} />}
    </article>
  );
}

/** All jobs of a plan that wait to be deployed, at once. */
function Deploy({ wait: { repo, plan } }: { wait: Wait }) {
  const all = async () => {
    await store.refresh(repo, plan);
    const found = store.state.open.get(`${repo}\n${plan}`);
    const jobs = [...(found?.jobs.values() ?? [])].filter((job) => !job.deployed && !job.validation).map((job) => job.id);
    return run("deployJobs", { repo, plan }, { jobs }, "They may run now.");
  };
  return <ActionButton action={{ name: "deployAll", label: "Deploy all", icon: "play", run: all }} />;
}

function Changed({ repo, plan, job }: { repo: string; plan: string; job: string }) {
  const { value, error } = useAsked(() => text("getJobDiff", { repo, plan, job }), [repo, plan, job]);
  if (error !== undefined) return <Failed error={error} />;
  return value === undefined ? <Loading /> : <Diff patch={value} command={`orchard diff ${job} --plan ${plan}`} />;
}
