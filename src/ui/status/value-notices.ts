import { counted } from "../../core/values/plural.ts";
import type { SourceReport } from "./source-report.ts";

/** Tags that a notice names; `plenum status --json` has them all. */
const NAMED = 5;

/** Live values of a source that are missing from the replies, or that are not believed. */
export function valueNotices({ name, suddenChanges, leftOut, typeDoubts }: SourceReport): readonly string[] {
  const unreadable = leftOut.filter(({ kind }) => kind === "unreadable");
  const unanswered = leftOut.filter(({ kind }) => kind !== "unreadable");
  const ruledOut = typeDoubts.filter(({ doubt }) => doubt === "unit");
  return [
    ...suddenChanges.map((change) => suddenNotice(name, change)),
    ...(unreadable.length === 0
      ? []
      : [
          `${counted(unreadable.length, "tag")} of ${name} ${unreadable.length === 1 ? "has an unreadable value" : "have unreadable values"} in the replies; what was read before stays: ${listed(unreadable.map(leftOutWords))}.`,
        ]),
    ...(unanswered.length === 0
      ? []
      : [
          `${counted(unanswered.length, "tag")} of ${name} ${unanswered.length === 1 ? "has" : "have"} no value in the replies: ${listed(unanswered.map(leftOutWords))}.`,
        ]),
    ...(ruledOut.length === 0
      ? []
      : [
          `${counted(ruledOut.length, "tag")} of ${name} ${ruledOut.length === 1 ? "has a boolean" : "have booleans"} as value although the unit is one of numbers, so the quality is uncertain: ${listed(ruledOut.map(({ id, displayName, unit }) => `${id} ${displayName} (${unit})`))}. Correct the unit or the value at the service.`,
        ]),
  ];
}

function leftOutWords({ id, since, reason }: SourceReport["leftOut"][number]): string {
  return `${id} (since ${since}: ${reason})`;
}

function suddenNotice(name: string, change: SourceReport["suddenChanges"][number]): string {
  const { what, siteIds, since, tags } = change;
  const where = `${name}, site ${siteIds.join(", ")}`;
  return what === "nulls"
    ? `${where}: ${counted(tags, "value")} turned null at once at ${since} and ${tags === 1 ? "is" : "are"} published as bad. A gateway may be offline.`
    : `${where}: more than a third of the values of a reply changed between number and boolean at ${since}. ${counted(tags, "tag")} ${tags === 1 ? "is" : "are"} uncertain until a further reading confirms the type.`;
}

function listed(words: readonly string[]): string {
  const more = words.length - NAMED;
  return `${words.slice(0, NAMED).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
