// What programs print: colours and weights become styles by name, whatever else a terminal would obey is not obeyed.
import { visible } from "./format";

export interface Span {
  text: string;
  /** Names of styles, such as `bold fg-1`; empty: plain. */
  style: string;
}

interface Pen {
  fg: string;
  bg: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
}

const PLAIN: Pen = { fg: "", bg: "", bold: false, dim: false, italic: false, underline: false };
// CSI ... final byte, OSC ... terminated by BEL or ST, DCS and its like by ST, or a lone escape with one character. What
// never ends hides nothing: its escape is shown, and so is what follows.
const SEQUENCE = /\u001b\[([0-9;:?<=>]*)[ -/]*([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[PX^_][^\u001b]*\u001b\\|\u001b[ -/]*[0-OQ-WYZ\\`-~]|\u009b([0-9;:?]*)([@-~])/g;

/** Reads line after line; the style goes on from one to the next. */
export class Colours {
  private pen: Pen = PLAIN;

  line(text: string): Span[] {
    const spans: Span[] = [];
    let at = 0;
    const shown = text.replace(/\r+$/, "");
    const last = shown.lastIndexOf("\r") + 1; // before it stands what a program wrote over
    for (const found of shown.matchAll(SEQUENCE)) {
      this.add(spans, shown, at, found.index, last);
      at = found.index + found[0].length;
      const final = found[2] ?? found[4];
      if (final === "m") this.pen = styled(this.pen, found[1] ?? found[3] ?? "");
    }
    this.add(spans, shown, at, shown.length, last);
    return spans;
  }

  /** A piece of a line; as far as it was written over it is dim. */
  private add(spans: Span[], line: string, from: number, to: number, last: number): void {
    const cut = Math.min(Math.max(from, last), to);
    if (cut > from) spans.push({ text: visible(line.slice(from, cut)), style: names({ ...this.pen, dim: true }) });
    if (to > cut) spans.push({ text: visible(line.slice(cut, to)), style: names(this.pen) });
  }
}

function styled(pen: Pen, codes: string): Pen {
  const numbers = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
  let made = { ...pen };
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at] ?? 0;
    if (code === 0) made = { ...PLAIN };
    else if (code === 1) made.bold = true;
    else if (code === 2) made.dim = true;
    else if (code === 3) made.italic = true;
    else if (code === 4) made.underline = true;
    else if (code === 22) made.bold = made.dim = false;
    else if (code === 23) made.italic = false;
    else if (code === 24) made.underline = false;
    else if (code >= 30 && code <= 37) made.fg = String(code - 30);
    else if (code === 39) made.fg = "";
    else if (code >= 40 && code <= 47) made.bg = String(code - 40);
    else if (code === 49) made.bg = "";
    else if (code >= 90 && code <= 97) made.fg = String(code - 82);
    else if (code >= 100 && code <= 107) made.bg = String(code - 92);
    else if (code === 38 || code === 48) {
      const [colour, used] = further(numbers.slice(at + 1));
      if (code === 38) made.fg = colour;
      else made.bg = colour;
      at += used;
    }
  }
  return made;
}

/** One of 256 colours, or of all: the nearest of the sixteen that the page has in both themes. */
function further(numbers: number[]): [string, number] {
  if (numbers[0] === 5) {
    const index = numbers[1] ?? 0;
    if (index < 16) return [String(index), 2];
    if (index >= 232) return [index < 244 ? "8" : "7", 2];
    const cube = index - 16;
    return [nearest([Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51]), 2];
  }
  if (numbers[0] === 2) return [nearest([numbers[1] ?? 0, numbers[2] ?? 0, numbers[3] ?? 0]), 4];
  return ["", 1];
}

function nearest([red, green, blue]: [number, number, number]): string {
  const most = Math.max(red, green, blue);
  if (most < 60) return "8";
  const bits = [red, green, blue].map((part, bit) => (part > most * 0.6 ? 1 << bit : 0));
  const base = bits.reduce((sum, bit) => sum + bit, 0);
  return String(base + (most > 180 ? 8 : 0));
}

function names(pen: Pen): string {
  const found: string[] = [];
  if (pen.bold) found.push("a-bold");
  if (pen.dim) found.push("a-dim");
  if (pen.italic) found.push("a-italic");
  if (pen.underline) found.push("a-underline");
  if (pen.fg) found.push(`a-fg-${pen.fg}`);
  if (pen.bg && pen.bg !== pen.fg) found.push(`a-bg-${pen.bg}`); // text in the colour of its ground could not be read
  return found.join(" ");
}
