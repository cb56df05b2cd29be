// A log, live: as far as it can be seen it is drawn, as far as it was scrolled to it is held, and the rest stays where it is.
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Colours, type Span } from "../ansi";
import { ask, follow } from "../api";
import { whenAway } from "../away";
import type { LogPage, Phase } from "../generated/api";
import { bytes } from "../format";
import { Log } from "../log";
import { useWindow } from "../pages/Jobs";
import { Empty } from "./bits";

const LINE = 18;
const PIECE = 64 * 1024;
const LEAST = 64; // bytes of a page
const BEGIN = 4 * PIECE;
const WHOLE = 4_000_000; // bytes of a log that is loaded as a whole to be searched
const WIDEST = 4000; // characters of a line that are drawn
const CARRIED = 40; // lines before the first that is drawn, whose colours may go on

export interface Where {
  repo: string;
  plan: string;
  job: string;
  attempt?: number;
  phase?: Phase;
}

export function LogView({ where, empty }: { where: Where; empty: string }) {
  const [log, setLog] = useState<Log | null>(null);
  const [following, setFollowing] = useState(true);
  const [search, setSearch] = useState("");
  const [hit, setHit] = useState(0);
  const { top, height, listen, element } = useWindow();
  const busy = useRef(false);
  const keep = useRef<number | null>(null);
  const toTop = useRef(false);
  const load = useLoaded(where, setLog);
  const lines = log?.lines ?? [];
  const total = lines.length > 0 && lines.at(-1) === "" ? lines.length - 1 : lines.length;

  const earlier = useCallback(async () => {
    if (!log || log.start === 0 || busy.current) return;
    busy.current = true;
    try {
      const before = Math.max(0, log.start - PIECE);
      const pages: LogPage[] = [];
      for (let at = before; at < log.start; ) {
        const page = until(await ask("getLogs", { ...where, offset: at, limit: Math.max(LEAST, log.start - at) }), log.start);
        if (page.next_offset <= at) break;
        pages.push(page);
        at = page.next_offset;
      }
      setLog((now) => {
        if (!now || now.start !== log.start) return now;
        const next = pages.reduceRight((held, page) => held.prepend(page), now);
        keep.current = next.lines.length - now.lines.length;
        return next;
      });
    } finally {
      busy.current = false;
    }
  }, [log, where]);

  /** What follows on what is held, where that is not the end of the log. */
  const later = useCallback(async () => {
    if (!log || log.end >= log.size || busy.current) return;
    busy.current = true;
    try {
      const page = await ask("getLogs", { ...where, offset: log.end, limit: PIECE });
      setLog((now) => {
        if (!now || now.end !== log.end) return now;
        const next = now.append(page);
        const gone = now.lines.length + (page.data.split("\n").length - 1) - next.lines.length;
        if (gone > 0) keep.current = -gone;
        return next;
      });
    } finally {
      busy.current = false;
    }
  }, [log, where]);

  // What was added before the first line must not move what one looks at; and who follows looks at the end.
  useLayoutEffect(() => {
    const box = element.current;
    if (!box) return;
    if (toTop.current && log?.start !== 0) return; // its beginning is on the way
    if (toTop.current) box.scrollTop = 0;
    else if (keep.current) box.scrollTop += keep.current * LINE;
    else if (following) box.scrollTop = box.scrollHeight;
    keep.current = null;
    toTop.current = false;
  }, [log, following, element]);
  useEffect(() => {
    if (!log || following || toTop.current) return;
    if (top < 40 * LINE && log.start > 0) void earlier();
    else if (top + height > (log.lines.length - 40) * LINE && log.end < log.size) void later();
  }, [top, height, log, following, earlier, later]);
  const scrolled = () => {
    const box = element.current;
    if (!box) return;
    const bottom = box.scrollHeight - box.scrollTop - box.clientHeight < 2 * LINE;
    if (following && !bottom) setFollowing(false);
    else if (!following && bottom && log && log.end >= log.size) setFollowing(true);
  };

  const hits = useMemo(() => {
    if (search.length < 2) return [];
    const word = search.toLowerCase();
    return lines.flatMap((line, number) => (line.toLowerCase().includes(word) ? [number] : []));
  }, [search, lines]);
  const go = (step: number) => {
    if (hits.length === 0) return;
    const next = (hit + step + hits.length) % hits.length;
    setHit(next);
    setFollowing(false);
    if (element.current) element.current.scrollTop = Math.max(0, (hits[next] ?? 0) * LINE - element.current.clientHeight / 2);
  };

  const first = Math.max(0, Math.floor(top / LINE) - 30);
  const last = Math.min(total, Math.ceil((top + height) / LINE) + 30);
  const shown = useMemo(() => coloured(lines, first, last), [lines, first, last]);
  const marked = new Set(hits);
  const part = loadedPart(log, total);
  if (log && total === 0) return <Empty title={log.ended ? "Nothing was printed" : empty} />;
  return (
    <div className="card">
      <div className="log-tools">
        <input className="input grow" type="search" placeholder="Search what is loaded  ( / )" aria-label="Search the log" value={search} onChange={(event) => (setSearch(event.target.value), setHit(0))} onKeyDown={(event) => event.key === "Enter" && go(event.shiftKey ? -1 : 1)} />
        {search.length >= 2 && (
          <span className="small soft num">
            {hits.length === 0 ? (part ? `not in the part that is loaded (${part})` : "not found") : `${hit + 1} of ${hits.length}${part ? " in what is loaded" : ""}`}
          </span>
        )}
        {search.length >= 2 && part && log && log.size <= WHOLE && (
          <button className="button tiny" onClick={() => (setFollowing(false), void load(0, true))}>
            Load the rest
          </button>
        )}
        <span className="small soft num">{log ? bytes(log.size) : ""}</span>
        {log && log.start > 0 && (
          <button className="button tiny" onClick={() => ((toTop.current = true), setFollowing(false), void load(0))}>
            Beginning
          </button>
        )}
        <button className="button tiny" aria-pressed={following} onClick={() => ((toTop.current = false), log && log.end < log.size ? void load(null) : undefined, setFollowing(true))}>
          {log?.ended ? "End" : following ? "Following" : "Follow"}
        </button>
      </div>
      <div className="log" ref={listen} onScroll={scrolled} tabIndex={0} role="log" aria-label="What was printed">
        <div style={{ height: total * LINE }} />
        <div className="lines" style={{ top: first * LINE }}>
          {shown.map((spans, place) => {
            const number = first + place;
            return (
              <div key={number} className={`l ${marked.has(number) ? "hit" : ""} ${hits[hit] === number ? "now" : ""}`}>
                <span className="n">{log?.start === 0 ? number + 1 : ""}</span>
                {spans.map((span, at) => (
                  <span key={at} className={span.style || undefined}>
                    {span.text}
                  </span>
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** Which part of a log is held, for a person; empty: all of it. */
function loadedPart(log: Log | null, total: number): string {
  if (!log || (log.start === 0 && log.end >= log.size)) return "";
  if (log.start === 0) return `lines 1 to ${total.toLocaleString("en")}`;
  return `${log.end >= log.size ? "the last " : ""}${bytes(log.end - log.start)} of ${bytes(log.size)}`;
}

/** A page that ends at this byte: a few bytes cannot be asked for, and what is beyond them is there already. */
function until(page: LogPage, end: number): LogPage {
  if (page.next_offset <= end || end - page.offset >= LEAST) return page;
  const data = new TextDecoder().decode(new TextEncoder().encode(page.data).slice(0, end - page.offset));
  return { ...page, data, next_offset: end };
}

function coloured(lines: readonly string[], first: number, last: number): Span[][] {
  const colours = new Colours();
  const found: Span[][] = [];
  for (let number = Math.max(0, first - CARRIED); number < last; number += 1) {
    const line = lines[number] ?? "";
    const spans = colours.line(line.length > WIDEST ? shortened(line) : line);
    if (number >= first) found.push(spans);
  }
  return found;
}

/** A very long line; of one that was written over again and again, its last state is what people want. */
function shortened(line: string): string {
  const more = `${line.length - WIDEST} more characters`;
  return line.replace(/\r+$/, "").includes("\r") ? `${more} … ${line.slice(-WIDEST)}` : `${line.slice(0, WIDEST)} … ${more}`;
}

/** Load the end of a log, another part of it or all, and hear what is added. */
function useLoaded(where: Where, setLog: (change: Log | null | ((now: Log | null) => Log | null)) => void): (from: number | null, all?: boolean) => Promise<void> {
  const { repo, plan, job, attempt, phase } = where;
  const ending = useRef(new AbortController());
  const live = useRef(false);
  const load = useCallback(
    async (from: number | null, all = false) => {
      ending.current.abort();
      const end = new AbortController();
      ending.current = end;
      live.current = false;
      const at = { repo, plan, job, ...(attempt ? { attempt } : {}), ...(phase ? { phase } : {}) };
      try {
        const look = await ask("getLogs", { ...at, offset: 0, limit: 1024 });
        let log = Log.at(from ?? Math.max(0, look.size - BEGIN));
        const fixed = { ...at, ...(look.attempt ? { attempt: look.attempt } : {}), ...(look.phase ? { phase: look.phase } : {}) };
        for (;;) {
          const page = await ask("getLogs", { ...fixed, offset: log.end, limit: PIECE });
          log = log.append(page);
          if (end.signal.aborted) return;
          if (!all) setLog(log);
          if (page.next_offset <= page.offset || page.next_offset >= page.size || (from !== null && !all && log.end - from >= BEGIN)) break;
        }
        if (all) setLog(log);
        if (log.ended || (from !== null && !all) || !look.phase) return;
        live.current = true;
        await follow("getLogs", { ...fixed, offset: log.end, follow: true }, (frames) => {
          for (const frame of frames) {
            if (frame.event === "log") setLog((now) => (now ?? log).append(JSON.parse(frame.data) as LogPage));
            if (frame.event === "end") setLog((now) => now && now.append({ ...look, data: "", offset: now.end, next_offset: now.end, size: now.size, ended: true }));
          }
        }, end.signal);
      } catch (error) {
        if (!end.signal.aborted && !(error instanceof DOMException)) setTimeout(() => !end.signal.aborted && void load(from, all), 1500);
      } finally {
        if (ending.current === end) live.current = false;
      }
    },
    [repo, plan, job, attempt, phase, setLog],
  );
  useEffect(() => {
    setLog(null);
    void load(null);
    const stay = whenAway(
      () => {
        if (live.current) ending.current.abort();
        return live.current;
      },
      () => void load(null),
    );
    return () => {
      stay();
      ending.current.abort();
    };
  }, [load, setLog]);
  return load;
}
