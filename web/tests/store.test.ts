// The store against a daemon that is played from recorded deltas: streams break, answers fail, the journal starts anew.
import { expect, test } from "vitest";
import { Away, Refused } from "../src/api";
import { jobsOf } from "../src/deltas";
import type { PlanChanges, ProblemDocument } from "../src/generated/api";
import type { Frame } from "../src/sse";
import { Store, key, type Line } from "../src/store";
import { between, changes, whole } from "./recorded";

const PLAN = whole.plan.id;

/** A daemon of which only so much has happened yet; time passes when it is told to. */
class Played {
  at = 1;
  away = false;
  /** The stream is open, and nothing comes through it any more. */
  silent = false;
  /** Questions are not answered, though the stream goes on. */
  mute = false;
  wholeReads = 0;
  locked = false;
  now = 0;
  private timers: { when: number; then: () => void }[] = [];
  private listener: { heard: (frames: Frame[]) => void; end: (error?: unknown) => void; seen: number } | undefined;

  line(): Line {
    return {
      ask: ((name: string, parameters: Record<string, unknown>) => Promise.resolve().then(() => this.answer(name, parameters))) as Line["ask"],
      follow: ((_name: string, parameters: { since: number }, heard: (frames: Frame[]) => void, signal: AbortSignal) =>
        new Promise<void>((done, failed) => {
          if (this.away) return failed(new Away("away"));
          if (parameters.since > this.seq) return failed(refused(422));
          this.listener = { heard, seen: parameters.since, end: (error) => (error ? failed(error) : done()) };
          signal.addEventListener("abort", () => done());
          this.tell();
        })) as Line["follow"],
      now: () => this.now,
      later: (milliseconds, then) => void this.timers.push({ when: this.now + milliseconds, then }),
    };
  }

  get seq(): number {
    return (changes[this.at - 1] as PlanChanges).seq;
  }

  private answer(name: string, parameters: Record<string, unknown>): unknown {
    if (this.locked) throw refused(401);
    if (this.away || this.mute) throw new Away("away");
    const plan = (changes[this.at - 1] as PlanChanges).plan;
    if (name === "listRepos") return { repos: [{ id: "r", name: "shop", folder: "/srv/shop", engine: true, newest: this.seq }] };
    if (name === "listPlans") return { plans: [plan], next: null };
    if (name === "listWaiting") return { waiting: [] };
    if (name === "getCapacity") return { total: 16, used: 0, holders: [], max_parallel: 4 };
    if (name !== "getPlan" || parameters["plan"] !== PLAN) throw refused(404);
    const since = parameters["since"] as number | undefined;
    if (since === undefined) {
      this.wholeReads += 1;
      const { jobs, order, seq } = between(0, this.at);
      return { plan, jobs: (order ?? []).map((id) => jobs.find((job) => job.id === id)), seq };
    }
    if (since > this.seq) throw refused(422);
    return between(since, this.at);
  }

  /** More has happened; whoever listens hears an event for each number. */
  happen(to: number): void {
    this.at = Math.max(this.at, to);
    this.tell();
  }

  cut(): void {
    const { listener } = this;
    this.listener = undefined;
    listener?.end(this.away ? new Away("cut") : undefined);
  }

  private tell(): void {
    const { listener } = this;
    if (!listener || this.away || this.silent) return;
    const frames: Frame[] = [{ id: String(listener.seen), event: "message", data: "" }];
    for (let seq = listener.seen + 1; seq <= this.seq; seq += 1) frames.push({ id: String(seq), event: "PhaseStarted", data: JSON.stringify({ seq, at: null, plan: PLAN, type: "PhaseStarted" }) });
    listener.seen = this.seq;
    listener.heard(frames);
  }

  async pass(milliseconds: number): Promise<void> {
    const end = this.now + milliseconds;
    for (;;) {
      await settled();
      const next = this.timers.sort((one, other) => one.when - other.when)[0];
      if (!next || next.when > end) break;
      this.timers.shift();
      this.now = next.when;
      next.then();
    }
    this.now = end;
    await settled();
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 60; turn += 1) await Promise.resolve();
}

function refused(status: number): Refused {
  return new Refused(status, { type: "", title: "", status, detail: "refused", hint: null, next: [], problems: [] } as ProblemDocument);
}

async function begun(played: Played): Promise<Store> {
  const store = new Store(played.line());
  store.start();
  await played.pass(100);
  store.hold("r", PLAN);
  await played.pass(100);
  return store;
}

function shown(store: Store): unknown {
  const plan = store.state.open.get(key("r", PLAN));
  return plan && { plan: plan.plan, jobs: jobsOf(plan), seq: plan.seq };
}

test("what happens reaches the page, and no plan is read as a whole twice", async () => {
  const played = new Played();
  const store = await begun(played);
  for (let at = 2; at <= changes.length; at += 1) {
    played.happen(at);
    await played.pass(200);
  }
  expect(shown(store)).toEqual(whole);
  expect(store.state.plans.get("r")?.[0]).toEqual(whole.plan);
  expect(played.wholeReads).toBe(1);
  store.stop();
});

