import { type Command, InvalidArgumentError, Option } from "commander";
import { IANAZone } from "luxon";
import { asFailure, ConfigError, errorText, Rejected } from "../../core/errors/errors.ts";
import { RESOLUTIONS, type Resolution, type TagReading } from "../../core/model/building.ts";
import { type HistoryQuery, TAGS_PER_REQUEST } from "../../engine/source/source.ts";
import type { SourceReader } from "../../ui/operator/control-socket-client.ts";
import type { CliContext } from "../shell/command-context.ts";
import { createTimeOption, splitCommaSeparatedIds } from "../shell/common-command-options.ts";
import { refuseUnlistedTags } from "../shell/refuse-unknown-ids.ts";

interface ReadTagsOptions {
  readonly source?: string;
  readonly ask?: boolean;
}

export function defineReadTagsCommand(command: Command, context: CliContext): void {
  command
    .argument("<tag...>", "tag ids")
    .option("--source <name>", "which source, when there are several")
    .option("--ask", "ask the service also for tags that the state does not know")
    .addHelpText("after", "\nExample:\n  plenum read 10001 10002 --json")
    .action(async (tagIds: string[], { ask, source }: ReadTagsOptions) => {
      const terminal = context.terminal();
      const ids = splitCommaSeparatedIds(tagIds);
      if (ask !== true) await refuseUnlistedTags(context, source, ids);
      const readings = await context.withReader(source, (reader, signal) =>
        terminal.progress(`Reading ${ids.length} tags`, () => readTags(reader, ids, signal)),
      );
      terminal.printRows(readings, { id: "id", value: "value", unit: "unit", name: "displayName" });
    });
}

async function readTags(
  reader: SourceReader,
  tagIds: readonly string[],
  signal: AbortSignal,
): Promise<readonly TagReading[]> {
  const readings: TagReading[] = [];
  for (let groupStart = 0; groupStart < tagIds.length; groupStart += TAGS_PER_REQUEST) {
    const tagIdGroup = tagIds.slice(groupStart, groupStart + TAGS_PER_REQUEST);
    const tagReadingsReply = await reader.read(tagIdGroup, "on-demand", signal).catch((error: unknown) => {
      signal.throwIfAborted();
      throw addTagGroupHint(error, tagIdGroup);
    });
    readings.push(...tagReadingsReply.readings);
  }
  return readings;
}

/** Adds a hint to the error of a rejected read, because the service does not state which of the tags it rejects. */
function addTagGroupHint(error: unknown, tagIds: readonly string[]): unknown {
  const failure = asFailure(error);
  const [firstTagId] = tagIds;
  if (tagIds.length === 1)
    return failure.kind === "rejected"
      ? new Rejected(`Tag ${firstTagId}: ${errorText(failure)}`, { cause: error })
      : error;
  const groupRefusalText = `${errorText(failure)} The service refuses the ${tagIds.length} tags together: a single one may be the cause, and the service does not say which.`;
  const errorOptions = { hint: "Read fewer at a time, or let a worker list the tags first.", cause: error };
  if (failure.kind === "rejected" || failure.kind === "no-log") return new Rejected(groupRefusalText, errorOptions);
  if (failure.kind !== "config" || failure.reason === "unauthenticated") return error;
  return new ConfigError(groupRefusalText, { reason: failure.reason, ...errorOptions });
}

interface HistoryCommandOptions extends ReadTagsOptions {
  readonly from: string;
  readonly to: string;
  readonly resolution: Resolution;
  readonly zone?: string;
  readonly total?: boolean;
}

export function defineHistoryCommand(command: Command, context: CliContext): void {
  command
    .argument("<tag...>", "tag ids, at most 20")
    .option("--source <name>", "which source, when there are several")
    .addOption(createTimeOption("--from <time>", "start: ISO 8601, or an age such as 24h", "24h"))
    .addOption(createTimeOption("--to <time>", "end: ISO 8601, or an age", "0s"))
    .addOption(new Option("--resolution <size>", "bucket").choices(RESOLUTIONS).default("1h"))
    .option("--zone <name>", "IANA time zone of the buckets; the source's own by default", parseTimeZone)
    .option("--total", "last minus first, one number for each tag")
    .option("--ask", "ask the service also for tags that the state does not know")
    .addHelpText("after", "\nExample:\n  plenum history 10001 --from 7d --resolution 1d --json")
    .action(async (tagIds: string[], { source, ask, total, zone, ...range }: HistoryCommandOptions) => {
      const terminal = context.terminal();
      const ids = splitCommaSeparatedIds(tagIds);
      if (ids.length > TAGS_PER_REQUEST) throw new InvalidArgumentError("At most 20 tags at once.");
      if (ask !== true) await refuseUnlistedTags(context, source, ids);
      const { rows, unreadable } = await context.withReader(source, (reader, signal, sourceZone) => {
        const historyQuery = { tagIds: ids, ...range, timeZone: zone ?? sourceZone };
        const fetchHistoryRows = total === true ? fetchTagTotals : fetchLoggedValues;
        return terminal.progress("Fetching history", () => fetchHistoryRows(reader, historyQuery, signal));
      });
      if (!terminal.json) terminal.info(...unreadable.map((problem) => `Unreadable: ${problem}`));
      if (rows.length === 0 && unreadable.length === 0 && !terminal.json)
        terminal.info("The service has nothing logged in this time.");
      else terminal.printRows(rows, { id: "id", time: "time", value: "value" });
    });
}

async function fetchTagTotals(reader: SourceReader, query: HistoryQuery, signal: AbortSignal) {
  const tagTotals = await reader.totals(query, "on-demand", signal);
  return {
    rows: tagTotals.flatMap(({ id, total, unreadable }) =>
      unreadable === undefined ? [{ id, time: query.to, value: total }] : [],
    ),
    unreadable: tagTotals.flatMap(({ id, unreadable }) => (unreadable === undefined ? [] : [`${id}: ${unreadable}`])),
  };
}

async function fetchLoggedValues(reader: SourceReader, query: HistoryQuery, signal: AbortSignal) {
  const logs = await reader.history(query, "on-demand", signal);
  return {
    rows: logs.flatMap(({ id, measurements }) => Array.from(measurements, ({ time, value }) => ({ id, time, value }))),
    unreadable: logs.flatMap(({ id, unreadable }) => (unreadable === undefined ? [] : [`${id}: ${unreadable.said}`])),
  };
}

function parseTimeZone(text: string): string {
  if (!IANAZone.isValidZone(text)) throw new InvalidArgumentError("Write an IANA time zone such as Europe/Oslo.");
  return text;
}
