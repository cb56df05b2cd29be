// A log as far as the page holds it: a stretch of bytes somewhere in a file that may be very long, as lines.
import type { LogPage } from "./generated/api";

const MOST = 6_000_000; // characters that are kept; beyond, the far end is let go

export class Log {
  /** The bytes that the lines stand for: from `start` up to `end`. */
  start = 0;
  end = 0;
  size = 0;
  ended = false;
  /** The first and the last may be a part of a line only. */
  lines: readonly string[] = [""];
  private length = 0;

  /** Begin at this byte, with nothing. */
  static at(offset: number): Log {
    const log = new Log();
    log.start = log.end = offset;
    return log;
  }

  /** The log with what follows on it. */
  append(page: LogPage): Log {
    if (page.next_offset <= this.end || page.offset > this.end) return this.told(page);
    const added = ((this.lines.at(-1) ?? "") + page.data).split("\n");
    return this.with([...this.lines.slice(0, -1), ...added], page.data.length, { end: page.next_offset }).told(page).cutFront();
  }

  /** The log with what stands before it. */
  prepend(page: LogPage): Log {
    if (page.next_offset < this.start || page.offset >= this.start) return this; // one may end later: inside of a secret
    const added = (page.data + (this.lines[0] ?? "")).split("\n");
    return this.with([...added, ...this.lines.slice(1)], page.data.length, { start: page.offset }).cutBack();
  }

  private told(page: LogPage): Log {
    return this.with(this.lines, 0, { size: Math.max(page.size, this.end), ended: page.ended });
  }

  private with(lines: readonly string[], longer: number, change: Partial<Pick<Log, "start" | "end" | "size" | "ended">>): Log {
    const next = new Log();
    next.lines = lines;
    next.length = this.length + longer;
    next.start = change.start ?? this.start;
    next.end = change.end ?? this.end;
    next.size = change.size ?? this.size;
    next.ended = change.ended ?? this.ended;
    return next;
  }

  /** Let go of the oldest lines: what is at the front can be asked for again. */
  private cutFront(): Log {
    if (this.length <= MOST) return this;
    let gone = 0;
    let cut = 0;
    let bytes = 0;
    while (this.length - gone > MOST / 2 && cut < this.lines.length - 1) {
      const line = this.lines[cut] ?? "";
      gone += line.length + 1;
      bytes += utf8(line) + 1;
      cut += 1;
    }
    return this.with(this.lines.slice(cut), -gone, { start: this.start + bytes });
  }

  private cutBack(): Log {
    if (this.length <= MOST) return this;
    let gone = 0;
    let bytes = 0;
    let left = this.lines.length;
    while (this.length - gone > MOST / 2 && left > 1) {
      const line = this.lines[left - 1] ?? "";
      gone += line.length + 1;
      bytes += utf8(line) + 1;
      left -= 1;
    }
    // The last line that is left is whole, and the one after it begins where the log now ends.
    return this.with([...this.lines.slice(0, left), ""], 1 - gone, { end: this.end - bytes + 1, ended: false });
  }
}

function utf8(text: string): number {
  let bytes = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code >= 0xd800 && code < 0xe000 ? 2 : 3;
  }
  return bytes;
}
