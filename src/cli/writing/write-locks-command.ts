import { userInfo } from "node:os";
import { type Command, InvalidArgumentError } from "commander";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import {
  formatWriteLock,
  isInForce,
  WRITE_LOCK_SET,
  type WriteLock,
  type WriteLockChange,
  type WriteLockTarget,
} from "../../engine/commands/write-locks.ts";
import type { Store } from "../../engine/store/store.ts";
import { type StoredTagSystems, syncSet } from "../../engine/sync/stored-documents.ts";
import { sendLockChange } from "../../ui/operator/control-socket-client.ts";
import {
  type CliContext,
  chooseSource,
  parseInteger,
  parseIsoTime,
  parsePositiveDuration,
  readSourceFromState,
} from "../shell/command-context.ts";
import { controlSocketOfWorker } from "../shell/find-worker.ts";
import { readState } from "../shell/open-worker-state.ts";
import { refuseUnknownIds } from "../shell/refuse-unknown-ids.ts";

interface LockTargetOptions {
  readonly source?: string;
  readonly tag?: string;
  readonly system?: string;
  readonly site?: number;
}

interface LockOptions extends LockTargetOptions {
  readonly owner: string;
  readonly reason: string;
  readonly until?: number;
  readonly for?: number;
}

/** Defines `plenum writes lock` and `unlock`; the worker stores a lock together with its audit record. */
export function addLockCommands(writesCommand: Command, context: CliContext): void {
  addLockTargetOptions(writesCommand.command("lock"))
    .description("let only one owner write a tag, a system or a site for some time")
    .requiredOption("--owner <name>", "whose commands pass: the name that a sender states, or a sink, or operator")
    .requiredOption("--reason <text>", "why, shown to other senders")
    .option("--until <time>", "end, such as 2026-12-01T08:00:00+01:00", parseIsoTime)
    .option("--for <time>", "how long, such as 4h, in place of --until", parsePositiveDuration)
    .addHelpText(
      "after",
      '\nExample:\n  plenum writes lock --site 3 --owner anna --reason "The valve is exchanged" --for 4h',
    )
    .action(async ({ for: durationMs, owner, reason, until: untilMs, ...options }: LockOptions) => {
      if ((durationMs === undefined) === (untilMs === undefined))
        throw new InvalidArgumentError("State the end with either --for or --until.");
      const until = isoUtc(untilMs ?? systemClock.now() + (durationMs ?? 0));
      const target = chooseLockTarget(context, options);
      await readSourceFromState(context.config(), target.source, ({ store }) => refuseUnknownLockTarget(store, target));
      const lock: WriteLock = { ...target, owner, reason, until };
      await changeLock(context, target, { owner, reason, until });
      context.terminal().print(lock, [formatWriteLock(lock)]);
    });
  addLockTargetOptions(writesCommand.command("unlock"))
    .description("end a lock before its time")
    .action(async (options: LockTargetOptions) => {
      const target = chooseLockTarget(context, options);
      await changeLock(context, target, null);
      context.terminal().print(target, [`The lock of ${target.scope} ${target.id} has ended.`]);
    });
}

export async function listWriteLocks(context: CliContext): Promise<void> {
  await readState({ config: await context.acceptedConfig() }, async (store) => {
    const locks = [...(await store.documents<WriteLock>(WRITE_LOCK_SET)).values()].filter((lock) =>
      isInForce(lock, systemClock.now()),
    );
    context.terminal().print(locks, locks.length === 0 ? ["There is no write lock."] : locks.map(formatWriteLock));
  });
}

function addLockTargetOptions(command: Command): Command {
  return command
    .option("--tag <id>", "this tag")
    .option("--system <id>", "the tags of this system")
    .option("--site <id>", "the tags of this site", parseInteger)
    .option("--source <name>", "which source, when there are several");
}

function chooseLockTarget(context: CliContext, { site, source, system, tag }: LockTargetOptions): WriteLockTarget {
  const ids = { tag, system, site: site === undefined ? undefined : `${site}` };
  const [target, ...otherTargets] = (["tag", "system", "site"] as const).flatMap((scope) => {
    const id = ids[scope];
    return id === undefined ? [] : [{ scope, id }];
  });
  if (target === undefined || otherTargets.length > 0)
    throw new InvalidArgumentError("Name one of --tag, --system and --site.");
  return { source: chooseSource(context.config(), source)[0], ...target };
}

async function refuseUnknownLockTarget(store: Store, { id, scope, source }: WriteLockTarget): Promise<void> {
  if (scope !== "system") return refuseUnknownIds(store, [source], scope, [id]);
  const systemsByTag = await store.documents<StoredTagSystems>(syncSet("tag-system", source));
  if ([...systemsByTag.values()].some(({ systemIds }) => systemIds.includes(id))) return;
  throw new ConfigError(`The state knows no tag of a system ${id}, so a lock of it would lock nothing.`, {
    hint: "`plenum systems` lists the systems. Their tags are known with inventory.tags_of_systems: true.",
  });
}

async function changeLock(context: CliContext, target: WriteLockTarget, lock: WriteLockChange["lock"]): Promise<void> {
  const { signal } = context;
  const socket = await controlSocketOfWorker({ config: context.config(), source: target.source }, signal);
  if (socket === null)
    throw new Retryable("No worker is running on this state folder, and only a worker changes locks.", {
      hint: "Start it with `plenum run`; without a worker nothing is written.",
    });
  await sendLockChange(socket, { target, lock, by: userInfo().username }, signal);
}
