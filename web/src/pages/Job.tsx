// One job: its phases, what it printed, every attempt, what it changed, what was said, and everything else about it.
import { useEffect, useMemo, useState } from "react";
import { jobActions, run, stepAction } from "../actions";
import { ask, sentence, text } from "../api";
import type { AttemptView, JobDetails, JobView, LogView as LogFile, Phase, PhaseView } from "../generated/api";
import type { Plan } from "../deltas";
import { count, duration, elapsed, large, money, phaseWords, spoken, visible, visibleName } from "../format";
import { ActionButton, Banner, Copy, Empty, Failed, Loading } from "../parts/bits";
import { Diff } from "../parts/Diff";
import { LogView } from "../parts/LogView";
import { JobBadge, StatusIcon, type Tone } from "../parts/status";
import { JOB_TABS, href, type JobTab } from "../route";
import { sampled } from "../samples";
import { useAsked, useComments, useNow, usePlan } from "../state";
import { heldBack, jobWord, unmet } from "../waits";
import { AttemptsTab } from "./Attempts";
import { Conflict } from "./Conflict";
import { DetailsTab } from "./Details";
import { TalkTab } from "./Talk";

const LABELS: Record<JobTab, string> = { log: "Log", attempts: "Attempts", changes: "Changes", talk: "Conversation", details: "Details" };
const PHASES: Phase[] = ["merge-fi", "setup", "prechecks", "work", "commit", "postchecks", "merge-ri"];
const AGAIN = 3000;

export function JobPage({ repo, plan: id, job: name, tab }: { repo: string; plan: string; job: string; tab: JobTab }) {
  const plan = usePlan(repo, id);
  const job = plan?.jobs.get(name);
  const details = useDetails(repo, id, name, job);
  if (plan === null || (plan && !job))
    return (
      <Empty title="There is no such job">
        <a className="button" href={plan ? href({ page: "plan", repo, plan: id, tab: "jobs" }) : href({ page: "plans" })}>
          {plan ? "All jobs of the plan" : "All plans"}
        </a>
      </Empty>
    );
  if (!plan || !job) return <Loading />;
  return <Shown repo={repo} plan={plan} job={job} details={details} tab={tab} />;
}

/** Everything about a job, asked for again whenever it is another one, and now and then while it runs. */
function useDetails(repo: string, plan: string, job: string, view: JobView | undefined): { value?: JobDetails; error?: unknown } {
  const [tick, setTick] = useState(0);
  const running = view?.status === "running";
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(() => setTick((now) => now + 1), AGAIN);
    return () => clearInterval(timer);
  }, [running]);
  return useAsked(() => ask("getJob", { repo, plan, job }), [repo, plan, job, view, tick]);
}

