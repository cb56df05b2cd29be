// What lies over the page: questions before something is done, and short notes after it.
import { useEffect, useRef, useState, useSyncExternalStore, type KeyboardEvent, type ReactNode } from "react";
import { sentence } from "../api";
import { visible } from "../format";
import { Icon } from "./icons";

export interface Question {
  title: string;
  /** What will happen, and what will not be lost. */
  told: string;
  yes: string;
  danger?: boolean;
  /** A text that is asked for as well; it may be left empty unless it is `needed`. */
  field?: { label: string; placeholder?: string; lines?: number; needed?: boolean };
  choices?: { name: string; label: string; options: { value: string; label: string }[] }[];
}

export interface Said {
  text: string;
  choices: Record<string, string>;
}

interface Note {
  id: number;
  text: string;
  tone: "ok" | "bad";
}

interface Asked extends Question {
  number: number;
  /** Do what was asked about; what is thrown is shown in the dialog, which stays open with what was typed. */
  act: (said: Said) => Promise<void>;
  close: () => void;
}

interface Shown {
  question: Asked | null;
  notes: readonly Note[];
}

let shown: Shown = { question: null, notes: [] };
let numbers = 0;
const listeners = new Set<() => void>();

function show(change: Partial<Shown>): void {
  shown = { ...shown, ...change };
  for (const listener of listeners) listener();
}

/** Ask the person in front of the page, and do it; the dialog closes when it is done. `null`: no. */
export function asked<T>(question: Question, act: (said: Said) => Promise<T>): Promise<T | null> {
  return new Promise((answer) => {
    shown.question?.close();
    const number = ++numbers;
    const end = (done: T | null) => {
      if (shown.question?.number === number) show({ question: null });
      answer(done);
    };
    const tried = async (said: Said) => {
      try {
        end(await act(said));
      } catch (error) {
        if (shown.question?.number === number) throw error;
        note(sentence(error), "bad"); // nobody sees the dialog any more
      }
    };
    show({ question: { ...question, number, act: tried, close: () => end(null) } });
  });
}

export function note(text: string, tone: Note["tone"] = "ok"): void {
  const id = ++numbers;
  show({ notes: [...shown.notes, { id, text, tone }].slice(-4) });
  setTimeout(() => show({ notes: shown.notes.filter((one) => one.id !== id) }), tone === "bad" ? 12_000 : 4_000);
}

export function Overlay() {
  const now = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => shown,
  );
  return (
    <>
      {now.question && <Asking key={now.question.number} {...now.question} />}
      <div className="toasts" role="status">
        {now.notes.map((one) => (
          <div key={one.id} className="toast">
            <span className={`t-${one.tone}`}>
              <Icon shape={one.tone} />
            </span>
            {one.text}
          </div>
        ))}
      </div>
    </>
  );
}

/** A window over the page that keeps the keyboard inside, ends by Escape, and gives the focus back. */
export function Dialog({ label, close, className = "", children }: { label: string; close: () => void; className?: string; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    const first = box.current?.querySelector<HTMLElement>("[data-first], input, textarea, select, button");
    first?.focus();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const key = (event: KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === "Escape") close();
    if (event.key !== "Tab" || !box.current) return;
    const all = [...box.current.querySelectorAll<HTMLElement>("a[href], button:not(:disabled), input, textarea, select")];
    const end = event.shiftKey ? all[0] : all.at(-1);
    if (document.activeElement === end) {
      event.preventDefault();
      (event.shiftKey ? all.at(-1) : all[0])?.focus();
    }
  };
  return (
    <div className="veil" onMouseDown={(event) => event.target === event.currentTarget && close()}>
      <div ref={box} className={`dialog ${className}`} role="dialog" aria-modal="true" aria-label={label} onKeyDown={key}>
        {children}
      </div>
    </div>
  );
}

function Asking({ title, told, yes, danger, field, choices, act, close }: Asked) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState<Record<string, string>>({});
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const missing = Boolean(field?.needed && !text.trim());
  const done = async () => {
    if (busy || missing) return;
    setBusy(true);
    setError(null);
    try {
      await act({ text: text.trim(), choices: chosen });
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog label={title} close={close}>
      <h2>{title}</h2>
      <p className="soft words">{told}</p>
      {choices?.map((one) => (
        <label key={one.name} className="stack tight">
          <span className="small soft">{one.label}</span>
          <select className="input" value={chosen[one.name] ?? ""} onChange={(event) => setChosen({ ...chosen, [one.name]: event.target.value })}>
            {one.options.map((option) => (
              <option key={option.value} value={option.value}>
                {option.label}
              </option>
            ))}
          </select>
        </label>
      ))}
      {field && (
        <label className="stack tight">
          <span className="small soft">{field.label}</span>
          <textarea className="input" data-first rows={field.lines ?? 2} placeholder={field.placeholder} value={text} onChange={(event) => setText(event.target.value)} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && void done()} />
        </label>
      )}
      {error !== null && (
        <div className="banner t-bad" role="alert">
          <Icon shape="bad" />
          <span className="said grow words">{visible(sentence(error))}</span>
        </div>
      )}
      <div className="row" style={{ justifyContent: "flex-end" }}>
        <button className="button" onClick={close}>
          No
        </button>
        <button className={`button ${danger ? "danger sure" : "main"}`} disabled={missing} aria-disabled={busy} onClick={() => void done()}>
          {yes}
        </button>
      </div>
    </Dialog>
  );
}
