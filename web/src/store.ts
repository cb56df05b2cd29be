// What the page knows, kept the same as the daemon's journal: read once, then told what changed, event by event.
//
// Each repository is followed by one stream of events. An event says only that a plan is another one now; what it became
// is asked for with `since`, at most once in a while, so that a burst of events is one question. A stream that breaks
// goes on after the last event that was heard: nothing is missed, and no plan is read as a whole twice.
import { Away, Refused, ask, follow } from "./api";
import { applied, listed, type Plan } from "./deltas";
import type { Capacity, PlanSummary, Repository, Waiting } from "./generated/api";
import type { Frame } from "./sse";

export interface Happened {
  seq: number;
  at: string | null;
  plan: string;
  type: string;
  [field: string]: unknown;
}

export interface Wait extends Waiting {
  repo: string;
}

export type Connection =
  | { is: "starting" }
  | { is: "live" }
  | { is: "away"; since: number }
  | { is: "locked"; detail: string; hint: string };

/** The moment up to which the page knows what happened: while the daemon does not answer, that is the past. */
export function lastKnown(connection: Connection, now: number): number {
  return connection.is === "away" ? Math.min(now, connection.since) : now;
}

export interface State {
  connection: Connection;
  repos: readonly Repository[];
  /** The plans of each repository, the newest first. */
  plans: ReadonlyMap<string, readonly PlanSummary[]>;
  /** Whether there are older plans that were not asked for yet. */
  older: ReadonlyMap<string, string>;
  /** The plans that are open, by `key`. */
  open: ReadonlyMap<string, Plan>;
  /** Plans that are open in the page and that there are not (any more). */
  gone: ReadonlySet<string>;
  /** What happened to the plans that are open, the newest last. */
  events: ReadonlyMap<string, readonly Happened[]>;
  waiting: readonly Wait[];
  capacity: Capacity | null;
}

/** What the store asks the daemon with; tests have one of their own. */
export interface Line {
  ask: typeof ask;
  follow: typeof follow;
  now: () => number;
  later: (milliseconds: number, then: () => void) => void;
}

const LINE: Line = { ask, follow, now: () => Date.now(), later: (milliseconds, then) => void setTimeout(then, milliseconds) };
const PLANS = 50;
const STREAMS = 2; // of the six connections that a browser opens to one host, for all of its tabs
const GATHER = 120;
const LARGE = 300;
const SLOW_GATHER = 1000;
const LOOK = 5000;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;
const MANY = 8;
const EVENTS = 2000;

export const key = (repo: string, plan: string): string => `${repo}\n${plan}`;

export class Store {
  state: State = {
    connection: { is: "starting" },
    repos: [],
    plans: new Map(),
    older: new Map(),
    open: new Map(),
    gone: new Set(),
    events: new Map(),
    waiting: [],
    capacity: null,
  };
  private listeners = new Set<() => void>();
  private feeds = new Map<string, Feed>();
  private stopping = new AbortController();
  private users = new Map<string, number>();
  /** Of each plan, by `key`: the last event that its summary knows, and when that was put in. */
  private told = new Map<string, { seq: number; turn: number }>();
  private turn = 0;
  /** The last question about what waits that was answered, by repository. */
  private looked = new Map<string, number>();

  constructor(readonly line: Line = LINE) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  set(change: Partial<State>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }

  /** Begin to follow, or go on after the page was hidden. */
  start(): void {
    this.stopping = new AbortController();
    void this.keep(this.stopping.signal);
  }

  /** Let go of all streams; `start` goes on where they were. */
  stop(): void {
    this.stopping.abort();
  }

  /** Hold a plan open, from its first answer on, until the function that is given back is called. */
  hold(repo: string, plan: string): () => void {
    const name = key(repo, plan);
    this.users.set(name, (this.users.get(name) ?? 0) + 1);
    if (!this.state.open.has(name)) this.load(repo, plan);
    return () => {
      const left = (this.users.get(name) ?? 1) - 1;
      if (left > 0) {
        this.users.set(name, left);
        return;
      }
      this.users.delete(name);
      this.line.later(30_000, () => {
        if (this.users.has(name)) return;
        this.set({ open: without(this.state.open, name), events: without(this.state.events, name) });
      });
    };
  }

  holds(name: string): boolean {
    return this.users.has(name) || this.state.open.has(name);
  }

  /** Bring a plan up to date that is held; where that fails it is done later. */
  load(repo: string, plan: string): void {
    this.refresh(repo, plan).catch(() => {
      this.line.later(2 * FIRST_WAIT, () => {
        if (this.users.has(key(repo, plan)) && this.state.connection.is !== "locked") this.load(repo, plan);
      });
    });
  }

