// What people and agents said to each other about a job, and a box to say more.
import { useState } from "react";
import { run } from "../actions";
import { ask } from "../api";
import type { JobView } from "../generated/api";
import { moment, spoken, visible, visibleName } from "../format";
import { Empty, Failed, Loading } from "../parts/bits";
import { Icon } from "../parts/icons";
import { useAsked } from "../state";

const LIVE = ["running", "idle", "paused", "created"];

export function TalkTab({ repo, plan, job, subtask, seq }: { repo: string; plan: string; job: Pick<JobView, "id" | "worker" | "status">; subtask?: string; seq: number }) {
  const to = subtask ?? job.id;
  const { value, error } = useAsked(() => ask("getJobTalk", { repo, plan, job: to }), [repo, plan, to, seq]);
  if (error !== undefined && !value) return <Failed error={error} />;
  if (!value) return <Loading />;
  const live = subtask !== undefined || (job.worker && LIVE.includes(job.worker.state) && job.status === "running") || job.worker?.state === "idle";
  return (
    <div className="stack">
      {value.entries.length === 0 && (
        <Empty title="Nothing was said yet">
          <p>Here stands what an agent was told, what it answers, and what you say to it.</p>
        </Empty>
      )}
      <div className="talk">
        {value.entries.map((one) => (
          <div key={`${one.seq} ${one.kind}`} className={`said-by ${one.sender === "person" ? "you" : ""}`}>
            <div className="who">
              <b>{one.sender === "person" ? "you" : visibleName(one.sender)}</b> · {one.kind} · <span className="num">{moment(one.at, Date.now())}</span>
              {one.reason ? ` · ${visible(one.reason)}` : ""}
            </div>
            <div className="words">{spoken(one.text)}</div>
            {one.whole === false && <div className="small faint">It goes on in the log.</div>}
          </div>
        ))}
      </div>
      {live ? <MessageBox repo={repo} plan={plan} job={to} /> : value.entries.length > 0 && <p className="soft small">The agent does not listen now: it can be told more with a retry.</p>}
    </div>
  );
}

export function MessageBox({ repo, plan, job }: { repo: string; plan: string; job: string }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const send = async () => {
    if (!text.trim() || busy) return;
    setBusy(true);
    const sent = await run("sendMessage", { repo, plan, job }, { message: text.trim() });
    if (sent) setText("");
    setBusy(false);
  };
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <textarea className="input grow" rows={2} aria-label="A message to the agent" placeholder="Say something to the agent  (Ctrl-Enter sends)" value={text} onChange={(event) => setText(event.target.value)} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && void send()} />
      <button className="button main" type="submit" disabled={busy || !text.trim()}>
        <Icon shape="send" size={14} />
        Send
      </button>
    </form>
  );
}
