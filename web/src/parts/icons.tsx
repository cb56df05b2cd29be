// Small pictures, drawn with the colour of the text around them.
import type { ReactNode } from "react";

const SHAPES: Record<string, ReactNode> = {
  ok: <path d="M3.5 8.5l3 3 6-7" />,
  bad: <path d="M4.5 4.5l7 7m0-7l-7 7" />,
  run: <path d="M8 2.5a5.5 5.5 0 1 0 5.5 5.5" />,
  wait: <path d="M8 4.5V8l2.2 1.6M8 2.2a5.8 5.8 0 1 1 0 11.6A5.8 5.8 0 0 1 8 2.2z" />,
  off: <path d="M4.5 8h7" />,
  ask: <path d="M8 2.2a5.8 5.8 0 1 1 0 11.6A5.8 5.8 0 0 1 8 2.2zM6.5 6.4c.2-1 .8-1.4 1.6-1.4 1 0 1.6.6 1.6 1.4 0 1.2-1.6 1.2-1.6 2.4M8 11v.1" />,
  pause: <path d="M5.7 4v8m4.6-8v8" />,
  play: <path d="M5.5 3.8v8.4l6.5-4.2z" />,
  stop: <path d="M4.5 4.5h7v7h-7z" />,
  retry: <path d="M3 8a5 5 0 0 1 8.8-3.2L13 6M13 3v3h-3M13 8a5 5 0 0 1-8.8 3.2L3 10m0 3v-3h3" />,
  trash: <path d="M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5" />,
  plans: <path d="M2.5 3.5h4v4h-4zM9.5 3.5h4v4h-4zM2.5 10h4v3.5h-4zM9.5 10h4v3.5h-4z" />,
  inbox: <path d="M2.5 9l2-5.5h7l2 5.5v4h-11zM2.5 9h3.2c.3 1.2 1.1 1.8 2.3 1.8s2-.6 2.3-1.8h3.2" />,
  workers: <path d="M5 7.5h6v5H5zM8 7.5V4M8 3.2v.1M3 9v2m10-2v2M6.7 9.8v.1m2.6-.1v.1" />,
  system: <path d="M2.5 3.5h11v7h-11zM6 13.2h4M8 10.5v2.7" />,
  search: <path d="M7 3a4 4 0 1 1 0 8 4 4 0 0 1 0-8zm3 7l3.2 3.2" />,
  sun: <path d="M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM8 1.8v1M8 13.2v1M1.8 8h1M13.2 8h1M3.6 3.6l.7.7M11.7 11.7l.7.7M3.6 12.4l.7-.7M11.7 4.3l.7-.7" />,
  plus: <path d="M8 3.5v9M3.5 8h9" />,
  fold: <path d="M5 6.5L8 9.5l3-3" />,
  unfold: <path d="M6.5 5l3 3-3 3" />,
  land: <path d="M8 2.5v7m-3-3l3 3 3-3M3 13h10" />,
  undo: <path d="M3 7h6.5a3.2 3.2 0 0 1 0 6.4H6M3 7l3-3M3 7l3 3" />,
  copy: <path d="M5.5 5.5h7v7h-7zM3.5 10.5v-7h7" />,
  send: <path d="M2.8 8L13 3.2 10.4 13 8 9z" />,
  heart: <path d="M8 13S2.8 9.6 2.8 6.2A2.7 2.7 0 0 1 8 5a2.7 2.7 0 0 1 5.2 1.2C13.2 9.6 8 13 8 13z" />,
  branch: <path d="M5 4.5v7M5 4.5a1.3 1.3 0 1 0 0-.1zM5 11.6a1.3 1.3 0 1 0 0-.1zM11 5.8a1.3 1.3 0 1 0 0-.1zM11 6c0 2.5-6 1.5-6 4" />,
};

export type Shape = keyof typeof SHAPES;

export function Icon({ shape, size = 16, spin = false }: { shape: string; size?: number; spin?: boolean }) {
  return (
    <svg className={spin ? "spin" : undefined} width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      {SHAPES[shape]}
    </svg>
  );
}

export function Logo() {
  return (
    <svg width="22" height="22" viewBox="0 0 24 24" fill="none" aria-hidden="true">
      <path d="M12 21v-7" stroke="currentColor" strokeWidth="2.4" strokeLinecap="round" />
      <circle cx="12" cy="8.6" r="6.4" fill="currentColor" opacity=".28" />
      <circle cx="8.6" cy="9.6" r="2.4" fill="currentColor" />
      <circle cx="15" cy="6.8" r="2.4" fill="currentColor" />
      <circle cx="14" cy="12" r="1.9" fill="currentColor" />
    </svg>
  );
}
