// Everything that happened to a plan, the newest first.
import { useState } from "react";
import type { Plan } from "../deltas";
import { moment, phaseWords, visible, visibleName } from "../format";
import { useJournal } from "../journal";
import { Empty, Loading } from "../parts/bits";
import { href } from "../route";
import type { Happened } from "../store";

const SHOWN = 300;
const KNOWN = new Set(["seq", "at", "plan", "type", "job", "attempt", "phase", "boot", "started", "pid"]);

export function EventsTab({ repo, plan }: { repo: string; plan: Plan }) {
  const { events, loading } = useJournal(repo, plan.plan.id);
  const [search, setSearch] = useState("");
  const [most, setMost] = useState(SHOWN);
  const words = search.toLowerCase();
  const found = events.filter((one) => !words || JSON.stringify(one).toLowerCase().includes(words));
  if (events.length === 0) return loading ? <Loading /> : <Empty title="Nothing has happened yet" />;
  const shown = found.slice(-most).reverse();
  return (
    <div className="stack">
      <div className="row wrap">
        <span className="soft grow">
          {found.length} of {events.length} events
        </span>
        <input className="input" type="search" placeholder="Search  ( / )" aria-label="Search events" value={search} onChange={(event) => setSearch(event.target.value)} />
      </div>
      <div className="card scroll">
        <table className="list events">
          <thead>
            <tr>
              <th className="num">No.</th>
              <th>When</th>
              <th>What</th>
              <th>Job</th>
              <th>More</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((one) => (
              <tr key={one.seq}>
                <td className="num faint">{one.seq}</td>
                <td className="num soft" style={{ whiteSpace: "nowrap" }}>
                  {moment(one.at, Date.now())}
                </td>
                <td>
                  <b>{sentence(one.type)}</b> {typeof one["phase"] === "string" && <span className="soft">{phaseWords(one["phase"])}</span>}
                </td>
                <td>
                  {typeof one["job"] === "string" && (
                    <a className="link words" href={href({ page: "job", repo, plan: plan.plan.id, job: one["job"], tab: "log" })}>
                      {plan.jobs.get(one["job"])?.validation ? "verify and land" : visibleName(one["job"])}
                    </a>
                  )}
                </td>
                <td className="soft small words">{more(one)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.length > most && (
        <button className="button" style={{ alignSelf: "center" }} onClick={() => setMost(most + SHOWN)}>
          Show older events
        </button>
      )}
    </div>
  );
}

function sentence(type: string): string {
  return type.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
}

function more(event: Happened): string {
  const parts = Object.entries(event).flatMap(([name, value]) => {
    if (KNOWN.has(name) || value === null || value === "" || value === false) return [];
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return text === "[]" || text === "{}" ? [] : [`${name}: ${text.length > 160 ? `${text.slice(0, 160)}…` : text}`];
  });
  return visible(parts.join("  "));
}
