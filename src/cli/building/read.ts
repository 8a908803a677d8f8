import type { Command } from "commander";
import { ConfigError, meaningOf, Rejected, sentence } from "../../core/errors/errors.ts";
import type { TagReading } from "../../core/model/building.ts";
import { TAGS_PER_REQUEST } from "../../engine/source/source.ts";
import type { CliContext } from "../shell/context.ts";
import { refuseUnlisted } from "../shell/known-tags.ts";

interface ReadOptions {
  readonly source?: string;
  readonly ask?: boolean;
}

export function define(command: Command, context: CliContext): void {
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
              throw ofGroup(error, group);
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
function ofGroup(error: unknown, group: readonly string[]): unknown {
  const failure = meaningOf(error);
  const [only] = group;
  if (group.length === 1)
    return failure.kind === "rejected"
      ? new Rejected(`Tag ${only}: ${sentence(failure)}`, { cause: error })
      : error;
  const text = `${sentence(failure)} The service refuses the ${group.length} tags as a whole: one of them is enough, and nobody here knows which.`;
  const options = { hint: "Read fewer at a time, or let a worker list the tags first.", cause: error };
  if (failure.kind === "rejected" || failure.kind === "no-log") return new Rejected(text, options);
  if (failure.kind !== "config" || failure.reason === "unauthenticated") return error;
  return new ConfigError(text, { reason: failure.reason, ...options });
}
