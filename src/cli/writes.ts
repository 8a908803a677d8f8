import type { Command } from "commander";
import { isoUtc, systemClock } from "../clock.ts";
import { createKillSwitch } from "../commands/kill-switch.ts";
import type { CliContext } from "./context.ts";

/** The kill switch works by a file, so it needs no running worker and survives restarts. */
export function addWrites(program: Command, context: CliContext): void {
  const writes = program.command("writes").description("the kill switch for writing to buildings");
  writes
    .command("stop")
    .description("stop all writing at once, and keep it stopped over restarts")
    .action(() => {
      const killSwitch = createKillSwitch(context.config().state.folder);
      killSwitch.throwIt("the command line", isoUtc(systemClock.now()));
      context.terminal().object({ stopped: true }, [`Writing is stopped while ${killSwitch.file} exists.`]);
    });
  writes
    .command("resume")
    .description("allow writing again, as far as the configuration does")
    .action(() => {
      createKillSwitch(context.config().state.folder).release();
      context
        .terminal()
        .object({ stopped: false }, ["Writing is allowed again, as far as the configuration does."]);
    });
}
