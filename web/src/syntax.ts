// Colours of program text: a line is cut into words, texts, numbers and remarks. It knows a little of many languages, and
// is done in one pass over the line, whatever that holds; what it does not know stays as it is.

export type Kind = "" | "word" | "text" | "number" | "remark";
export type Token = readonly [Kind, string];

interface Language {
  words: ReadonlySet<string>;
  /** What begins a remark that ends with the line. */
  remarks: readonly string[];
  /** What begins and ends a remark of several lines. */
  block?: readonly [string, string];
  /** What begins and ends a text; those in `long` may have several lines. */
  quotes: readonly string[];
  long: readonly string[];
}

/** What goes on at the end of a line: nothing, or what ends it. */
export type Open = { kind: Kind; until: string } | null;

const LONGEST = 2000; // characters; a longer line was not written by a person

const C = "break case const continue default do else enum extern for goto if return sizeof static struct switch typedef union void while int char bool float double long short unsigned signed auto inline volatile true false NULL nullptr";
const SETS: Record<string, string> = {
  python: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try type while with yield",
  script: "abstract any as async await break case catch class const continue debugger declare default delete do else enum export extends false finally for from function get if implements import in infer instanceof interface is keyof let namespace new null number of override private protected public readonly return satisfies set static string boolean super switch this throw true try type typeof undefined unknown never var void while yield",
  c: `${C} class public private protected virtual override template typename namespace using new delete this throw try catch constexpr noexcept operator friend explicit final`,
  java: "abstract assert boolean break byte case catch char class const continue data default do double else enum extends false final finally float for fun if implements import in instanceof int interface internal is let long native new null object open override package private protected public record return sealed short static super suspend switch synchronized this throw throws true try val var void volatile when while yield string bool namespace using get set async await foreach out ref partial readonly virtual where",
  go: "break case chan const continue default defer else fallthrough false for func go goto if import interface iota make map nil package range return select string struct switch true type var int int64 bool byte error any len append",
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while bool str u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 char String Vec Option Result Some None Ok Err",
  shell: "if then else elif fi for while until do done case esac in function return exit export local readonly set unset shift source echo printf cd trap exec eval test true false",
  ruby: "alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require attr_reader attr_accessor puts",
  sql: "add all alter and as asc begin between by case check column commit constraint create cross default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null on or order outer primary references replace returning right rollback select set table then transaction union unique update using values view when where with integer text varchar boolean timestamp",
  data: "true false null yes no on off",
  none: "",
};

function language(words: string, remarks: string[], quotes: string[], more: { block?: readonly [string, string]; long?: string[] } = {}): Language {
  return { words: new Set((SETS[words] ?? "").split(" ")), remarks, quotes, long: more.long ?? [], ...(more.block ? { block: more.block } : {}) };
}

const BLOCK = ["/*", "*/"] as const;
const LANGUAGES: Record<string, Language> = {
  py: language("python", ["#"], ['"', "'"], { long: ['"""', "'''"] }),
  ts: language("script", ["//"], ['"', "'"], { block: BLOCK, long: ["`"] }),
  c: language("c", ["//"], ['"', "'"], { block: BLOCK }),
  java: language("java", ["//"], ['"', "'"], { block: BLOCK, long: ['"""'] }),
  go: language("go", ["//"], ['"', "'"], { block: BLOCK, long: ["`"] }),
  rs: language("rust", ["//"], ['"'], { block: BLOCK }),
  sh: language("shell", ["#"], ['"', "'"]),
  rb: language("ruby", ["#"], ['"', "'"]),
  sql: language("sql", ["--"], ["'", '"'], { block: BLOCK }),
  yaml: language("data", ["#"], ['"', "'"]),
  json: language("data", [], ['"']),
  css: language("none", [], ['"', "'"], { block: BLOCK }),
  html: language("none", [], ['"'], { block: ["<!--", "-->"] }),
};
const ENDINGS: Record<string, string> = {
  pyi: "py", tsx: "ts", js: "ts", jsx: "ts", mjs: "ts", cjs: "ts", mts: "ts", h: "c", cc: "c", cpp: "c", hpp: "c", cxx: "c", m: "c", kt: "java", kts: "java", cs: "java", scala: "java", swift: "java", dart: "java", php: "java", groovy: "java", gradle: "java",
  bash: "sh", zsh: "sh", fish: "sh", yml: "yaml", toml: "yaml", ini: "yaml", cfg: "yaml", conf: "yaml", env: "yaml", lock: "yaml", jsonc: "ts", json5: "ts", scss: "css", less: "css", htm: "html", xml: "html", svg: "html", vue: "html", rake: "rb", ex: "rb", exs: "rb", mk: "sh", tf: "yaml", proto: "java",
};
const NAMES: Record<string, string> = { dockerfile: "sh", makefile: "sh", gemfile: "rb", rakefile: "rb", jenkinsfile: "java" };