  /** Bring one plan up to date: what changed since the last answer, or all of it the first time. */
  async refresh(repo: string, plan: string): Promise<void> {
    const name = key(repo, plan);
    const held = this.state.open.get(name);
    try {
      const answer = await this.line.ask("getPlan", held ? { repo, plan, since: held.seq } : { repo, plan });
      const now = applied(this.state.open.get(name), answer) ?? applied(undefined, await this.line.ask("getPlan", { repo, plan }));
      if (now) this.set({ open: new Map(this.state.open).set(name, now), gone: excluding(this.state.gone, name) });
      this.summarize(repo, answer.plan, answer.seq);
    } catch (error) {
      if (!(error instanceof Refused && error.status === 404)) {
        this.failed(error);
        throw error;
      }
      this.set({ open: without(this.state.open, name), gone: new Set(this.state.gone).add(name) });
      this.told.set(name, { seq: 0, turn: ++this.turn });
      const plans = this.state.plans.get(repo);
      if (plans) this.set({ plans: new Map(this.state.plans).set(repo, plans.filter((one) => one.id !== plan)) });
    }
  }

  /** Put a plan into the list, unless the list knows more of it already: answers may overtake each other. */
  summarize(repo: string, summary: PlanSummary, seq: number): void {
    const plans = this.state.plans.get(repo);
    const name = key(repo, summary.id);
    if (!plans || seq < (this.told.get(name)?.seq ?? 0)) return;
    this.told.set(name, { seq, turn: ++this.turn });
    this.set({ plans: new Map(this.state.plans).set(repo, listed(plans, summary)) });
  }

  /** The plans of a repository, from the first page on; or the page after those that are there. */
  async list(repo: string, further = false): Promise<void> {
    const cursor = further ? this.state.older.get(repo) : undefined;
    const asked = ++this.turn;
    const answer = await this.line.ask("listPlans", { repo, limit: PLANS, ...(cursor ? { cursor } : {}) });
    const before = further ? (this.state.plans.get(repo) ?? []) : [];
    const known = new Set(before.map((one) => one.id));
    let plans: PlanSummary[] = [...before, ...answer.plans.filter((one) => !known.has(one.id))];
    const heard = (id: string) => (this.told.get(key(repo, id))?.turn ?? 0) > asked;
    // What was told of a plan after this was asked is newer; a plan that is no longer there is gone.
    const held = new Map((this.state.plans.get(repo) ?? []).map((one) => [one.id, one]));
    plans = plans.flatMap((one) => (heard(one.id) ? (held.get(one.id) ?? []) : one));
    for (const one of held.values()) if (heard(one.id)) plans = listed(plans, one);
    const older = new Map(this.state.older);
    if (answer.next) older.set(repo, answer.next);
    else older.delete(repo);
    this.set({ plans: new Map(this.state.plans).set(repo, plans), older });
  }

  /** What is known of a repository's journal counts no more: it is another one. */
  forget(repo: string): void {
    for (const name of [...this.told.keys()]) if (name.startsWith(`${repo}\n`)) this.told.delete(name);
  }

  async lookAround(repo: string): Promise<void> {
    const asked = ++this.turn;
    const [found, capacity] = await Promise.all([this.line.ask("listWaiting", { repo }), this.line.ask("getCapacity", { repo })]);
    if (asked < (this.looked.get(repo) ?? 0)) return; // a later question was answered before
    this.looked.set(repo, asked);
    const others = this.state.waiting.filter((one) => one.repo !== repo);
    const waiting = [...others, ...found.waiting.map((one) => ({ ...one, repo }))];
    waiting.sort((one, other) => (one.since ?? "").localeCompare(other.since ?? ""));
    this.set({ waiting, capacity });
  }

  remember(repo: string, events: readonly Happened[]): void {
    const news = new Map<string, Happened[]>();
    for (const event of events) {
      const name = key(repo, event.plan);
      if (!this.holds(name)) continue;
      const mine = news.get(name) ?? [];
      const last = mine.at(-1) ?? this.state.events.get(name)?.at(-1);
      if ((last?.seq ?? 0) < event.seq) news.set(name, [...mine, event]);
    }
    if (news.size === 0) return;
    const kept = new Map(this.state.events);
    for (const [name, mine] of news) kept.set(name, [...(kept.get(name) ?? []), ...mine].slice(-EVENTS));
    this.set({ events: kept });
  }

