// Everything else about a job: what it needs, what runs for it, what it may use, and how it is configured.
import type { JobDetails, ProcessView } from "../generated/api";
import { bytes, duration, moment, short, visible, visibleName } from "../format";
import { Copy } from "../parts/bits";
import { href } from "../route";
import { line, type Sample } from "../samples";
import { jobWord } from "../waits";
import type { ReactNode } from "react";

export function DetailsTab({ repo, plan, details, samples }: { repo: string; plan: string; details: JobDetails; samples: readonly Sample[] }) {
  const link = (job: string) => (
    <a key={job} className="link words" href={href({ page: "job", repo, plan, job, tab: "log" })}>
      {jobWord(job)}
    </a>
  );
  return (
    <div className="two">
      <div className="stack">
        <Part title="Needs">{details.needs.length > 0 ? <div className="chips">{details.needs.map(link)}</div> : <span className="soft">nothing</span>}</Part>
        <Part title="Needed by">{details.needed_by.length > 0 ? <div className="chips">{details.needed_by.map(link)}</div> : <span className="soft">nothing: it is a leaf</span>}</Part>
        <Part title="Where">
          {details.worktree ? (
            <div className="row wrap">
              <Copy text={details.worktree} />
              <a className="button tiny" href={`vscode://file${encodeURI(details.worktree)}`}>
                Open in VS Code
              </a>
            </div>
          ) : (
            <span className="soft">Its worktree is gone; its commits are kept.</span>
          )}
          <div className="facts small mono">
            {details.base_commit && <span>from {short(details.base_commit)}</span>}
            {details.commit && <span>result {short(details.commit)}</span>}
          </div>
        </Part>
        {details.commits.length > 0 && (
          <Part title="Commits">
            {details.commits.map((one) => (
              <div key={one.commit} className="row small">
                <code>{short(one.commit)}</code>
                <span className="grow cut">{visibleName(one.subject)}</span>
                <span className="soft">{visibleName(one.author)}</span>
                <span className="soft num">{moment(one.at, Date.now())}</span>
              </div>
            ))}
          </Part>
        )}
        <Part title="Processes">
          {samples.length > 1 && <Used samples={samples} />}
          {details.processes.length > 0 ? <Processes all={details.processes} /> : <span className="soft">none runs now</span>}
        </Part>
        {details.permissions && (
          <Part title="What its agent may use">
            <p>
              <b>{visibleName(details.permissions.tools)}</b>
            </p>
            {details.permissions.sources.map((one, place) => (
              <div key={place} className="small soft">
                {visibleName(one.origin)}: {visibleName(one.tools)}
              </div>
            ))}
          </Part>
        )}
        {details.saved.length > 0 && (
          <Part title="Saved work">
            {details.saved.map((one) => (
              <div key={one.ref} className="row small">
                <code>{short(one.commit)}</code>
                <span className="grow words">{visibleName(one.why)}</span>
                <Copy text={`orchard recover ${one.ref} FOLDER`} label="copy command" />
              </div>
            ))}
          </Part>
        )}
        {details.evidence && (
          <Part title="Evidence">
            <pre className="block">{visible(JSON.stringify(details.evidence, null, 2))}</pre>
          </Part>
        )}
      </div>
      <Part title="Configuration">
        <pre className="block">{visible(JSON.stringify(details.configuration, null, 2))}</pre>
      </Part>
    </div>
  );
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="card pad stack" style={{ gap: 8, alignContent: "start" }}>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

/** What all processes used while the page was open: two lines over the same time. */
function Used({ samples }: { samples: readonly Sample[] }) {
  const last = samples.at(-1);
  const took = ((last?.at ?? 0) - (samples[0]?.at ?? 0)) / 1000;
  const row = (what: string, values: readonly number[], told: (value: number) => string) => (
    <div className="row small num">
      <span className="soft" style={{ width: 58 }}>
        {what}
      </span>
      <svg className="spark grow" viewBox="0 0 200 28" preserveAspectRatio="none" role="img" aria-label={`${what} over ${duration(took)}: ${told(values.at(-1) ?? 0)} now, at most ${told(Math.max(...values))}`}>
        <polyline points={line(values, 200, 26)} transform="translate(0 1)" />
      </svg>
      <span style={{ minWidth: 64, textAlign: "right" }}>{told(values.at(-1) ?? 0)}</span>
      <span className="soft" style={{ minWidth: 92, textAlign: "right" }}>
        at most {told(Math.max(...values))}
      </span>
    </div>
  );
  return (
    <div className="stack tight">
      {row("processor", samples.map((one) => one.cpu), (value) => `${Math.round(value)} %`)}
      {row("memory", samples.map((one) => one.memory), bytes)}
      <span className="faint small">in the last {duration(took)}, while this page was open</span>
    </div>
  );
}

/** The processes of a job as a tree: a child stands below its parent. */
function Processes({ all }: { all: readonly ProcessView[] }) {
  const known = new Set(all.map((one) => one.pid));
  const below = (parent: number | null) => all.filter((one) => (parent === null ? !known.has(one.parent) : one.parent === parent));
  const list = (parent: number | null): ReactNode => {
    const found = below(parent);
    if (found.length === 0) return null;
    return (
      <ul className={parent === null ? "tree" : undefined}>
        {found.map((one) => (
          <li key={one.pid}>
            <div className="row small">
              <code className="cut grow" title={one.command}>
                {visibleName(one.command || one.name)}
              </code>
              <span className="num soft">{one.cpu_percent === null ? "" : `${Math.round(one.cpu_percent)} %`}</span>
              <span className="num soft">{duration(one.cpu_seconds)}</span>
              <span className="num soft">{bytes(one.rss)}</span>
            </div>
            {list(one.pid)}
          </li>
        ))}
      </ul>
    );
  };
  return <>{list(null)}</>;
}
