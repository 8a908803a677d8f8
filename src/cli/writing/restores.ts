import type { Command } from "commander";
import {
  RESTORES,
  type Restore,
  restoreId,
  UNRESTORED,
  type Unrestored,
  unrestoredLine,
} from "../../engine/commands/timed.ts";
import type { CliContext } from "../shell/context.ts";
import { lookAtState } from "../shell/look-at-state.ts";

/** What was written for a time: read from the state, so that it can be asked without a running worker too. */
export function addRestores(writes: Command, context: CliContext): void {
  writes
    .command("restores")
    .description("what was written for a time: what will be put back, and what could not be")
    .action(async () => {
      await lookAtState({ config: context.config() }, async (store) => {
        const waiting = [...(await store.documents<Restore>(RESTORES)).values()].map(
          ({ command, before, dueAt }) => {
            const { id, siteId, source, tagId, value } = command;
            return { id: restoreId(id), source, siteId, tagId, inForce: value, wanted: before, dueAt };
          },
        );
        const lost = [...(await store.documents<Unrestored>(UNRESTORED)).values()];
        const lines = [
          ...lost.map((each) => `! ${unrestoredLine(each)}`),
          ...waiting.map(
            ({ dueAt, id, inForce, tagId, wanted }) =>
              `Tag ${tagId} holds ${inForce}; ${wanted} is put back at ${dueAt} by ${id}.`,
          ),
        ];
        const none = "Nothing is to be put back.";
        context.terminal().object({ waiting, lost }, lines.length === 0 ? [none] : lines);
      });
    });
}