function Shown({ repo, plan, job, details, tab }: { repo: string; plan: Plan; job: JobView; details: { value?: JobDetails; error?: unknown }; tab: JobTab }) {
  const id = plan.plan.id;
  const now = useNow(job.ended_at === null && job.started_at !== null);
  const took = elapsed(job.started_at, job.ended_at, now, job.idle_seconds);
  const value = details.value;
  const samples = useMemo(() => sampled(`${repo} ${id} ${job.id} ${job.attempts}`, value?.processes ?? [], Date.now()), [value]);
  const attempts = value?.attempts_detail ?? [];
  const [picked, setPicked] = useState<{ attempt?: number; phase?: Phase }>({});
  const attempt = attempts.find((one) => one.number === picked.attempt) ?? attempts.at(-1);
  const [{ comments, draft }] = useComments(repo, id, job.id, job.attempts);
  const unsent = comments.length + (draft?.said.trim() ? 1 : 0);
  const { summary } = job;
  const files = (summary.added ?? 0) + (summary.modified ?? 0) + (summary.deleted ?? 0);
  return (
    <div className="content full">
      <div className="head">
        <div className="grow stack tight">
          <div className="crumbs">
            <a href={href({ page: "plans" })}>Plans</a>
            <span>/</span>
            <a className="cut" href={href({ page: "plan", repo, plan: id, tab: "graph" })}>
              {visibleName(plan.plan.name)}
            </a>
            <span>/</span>
            <span className="cut mono">{jobWord(job.id)}</span>
          </div>
          <div className="row wrap">
            <h1 className="words">{visibleName(job.validation ? "Verify and land" : job.name)}</h1>
            <JobBadge job={job} />
          </div>
          {job.task && <p className="soft words">{visible(job.task.length > 400 ? `${job.task.slice(0, 400)}…` : job.task)}</p>}
        </div>
        <div className="row wrap">
          {jobActions(repo, id, job).map((one) => (
            <ActionButton key={one.name} action={one} />
          ))}
        </div>
      </div>
      <div className="facts num">
        {took !== null && (
          <span>
            <b>{duration(took)}</b> {job.ended_at ? "" : "so far"}
          </span>
        )}
        {job.attempts > 0 && <span>{count(job.attempts, "attempt")}</span>}
        {(job.agent?.name ?? job.worker?.agent) && (
          <span>
            by <b>{job.agent?.name ?? job.worker?.agent}</b> {job.worker?.model ?? ""}
          </span>
        )}
        {files > 0 && (
          <span>
            <b>{count(files, "file")}</b> <span className="plus">+{summary.lines_added ?? 0}</span> <span className="minus">−{summary.lines_deleted ?? 0}</span>
          </span>
        )}
        {Boolean(job.usage.tokens) && (
          <span>
            <b>{large(job.usage.tokens ?? 0)}</b> tokens {money(job.usage.cost)}
          </span>
        )}
        {job.healed.map((one) => (
          <span key={one.phase} className="t-ok">
            {phaseWords(one.phase)} healed by {one.agent}
          </span>
        ))}
        {job.worktree && <Copy text={job.worktree} label="worktree" />}
      </div>
      <Banners repo={repo} plan={plan} job={job} details={value} tab={tab} />
      <Phases attempt={attempt} now={now} picked={picked.phase} pick={(phase) => setPicked({ ...picked, phase })} logs={value?.logs ?? []} />
      <nav className="tabs" aria-label="Views of the job">
        {JOB_TABS.map((one) => (
          <a key={one} href={href({ page: "job", repo, plan: id, job: job.id, tab: one })} aria-current={one === tab ? "page" : undefined}>
            {LABELS[one]}
            {one === "attempts" && job.attempts > 1 ? ` ${job.attempts}` : ""}
            {one === "changes" && unsent > 0 ? ` · ${count(unsent, "comment")} not sent` : ""}
          </a>
        ))}
      </nav>
      {details.error !== undefined && !value && <Failed error={details.error} />}
      {tab === "log" && (
        <>
          {attempts.length > 1 && (
            <div className="chips" role="group" aria-label="Attempt">
              {attempts.map((one) => (
                <button key={one.number} className="chip" aria-pressed={one === attempt} onClick={() => setPicked({ attempt: one.number })}>
                  attempt {one.number} · {one.outcome}
                </button>
              ))}
            </div>
          )}
          <JobLog repo={repo} plan={id} job={job} attempt={attempt} phase={picked.phase} logs={value?.logs ?? []} />
        </>
      )}
      {tab === "attempts" && <AttemptsTab attempts={attempts} />}
      {tab === "changes" && <JobChanges repo={repo} plan={id} job={job} />}
      {tab === "talk" && <TalkTab repo={repo} plan={id} job={job} seq={plan.seq} />}
      {tab === "details" && (value ? <DetailsTab repo={repo} plan={id} details={value} samples={samples} /> : <Loading />)}
    </div>
  );
}

function Banners({ repo, plan, job, details, tab }: { repo: string; plan: Plan; job: JobView; details: JobDetails | undefined; tab: JobTab }) {
  const steps = (details?.next ?? []).flatMap((next) => stepAction(repo, next) ?? []).filter((one) => !["retryJob", "retryPlan", "approveJob", "cancelJob"].includes(one.name));
  const failure = details?.attempts_detail.at(-1)?.failure;
  return (
    <>
      {job.waiting && (
        <Banner tone="ask">
          {visible(job.waiting.reason)}
          {job.waiting.input && <pre className="block">{visible(job.waiting.input)}</pre>}
        </Banner>
      )}
      {job.error && (
        <Banner tone={job.status === "failed" ? "bad" : "wait"} actions={steps.map((one) => <ActionButton key={one.name} tiny action={one} />)}>
          {spoken(job.error)} {job.hint && <span className="soft">{visible(job.hint)}</span>}
        </Banner>
      )}
      {details && <Conflict repo={repo} plan={plan.plan.id} job={job} details={details} />}
      {tab !== "log" && job.status === "failed" && failure?.tail.trim() && <pre className="block">{spoken(failure.tail).trim()}</pre>}
      {job.status === "blocked" && (
        <Banner tone="wait">
          It cannot start:{" "}
          {job.needs
            .filter((need) => ["failed", "canceled", "blocked"].includes(plan.jobs.get(need)?.status ?? ""))
            .map((need) => `${jobWord(need)} is ${plan.jobs.get(need)?.status}`)
            .join(", ")}
          .
        </Banner>
      )}
      {(job.status === "pending" || job.status === "ready") && !job.waiting && <Waits repo={repo} plan={plan} job={job} />}
      {(job.worker?.health ?? []).map((one) => (
        <Banner key={one.condition} tone="wait" icon="heart">
          The agent is {one.condition}: {spoken(one.evidence)}
        </Banner>
      ))}
      {details && <Refused details={details} />}
      {job.progress && job.status === "running" && <Banner tone="run">{spoken(job.progress.message)}{job.progress.percent !== null ? ` (${Math.round(job.progress.percent)} %)` : ""}</Banner>}
    </>
  );
}

