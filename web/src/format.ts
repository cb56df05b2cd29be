// Figures and texts as people read them.

const UNITS: [string, number][] = [
  ["d", 86400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

/** A length of time in its two largest units: `1h 4m`, `2.4s`. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "";
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  let left = Math.round(seconds);
  const parts: string[] = [];
  for (const [name, size] of UNITS) {
    const count = Math.floor(left / size);
    if (count > 0 && parts.length < 2) parts.push(`${count}${name}`);
    else if (parts.length > 0) break;
    left -= count * size;
  }
  return parts.join(" ");
}

/** How long something took or takes, less the time that it stood still. */
export function elapsed(from: string | null, to: string | null, now: number, idle = 0): number | null {
  if (from === null) return null;
  const end = to === null ? now : Date.parse(to);
  return Math.max(0, (end - Date.parse(from)) / 1000 - idle);
}

export function ago(at: string | null, now: number): string {
  if (at === null) return "";
  const seconds = (now - Date.parse(at)) / 1000;
  if (seconds < 5) return "just now";
  const [first] = duration(Math.max(10, seconds)).split(" ");
  return `${first} ago`;
}

/** The time of day, with the date where it was another day. */
export function moment(at: string | null, now: number): string {
  if (at === null) return "";
  const then = new Date(at);
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const today = then.toDateString() === new Date(now).toDateString();
  return today ? time : `${then.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

const PHASE_WORDS: Record<string, string> = { "merge-fi": "preparing", "merge-ri": "merging" };

/** What people read of a phase. */
export function phaseWords(phase: string): string {
  return PHASE_WORDS[phase] ?? phase;
}

/** Tokens and the like: `950`, `12.4k`, `3.1M`. */
export function large(number: number): string {
  if (number < 1000) return String(number);
  const [size, unit] = number < 1e6 ? [1e3, "k"] : number < 1e9 ? [1e6, "M"] : [1e9, "G"];
  const figure = number / (size as number);
  return `${figure < 100 ? figure.toFixed(1) : Math.round(figure)}${unit}`;
}

export function bytes(number: number): string {
  if (number < 1024) return `${number} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let figure = number / 1024;
  let unit = 0;
  while (figure >= 1024 && unit < units.length - 1) {
    figure /= 1024;
    unit += 1;
  }
  return `${figure < 10 ? figure.toFixed(1) : Math.round(figure)} ${units[unit]}`;
}

export function money(cost: number | null | undefined): string {
  if (cost === null || cost === undefined) return "";
  return cost > 0 && cost < 0.01 ? "<$0.01" : `$${cost.toFixed(2)}`;
}

export function short(commit: string | null | undefined): string {
  return commit ? commit.slice(0, 9) : "";
}

// What would move the cursor, turn the direction of writing, show nothing at all, or look like a blank and be none. A
// sign that only says how the picture before it is drawn stays.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u2800\u3164\u115f\u1160\uffa0]|(?! )(?!(?<=\p{Extended_Pictographic})\ufe0f)[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Zs}]/gu;

/** Text of others with what cannot be seen made visible; line breaks and tabs stay. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return code < 32 ? String.fromCharCode(0x2400 + code) : code === 127 ? "\u2421" : `<${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

/** Where the first character stands that cannot be seen; -1: there is none. */
export function firstUnseen(text: string): number {
  return text.search(UNSEEN);
}

const STYLES = /\u001b\[[0-9;:]*m/g;

/** What a program or an agent said, as a sentence: its colours are left out. */
export function spoken(text: string): string {
  return visible(text.replace(STYLES, ""));
}

/** The same for a name, which has one line. */
export function visibleName(text: string): string {
  return visible(text.replace(/[\n\t]/g, (character) => (character === "\n" ? "\u240a" : "\u2409")));
}

/** A link that may be followed: to http(s) only. */
export function safeLink(address: string): string | null {
  try {
    const found = new URL(address);
    return found.protocol === "https:" || found.protocol === "http:" ? found.href : null;
  } catch {
    return null;
  }
}
