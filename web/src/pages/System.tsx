// The machine behind the plans: whether it is well, who may work here, what was saved, and every setting with its origin.
import { useState, type ReactNode } from "react";
import { ask } from "../api";
import type { Finding } from "../generated/api";
import { count, moment, short, visible, visibleName } from "../format";
import { Copy, Failed, Loading } from "../parts/bits";
import { Icon } from "../parts/icons";
import { Badge, type Tone } from "../parts/status";
import { href } from "../route";
import { useAsked, useStore } from "../state";
import { jobWord } from "../waits";

const TONES: Record<Finding["level"], Tone> = { ok: "ok", note: "run", warning: "wait", problem: "bad" };

export function SystemPage() {
  const repos = useStore((state) => state.repos);
  const [chosen, setChosen] = useState("");
  const repo = repos.find((one) => one.id === chosen) ?? repos[0];
  if (!repo) return <Loading />;
  return (
    <div className="content">
      <div className="head">
        <div className="grow stack tight">
          <h1>System</h1>
          <p className="soft words">
            {visibleName(repo.folder)} · {repo.engine ? "its engine runs in this daemon" : "another process is its engine, or none is"}
          </p>
        </div>
        {repos.length > 1 && (
          <select className="input" aria-label="Repository" value={repo.id} onChange={(event) => setChosen(event.target.value)}>
            {repos.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name}
              </option>
            ))}
          </select>
        )}
      </div>
      <div className="two" key={repo.id}>
        <div className="stack">
          <Doctor repo={repo.id} />
          <Slots />
          <Saved repo={repo.id} />
        </div>
        <div className="stack">
          <Agents repo={repo.id} />
          <Models repo={repo.id} />
        </div>
      </div>
      <Settings repo={repo.id} />
    </div>
  );
}

function Part({ title, more, children }: { title: string; more?: ReactNode; children: ReactNode }) {
  return (
    <section className="card">
      <div className="row pad" style={{ paddingBottom: 8 }}>
        <h2 className="grow">{title}</h2>
        {more}
      </div>
      {children}
    </section>
  );
}

function Doctor({ repo }: { repo: string }) {
  const [again, setAgain] = useState(0);
  const { value, error } = useAsked(() => ask("getDoctor", { repo }), [repo, again]);
  const [all, setAll] = useState(false);
  if (error !== undefined) return <Failed error={error} />;
  if (!value) return <Loading />;
  const shown = value.findings.filter((one) => all || one.level !== "ok");
  const fine = value.findings.length - value.findings.filter((one) => one.level !== "ok").length;
  return (
    <Part title="Doctor" more={<button className="button tiny" onClick={() => setAgain(again + 1)}>Look again</button>}>
      <div className="stack pad" style={{ paddingTop: 0, gap: 8 }}>
        {shown.map((one, place) => (
          <div key={place} className="row top">
            <span className={`t-${TONES[one.level]}`} title={one.level} style={{ paddingTop: 2 }}>
              <Icon shape={one.level === "note" ? "off" : TONES[one.level]} size={14} />
            </span>
            <span className="words small">
              <b>{one.topic}</b> {visible(one.message)} {one.hint && <span className="soft">{visible(one.hint)}</span>}
            </span>
          </div>
        ))}
        <button className="button bare tiny" style={{ alignSelf: "flex-start" }} onClick={() => setAll(!all)}>
          {all ? "Show only what is noteworthy" : `${count(fine, "thing is", "things are")} fine`}
        </button>
      </div>
    </Part>
  );
}

function Slots() {
  const capacity = useStore((state) => state.capacity);
  if (!capacity) return null;
  return (
    <Part title="Capacity" more={<span className="soft num">{`${capacity.used} of ${capacity.total || "unlimited"} slots`}</span>}>
      <div className="stack pad small" style={{ paddingTop: 0, gap: 6 }}>
        {capacity.problem && <p className="t-wait">{visible(capacity.problem)}</p>}
        {capacity.holders.length === 0 && <span className="soft">No job holds a slot.</span>}
        {capacity.holders.map((one) => (
          <div key={one.pid} className="row wrap">
            <span className="words" style={{ flex: "1 1 180px" }}>{visibleName(one.repository ?? `process ${one.pid}`)}</span>
            <span className="soft cut">{one.plans?.map(visibleName).join(", ")}</span>
            <b className="num">{one.slots}</b>
          </div>
        ))}
        <span className="soft">At most {capacity.max_parallel} jobs of one plan run at once, unless it says otherwise.</span>
      </div>
    </Part>
  );
}

