// Comments on the lines of a change that were not sent yet: kept while the tab of the browser is open, by job and attempt.

export interface Comment {
  file: string;
  line: number;
  code: string;
  said: string;
}

export interface Unsent {
  comments: readonly Comment[];
  /** The one that is being written. */
  draft: Comment | null;
}

type Shelf = Pick<Storage, "getItem" | "setItem">;
const KEPT = "orchard-comments";
const NONE: Unsent = { comments: [], draft: null };

export class Comments {
  private held: Map<string, Unsent>;
  private listeners = new Set<() => void>();

  constructor(private shelf: Shelf | null) {
    this.held = new Map(read(shelf));
  }

  of(where: string): Unsent {
    return this.held.get(where) ?? NONE;
  }

  keep(where: string, change: Partial<Unsent>): void {
    const next = { ...this.of(where), ...change };
    if (next.comments.length > 0 || next.draft) this.held.set(where, next);
    else this.held.delete(where);
    try {
      this.shelf?.setItem(KEPT, JSON.stringify([...this.held]));
    } catch {
      // The browser has no room for them: they are kept as long as the page is.
    }
    for (const listener of this.listeners) listener();
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

function read(shelf: Shelf | null): [string, Unsent][] {
  try {
    const found: unknown = JSON.parse(shelf?.getItem(KEPT) ?? "[]");
    return Array.isArray(found) ? (found as [string, Unsent][]) : [];
  } catch {
    return [];
  }
}
