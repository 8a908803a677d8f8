import { z } from "zod";

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Milliseconds of a text such as `500ms`, `30s`, `5m`, `24h`, `7d` or `1h30m`; null when it is none. */
export function parseDuration(text: string): number | null {
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return null;
  let total = 0;
  for (const [, number = "", unit = ""] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    total += Number(number) * (UNITS_MS[unit] ?? 0);
  }
  return total;
}

/** The same, the other way, in the largest units that are exact: 5400000 → `1h30m`. */
export function formatDuration(ms: number): string {
  let left = Math.round(ms);
  if (left === 0) return "0s";
  let text = "";
  for (const unit of ["d", "h", "m", "s", "ms"]) {
    const size = UNITS_MS[unit] ?? 1;
    const count = Math.floor(left / size);
    if (count > 0) text += `${count}${unit}`;
    left -= count * size;
  }
  return text;
}

/** Seconds in the unit that a person would say, to one decimal: `90 s`, `2.5 min`. The status page says it the same way. */
export function spanText(seconds: number): string {
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 7_200) return `${Number((seconds / 60).toFixed(1))} min`;
  if (seconds < 172_800) return `${Number((seconds / 3_600).toFixed(1))} h`;
  return `${Number((seconds / 86_400).toFixed(1))} d`;
}

/** A duration in the configuration; milliseconds once parsed. */
export const Duration = z
  .string()
  // Here and not at the end, where a default or a check around it would take it away.
  .meta({ title: "duration", examples: ["30s", "5m", "24h"] })
  .transform((text, context) => {
    const ms = parseDuration(text);
    if (ms !== null) return ms;
    context.addIssue({ code: "custom", message: "Write a duration as 500ms, 30s, 5m, 24h or 7d." });
    return z.NEVER;
  });
