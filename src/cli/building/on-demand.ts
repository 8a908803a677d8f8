import { type Command, InvalidArgumentError, Option } from "commander";
import { IANAZone } from "luxon";
import { ConfigError, meaningOf, Rejected, sentence } from "../../core/errors/errors.ts";
import { RESOLUTIONS, type Resolution, type TagReading } from "../../core/model/building.ts";
import { TAGS_PER_REQUEST } from "../../engine/source/source.ts";
import type { CliContext } from "../shell/context.ts";
import { refuseUnlisted } from "../shell/known-ids.ts";
import { timeOption } from "../shell/options.ts";

interface ReadOptions {
  readonly source?: string;
  readonly ask?: boolean;
}

function defineRead(command: Command, context: CliContext): void {
  command
    .argument("<tag...>", "tag ids")
    .option("--source <name>", "which source, when there are several")
    .option("--ask", "ask the service also for tags that the state does not know")
    .addHelpText("after", "\nExample:\n  plenum read 10001 10002 --json")
    .action(async (tagIds: string[], options: ReadOptions) => {
      const terminal = context.terminal();
      const wanted = [...new Set(tagIds.flatMap((text) => text.split(",")))];
      if (options.ask !== true) await refuseUnlisted(context, options.source, wanted);
      const readings = await context.withReader(options.source, (reader, signal) =>
        terminal.progress(`Reading ${wanted.length} tags`, async () => {
          const all: TagReading[] = [];
          for (let from = 0; from < wanted.length; from += TAGS_PER_REQUEST) {
            const group = wanted.slice(from, from + TAGS_PER_REQUEST);
            const reply = await reader.read(group, "on-demand", signal).catch((error: unknown) => {
              signal.throwIfAborted();
              throw withGroupHint(error, group);
            });
            all.push(...reply.readings);
          }
          return all;
        }),
      );
      terminal.rows<TagReading>(readings, [
        { title: "id", value: (tag) => tag.id },
        { title: "value", value: (tag) => tag.value },
        { title: "unit", value: (tag) => tag.unit },
        { title: "name", value: (tag) => tag.displayName },
      ]);
    });
}

/** A refusal of several tags says nothing about each of them; that has to be said, or the wrong one is blamed. */
function withGroupHint(error: unknown, group: readonly string[]): unknown {
  const failure = meaningOf(error);
  const [only] = group;
  if (group.length === 1)
    return failure.kind === "rejected" ? new Rejected(`Tag ${only}: ${sentence(failure)}`, { cause: error }) : error;
  const text = `${sentence(failure)} The service refuses the ${group.length} tags together: a single one may be the cause, and the service does not say which.`;
  const options = { hint: "Read fewer at a time, or let a worker list the tags first.", cause: error };
  if (failure.kind === "rejected" || failure.kind === "no-log") return new Rejected(text, options);
  if (failure.kind !== "config" || failure.reason === "unauthenticated") return error;
  return new ConfigError(text, { reason: failure.reason, ...options });
}

/** `plenum read`. */
export const read = { define: defineRead };

interface HistoryOptions {
  readonly source?: string;
  readonly from: string;
  readonly to: string;
  readonly resolution: Resolution;
  readonly zone?: string;
  readonly total?: boolean;
  readonly ask?: boolean;
}

interface Row {
  readonly id: string;
  readonly time: string;
  readonly value: number | boolean | null;
}

function defineHistory(command: Command, context: CliContext): void {
  command
    .argument("<tag...>", "tag ids, at most 20")
    .option("--source <name>", "which source, when there are several")
    .addOption(timeOption("--from <time>", "start: ISO 8601, or an age such as 24h", "24h"))
    .addOption(timeOption("--to <time>", "end: ISO 8601, or an age", "0s"))
    .addOption(new Option("--resolution <size>", "bucket").choices(RESOLUTIONS).default("1h"))
    .option("--zone <name>", "IANA time zone of the buckets; the source's own by default", zone)
    .option("--total", "last minus first, one number for each tag")
    .option("--ask", "ask the service also for tags that the state does not know")
    .addHelpText("after", "\nExample:\n  plenum history 10001 --from 7d --resolution 1d --json")
    .action(async (tagIds: string[], options: HistoryOptions) => {
      const terminal = context.terminal();
      const wanted = [...new Set(tagIds.flatMap((text) => text.split(",")))];
      if (wanted.length > TAGS_PER_REQUEST) throw new InvalidArgumentError("At most 20 tags at once.");
      if (options.ask !== true) await refuseUnlisted(context, options.source, wanted);
      const unreadable: string[] = [];
      const rows = await context.withReader(options.source, (reader, signal, timeZone) =>
        terminal.progress("Fetching history", async (): Promise<Row[]> => {
          const query = {
            tagIds: wanted,
            from: options.from,
            to: options.to,
            resolution: options.resolution,
            timeZone: options.zone ?? timeZone,
          };
          if (options.total === true) {
            const totals = await reader.totals(query, "on-demand", signal);
            for (const total of totals)
              if (total.unreadable !== undefined) unreadable.push(`${total.id}: ${total.unreadable}`);
            return totals.flatMap((tag) =>
              tag.unreadable === undefined ? [{ id: tag.id, time: options.to, value: tag.total }] : [],
            );
          }
          const logs = await reader.history(query, "on-demand", signal);
          for (const log of logs)
            if (log.unreadable !== undefined) unreadable.push(`${log.id}: ${log.unreadable.said}`);
          return logs.flatMap((log) =>
            Array.from(log.measurements, ({ time, value }) => ({ id: log.id, time, value })),
          );
        }),
      );
      if (!terminal.json) terminal.say(...unreadable.map((said) => `Unreadable: ${said}`));
      if (rows.length === 0 && unreadable.length === 0 && !terminal.json) {
        terminal.say("The service has nothing logged in this time.");
        return;
      }
      terminal.rows<Row>(rows, [
        { title: "id", value: (row) => row.id },
        { title: "time", value: (row) => row.time },
        { title: "value", value: (row) => row.value },
      ]);
    });
}

function zone(text: string): string {
  if (!IANAZone.isValidZone(text)) throw new InvalidArgumentError("Write an IANA time zone such as Europe/Oslo.");
  return text;
}

/** `plenum history`. */
export const history = { define: defineHistory };
