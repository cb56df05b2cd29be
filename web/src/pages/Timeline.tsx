// When each job ran: its attempts and phases beside each other, with marks where it was retried or healed.
import { useMemo } from "react";
import type { Plan } from "../deltas";
import { duration, phaseWords, visibleName } from "../format";
import { useJournal } from "../journal";
import { Empty, Loading } from "../parts/bits";
import { href } from "../route";
import { useNow } from "../state";
import { lanes, type Lane } from "../timeline";
import { useWindow } from "./Jobs";

const ROW = 28;
const PHASES: [string, string][] = [
  ["work", "work"],
  ["setup", "setup"],
  ["postchecks", "checks"],
  ["commit", "commit"],
  ["merge-fi", "merge"],
];

export function TimelineTab({ repo, plan }: { repo: string; plan: Plan }) {
  const { events, loading } = useJournal(repo, plan.plan.id);
  const all = useMemo(() => lanes(events), [events]);
  const now = useNow(plan.plan.ended_at === null);
  const { top, height, listen } = useWindow();
  if (all.length === 0)
    return loading ? (
      <Loading />
    ) : (
      <Empty title="Nothing has run yet">
        <p>Jobs appear here as they start.</p>
      </Empty>
    );
  const from = Math.min(...all.map((lane) => lane.from));
  const to = Math.max(from + 1000, ...all.map((lane) => lane.to ?? now));
  const at = (time: number) => `${(100 * (time - from)) / (to - from)}%`;
  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const last = Math.min(all.length, Math.ceil((top + height) / ROW) + 10);
  return (
    <div className="card">
      <div className="key">
        {PHASES.map(([phase, label]) => (
          <span key={phase}>
            <i className={`p-${phase}`} />
            {label}
          </span>
        ))}
        <span>
          <i className="b-bad" />
          failed
        </span>
        <span>
          <i style={{ border: "2px solid var(--wait)", borderRadius: "50%", width: 9, height: 9 }} />
          retried or healed
        </span>
      </div>
      <div className="time" ref={listen} tabIndex={0} role="region" aria-label="Timeline">
        <div className="time-row axis">
          <span />
          <div className="lane num">
            {[0, 0.25, 0.5, 0.75, 1].map((part) => (
              <span key={part} style={{ left: `${part * 100}%` }}>
                {duration((part * (to - from)) / 1000)}
              </span>
            ))}
          </div>
          <span />
        </div>
        <div style={{ height: first * ROW }} />
        {all.slice(first, last).map((lane) => (
          <Row key={lane.job} lane={lane} name={plan.jobs.get(lane.job)?.validation ? "verify and land" : lane.job} address={href({ page: "job", repo, plan: plan.plan.id, job: lane.job, tab: "attempts" })} at={at} now={now} />
        ))}
        <div style={{ height: (all.length - last) * ROW }} />
      </div>
    </div>
  );
}

function Row({ lane, name, address, at, now }: { lane: Lane; name: string; address: string; at: (time: number) => string; now: number }) {
  const end = lane.to ?? now;
  return (
    <div className="time-row">
      <a className="who cut" href={address} title={name}>
        {visibleName(name)}
      </a>
      <div className="lane">
        <i className="gap" style={{ left: at(lane.from), width: `calc(${at(end)} - ${at(lane.from)})` }} />
        {lane.phases.map((one, place) => (
          <i key={place} className={one.failed ? "failed" : `p-${one.phase}`} style={{ left: at(one.from), width: `calc(${at(one.to ?? now)} - ${at(one.from)})` }} title={`${phaseWords(one.phase)}: ${duration(((one.to ?? now) - one.from) / 1000)}${one.failed ? ", failed" : ""}`} />
        ))}
        {lane.marks.map((one, place) => (
          <i key={`mark ${place}`} className="mark" style={{ left: at(one.at) }} title={one.what} />
        ))}
      </div>
      <span className="long num">{duration((end - lane.from) / 1000)}</span>
    </div>
  );
}
