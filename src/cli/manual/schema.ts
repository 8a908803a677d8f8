import type { Command } from "commander";
import { configJsonSchema } from "../../app/config/json-schema.ts";
import type { CliContext } from "../shell/context.ts";

export function define(command: Command, context: CliContext): void {
  command.addHelpText("after", "\nExample:\n  plenum schema > schema.json").action(() => {
    const schema = configJsonSchema();
    const terminal = context.terminal();
    if (terminal.json) terminal.object(schema, []);
    else terminal.text(JSON.stringify(schema, null, 2).split("\n"));
  });
}
