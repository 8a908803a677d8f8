import { mkdirSync, readFileSync } from "node:fs";
import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { settingsAffectingTagWrites } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { readApprovers } from "../../engine/commands/approval/approval-files.ts";
import { collectWriteRules, type PinnedApprovers } from "../../engine/commands/approval/check-approval.ts";
import {
  readApprovalState,
  signWriteRules,
  type WriteApprovalInputs,
} from "../../engine/commands/approval/sign-write-approval.ts";
import {
  formatUnrestoredValue,
  RESTORE_SET,
  type Restore,
  restoreCommandId,
  UNRESTORED_SET,
  type UnrestoredValue,
} from "../../engine/commands/pending-value-restores.ts";
import { requestWriteArming } from "../../engine/commands/write-arming.ts";
import { readFleetDocument } from "../../scale/fleet/shared-json-document.ts";
import { APPROVERS_DOCUMENT_KEY, armThisMachine } from "../../scale/fleet-tag-write-guards.ts";
import type { CliContext } from "../shell/command-context.ts";
import { readState, useStateDatabase } from "../shell/open-worker-state.ts";
import { findKillSwitches } from "./kill-switch-controls.ts";
import { addLockCommands, listWriteLocks } from "./write-locks-command.ts";
import { addSecondApprovalCommand } from "./write-tag-command.ts";

const COMMAND_LINE_AUTHOR = "the command line";

/** Defines `plenum writes`, which works without a running worker. */
export function defineCommand(writesCommand: Command, context: CliContext): void {
  writesCommand.addHelpText("after", "\nExample:\n  plenum writes stop").action(() => listWriteLocks(context));
  writesCommand
    .command("stop")
    .description("stop all writing at once, and keep it stopped over restarts")
    .action(async () => {
      const killSwitches = await findKillSwitches(context);
      context.terminal().print({ stopped: true }, await killSwitches.stop(COMMAND_LINE_AUTHOR));
    });
  writesCommand
    .command("resume")
    .description("allow writing again, as the configuration permits")
    .action(async () => {
      await (await findKillSwitches(context)).resumeWriting();
      context.terminal().print({ stopped: false }, ["Writing is allowed again, as the configuration permits."]);
    });
  writesCommand
    .command("arm")
    .description("let this state write for the first time, as the configuration permits")
    .action(async () => {
      const config = context.config();
      const { folder, postgres } = config.state;
      const terminal = context.terminal();
      if (postgres === undefined) {
        mkdirSync(folder, { recursive: true, mode: 0o700 });
        requestWriteArming(folder);
        const line = `The worker of ${folder} arms writing within a second, or when it starts.`;
        return terminal.print({ asked: true }, [line]);
      }
      const armedAt = isoUtc(systemClock.now());
      await useStateDatabase(config, (database) =>
        armThisMachine(database, folder, { by: COMMAND_LINE_AUTHOR, at: armedAt }),
      );
      terminal.print({ asked: true }, [
        "The members of the fleet arm writing within a second, or when they start.",
        "This machine may write now. Run plenum writes arm on each other machine of the fleet as well.",
      ]);
    });
  addApprovalCommands(writesCommand, context);
  addSecondApprovalCommand(writesCommand, context);
  addRestoresCommand(writesCommand, context);
  addLockCommands(writesCommand, context);
}

function addApprovalCommands(writesCommand: Command, context: CliContext): void {
  writesCommand
    .command("approval")
    .description("show whether writing is approved, and what has changed since")
    .action(async () => showWritingApproval(context, readApprovalState(await loadApprovalInputs(context.config()))));
  writesCommand
    .command("approve")
    .description("approve what may be written, as the configuration says it now")
    .argument("<name>", "your name under commands.approval.approvers")
    .requiredOption("--key <file>", "your private key: openssl genpkey -algorithm ed25519 -out <file>")
    .addHelpText("after", "\nExample:\n  plenum writes approve anna --key /media/usb/anna.pem")
    .action(async (name: string, options: { readonly key: string }) => {
      const approvalInputs = await loadApprovalInputs(context.config());
      const { changes } = readApprovalState(approvalInputs);
      signWriteRules(approvalInputs, name, readPrivateKeyFile(options.key), options.key);
      showWritingApproval(context, { ...readApprovalState(approvalInputs), changes });
    });
}

export async function loadApprovalInputs(config: Config): Promise<WriteApprovalInputs> {
  const { folder, postgres } = config.state;
  const approvers =
    postgres && (await useStateDatabase(config, (database) => readFleetDocument(database, APPROVERS_DOCUMENT_KEY)));
  return {
    config: config.commands.approval ?? null,
    rules: collectWriteRules(config.commands, settingsAffectingTagWrites(config)),
    pinned:
      postgres === undefined ? readApprovers(folder) : approvers ? (JSON.parse(approvers) as PinnedApprovers) : null,
    nowMs: systemClock.now(),
  };
}

function showWritingApproval(context: CliContext, state: ReturnType<typeof readApprovalState>): void {
  const approverNames = state.approvedBy.length === 0 ? "no person" : state.approvedBy.join(", ");
  const approvalText = state.refusing ?? "What may be written is approved as it stands.";
  context.terminal().print(state, [...state.changes, `Approved by ${approverNames} in ${state.file}.`, approvalText]);
}

function readPrivateKeyFile(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new ConfigError(`The key ${file} cannot be read.`, { cause: error });
  }
}

function addRestoresCommand(writesCommand: Command, context: CliContext): void {
  writesCommand
    .command("restores")
    .description("list timed writes: values to restore, and values that could not be restored")
    .action(async () => {
      await readState({ config: context.config() }, async (store) => {
        const waiting = [...(await store.documents<Restore>(RESTORE_SET)).values()].map(
          ({ command, before, dueAt }) => {
            const { id, siteId, source, tagId, value } = command;
            return { id: restoreCommandId(id), source, siteId, tagId, inForce: value, wanted: before, dueAt };
          },
        );
        const lost = [...(await store.documents<UnrestoredValue>(UNRESTORED_SET)).values()];
        const lines = [
          ...lost.map((unrestoredValue) => `! ${formatUnrestoredValue(unrestoredValue)}`),
          ...waiting.map(
            ({ dueAt, id, inForce, tagId, wanted }) =>
              `Tag ${tagId} holds ${inForce}; ${wanted} is put back at ${dueAt} by ${id}.`,
          ),
        ];
        context.terminal().print({ waiting, lost }, lines.length === 0 ? ["There is nothing to restore."] : lines);
      });
    });
}
