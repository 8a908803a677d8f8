import { Argument, type Command, Option } from "commander";
import type { CliContext } from "../shell/context.ts";
import { factsOf } from "./command-tree.ts";
import { completionScript, type Shell } from "./completion-scripts.ts";

export function define(command: Command, context: CliContext): void {
  command
    .addArgument(new Argument("[shell]", "whose completion is printed").choices(["bash", "zsh", "fish"]))
    .addOption(
      new Option("--names <of>", "print names out of the configuration, as the scripts ask").choices([
        "sinks",
        "sources",
      ]),
    )
    .addHelpText(
      "after",
      "\nExamples:\n  source <(plenum completion bash)\n  plenum completion zsh > ~/.zfunc/_plenum\n" +
        "  plenum completion fish > ~/.config/fish/completions/plenum.fish",
    )
    .action(async (shell: Shell | undefined, options: { readonly names?: "sinks" | "sources" }) => {
      const terminal = context.terminal();
      if (options.names !== undefined) {
        terminal.text(Object.keys(context.config()[options.names]));
        return;
      }
      if (shell === undefined) command.error("error: name a shell: bash, zsh or fish");
      terminal.text(completionScript(shell, factsOf(await context.allCommands())));
    });
}
