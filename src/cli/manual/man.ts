import type { Command } from "commander";
import { RELEASE } from "../../core/runtime/version.ts";
import type { CliContext } from "../shell/context.ts";
import { factsOf } from "./command-tree.ts";
import { manualPage } from "./manual.ts";

export function define(command: Command, context: CliContext): void {
  command
    .addHelpText(
      "after",
      "\nExamples:\n  plenum man > /usr/local/share/man/man1/plenum.1\n  plenum man | man -l -",
    )
    .action(async () => {
      context.terminal().text(manualPage(factsOf(await context.allCommands()), RELEASE));
    });
}
