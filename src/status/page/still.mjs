import { useRef, useState } from "/htm.mjs";

/**
 * Rows that do not jump under a hand or an eye: while the pointer or the focus is among them they keep their places and
 * only their contents change; `hasMoved` says that there is a newer order, which `renew` takes. Another `question`
 * is another list.
 */
export function useStillOrder(rows, keyOf, question) {
  const held = useRef({ pointer: false, focus: false });
  const last = useRef({ rows: [], question: null });
  const [, draw] = useState(0);
  const isHeld = held.current.pointer || held.current.focus;
  const isSame = last.current.question === question;
  const next = new Map(rows.map((row) => [keyOf(row), row]));
  const keeps = isHeld && isSame && last.current.rows.length > 0;
  const placed = keeps ? last.current.rows.map((row) => next.get(keyOf(row)) ?? row) : rows;
  const hasMoved =
    keeps && (placed.length !== rows.length || placed.some((row, n) => keyOf(row) !== keyOf(rows[n])));
  last.current = { rows: placed, question };

  const holding = (what, value) => () => {
    held.current[what] = value;
    if (!value) draw((n) => n + 1);
  };
  return {
    rows: placed,
    hasMoved,
    renew() {
      last.current = { rows: [], question };
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
