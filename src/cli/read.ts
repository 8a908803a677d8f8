import type { Command } from "commander";
import type { TagReading } from "../building.ts";
import { TAGS_PER_REQUEST } from "../source/source.ts";
import type { CliContext } from "./context.ts";

export function addRead(program: Command, context: CliContext): void {
  program
    .command("read")
    .description("read the present values of tags (one request of the quota for every 20)")
    .argument("<tag...>", "tag ids")
    .option("--source <name>", "which source, when there are several")
    .addHelpText("after", "\nExample:\n  plenum read 10001 10002 --json")
    .action(async (tagIds: string[], options: { readonly source?: string }) => {
      const terminal = context.terminal();
      const wanted = [...new Set(tagIds.flatMap((text) => text.split(",")))];
      const readings = await context.withReader(options.source, (reader, signal) =>
        terminal.progress(`Reading ${wanted.length} tags`, async () => {
          const all: TagReading[] = [];
          for (let from = 0; from < wanted.length; from += TAGS_PER_REQUEST) {
            const reply = await reader.read(wanted.slice(from, from + TAGS_PER_REQUEST), "on-demand", signal);
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
