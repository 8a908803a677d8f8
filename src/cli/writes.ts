import { mkdirSync } from "node:fs";
import type { Command } from "commander";
import { isoUtc, systemClock } from "../clock.ts";
import { askToArm } from "../commands/arming.ts";
import { createKillSwitch } from "../commands/kill-switch.ts";
import { addApproval } from "./approval.ts";
import type { CliContext } from "./context.ts";
import { addRestores } from "./restores.ts";
import { addSecond } from "./write.ts";

/** The kill switch works by a file, so it needs no running worker and survives restarts. */
export function define(writes: Command, context: CliContext): void {
  writes.addHelpText("after", "\nExample:\n  plenum writes stop");
  writes
    .command("stop")
    .description("stop all writing at once, and keep it stopped over restarts")
    .action(() => {
      const { folder } = context.config().state;
      // Before the first start too: whoever wants writing stopped must not be told to come back later.
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      const killSwitch = createKillSwitch(folder);
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
  writes
    .command("arm")
    .description("let this state write for the first time, as far as the configuration allows")
    .action(() => {
      const { folder } = context.config().state;
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