/** The language of a file, by its name; none: it is shown in one colour. */
export function languageOf(path: string): Language | undefined {
  const name = (path.split("/").at(-1) ?? "").toLowerCase();
  const ending = name.includes(".") ? (name.split(".").at(-1) ?? "") : "";
  const known = own(NAMES, name) ?? own(ENDINGS, ending) ?? ending;
  return own(LANGUAGES, known);
}

/** A line in tokens, which together are the line again; and what is open at its end. */
export function tokens(line: string, known: Language, open: Open): { tokens: Token[]; open: Open } {
  if (line.length > LONGEST) return { tokens: [["", line]], open: null };
  const found: Token[] = [];
  let at = 0;
  let plain = 0;
  const put = (kind: Kind, to: number) => {
    if (plain < at) found.push(["", line.slice(plain, at)]);
    if (at < to) found.push([kind, line.slice(at, to)]);
    at = plain = to;
  };
  if (open) {
    const end = line.indexOf(open.until);
    if (end < 0) return { tokens: line ? [[open.kind, line]] : [], open };
    put(open.kind, end + open.until.length);
  }
  while (at < line.length) {
    const begins = (mark: string) => line.startsWith(mark, at);
    if (known.remarks.some(begins) && remarkAt(line, at)) {
      put("remark", line.length);
      break;
    }
    const long = known.block && begins(known.block[0]) ? ([known.block[0], known.block[1], "remark"] as const) : ofLong(known, begins);
    if (long) {
      const [begin, until, kind] = long;
      const end = line.indexOf(until, at + begin.length);
      put(kind, end < 0 ? line.length : end + until.length);
      if (end < 0) return { tokens: found, open: { kind, until } };
      continue;
    }
    const quote = known.quotes.find(begins);
    if (quote) {
      put("text", endOf(line, at, quote));
      continue;
    }
    const word = match(WORD, line, at);
    if (word) {
      if (known.words.has(word) || (word === word.toUpperCase() && known.words.has(word.toLowerCase()))) put("word", at + word.length);
      else at += word.length;
      continue;
    }
    const number = match(NUMBER, line, at);
    if (number) put("number", at + number.length);
    else at += 1;
  }
  put("", line.length);
  return { tokens: found, open: null };
}

const WORD = /[A-Za-z_$][\w$]*/y;
const NUMBER = /\d[\w.]*/y;

function match(what: RegExp, line: string, at: number): string | undefined {
  what.lastIndex = at;
  return what.exec(line)?.[0];
}

function ofLong(known: Language, begins: (mark: string) => boolean): readonly [string, string, Kind] | undefined {
  const mark = known.long.find(begins);
  return mark === undefined ? undefined : [mark, mark, "text"];
}

/** `#` begins a remark only at the beginning or after a blank: it is also a part of colours and addresses. */
function remarkAt(line: string, at: number): boolean {
  return line[at] !== "#" || at === 0 || /\s/.test(line[at - 1] ?? "");
}

/** Where a text ends: after its quote, or with the line. */
function endOf(line: string, at: number, quote: string): number {
  for (let here = at + 1; here < line.length; here += 1) {
    if (line[here] === "\\") here += 1;
    else if (line[here] === quote) return here + 1;
  }
  return line.length;
}

function own<V>(table: Record<string, V>, name: string): V | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}
