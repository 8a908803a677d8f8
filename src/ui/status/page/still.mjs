import { useRef, useState } from "/htm.mjs";

/**
 * Rows that do not jump under a hand or an eye: while the pointer or the focus is among them they keep their places and
 * only their contents change; `hasMoved` says that there is a newer order, which `renew` takes. Another `question`
 * is another list. `version` is another one whenever the places are.
 */
export function useStillOrder(rows, keyOf, question) {
  const held = useRef({ pointer: false, focus: false });
  const last = useRef({ rows: [], question: null, version: 0 });
  const [, draw] = useState(0);
  const isHeld = held.current.pointer || held.current.focus;
  const isSame = last.current.question === question;
  const next = new Map(rows.map((row) => [keyOf(row), row]));
  const keeps = isHeld && isSame && last.current.rows.length > 0;
  const placed = keeps ? last.current.rows.map((row) => next.get(keyOf(row)) ?? row) : rows;
  const hasMoved = keeps && (placed.length !== rows.length || placed.some((row, n) => keyOf(row) !== keyOf(rows[n])));
  const isMoved =
    placed.length !== last.current.rows.length || placed.some((row, n) => keyOf(row) !== keyOf(last.current.rows[n]));
  last.current = { rows: placed, question, version: last.current.version + (isMoved ? 1 : 0) };

  const holding = (what, value) => () => {
    held.current[what] = value;
    if (!value) draw((n) => n + 1);
  };
  return {
    rows: placed,
    hasMoved,
    version: last.current.version,
    renew() {
      last.current = { ...last.current, rows: [] };
      draw((n) => n + 1);
    },
    hold: {
      onPointerEnter: holding("pointer", true),
      onPointerLeave: holding("pointer", false),
      // In small letters: no element has a property of these names, by which Preact would find the event.
      onfocusin: holding("focus", true),
      onfocusout: holding("focus", false),
    },
  };
}
