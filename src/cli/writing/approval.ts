import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { aroundWriting } from "../../app/config/around-writing.ts";
import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import type { Pinned } from "../../engine/commands/approval/approval.ts";
import { rulesOf } from "../../engine/commands/approval/approval.ts";
import {
  type ApprovalQuestion,
  type ApprovalState,
  approvalState,
  approve,
} from "../../engine/commands/approval/approving.ts";
import { readPin } from "../../engine/commands/approval/files.ts";
import { readBody } from "../../scale/fleet/document.ts";
import { PIN } from "../../scale/member-guards.ts";
import type { CliContext } from "../shell/context.ts";
import { openForCommand } from "../shell/state-database.ts";

/** The two-person rule: a second person looks at what may be written, and signs it. */
export function addApproval(writes: Command, context: CliContext): void {
  writes
    .command("approval")
    .description("whether what may be written is approved, and what has changed since it was")
    .action(async () => show(context, approvalState(await questionOf(context.config()))));
  writes
    .command("approve")
    .description("approve what may be written, as the configuration says it now")
    .argument("<name>", "your name under commands.approval.approvers")
    .requiredOption("--key <file>", "your private key: openssl genpkey -algorithm ed25519 -out <file>")
    .addHelpText("after", "\nExample:\n  plenum writes approve anna --key /media/usb/anna.pem")
    .action(async (name: string, options: { readonly key: string }) => {
      const question = await questionOf(context.config());
      const { changes } = approvalState(question);
      approve(question, name, readKey(options.key), options.key);
      show(context, { ...approvalState(question), changes });
    });
}

export async function questionOf(config: Config): Promise<ApprovalQuestion> {
  return {
    config: config.commands.approval ?? null,
    rules: rulesOf(config.commands, aroundWriting(config)),
    pinned: await pinnedIn(config.state),
    nowMs: systemClock.now(),
  };
}

/** Who approved last, as the state remembers it. */
async function pinnedIn({ folder, postgres }: Config["state"]): Promise<Pinned | null> {
  if (postgres === undefined) return readPin(folder);
  const database = await openForCommand(postgres);
  try {
    const body = await readBody(database, PIN);
    return body === null ? null : (JSON.parse(body) as Pinned);
  } finally {
    await database.close();
  }
}

function show(context: CliContext, state: ApprovalState): void {
  const by = state.approvedBy.length === 0 ? "nobody" : state.approvedBy.join(", ");
  context
    .terminal()
    .object(state, [
      ...state.changes,
      `Approved by ${by} in ${state.file}.`,
      state.refusing ?? "What may be written is approved as it stands.",
    ]);
}

function readKey(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new ConfigError(`The key ${file} cannot be read.`, { cause: error });
  }
}
