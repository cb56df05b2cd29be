// Every try at a job, beside each other: what it ran, how each phase went, what agents did, and why it failed.
import type { AttemptView, TurnView } from "../generated/api";
import { duration, elapsed, large, moment, money, phaseWords, short, spoken, visible, visibleName } from "../format";
import { Empty } from "../parts/bits";
import { Badge, type Tone } from "../parts/status";
import { useNow } from "../state";

const TONES: Record<string, Tone> = { succeeded: "ok", failed: "bad", canceled: "off", running: "run", interrupted: "wait", held: "ask" };

export function AttemptsTab({ attempts }: { attempts: readonly AttemptView[] }) {
  if (attempts.length === 0) return <Empty title="It has not been tried yet" />;
  return (
    <div className={attempts.length > 1 ? "two" : "stack"}>
      {[...attempts].reverse().map((one) => (
        <Attempt key={one.number} attempt={one} />
      ))}
    </div>
  );
}

function Attempt({ attempt }: { attempt: AttemptView }) {
  const now = useNow(attempt.ended_at === null);
  const took = elapsed(attempt.started_at, attempt.ended_at, now, attempt.idle_seconds);
  return (
    <section className="card pad stack" style={{ alignContent: "start" }}>
      <div className="row wrap">
        <h2>Attempt {attempt.number}</h2>
        <Badge tone={TONES[attempt.outcome] ?? "off"}>{attempt.outcome}</Badge>
        <span className="soft small num">
          {moment(attempt.started_at, now)} {took !== null && `· ${duration(took)}`} {attempt.commit && `· ${short(attempt.commit)}`}
        </span>
      </div>
      {attempt.failure && (
        <p className="t-bad words">
          {spoken(attempt.failure.message)} {attempt.failure.hint && <span className="soft">{visible(attempt.failure.hint)}</span>}
        </p>
      )}
      <div className="facts small num">
        {attempt.phases.map((one, place) => (
          <span key={place} title={one.note}>
            <b className={one.outcome === "failed" ? "t-bad" : ""}>{phaseWords(one.phase)}</b> {one.outcome === "skipped" ? "skipped" : duration(elapsed(one.started_at, one.ended_at, now) ?? 0)}
          </span>
        ))}
      </div>
      {attempt.work && <Work work={attempt.work} />}
      {attempt.turns.map((turn, place) => (
        <Turn key={place} turn={turn} />
      ))}
    </section>
  );
}

function Work({ work }: { work: Record<string, unknown> }) {
  const words = work["instructions"] ?? work["command"] ?? work["executable"];
  return (
    <details>
      <summary className="soft small">What it ran</summary>
      <pre className="block" style={{ marginTop: 6 }}>{visible(typeof words === "string" ? words : JSON.stringify(work, null, 2))}</pre>
    </details>
  );
}

function Turn({ turn }: { turn: TurnView }) {
  const took = elapsed(turn.started_at, turn.ended_at, useNow(turn.ended_at === null));
  return (
    <div className="said-by" style={{ maxWidth: "100%" }}>
      <div className="who num">
        <b>{visibleName(turn.agent)}</b> {turn.model} · {turn.trigger} · {phaseWords(turn.phase)} {took !== null && `· ${duration(took)}`} {Boolean(turn.usage.tokens) && `· ${large(turn.usage.tokens ?? 0)} tokens`} {money(turn.usage.cost)} {turn.outcome && `· ${turn.outcome}`}
      </div>
      <div className="words">{spoken((turn.text || turn.message).slice(0, 3000))}</div>
      {turn.notes.map((one, place) => (
        <div key={place} className="small soft words">
          {one.kind}: {visible(one.message)}
        </div>
      ))}
    </div>
  );
}
