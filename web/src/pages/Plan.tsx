// One plan: what it is, what needs a person, and every way to look at it.
import { Suspense, lazy, type ReactNode } from "react";
import { planActions, stepAction } from "../actions";
import type { Plan } from "../deltas";
import type { PlanSummary } from "../generated/api";
import { ago, count, duration, elapsed, large, money, short, spoken, visible, visibleName } from "../format";
import { ActionButton, Banner, Command, Empty, Loading } from "../parts/bits";
import { Icon } from "../parts/icons";
import { PlanBadge, ProgressBar, written } from "../parts/status";
import { TABS, href, type Tab } from "../route";
import { useNow, usePlan } from "../state";
import { jobWord } from "../waits";
import { ChangesTab } from "./Changes";
import { EventsTab } from "./Events";
import { JobsTab } from "./Jobs";
import { TimelineTab } from "./Timeline";
import { UsageTab } from "./Usage";

const Graph = lazy(() => import("./Graph"));
const LABELS: Record<Tab, string> = { graph: "Graph", jobs: "Jobs", timeline: "Timeline", changes: "Changes", usage: "Usage", events: "Events" };

export function PlanPage({ repo, plan: id, tab }: { repo: string; plan: string; tab: Tab }) {
  const plan = usePlan(repo, id);
  if (plan === null)
    return (
      <Empty title="There is no such plan">
        <p>It may have been purged. These are all there are:</p>
        <a className="button" href={href({ page: "plans" })}>
          All plans
        </a>
      </Empty>
    );
  if (plan === undefined) return <Loading />;
  return (
    <div className="content full">
      <Head repo={repo} plan={plan} />
      <nav className="tabs" aria-label="Views of the plan">
        {TABS.map((one) => (
          <a key={one} href={href({ page: "plan", repo, plan: id, tab: one })} aria-current={one === tab ? "page" : undefined}>
            {LABELS[one]}
          </a>
        ))}
      </nav>
      <Suspense fallback={<Loading />}>{shown(tab, repo, plan)}</Suspense>
    </div>
  );
}

function shown(tab: Tab, repo: string, plan: Plan): ReactNode {
  switch (tab) {
    case "graph":
      return <Graph repo={repo} plan={plan} />;
    case "jobs":
      return <JobsTab repo={repo} plan={plan} />;
    case "timeline":
      return <TimelineTab repo={repo} plan={plan} />;
    case "changes":
      return <ChangesTab repo={repo} plan={plan} />;
    case "usage":
      return <UsageTab repo={repo} plan={plan} />;
    case "events":
      return <EventsTab repo={repo} plan={plan} />;
  }
}

function Head({ repo, plan: { plan } }: { repo: string; plan: Plan }) {
  const now = useNow(plan.ended_at === null);
  const took = elapsed(plan.started_at, plan.ended_at ?? plan.idle_since ?? null, now, plan.idle_seconds);
  const counts = written(plan);
  const { total = 0, succeeded = 0 } = counts;
  const { summary } = plan;
  return (
    <>
      <div className="head">
        <div className="grow stack tight">
          <div className="crumbs">
            <a href={href({ page: "plans" })}>Plans</a>
            <span>/</span>
            <span className="cut mono">{plan.id}</span>
          </div>
          <div className="row wrap">
            <h1 className="words">{visibleName(plan.name)}</h1>
            <PlanBadge plan={plan} />
          </div>
          {plan.description && <p className="soft words">{visible(plan.description)}</p>}
        </div>
        <div className="row wrap">
          {planActions(repo, plan).map((one) => (
            <ActionButton key={one.name} action={one} />
          ))}
        </div>
      </div>
      <div className="stack" style={{ gap: 8 }}>
        <ProgressBar counts={counts} />
        <div className="facts num">
          <span>
            <b>
              {succeeded} of {count(total, "job")}
            </b>{" "}
            {rest(counts)}
          </span>
          {took !== null && (
            <span>
              <b>{duration(took)}</b> {plan.ended_at ? "" : "so far"}
            </span>
          )}
          <Way plan={plan} />
          {summary && (
            <span>
              <b>{count((summary.added ?? 0) + (summary.modified ?? 0) + (summary.deleted ?? 0), "file")}</b> <span className="plus">+{summary.lines_added ?? 0}</span> <span className="minus">−{summary.lines_deleted ?? 0}</span>
            </span>
          )}
          {Boolean(plan.usage?.tokens) && (
            <span>
              <b>{large(plan.usage?.tokens ?? 0)}</b> tokens {plan.usage?.cost ? <b>{money(plan.usage.cost)}</b> : null}
            </span>
          )}
          {plan.sandbox && plan.sandbox !== "off" && (
            <span title={plan.limits?.join(" ")}>
              sandbox <b>{plan.sandbox}</b> {plan.sandbox === "landlock" ? "(weaker)" : ""}
            </span>
          )}
          {plan.created_at && <span>made {ago(plan.created_at, now)}</span>}
        </div>
      </div>
      {plan.sandbox === "off" && (
        <Banner tone="bad" icon="stop">
          The sandbox is off: programs and agents of this plan work with all the rights of the user who runs it.
        </Banner>
      )}
      <Banners repo={repo} plan={plan} />
    </>
  );
}