  /** Say that the daemon does not answer, or that it does not know this session (any more). */
  failed(error: unknown): void {
    if (error instanceof Refused && error.status === 401) {
      const { detail, hint } = error.problem;
      this.set({ connection: { is: "locked", detail, hint: hint ?? "" } });
    } else if (error instanceof Away && this.state.connection.is !== "away" && this.state.connection.is !== "locked") {
      this.set({ connection: { is: "away", since: this.line.now() } });
    }
  }

  /** Read which repositories there are, follow them, and look now and then whether there are others. */
  private async keep(signal: AbortSignal): Promise<void> {
    let wait = FIRST_WAIT;
    while (!signal.aborted && this.state.connection.is !== "locked") {
      try {
        const { repos } = await this.line.ask("listRepos", {});
        if (signal.aborted) return;
        const engines = new Map(this.state.repos.map((one) => [one.id, one.engine]));
        // A stream that was open while the daemon was away may never tell anything again.
        if (this.state.connection.is === "away") for (const feed of this.feeds.values()) feed.restart();
        this.set({ repos, connection: { is: "live" } });
        await this.follow(repos, engines, signal);
        wait = FIRST_WAIT;
        await this.pause(LOOK);
      } catch (error) {
        if (signal.aborted) return;
        this.failed(error);
        await this.pause(wait);
        wait = Math.min(LONGEST_WAIT, wait * 2);
      }
    }
  }

  private async follow(repos: readonly Repository[], engines: ReadonlyMap<string, boolean>, signal: AbortSignal): Promise<void> {
    const one = async (repo: Repository, place: number) => {
      let feed = this.feeds.get(repo.id);
      if (feed === undefined) {
        await Promise.all([this.list(repo.id), this.lookAround(repo.id)]);
        feed = new Feed(this, repo.id, repo.newest);
        this.feeds.set(repo.id, feed);
      } else if (engines.get(repo.id) !== repo.engine) await feed.all(); // that an engine came or went is no event
      if (place >= STREAMS) feed.heard(repo.newest);
      else {
        feed.follow(signal);
        feed.compare(repo.newest);
      }
    };
    await Promise.all(repos.map(one));
  }

  private pause(milliseconds: number): Promise<void> {
    return new Promise((then) => this.line.later(milliseconds, then));
  }
}

/** What happens in one repository. */
export class Feed {
  private changed = new Set<string>();
  private gathering = false;
  private following: AbortSignal | undefined;
  private wait = FIRST_WAIT;
  private looked = 0;
  /** Whether a look around failed, and is to be made up for. */
  private owes = false;
  private connection = new AbortController();
  /** The last event that was heard when the journal was seen to be ahead of it. */
  private behind: number | undefined;

  constructor(
    private readonly store: Store,
    readonly repo: string,
    /** The last event that was heard. */
    public seen: number,
  ) {}

  /** Hear what happens until the signal; a stream that breaks goes on after the last event that was heard. */
  follow(signal: AbortSignal): void {
    if (this.following && !this.following.aborted) return;
    this.following = signal;
    void this.listen(signal);
  }

  /** Leave the stream, and follow anew after the last event that was heard. */
  restart(): void {
    this.behind = undefined;
    this.connection.abort();
  }

  /** The journal has grown to this number: a stream that twice has nothing to tell about it is dead. */
  compare(newest: number): void {
    if (this.owes) void this.lookAround().catch((error: unknown) => this.store.failed(error));
    if (newest <= this.seen) this.behind = undefined;
    else if (this.behind === this.seen) this.restart();
    else this.behind = this.seen;
  }

  private async listen(signal: AbortSignal): Promise<void> {
    const { line } = this.store;
    while (!signal.aborted && this.store.state.connection.is !== "locked") {
      this.connection = new AbortController();
      const either = AbortSignal.any([signal, this.connection.signal]);
      try {
        await line.follow("followEvents", { repo: this.repo, since: this.seen }, (frames) => this.take(frames), either);
      } catch (error) {
        if (signal.aborted) return;
        if (this.connection.signal.aborted) continue;
        // The journal is not the one that was followed: everything is read anew.
        if (error instanceof Refused && error.status < 500 && error.status !== 401) await this.anew();
        else this.store.failed(error);
      }
      if (signal.aborted) return;
      if (this.connection.signal.aborted) continue;
      await new Promise<void>((then) => line.later(this.wait, then));
      this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
    }
  }

