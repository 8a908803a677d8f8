import type { Command } from "commander";
import { configJsonSchema } from "../config/json-schema.ts";

export function addSchema(program: Command): void {
  program
    .command("schema")
    .description("print the JSON schema of the configuration, for editors")
    .addHelpText("after", "\nExample:\n  plenum schema > schema.json")
    .action(() => {
      process.stdout.write(`${JSON.stringify(configJsonSchema(), null, 2)}\n`);
    });
}
