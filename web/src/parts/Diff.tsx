// A patch, file by file: unified or side by side, folded where it is long; all of it is shown as text.
import { useMemo, useState, type ReactNode } from "react";
import { count } from "../format";
import { visible } from "../format";
import { parsePatch, type FileChange, type Line } from "../patch";
import { languageOf, tokens, type Open } from "../syntax";
import { Empty } from "./bits";
import { Badge, type Tone } from "./status";
import { Icon } from "./icons";

const LONG = 400; // lines; a file with more begins folded
const MANY = 40; // files; with more, all begin folded
const TONES: Record<FileChange["status"], Tone> = { added: "ok", modified: "run", deleted: "bad", renamed: "ask" };

export function Diff({ patch, comment }: { patch: string; comment?: (file: string, line: number, text: string) => void }) {
  const files = useMemo(() => parsePatch(patch), [patch]);
  const [split, setSplit] = useState(false);
  if (files.length === 0) return <Empty title="Nothing has changed" />;
  const added = files.reduce((sum, file) => sum + file.added, 0);
  const deleted = files.reduce((sum, file) => sum + file.deleted, 0);
  return (
    <div className="stack">
      <div className="row">
        <span className="soft grow num">
          {count(files.length, "file")} <span className="plus">+{added}</span> <span className="minus">−{deleted}</span>
        </span>
        <div className="chips wide" role="group" aria-label="How changes are shown">
          <button className="chip" aria-pressed={!split} onClick={() => setSplit(false)}>
            Unified
          </button>
          <button className="chip" aria-pressed={split} onClick={() => setSplit(true)}>
            Side by side
          </button>
        </div>
      </div>
      {files.map((file, place) => (
        <FileDiff key={`${file.path} ${place}`} file={file} split={split} folded={files.length > MANY || file.added + file.deleted > LONG} comment={comment} />
      ))}
    </div>
  );
}

function FileDiff({ file, split, folded: begins, comment }: { file: FileChange; split: boolean; folded: boolean; comment: ((file: string, line: number, text: string) => void) | undefined }) {
  const [folded, setFolded] = useState(begins);
  return (
    <section className="card file">
      <button onClick={() => setFolded(!folded)} aria-expanded={!folded}>
        <Icon shape={folded ? "unfold" : "fold"} size={14} />
        <span className="mono grow words">
          {file.from && <span className="faint">{file.from} → </span>}
          {file.path}
        </span>
        {file.status !== "modified" && <Badge tone={TONES[file.status]}>{file.status}</Badge>}
        <span className="num small">
          <span className="plus">+{file.added}</span> <span className="minus">−{file.deleted}</span>
        </span>
      </button>
      {!folded && (file.binary ? <p className="pad soft">It is not text.</p> : split ? <Split file={file} /> : <Unified file={file} comment={comment} />)}
    </section>
  );
}

function Unified({ file, comment }: { file: FileChange; comment: ((file: string, line: number, text: string) => void) | undefined }) {
  const shades = useMemo(() => file.hunks.map((hunk) => coloured(file.path, hunk.lines)), [file]);
  return (
    <div className="diff" tabIndex={0} role="region" aria-label={`Changes of ${file.path}`}>
      <table>
        <tbody>
          {file.hunks.map((hunk, place) => [
            <tr key={place} className="hunk">
              <td className="n" />
              <td className="n" />
              <td className="c">⋯ {visible(hunk.header)}</td>
            </tr>,
            ...hunk.lines.map((line, number) => (
              <tr key={`${place} ${number}`} className={line.kind}>
                <td className="n">{line.old ?? ""}</td>
                <td className="n">
                  {comment && line.new !== null ? (
                    <button title="Comment on this line" onClick={() => comment(file.path, line.new as number, line.text)}>
                      {line.new}
                    </button>
                  ) : (
                    (line.new ?? "")
                  )}
                </td>
                <td className="c">
                  <span className="sign">{line.kind === "add" ? "+ " : line.kind === "del" ? "− " : "  "}</span>
                  {shades[place]?.[number]}
                </td>
              </tr>
            )),
          ])}
        </tbody>
      </table>
    </div>
  );
}

/** Lines that were taken out beside those that came in their place. */
function Split({ file }: { file: FileChange }) {
  const { hunks } = file;
  const shades = useMemo(() => {
    const found = new Map<Line, ReactNode>();
    for (const hunk of hunks) for (const [at, one] of coloured(file.path, hunk.lines).entries()) found.set(hunk.lines[at] as Line, one);
    return found;
  }, [file]);
  return (
    <div className="diff split">
      <table>
        <tbody>
          {hunks.map((hunk, place) => [
            <tr key={place} className="hunk">
              <td className="n" />
              <td className="c">⋯ {visible(hunk.header)}</td>
              <td className="n" />
              <td className="c" />
            </tr>,
            ...pairs(hunk.lines).map(([left, right], number) => (
              <tr key={`${place} ${number}`}>
                <td className="n">{left?.old ?? ""}</td>
                <td className={`c ${left?.kind === "del" ? "del" : ""}`}>{left ? shades.get(left) : ""}</td>
                <td className="n">{right?.new ?? ""}</td>
                <td className={`c ${right?.kind === "add" ? "add" : ""}`}>{right ? shades.get(right) : ""}</td>
              </tr>
            )),
          ])}
        </tbody>
      </table>
    </div>
  );
}

/** The lines of a hunk in colours. What was and what is are two texts: each goes on in its own way. */
function coloured(path: string, lines: readonly Line[]): ReactNode[] {
  const known = languageOf(path);
  if (!known) return lines.map((line) => visible(line.text));
  let [was, is]: [Open, Open] = [null, null];
  return lines.map((line) => {
    if (line.kind === "note") return visible(line.text);
    const found = tokens(line.text, known, line.kind === "del" ? was : is);
    if (line.kind !== "add") was = found.open;
    if (line.kind !== "del") is = found.open;
    return found.tokens.map(([kind, text], at) => (kind ? <span key={at} className={`s-${kind}`}>{visible(text)}</span> : visible(text)));
  });
}

function pairs(lines: readonly Line[]): [Line | undefined, Line | undefined][] {
  const found: [Line | undefined, Line | undefined][] = [];
  let out: Line[] = [];
  let into: Line[] = [];
  const flush = () => {
    for (let at = 0; at < Math.max(out.length, into.length); at += 1) found.push([out[at], into[at]]);
    out = [];
    into = [];
  };
  for (const line of lines) {
    if (line.kind === "del") out.push(line);
    else if (line.kind === "add") into.push(line);
    else {
      flush();
      if (line.kind === "same") found.push([line, line]);
    }
  }
  flush();
  return found;
}
