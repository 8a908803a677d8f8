import { closeSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { ConfigError } from "../../core/errors/errors.ts";
import { printableJson } from "../../core/values/printable.ts";
import { gather } from "../doctor/gather.ts";
import type { DoctorReport } from "../doctor/report.ts";
import type { CliContext } from "../shell/context.ts";

/** Works whatever is broken: that is when it is needed. */
export function define(command: Command, context: CliContext): void {
  command
    .option("--to <folder>", "where the file is written", ".")
    .option("--log <file>", "take the end of this log file along; a running worker's is taken anyway")
    .addHelpText(
      "after",
      "\nThe file is for its owner only and holds no secret: neither tokens and passwords nor what looks like one. It\n" +
        "does name sites, tags, sinks and addresses of servers. Nothing is sent anywhere.\n\n" +
        "Examples:\n  plenum doctor\n  plenum doctor --log /var/log/plenum/plenum.log",
    )
    .action(async (options: { readonly to: string; readonly log?: string }) => {
      const terminal = context.terminal();
      const report = await terminal.progress("Looking around", (update) =>
        gather({
          configFile: context.configFile(),
          environment: process.env,
          logFile: options.log ?? null,
          signal: context.signal,
          update,
        }),
      );
      const file = write(options.to, report);
      terminal.object({ file, troubles: report.troubles }, lines(file, report));
    });
}

function write(folder: string, report: DoctorReport): string {
  const file = join(folder, `plenum-doctor-${report.madeAt.replaceAll(/[:.]/g, "-")}.json`);
  try {
    // `wx` follows no link and overwrites nothing.
    const handle = openSync(file, "wx", 0o600);
    try {
      writeFileSync(handle, `${printableJson(JSON.stringify(report, null, 2))}\n`);
    } finally {
      closeSync(handle);
    }
    return file;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ConfigError(`${file} cannot be written (${code}).`, {
      hint: "Name a folder that you may write with --to.",
      cause: error,
    });
  }
}

/** Of the other troubles so many are shown; the file has them all. */
const SHOWN = 10;

function lines(file: string, { troubles }: DoctorReport): readonly string[] {
  const [first, ...others] = troubles;
  const more = others.length - SHOWN;
  return [
    first === undefined ? "Nothing is wrong, as far as can be seen from here." : `Most likely: ${first}`,
    ...(others.length === 0 ? [] : ["Also:"]),
    ...others.slice(0, SHOWN).map((trouble) => `- ${trouble}`),
    ...(more > 0 ? [`- and ${more} more, in the file`] : []),
    `All that support would ask for is in ${file}; it holds no secret.`,
  ];
}
