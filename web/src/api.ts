// The daemon, as the page asks it: the session in a header, problems as errors, streams as events.
import { OPERATIONS, type Next, type Operations, type ProblemDocument } from "./generated/api";
import { Frames, type Frame } from "./sse";

export type Name = keyof Operations;
type Parameters<N extends Name> = Operations[N]["parameters"];
type Body<N extends Name> = Operations[N]["body"];
/** What is answered as JSON; an operation that can also answer with text is asked for it by `text`. */
export type Answer<N extends Name> = Exclude<Operations[N]["answer"], string>;

const PREFIX = "/api/v1";
const SESSION = "orchard-session";
const QUIET = 40_000;

/** What the daemon refused, in its own words. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: ProblemDocument,
  ) {
    super(problem.detail);
  }
}

/** The daemon could not be reached at all. */
export class Away extends Error {}

export function session(): string | null {
  return sessionStorage.getItem(SESSION);
}

/** The code of the link becomes a session, which only pages of this very port can read. */
export async function enter(from = "/"): Promise<void> {
  const given = new URLSearchParams(location.hash.slice(1));
  const code = location.hash.startsWith("#code=") ? given.get("code") : null;
  if (code === null) return;
  history.replaceState(null, "", `${location.pathname}#${given.get("to") ?? from}`);
  const answer = await reach("/session", { method: "POST", headers: { "x-orchard-code": code } });
  const found = (await answer.json()) as { session?: string } & ProblemDocument;
  if (answer.ok && found.session) sessionStorage.setItem(SESSION, found.session);
  else if (session() === null) throw new Refused(answer.status, found);
}

/** Ask for an operation, and get what it answers. */
export async function ask<N extends Name>(name: N, parameters: Parameters<N>, body?: Body<N>): Promise<Answer<N>> {
  const answer = await request(OPERATIONS[name].method, address(name, parameters), "application/json", body);
  return (await answer.json()) as Answer<N>;
}

/** The same for what is answered as text: diffs. */
export async function text<N extends Name>(name: N, parameters: Parameters<N>): Promise<string> {
  return (await request("GET", address(name, parameters), "text/plain")).text();
}

/** Send JSON text as it is: a plan that a person wrote. */
export async function send(name: Name, parameters: Record<string, unknown>, body: unknown): Promise<unknown> {
  return (await request(OPERATIONS[name].method, address(name, parameters), "application/json", body)).json();
}

/** Follow a stream until it ends or `signal` says so. */
export async function follow<N extends Name>(
  name: N,
  parameters: Parameters<N>,
  heard: (frames: Frame[]) => void,
  signal: AbortSignal,
  body?: Body<N>,
): Promise<void> {
  // A machine that slept has connections of which nothing is heard any more; the daemon says something every 15 seconds.
  const quiet = new AbortController();
  let alarm = setTimeout(() => quiet.abort(), QUIET);
  try {
    await listen(name, parameters, AbortSignal.any([signal, quiet.signal]), (frames) => {
      clearTimeout(alarm);
      alarm = setTimeout(() => quiet.abort(), QUIET);
      if (frames.length > 0) heard(frames);
    }, body);
  } catch (error) {
    if (quiet.signal.aborted) throw new Away("The daemon went silent.");
    throw error;
  } finally {
    clearTimeout(alarm);
  }
}

async function listen<N extends Name>(
  name: N,
  parameters: Parameters<N>,
  signal: AbortSignal,
  heard: (frames: Frame[]) => void,
  body: Body<N> | undefined,
): Promise<void> {
  const answer = await request(OPERATIONS[name].method, address(name, parameters), "text/event-stream", body, signal);
  const reader = answer.body?.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  const frames = new Frames();
  while (reader) {
    const { value, done } = await read(reader, signal);
    if (done) return;
    heard(frames.take(value));
  }
}

/** The next piece; a connection that breaks is the daemon that is away. */
async function read(reader: ReadableStreamDefaultReader<string>, signal: AbortSignal): Promise<ReadableStreamReadResult<string>> {
  try {
    return await reader.read();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Away("The connection to the daemon broke.");
  }
}

/** The route of a next step; none: the page has no button for it. */
export function operationOf(next: Next): Name | undefined {
  const found = Object.entries(OPERATIONS).find(([, one]) => one.operation === next.operation);
  return found?.[0] as Name | undefined;
}

export function address(name: Name, parameters: Record<string, unknown>): string {
  const left = { ...parameters };
  const path = OPERATIONS[name].path.replace(/\{(\w+)\}/g, (_, key: string) => {
    const value = String(left[key]);
    delete left[key];
    return encodeURIComponent(value);
  });
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(left)) if (value !== undefined && value !== null) query.set(key, String(value));
  const asked = query.toString();
  return `${PREFIX}${path}${asked ? `?${asked}` : ""}`;
}

async function request(method: string, path: string, accept: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { accept, authorization: `Bearer ${session() ?? ""}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  const sent = body === undefined ? null : JSON.stringify(body);
  const answer = await reach(path, { method, headers, body: sent, signal: signal ?? null });
  if (!answer.ok) throw new Refused(answer.status, await problem(answer));
  return answer;
}

/** What went wrong, with what to do about it. */
export function sentence(error: unknown): string {
  if (error instanceof Refused) return [error.problem.detail, error.problem.hint].filter(Boolean).join(" ");
  return error instanceof Error ? error.message : String(error);
}

async function reach(path: string, options: RequestInit): Promise<Response> {
  try {
    return await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Away("The daemon does not answer.");
  }
}

async function problem(answer: Response): Promise<ProblemDocument> {
  try {
    return (await answer.json()) as ProblemDocument;
  } catch {
    const detail = `The daemon answered ${answer.status}.`;
    return { type: "", title: "", status: answer.status, detail, hint: null, next: [], problems: [] };
  }
}
