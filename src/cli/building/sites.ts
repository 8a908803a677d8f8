import type { Command } from "commander";
import type { Site } from "../../core/model/building.ts";
import { type CliContext, collect } from "../shell/context.ts";

export function define(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "which source, when there are several")
    .option("--search <text>", "only names that contain this")
    .addHelpText("after", "\nExample:\n  plenum sites --search school --json")
    .action(async (options: { readonly source?: string; readonly search?: string }) => {
      const terminal = context.terminal();
      const sites = await context.withReader(options.source, (reader, signal) =>
        terminal.progress("Listing sites", () =>
          collect(reader.sites(options.search === undefined ? {} : { search: options.search }, signal)),
        ),
      );
      terminal.rows<Site>(sites, [
        { title: "id", value: (site) => site.id },
        { title: "name", value: (site) => site.displayName },
      ]);
    });
}
