import type { Command } from "commander";
import { Rejected } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { checkState, isIntact, type StateReport } from "../../engine/store/check.ts";
import { type Salvaged, salvage } from "../../engine/store/salvage.ts";
import type { CliContext } from "../shell/context.ts";
import { defineMove } from "./state-move.ts";

/** A look at the state itself, which works beside a running worker and without one; and its move into a database. */
export function define(state: Command, context: CliContext): void {
  state.addHelpText(
    "after",
    "\nBackup, restore and what happens on damage: docs/operations.md.\n\nExamples:\n  plenum state check\n" +
      "  plenum state salvage state/plenum.db.damaged-2026-11-02T06-00-00-000Z",
  );

  state
    .command("check")
    .description("read everything in the state and say what is damaged; changes nothing")
    .addHelpText("after", "\nExit code 0 when all is what was written, 1 when something is damaged.")
    .action(async () => {
      const terminal = context.terminal();
      const { folder } = context.config().state;
      const report = await terminal.progress("Reading the state", async () => checkState(folder));
      terminal.object({ ...report, whole: isIntact(report) }, checkLines(report));
      if (!isIntact(report)) {
        throw new Rejected("The state is damaged.", {
          hint: "Restart the worker: it sets aside what is damaged and goes on.",
        });
      }
    });

  state
    .command("salvage")
    .description("send what was not delivered from a damaged state file that was set aside")
    .argument("<file>", "the file; `plenum state check` lists those in the state folder")
    .addHelpText(
      "after",
      "\nIts events go to every sink, with their ids, so that receivers can fold what they had. Nothing else is\n" +
        "taken, and the file stays as it is. Start the worker once before, so that there is a state to put them into.",
    )
    .action(async (file: string) => {
      const terminal = context.terminal();
      const { folder } = context.config().state;
      const salvaged = await terminal.progress("Reading the file", () => salvage(folder, file, systemClock));
      terminal.object(salvaged, salvageLines(salvaged));
      if (salvaged.found === 0) {
        throw new Rejected(`No event could be read out of ${file}.`, {
          hint: "It may be of another program, or of a version that wrote no checksums.",
        });
      }
    });

  defineMove(state, context);
}

function checkLines({ file, bytes, schemaVersion, trouble, tables, setAside, filesSetAside }: StateReport) {
  const damaged = tables.filter((table) => table.damaged > 0);
  const rows = tables.reduce((sum, table) => sum + table.rows, 0);
  return [
    `${file}: ${(bytes / 1024 ** 2).toFixed(1)} MiB, schema ${schemaVersion}`,
    ...trouble.map((complaint) => `Damaged: ${complaint}`),
    ...(trouble.length > 0 ? [] : [`The file is whole. ${rows} rows were compared with their checksums.`]),
    ...tables.map((table) => `  ${table.table}: ${table.rows}`),
    ...damaged.map((table) => `Damaged: ${table.damaged} of ${table.rows} rows of ${table.table}.`),
    ...setAside.map(
      (kept) =>
        `Found damaged before, and kept apart: ${kept.rows} of ${`${kept.table} ${kept.part}`.trimEnd()}, the last at ${kept.lastFound}.`,
    ),
    ...filesSetAside.map((name) => `A damaged state was set aside here: ${name} (plenum state salvage).`),
  ];
}

function salvageLines({ pages, found, taken, known, delivered, damaged, deadLetters, cursors }: Salvaged) {
  const lost = Object.entries(cursors).filter(([, position]) => position === null);
  return [
    `${found} events were read out of ${pages} pages.`,
    `Taken: ${taken}, for every sink. The worker delivers them with their ids.`,
    `Not taken: ${delivered} that every sink had, ${known} that the log has already, ${damaged} of which too little is left.`,
    `Not taken either: ${deadLetters} dead letters; what was known of the building (it is asked again), commands and the audit log.`,
    ...lost.map(([sink]) => `How far ${sink} was could not be read, so nothing was left out on its account.`),
  ];
}
