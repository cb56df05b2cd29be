// Parts that several pages are made of.
import { Component, useState, type ReactNode } from "react";
import type { Action } from "../actions";
import { sentence } from "../api";
import { note } from "./overlay";
import { Icon } from "./icons";
import type { Tone } from "./status";

/** A button that is busy while what it does is not done; it keeps the focus, which a dialog gives back to it. */
export function ActionButton({ action, tiny = false }: { action: Action; tiny?: boolean }) {
  const [busy, setBusy] = useState(false);
  const press = async () => {
    if (busy) return;
    setBusy(true);
    try {
      await action.run();
    } catch (error) {
      note(sentence(error), "bad");
    } finally {
      setBusy(false);
    }
  };
  return (
    <button className={`button ${tiny ? "tiny" : ""} ${action.main ? "main" : ""} ${action.danger ? "danger" : ""}`} aria-disabled={busy} onClick={() => void press()}>
      <Icon shape={action.icon} size={14} />
      {action.label}
    </button>
  );
}

export function Banner({ tone, icon, children, actions }: { tone: Tone; icon?: string; children: ReactNode; actions?: ReactNode }) {
  return (
    <div className={`banner t-${tone}`}>
      <Icon shape={icon ?? tone} />
      <span className="said grow words">{children}</span>
      {actions && <span className="row wrap">{actions}</span>}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Loading() {
  return (
    <div className="empty" role="status">
      <span className="t-run">
        <Icon shape="run" size={22} spin />
      </span>
      <span>Loading …</span>
    </div>
  );
}

export function Failed({ error }: { error: unknown }) {
  return <Banner tone="bad">{sentence(error)}</Banner>;
}

/** A text to copy, such as a command or a path. */
export function Copy({ text, label }: { text: string; label?: string }) {
  const copy = () => navigator.clipboard.writeText(text).then(() => note("Copied."), () => note("The browser does not let this page copy.", "bad"));
  return (
    <button className="button bare tiny mono" title={`Copy: ${text}`} onClick={() => void copy()}>
      <Icon shape="copy" size={13} />
      <span className="cut">{label ?? text}</span>
    </button>
  );
}

export function Command({ children }: { children: string }) {
  return (
    <span className="row" style={{ justifyContent: "center" }}>
      <code className="badge plain t-off">{children}</code>
      <Copy text={children} label="copy" />
    </span>
  );
}

/** A page that could not be drawn says so, and the rest goes on. */
export class Guard extends Component<{ children: ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    return (
      <Empty title="This page could not be drawn">
        <p className="words">{sentence(this.state.error)}</p>
        <button className="button" onClick={() => location.reload()}>
          Load it again
        </button>
      </Empty>
    );
  }
}