/** What the wall kept the programs of the last attempt from, with the line that opens it. */
function Refused({ details }: { details: JobDetails }) {
  const refused = details.attempts_detail.at(-1)?.refused ?? [];
  if (refused.length === 0) return null;
  return (
    <Banner tone="wait" icon="stop">
      The sandbox refused {count(refused.length, "access", "accesses")}:
      {refused.slice(0, 10).map((one, place) => (
        <div key={place} className="small words">
          <code>{visible(one.name)}</code> in {phaseWords(one.phase)}
          {one.program ? ` by ${visible(one.program)}` : ""}
          {one.count > 1 ? `, ${one.count} times or more` : ""}: {spoken(one.reason)} {(one.how ?? one.setting) && <code>{visible(one.how ?? one.setting ?? "")}</code>}
        </div>
      ))}
      {refused.length > 10 && <div className="small">and {refused.length - 10} more</div>}
    </Banner>
  );
}

/** Why a job has not started: what it waits for, each a link. */
function Waits({ repo, plan, job }: { repo: string; plan: Plan; job: JobView }) {
  const open = unmet(job, plan);
  if (!job.deployed) return <Banner tone="ask">It waits to be deployed.</Banner>;
  if (open.length === 0) return <Banner tone="run" icon="wait">It waits {heldBack(plan.plan) ?? "for a slot"}.</Banner>;
  return (
    <Banner tone="run" icon="wait">
      It waits for{" "}
      {open.slice(0, 20).map((need, place) => (
        <span key={need}>
          {place > 0 && ", "}
          <a className="link" href={href({ page: "job", repo, plan: plan.plan.id, job: need, tab: "log" })}>
            {jobWord(need)}
          </a>{" "}
          ({plan.jobs.get(need)?.status})
        </span>
      ))}
      {open.length > 20 && ` and ${open.length - 20} more`}.
    </Banner>
  );
}

function Phases({ attempt, now, picked, pick, logs }: { attempt: AttemptView | undefined; now: number; picked: Phase | undefined; pick: (phase: Phase) => void; logs: { attempt: number; phase: Phase; size: number }[] }) {
  const seen = useMemo(() => {
    const found = new Map<Phase, PhaseView>();
    for (const one of attempt?.phases ?? []) found.set(one.phase, one);
    return found;
  }, [attempt]);
  if (!attempt) return null;
  return (
    <div className="phases" role="group" aria-label="Phases">
      {PHASES.map((phase) => {
        const one = seen.get(phase);
        const tone: Tone = !one ? "off" : one.ended_at === null ? "run" : one.outcome === "failed" ? "bad" : one.outcome === "skipped" ? "off" : "ok";
        const took = one ? elapsed(one.started_at, one.ended_at, attempt.ended_at ? Date.parse(attempt.ended_at) : now) : null;
        const printed = logs.some((log) => log.attempt === attempt.number && log.phase === phase && log.size > 0);
        return (
          <button key={phase} className="phase" disabled={!printed} aria-pressed={picked === phase} title={one?.note || (printed ? "Show what it printed" : "It printed nothing")} onClick={() => pick(phase)}>
            <span className={`what t-${tone}`}>
              {one ? <StatusIcon tone={tone} size={13} /> : null}
              {phaseWords(phase)}
            </span>
            <span className="small soft num">{one ? (one.outcome === "skipped" ? "skipped" : took !== null ? duration(took) : "") : "not yet"}</span>
          </button>
        );
      })}
    </div>
  );
}

