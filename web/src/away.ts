// Whether anybody looks at the page: one that is not looked at holds no connection, for a browser has six to one host, for
// all of its tabs.

const HIDDEN_FOR = 20_000;

/** Leave when nobody has looked at the page for a while, and come back when somebody does; `leave` says whether it did. */
export function whenAway(leave: () => boolean, back: () => void, after = HIDDEN_FOR): () => void {
  let leaving: ReturnType<typeof setTimeout> | undefined;
  let away = false;
  const changed = () => {
    clearTimeout(leaving);
    if (document.hidden) {
      leaving = setTimeout(() => {
        away = leave();
      }, after);
    } else if (away) {
      away = false;
      back();
    }
  };
  document.addEventListener("visibilitychange", changed);
  return () => {
    clearTimeout(leaving);
    document.removeEventListener("visibilitychange", changed);
  };
}
