// A conflict that a person resolves: where both sides are, what is left to decide, and how it goes on.
import { useState } from "react";
import { asked } from "../parts/overlay";
import { perform, run } from "../actions";
import type { JobDetails, JobView, Resolving } from "../generated/api";
import { visible, visibleName } from "../format";
import { ActionButton, Banner, Copy } from "../parts/bits";
import { Icon } from "../parts/icons";

export function Conflict({ repo, plan, job, details }: { repo: string; plan: string; job: JobView; details: JobDetails }) {
  const [opened, setOpened] = useState<Resolving | null>(null);
  const possible = details.next?.some((one) => one.operation === "resolve_conflict");
  const folder = opened?.folder ?? details.conflict ?? null;
  if (!possible && !folder) return null;
  const at = { repo, plan, job: job.id };
  const open = async () => setOpened(await run("resolveConflict", at, { step: "open" }));
  if (!folder)
    return (
      <Banner tone="run" icon="branch" actions={<ActionButton action={{ name: "resolve", label: "Resolve by hand", icon: "branch", main: true, run: open }} />}>
        You can resolve this conflict yourself: both sides are put into a worktree of its own, and your checkout is not touched.
      </Banner>
    );
  const go = async () => {
    if (await run("resolveConflict", at, { step: "continue" }, "The job goes on with your resolution.")) setOpened(null);
  };
  const abort = async () => {
    const question = { title: "Give this resolution up?", told: "The worktree goes; what you edited there is saved before. The conflict stays.", yes: "Give it up", danger: true };
    if (await asked(question, () => perform("resolveConflict", at, { step: "abort" }, "It was given up; your edits are saved."))) setOpened(null);
  };
  return (
    <section className="card pad stack" aria-label="The conflict">
      <h2>The conflict, to be resolved by you</h2>
      <p className="soft">
        Edit the files in this worktree until no conflict marker is left
        {opened?.ours && opened.theirs ? (
          <>
            {" "}
            (first the side of <b>{visibleName(opened.ours)}</b>, then that of <b>{visibleName(opened.theirs)}</b>)
          </>
        ) : null}
        . Then go on: the job is retried with what you made of it.
      </p>
      <div className="row wrap">
        <Copy text={folder} />
        <a className="button tiny" href={`vscode://file${encodeURI(folder)}`}>
          Open in VS Code
        </a>
      </div>
      {opened?.files?.map((one) => (
        <div key={one.path} className="row top small">
          <span className={one.done ? "t-ok" : "t-wait"} style={{ paddingTop: 2 }}>
            <Icon shape={one.done ? "ok" : "wait"} size={13} />
          </span>
          <span className="words">
            <code>
              {visibleName(one.path)}
              {one.line ? `:${one.line}` : ""}
            </code>{" "}
            <span className="soft">{one.done ? "decided" : visible(one.what)}</span>
          </span>
        </div>
      ))}
      <div className="row wrap">
        <ActionButton action={{ name: "continue", label: "Go on with my resolution", icon: "ok", main: true, run: go }} />
        <ActionButton action={{ name: "look", label: opened ? "Look again" : "Show what is in conflict", icon: "retry", run: open }} />
        <ActionButton action={{ name: "abort", label: "Give it up", icon: "trash", danger: true, run: abort }} />
      </div>
    </section>
  );
}
