import { mkdirSync } from "node:fs";
import type { Command } from "commander";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { requestArming } from "../../engine/commands/arming.ts";
import { armFleetHere } from "../../scale/fleet/armed-machine.ts";
import type { CliContext } from "../shell/context.ts";
import { withStateDatabase } from "../shell/state-database.ts";
import { addApproval } from "./approval.ts";
import { killControls } from "./kill-controls.ts";
import { addRestores } from "./restores.ts";
import { addSecond } from "./write.ts";

const BY = "the command line";

/** The kill switch is a file, in a fleet a document of its database, so it needs no running worker and survives restarts. */
export function define(writes: Command, context: CliContext): void {
  writes.addHelpText("after", "\nExample:\n  plenum writes stop");
  writes
    .command("stop")
    .description("stop all writing at once, and keep it stopped over restarts")
    .action(async () => {
      const lines = await (await killControls(context)).stop(BY);
      context.terminal().object({ stopped: true }, lines);
    });
  writes
    .command("resume")
    .description("allow writing again, as far as the configuration does")
    .action(async () => {
      await (await killControls(context)).resume();
      context
        .terminal()
        .object({ stopped: false }, ["Writing is allowed again, as far as the configuration does."]);
    });
  writes
    .command("arm")
    .description("let this state write for the first time, as far as the configuration allows")
    .action(async () => {
      const { folder, postgres } = context.config().state;
      if (postgres !== undefined) return armFleet(context);
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      requestArming(folder);
      context
        .terminal()
        .object({ asked: true }, [
          `The worker of ${folder} arms writing within a second, or when it starts.`,
        ]);
    });
  addApproval(writes, context);
  addSecond(writes, context);
  addRestores(writes, context);
}

async function armFleet(context: CliContext): Promise<void> {
  const at = isoUtc(systemClock.now());
  const { folder } = context.config().state;
  await withStateDatabase(context.config(), (database) => armFleetHere(database, folder, { by: BY, at }));
  context
    .terminal()
    .object({ asked: true }, [
      "The members of the fleet arm writing within a second, or when they start.",
      "This machine may write now. Run plenum writes arm on each other machine of the fleet as well.",
    ]);
}