function rest(counts: Record<string, number>): string {
  return ["running", "failed", "blocked", "canceled"].flatMap((status) => (counts[status] ? [`${counts[status]} ${status}`] : [])).join(", ");
}

/** Base → result → target, and whether it is there. */
function Way({ plan }: { plan: PlanSummary }) {
  const pull = plan.pull_request && /^https?:\/\//.test(plan.pull_request.url) ? plan.pull_request : null;
  const landing = plan.undone ? "undone" : plan.landed ? "landed" : pull ? "proposed" : plan.landing ? "landing" : "not landed yet";
  return (
    <span className="row wrap" style={{ gap: 6 }}>
      <Icon shape="branch" size={14} />
      <b>{visibleName(plan.base.branch ?? short(plan.base.commit))}</b>
      <span className="mono faint wide">{short(plan.base.commit)}</span>→
      {plan.result?.commit && (
        <>
          <span className="mono">{short(plan.result.commit)}</span>→
        </>
      )}
      <b>{visibleName(plan.target.branch ?? "")}</b>
      <span className={plan.landed && !plan.undone ? "t-ok" : ""}>{landing}</span>
      {pull && (
        <a href={pull.url} target="_blank" rel="noreferrer noopener">
          pull request {pull.number}
        </a>
      )}
    </span>
  );
}

function Banners({ repo, plan }: { repo: string; plan: PlanSummary }) {
  const jobLink = (job: string) => (
    <a className="button tiny" href={href({ page: "job", repo, plan: plan.id, job, tab: "log" })}>
      Open the job
    </a>
  );
  const steps = (plan.next ?? []).flatMap((next) => stepAction(repo, next) ?? []).filter((one) => one.name !== "retryPlan");
  return (
    <>
      {plan.waiting?.map((one) => (
        <Banner key={`${one.job} ${one.kind} ${one.reason}`} tone="ask" actions={<>{one.job && jobLink(one.job)}</>}>
          {visible(one.reason)}
        </Banner>
      ))}
      {plan.error && (
        <Banner tone={plan.status === "failed" ? "bad" : "wait"} actions={steps.map((one) => <ActionButton key={one.name} tiny action={one} />)}>
          {spoken(plan.error)} {plan.hint && !plan.next?.length && <span className="soft">{visible(plan.hint)}</span>}
        </Banner>
      )}
      {plan.paused && plan.paused !== plan.error && (
        <Banner tone="wait" icon="pause">
          Paused: {visible(plan.paused)}
        </Banner>
      )}
      {plan.idle_since && (
        <Banner tone="wait" actions={<Command>{`orchard resume ${plan.id}`}</Command>}>
          No engine works on this plan: it was interrupted, and goes on when it is resumed.
        </Banner>
      )}
      {plan.after && <Banner tone="run">It begins after the plan {visibleName(plan.after)} has succeeded.</Banner>}
      {plan.pushed && !plan.pushed.ok && <Banner tone="wait">The result could not be pushed: {visible(plan.pushed.message)}</Banner>}
      {plan.warnings?.slice(0, 5).map((one) => (
        <Banner key={one} tone="wait">
          {visible(one)}
        </Banner>
      ))}
      {plan.resolutions?.slice(0, 5).map((one) => (
        <Banner key={`${one.job} ${one.phase} ${one.paths.join()}`} tone="run" icon="branch">
          A conflict in {one.paths.map(visibleName).join(", ")} was resolved by {one.by}
          {one.job ? ` for ${jobWord(one.job)}` : ""}.
        </Banner>
      ))}
    </>
  );
}