function Saved({ repo }: { repo: string }) {
  const { value } = useAsked(() => ask("listSavedWork", { repo }), [repo]);
  return (
    <Part title="Saved work" more={value ? <span className="soft num">{value.saved.length}</span> : undefined}>
      {!value ? (
        <Loading />
      ) : value.saved.length === 0 ? (
        <p className="pad soft small" style={{ paddingTop: 0 }}>
          Nothing was left in a worktree that had to be removed. What is left in one is saved first, and listed here.
        </p>
      ) : (
        <div className="scroll" style={{ maxHeight: 300, overflow: "auto" }} tabIndex={0} role="region" aria-label="Saved work">
          <table className="list">
            <tbody>
              {value.saved.map((one) => (
                <tr key={one.ref}>
                  <td className="mono">{short(one.commit)}</td>
                  <td className="small words">
                    {one.plan && one.job ? (
                      <a className="link" href={href({ page: "job", repo, plan: one.plan, job: one.job, tab: "details" })}>
                        {jobWord(one.job)}
                      </a>
                    ) : null}{" "}
                    <span className="soft">
                      {visibleName(one.subject)} · {count(one.files, "file")} · {moment(new Date(one.at * 1000).toISOString(), Date.now())}
                    </span>
                  </td>
                  <td>
                    <Copy text={`orchard recover ${one.ref} FOLDER`} label="restore" />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Part>
  );
}

function Agents({ repo }: { repo: string }) {
  const { value, error } = useAsked(() => ask("listAgents", { repo }), [repo]);
  if (error !== undefined) return <Failed error={error} />;
  if (!value) return <Loading />;
  const order = [...value.agents].sort((one, other) => Number(other.installed) - Number(one.installed));
  return (
    <Part title="Agents" more={<span className="soft small">{value.default ? `${value.default} does what names none` : "none can be used yet"}</span>}>
      <div className="scroll" style={{ maxHeight: 420, overflow: "auto" }} tabIndex={0} role="region" aria-label="Agents">
        <table className="list">
          <tbody>
            {order.map((one) => (
              <tr key={one.name}>
                <td>
                  <b>{visibleName(one.name)}</b> <span className="soft small">{visibleName(one.vendor)}</span>
                  {one.version && <div className="faint small mono">{visibleName(one.version)}</div>}
                </td>
                <td>{!one.installed ? <Badge tone="off">not installed</Badge> : one.logged_in === "no" ? <Badge tone="wait">no login</Badge> : <Badge tone="ok">{one.logged_in === "yes" ? "ready" : "installed"}</Badge>}</td>
                <td className="small soft words">{visible(!one.installed ? one.install : one.logged_in === "no" ? one.login : one.how_known)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {value.definitions.length > 0 && (
        <p className="pad small soft words">
          Definitions: {value.definitions.map((one) => visibleName(one.name) + (one.usable ? "" : ` (${one.why_not ?? "not usable"})`)).join(", ")}
        </p>
      )}
    </Part>
  );
}

function Models({ repo }: { repo: string }) {
  const { value } = useAsked(() => ask("listModels", { repo }), [repo]);
  if (!value || value.models.length === 0) return null;
  return (
    <Part title="Models" more={<span className="soft num">{value.models.length}</span>}>
      <div className="scroll" style={{ maxHeight: 260, overflow: "auto" }} tabIndex={0} role="region" aria-label="Models">
        <table className="list">
          <tbody>
            {value.models.map((one) => (
              <tr key={`${one.agent} ${one.model}`}>
                <td className="mono words">{visibleName(one.model)}</td>
                <td className="small">{one.agent}</td>
                <td className="small soft">{one.tier}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Part>
  );
}

function Settings({ repo }: { repo: string }) {
  const { value, error } = useAsked(() => ask("getConfig", { repo }), [repo]);
  const [search, setSearch] = useState("");
  if (error !== undefined) return <Failed error={error} />;
  if (!value) return <Loading />;
  const shown = Object.entries(value.settings).filter(([name]) => name.includes(search.toLowerCase()));
  return (
    <Part title="Settings" more={<input className="input" type="search" placeholder="Search  ( / )" aria-label="Search settings" value={search} onChange={(event) => setSearch(event.target.value)} />}>
      {value.untrusted.length > 0 && <p className="pad t-wait small">These wait for your consent (orchard trust): {value.untrusted.map(visibleName).join(", ")}</p>}
      <div className="scroll" tabIndex={0} role="region" aria-label="Settings">
        <table className="list">
          <tbody>
            {shown.map(([name, one]) => (
              <tr key={name}>
                <td className="mono">{visibleName(name)}</td>
                <td className="mono words">{one.value === null ? <span className="faint">not set</span> : visible(JSON.stringify(one.value))}</td>
                <td className={`small ${one.origin === "default" ? "faint" : ""}`}>{visibleName(one.origin ?? "")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Part>
  );
}