test("a burst of events is one question", async () => {
  const played = new Played();
  const store = await begun(played);
  let asked = 0;
  const ask = store.line.ask;
  (store.line as { ask: unknown }).ask = ((name: string, ...rest: unknown[]) => {
    if (name === "getPlan") asked += 1;
    return (ask as (...all: unknown[]) => unknown)(name, ...rest);
  }) as never;
  for (let at = 2; at <= changes.length; at += 1) played.happen(at);
  await played.pass(1000);
  expect(asked).toBe(1);
  expect(shown(store)).toEqual(whole);
});

test("after any history of cuts and absences the page equals the journal: 60 random ones", async () => {
  for (let seed = 1; seed <= 60; seed += 1) {
    const random = dice(seed);
    const played = new Played();
    const store = await begun(played);
    let at = 1;
    while (at < changes.length) {
      const what = random();
      if (what < 0.5) played.happen((at = Math.min(changes.length, at + 1 + Math.floor(random() * 4))));
      else if (what < 0.65) played.cut();
      else if (what < 0.8) {
        played.away = !played.away;
        if (played.away) played.cut();
      } else if (what < 0.85) played.mute = !played.mute;
      else if (what < 0.92) {
        store.stop();
        store.start();
      } else await played.pass(Math.floor(random() * 9000));
      if (random() < 0.5) await played.pass(Math.floor(random() * 300));
    }
    played.away = played.mute = false;
    await played.pass(30_000);
    expect(shown(store), `seed ${seed}`).toEqual(whole);
    expect(store.state.connection.is).toBe("live");
    expect(played.wholeReads, `seed ${seed}`).toBeLessThanOrEqual(2);
    store.stop();
  }
});

test("a daemon that is away is said to be, and back when it answers", async () => {
  const played = new Played();
  const store = await begun(played);
  played.away = true;
  played.cut();
  await played.pass(3000);
  expect(store.state.connection.is).toBe("away");
  played.at = changes.length;
  played.away = false;
  await played.pass(20_000);
  expect(store.state.connection.is).toBe("live");
  expect(shown(store)).toEqual(whole);
});

test("what could not be asked when it happened is asked later", async () => {
  const played = new Played();
  const store = await begun(played);
  played.mute = true;
  played.happen(changes.length);
  await played.pass(2000);
  played.mute = false;
  await played.pass(10_000);
  expect(shown(store)).toEqual(whole);
});

test("a plan that is opened while the daemon is away is there when it is back", async () => {
  const played = new Played();
  const store = new Store(played.line());
  store.start();
  await played.pass(100);
  played.mute = true;
  store.hold("r", PLAN);
  await played.pass(4000);
  played.mute = false;
  played.at = changes.length;
  await played.pass(20_000);
  expect(shown(store)).toEqual(whole);
});

test("a stream that went silent is found out by the number of the newest event", async () => {
  const played = new Played();
  const store = await begun(played);
  played.silent = true;
  played.happen(changes.length);
  await played.pass(100);
  const before = store.line.follow;
  (store.line as { follow: unknown }).follow = ((...all: unknown[]) => {
    played.silent = false;
    return (before as (...all: unknown[]) => unknown)(...all);
  }) as never;
  await played.pass(15_000);
  expect(shown(store)).toEqual(whole);
  expect(played.wholeReads).toBe(1);
});

test("a session that the daemon does not know is locked, and nothing is asked again and again", async () => {
  const played = new Played();
  const store = await begun(played);
  played.locked = true;
  played.cut();
  await played.pass(60_000);
  expect(store.state.connection).toMatchObject({ is: "locked", detail: "refused" });
});

test("a plan that is gone is gone from the page", async () => {
  const played = new Played();
  const store = await begun(played);
  store.hold("r", "other-plan");
  await played.pass(500);
  expect(store.state.gone.has(key("r", "other-plan"))).toBe(true);
  expect(store.state.connection.is).toBe("live");
});

function dice(seed: number): () => number {
  let state = seed * 2654435761;
  return () => {
    state = (state ^ (state << 13)) >>> 0;
    state = (state ^ (state >>> 17)) >>> 0;
    state = (state ^ (state << 5)) >>> 0;
    return state / 4294967296;
  };
}

test("a list that was overtaken by news of a plan does not take them back", async () => {
  const played = new Played();
  const store = await begun(played);
  const ask = store.line.ask;
  let answer: (() => void) | undefined;
  store.line.ask = (async (name: Parameters<typeof ask>[0], parameters: never) => {
    const found = await ask(name, parameters);
    if (name === "listPlans") await new Promise<void>((then) => (answer = then));
    return found;
  }) as typeof ask;

  const listing = store.list("r");
  await settled();
  played.happen(changes.length);
  await played.pass(500);
  expect(store.state.plans.get("r")?.[0]).toEqual(whole.plan);
  answer?.();
  await listing;

  expect(store.state.plans.get("r")).toEqual([whole.plan]);
  store.stop();
});
