import { mkdirSync } from "node:fs";
import type { Command } from "commander";
import { isoUtc, systemClock } from "../../clock.ts";
import { askToArm } from "../../commands/arming.ts";
import { createKillSwitch } from "../../commands/kill-switch.ts";
import { Retryable } from "../../errors.ts";
import { armFleetHere } from "../../fleet/armed-machine.ts";
import { releaseFleetKillSwitch, throwFleetKillSwitch } from "../../fleet/kill-switch.ts";
import type { StateDatabase } from "../../store/postgres/state-database.ts";
import type { CliContext } from "../shell/context.ts";
import { withStateDatabase } from "../shell/state-database.ts";
import { addApproval } from "./approval.ts";
import { addRestores } from "./restores.ts";
import { addSecond } from "./write.ts";

const BY = "the command line";

/** The kill switch works by a file, in a fleet by a document of its database, so it needs no running worker and survives restarts. */
export function define(writes: Command, context: CliContext): void {
  writes.addHelpText("after", "\nExample:\n  plenum writes stop");
  writes
    .command("stop")
    .description("stop all writing at once, and keep it stopped over restarts")
    .action(async () => {
      const { folder, postgres } = context.config().state;
      const at = isoUtc(systemClock.now());
      if (postgres !== undefined) return stopFleet(context, at);
      // Before the first start too: whoever wants writing stopped must not be told to come back later.
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      const killSwitch = createKillSwitch(folder);
      killSwitch.throwIt(BY, at);
      context.terminal().object({ stopped: true }, [`Writing is stopped while ${killSwitch.file} exists.`]);
    });
  writes
    .command("resume")
    .description("allow writing again, as far as the configuration does")
    .action(async () => {
      const { folder, postgres } = context.config().state;
      if (postgres !== undefined) await withStateDatabase(context.config(), releaseFleet);
      // In a fleet the file counts as well, for the members of this machine.
      createKillSwitch(folder).release();
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
      askToArm(folder);
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

/** Every member looks once a second; one that cannot ask the database writes nothing either. */
async function stopFleet(context: CliContext, at: string): Promise<void> {
  await withStateDatabase(context.config(), (database) => throwFleetKillSwitch(database, { by: BY, at }));
  context
    .terminal()
    .object({ stopped: true }, ["Writing is stopped in the whole fleet, until `plenum writes resume`."]);
}

async function releaseFleet(database: StateDatabase): Promise<void> {
  if (await releaseFleetKillSwitch(database)) return;
  throw new Retryable("Writing was stopped anew just now, so it stays stopped.", {
    hint: "Find out who did, and run plenum writes resume again.",
  });
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
