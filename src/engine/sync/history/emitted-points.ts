import type { Resolution, TagValue } from "../../../core/model/building.ts";
import type { EmittedPoints } from "../snapshot.ts";

/**
 * The series is cut into spans of fixed UTC length. A span is what one document remembers and what one event tells
 * at most, so the same points make the same events even after the state was lost.
 */
const DAY_MS = 86_400_000;
const SPAN_MS: Readonly<Record<Resolution, number>> = {
  "5m": DAY_MS,
  "1h": 14 * DAY_MS,
  "1d": 400 * DAY_MS,
  "1w": 400 * DAY_MS,
  "1mo": 400 * DAY_MS,
};

export function rangeOf(atMs: number, resolution: Resolution): number {
  return Math.floor(atMs / SPAN_MS[resolution]);
}

export function rangeStart(span: number, resolution: Resolution): number {
  return span * SPAN_MS[resolution];
}

/** What was told, by the stamp in milliseconds. */
export type EmittedValues = Map<number, TagValue>;

export function unpackEmitted(
  span: number,
  resolution: Resolution,
  held: EmittedPoints,
  into: EmittedValues,
): void {
  const start = rangeStart(span, resolution);
  for (const [i, at] of held.at.entries()) into.set(start + at * 1_000, held.values[i] ?? null);
}

/** The document of one span, from all that is told in it. */
export function packEmitted(span: number, resolution: Resolution, told: EmittedValues): EmittedPoints {
  const start = rangeStart(span, resolution);
  const inside = [...told].filter(([atMs]) => rangeOf(atMs, resolution) === span).sort(([a], [b]) => a - b);
  return { at: inside.map(([atMs]) => (atMs - start) / 1_000), values: inside.map(([, value]) => value) };
}
