import { type Command, InvalidArgumentError, Option } from "commander";
import { DateTime } from "luxon";
import { parseDuration } from "../../core/values/duration.ts";
import { TagSelection } from "../../engine/sync/tag-selection.ts";
import { parseInteger } from "./command-context.ts";

export interface TagSelectionOptions {
  readonly site?: readonly number[];
  readonly name?: readonly string[];
  readonly unit?: readonly string[];
}

export function addTagSelectionOptions(command: Command): Command {
  const appendValue = <T>(value: T, previousValues: readonly T[] = []) => [...previousValues, value];
  return command
    .option("--site <id>", "only tags of this site; may be given several times", (text, previousIds?: number[]) =>
      appendValue(parseInteger(text), previousIds),
    )
    .option("--name <pattern>", "only tags with such a name, * is any text", appendValue<string>)
    .option("--unit <unit>", "only tags with this unit", appendValue<string>);
}

/** Builds the selection of tags; without any option, all tags are selected. */
export function buildTagSelection(tagIds: readonly string[], { site, name, unit }: TagSelectionOptions): TagSelection {
  const ids = splitCommaSeparatedIds(tagIds);
  return TagSelection.parse({
    ...(ids.length > 0 ? { ids } : {}),
    ...(site && { sites: site }),
    ...(name && { name }),
    ...(unit && { units: unit }),
  });
}

export function splitCommaSeparatedIds(texts: readonly string[]): readonly string[] {
  return [...new Set(texts.flatMap((text) => text.split(",")))];
}

export function createTimeOption(flags: string, description: string, defaultAge: string): Option {
  const defaultTimeText = defaultAge === "0s" ? "now" : `${defaultAge} ago`;
  return new Option(flags, description).argParser(parseTime).default(parseTime(defaultAge), defaultTimeText);
}

/** Returns ISO 8601 UTC for a time or an age such as 24h. */
export function parseTime(text: string): string {
  const ageMs = parseDuration(text);
  const time = ageMs === null ? DateTime.fromISO(text, { zone: "utc" }) : DateTime.utc().minus({ milliseconds: ageMs });
  const iso = time.isValid ? time.toUTC().startOf("second").toISO({ suppressMilliseconds: true }) : null;
  if (iso === null) throw new InvalidArgumentError("Write a time as 2026-03-01T00:00:00Z, or an age as 365d.");
  return iso;
}

export function collectWords(text: string, previousWords: readonly string[] = []): readonly string[] {
  return [...previousWords, ...text.split(",")];
}

export function addLogRangeOptions(command: Command): Command {
  return command
    .option("--since <time>", "from then on: an age such as 2h, or a time such as 2026-03-01T00:00:00Z", parseTime)
    .option("--last <count>", "without --since, so many of the latest", parsePositiveCount, 20);
}

function parsePositiveCount(text: string): number {
  const number = parseInteger(text);
  if (number < 1) throw new InvalidArgumentError("Write a whole number, from 1 on.");
  return number;
}
