// Server-sent events, from the bytes of a stream: a browser's own reader cannot send the header that the daemon asks for.

export interface Frame {
  id: string;
  event: string;
  data: string;
}

/** Takes pieces of a stream as they come, and gives the events that are whole. */
export class Frames {
  private rest = "";
  private frame: Partial<Frame> & { lines: string[] } = { lines: [] };

  take(piece: string): Frame[] {
    const found: Frame[] = [];
    const lines = (this.rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      const whole = this.line(line);
      if (whole) found.push(whole);
    }
    return found;
  }

  private line(line: string): Frame | undefined {
    if (line === "") {
      const { lines, id, event } = this.frame;
      this.frame = { lines: [] };
      if (lines.length === 0 && id === undefined) return undefined;
      return { id: id ?? "", event: event ?? "message", data: lines.join("\n") };
    }
    if (line.startsWith(":")) return undefined;
    const at = line.indexOf(":");
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (name === "data") this.frame.lines.push(value);
    else if (name === "id") this.frame.id = value;
    else if (name === "event") this.frame.event = value;
    return undefined;
  }
}