function JobLog({ repo, plan, job, attempt, phase, logs }: { repo: string; plan: string; job: JobView; attempt: AttemptView | undefined; phase: Phase | undefined; logs: readonly LogFile[] }) {
  // Without a choice it is the phase that runs now, so that the log moves on with the job; then the one that failed, or the work.
  const printed = (one: Phase | null | undefined) => (one && logs.some((log) => log.attempt === attempt?.number && log.phase === one && log.size > 0) ? one : undefined);
  const shown = phase ?? (job.status === "running" ? (job.phase ?? undefined) : (printed(attempt?.failure?.phase) ?? printed("work")));
  const where = useMemo(
    () => ({ repo, plan, job: job.id, ...(attempt ? { attempt: attempt.number } : {}), ...(shown ? { phase: shown } : {}) }),
    [repo, plan, job.id, attempt?.number, shown],
  );
  if (!attempt)
    return (
      <Empty title="It has not run yet">
        <p>What it prints appears here as it is printed.</p>
      </Empty>
    );
  return <LogView key={JSON.stringify(where)} where={where} empty="Nothing was printed yet" />;
}

/** What a job changed; comments on its lines go back to the agent. */
function JobChanges({ repo, plan, job }: { repo: string; plan: string; job: JobView }) {
  const { value, error } = useAsked(async () => (job.commit || job.waiting ? text("getJobDiff", { repo, plan, job: job.id }) : null), [repo, plan, job.id, job.commit, job.waiting]);
  const [{ comments, draft }, keep] = useComments(repo, plan, job.id, job.attempts);
  if (error !== undefined) return <Empty title="There is nothing to show">{<p>{sentence(error)}</p>}</Empty>;
  if (value === undefined) return <Loading />;
  if (value === null)
    return (
      <Empty title="Nothing is committed yet">
        <p>What the job changed appears here when its work is done.</p>
      </Empty>
    );
  const talks = job.worker && ["running", "idle", "paused"].includes(job.worker.state);
  const retries = job.status === "failed" || job.status === "canceled";
  const rejects = job.waiting?.kind === "approval";
  const letter = comments.map((one) => `${one.file}:${one.line}\n> ${one.code.trim()}\n${one.said}`).join("\n\n");
  const send = async () => {
    const at = { repo, plan, job: job.id };
    const reviewed = rejects && (await run("rejectJob", at, { reason: letter }, "It was rejected, with your comments."));
    const done = rejects ? reviewed : talks ? await run("sendMessage", at, { message: letter }, "The agent gets your comments.") : await run("retryJob", at, { work: `@agent Address these review comments:\n\n${letter}` }, "It is tried again with your comments.");
    if (done) keep({ comments: [] });
  };
  return (
    <div className="stack">
      {comments.length > 0 && (
        <div className="card pad stack">
          <h2>{count(comments.length, "comment")}, not sent yet</h2>
          {comments.map((one, place) => (
            <div key={place} className="row top">
              <span className="mono small soft">
                {one.file}:{one.line}
              </span>
              <span className="grow words">{one.said}</span>
              <button className="button bare tiny" onClick={() => keep({ comments: comments.filter((_, other) => other !== place) })}>
                Remove
              </button>
            </div>
          ))}
          <div className="row wrap">
            {(rejects || talks || retries) && (
              <button className="button main" onClick={() => void send()}>
                {rejects ? "Reject with these comments" : talks ? "Send to the agent" : "Retry with these comments"}
              </button>
            )}
            <Copy text={letter} label="Copy all" />
            {!rejects && !talks && !retries && <span className="soft small">The job is {job.status}: comments can be sent while its agent works or waits, or with a retry.</span>}
          </div>
        </div>
      )}
      {draft && (
        <form
          className="card pad stack"
          onSubmit={(event) => {
            event.preventDefault();
            keep({ comments: draft.said.trim() ? [...comments, draft] : comments, draft: null });
          }}
        >
          <label className="stack tight">
            <span className="small soft">
              <span className="mono">
                {draft.file}:{draft.line}
              </span>{" "}
              <code>{visible(draft.code.trim()).slice(0, 120)}</code>
            </span>
            <textarea className="input" autoFocus rows={3} value={draft.said} placeholder="What should be another way here?" onChange={(event) => keep({ draft: { ...draft, said: event.target.value } })} />
          </label>
          <div className="row">
            <button className="button main" type="submit">
              Add comment
            </button>
            <button className="button" type="button" onClick={() => keep({ draft: null })}>
              Leave it
            </button>
          </div>
        </form>
      )}
      <Diff patch={value} command={`orchard diff ${job.id} --plan ${plan}`} comment={(file, line, code) => keep({ draft: { file, line, code, said: "" } })} />
    </div>
  );
}