  take(frames: readonly Frame[]): void {
    this.wait = FIRST_WAIT;
    if (this.store.state.connection.is === "away") this.store.set({ connection: { is: "live" } });
    const events: Happened[] = [];
    for (const frame of frames) {
      const seq = Number(frame.id);
      if (!Number.isFinite(seq) || seq <= this.seen) continue;
      this.seen = seq;
      if (frame.data === "") continue;
      const event = JSON.parse(frame.data) as Happened;
      events.push(event);
      this.changed.add(event.plan);
    }
    if (events.length > 0) this.store.remember(this.repo, events);
    this.gather();
  }

  /** The journal has grown to this number; without a stream, all that is known is that something happened. */
  heard(newest: number): void {
    if (newest <= this.seen) return;
    void this.all().then((done) => {
      if (done) this.seen = Math.max(this.seen, newest);
    });
  }

  /** Everything that the page shows of this repository, as it is now; whether that could be asked. */
  async all(): Promise<boolean> {
    try {
      const open = [...this.store.state.open.keys()].filter((name) => name.startsWith(`${this.repo}\n`));
      await Promise.all([
        this.store.list(this.repo),
        this.store.lookAround(this.repo),
        ...open.map((name) => this.store.refresh(this.repo, name.slice(this.repo.length + 1))),
      ]);
      return true;
    } catch (error) {
      this.store.failed(error);
      return false;
    }
  }

  private async anew(): Promise<void> {
    const held = [...this.store.state.open.keys()].filter((name) => name.startsWith(`${this.repo}\n`));
    let open = this.store.state.open;
    for (const name of held) open = without(open, name);
    this.store.set({ open });
    this.store.forget(this.repo);
    try {
      const { repos } = await this.store.line.ask("listRepos", {});
      this.seen = repos.find((one) => one.id === this.repo)?.newest ?? 0;
      await this.all();
      for (const name of held) this.store.load(this.repo, name.slice(this.repo.length + 1));
    } catch (error) {
      this.store.failed(error);
    }
  }

  /** Ask what became of the plans that changed, once for everything that happens within a moment. */
  private gather(): void {
    if (this.gathering || this.changed.size === 0) return;
    this.gathering = true;
    // To draw a large plan takes long: it is done less often, so that the page has time for the person before it.
    const large = [...this.store.state.open].some(([name, plan]) => name.startsWith(`${this.repo}\n`) && plan.order.length > LARGE);
    this.store.line.later(large ? 3 * GATHER : GATHER, () => void this.ask());
  }

  private async ask(): Promise<void> {
    const changed = [...this.changed];
    this.changed.clear();
    try {
      const seen = this.seen;
      const open = changed.filter((plan) => this.store.holds(key(this.repo, plan)));
      const others = changed.filter((plan) => !open.includes(plan));
      const asked = open.map((plan) => this.store.refresh(this.repo, plan));
      if (others.length > MANY) asked.push(this.store.list(this.repo));
      else asked.push(...others.map((plan) => this.summary(plan, seen)));
      await Promise.all(asked);
      await this.look();
    } catch (error) {
      for (const plan of changed) this.changed.add(plan);
      this.store.failed(error);
    } finally {
      this.gathering = false;
      if (this.changed.size > 0) this.store.line.later(FIRST_WAIT, () => this.gather());
    }
  }

  /** A plan that is only in a list: its summary, and none of its jobs. */
  private async summary(plan: string, since: number): Promise<void> {
    try {
      const answer = await this.store.line.ask("getPlan", { repo: this.repo, plan, since });
      this.store.summarize(this.repo, answer.plan, answer.seq);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) await this.store.list(this.repo);
      else throw error;
    }
  }

  private async look(): Promise<void> {
    const now = this.store.line.now();
    if (now - this.looked < SLOW_GATHER) {
      if (this.looked <= now) {
        this.looked = now + SLOW_GATHER; // later, once
        this.store.line.later(SLOW_GATHER, () => void this.lookAround().catch((error: unknown) => this.store.failed(error)));
      }
      return;
    }
    this.looked = now;
    await this.lookAround();
  }

  /** What waits, and who holds slots; what could not be asked is owed. */
  private async lookAround(): Promise<void> {
    this.owes = true;
    await this.store.lookAround(this.repo);
    this.owes = false;
  }
}

function without<V>(map: ReadonlyMap<string, V>, name: string): ReadonlyMap<string, V> {
  if (!map.has(name)) return map;
  const left = new Map(map);
  left.delete(name);
  return left;
}

function excluding(set: ReadonlySet<string>, name: string): ReadonlySet<string> {
  return set.has(name) ? new Set([...set].filter((one) => one !== name)) : set;
}
