import { printable } from "../../src/core/values/printable.ts";
import type { PhraseName } from "../shared/receiver/phrases.ts";
import type { IncidentMessage } from "../shared/receiver/receiver.ts";
import { cut, withFewerTimeSeries } from "../shared/receiver/text.ts";

/** Longest short_description, in characters (ServiceNow, as it is delivered). */
const MAX_SHORT = 160;
/** Longest description, note or close_notes, in characters (ServiceNow, as it is delivered). */
const MAX_LONG = 4_000;

export function shortDescriptionOf({ text }: IncidentMessage): string {
  return cut(defused(printable(text.title)), MAX_SHORT);
}

/**
 * Plain text of several lines. How the values went goes first where there is no room, line by line; then every text is
 * shortened by half until the whole has room, the link never.
 */
export function descriptionOf({ link, text }: IncidentMessage): string {
  const whole = withFewerTimeSeries(text)
    .map((each) => described({ link, text: each }, MAX_LONG))
    .find((each) => each.length <= MAX_LONG);
  if (whole !== undefined) return whole;
  const told = { link, text: { ...text, curves: [] } };
  let longest = MAX_LONG;
  let description = described(told, longest);
  while (description.length > MAX_LONG && longest > 1) {
    longest = Math.floor(longest / 2);
    description = described(told, longest);
  }
  return description;
}

/** The status and some of the fields; `labels` are theirs. */
export function noteOf({ text }: IncidentMessage, labels: readonly string[], before?: string): string {
  const fields = text.fields.filter(({ label }) => labels.includes(label));
  return cut(
    [...(before === undefined ? [] : [before]), text.status, ...linesOf(fields, 1_000)].join("\n"),
    MAX_LONG,
  );
}

/** Of what happened, the fields that a work note repeats; null where there is none to write. */
export function wordsOfNote(told: IncidentMessage, cameBack: boolean): readonly PhraseName[] | null {
  if (cameBack) return ["since"];
  if (told.change === "acknowledged") return ["acknowledgedBy", "message"];
  if (told.change === "recovering") return [];
  return told.change === "vanished" || told.change === "out-of-scope" ? ["unknown"] : null;
}

function described({ text, link }: Pick<IncidentMessage, "text" | "link">, longest: number): string {
  const list = text.list.map((line) => `- ${cut(defused(printable(line)), longest)}`);
  return [
    printable(text.status),
    ...linesOf(text.fields, longest),
    ...(list.length === 0 ? [] : ["", ...list]),
    ...(text.curves.length === 0 ? [] : ["", ...text.curves.map((line) => defused(printable(line)))]),
    ...(link === null ? [] : ["", `${printable(text.linkText)}: ${new URL(link).href}`]),
  ].join("\n");
}

/** `Label: text`; what a text has of further lines is moved in, so that none of them looks like a label. */
function linesOf(fields: IncidentMessage["text"]["fields"], longest: number): readonly string[] {
  return fields.map(({ label, text }) => {
    const lines = cut(text, longest)
      .split(/[\r\n\u0085\u2028\u2029]+/)
      .map((line) => defused(printable(line)).trim());
    return `${printable(label)}: ${lines.filter((line) => line !== "").join("\n  ")}`;
  });
}

/** Notes carry HTML out between `[code]` and `[/code]`, and call whoever `@[sys_id:name]` names. */
function defused(text: string): string {
  return text.replaceAll(/\[(?=\s*(?:\/\s*)?code)/gi, "[ ").replaceAll(/@(?=\s*\[)/g, "@ ");
}
