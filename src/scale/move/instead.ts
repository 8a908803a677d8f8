import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../../engine/store/store.ts";

/** As written by `commands/arming.ts`. */
interface Armed {
  readonly at: string;
  readonly by: string;
  readonly damaged: number;
  readonly copy?: string;
}

const ARMED = "command-armed";
const WRITING = "writing";
/** What of the state has to be whole for the limits of writing to hold. */
const GUARDS = [ARMED, "command-wear", "command-restore", "command-not-restored"];
const COMMANDS = "command";

/**
 * A database knows of no damaged rows and of no copies, which here keep commands from being sent. So what they mean is
 * written down: writing is armed there only where it is armed now, and the id of a command whose entry was damaged is one
 * that is over.
 */
export async function insteadOf(
  store: Pick<Store, "damagedKeys" | "describe" | "document">,
  clock: Pick<Clock, "now">,
): Promise<ReadonlyMap<string, ReadonlyMap<string, unknown>>> {
  const damaged = await Promise.all(GUARDS.map((set) => store.damagedKeys(set)));
  const { copy } = await store.describe();
  const armed = await store.document<Armed>(ARMED, WRITING);
  const isArmed =
    armed !== undefined && armed.copy === copy?.identity && armed.damaged >= damaged.flat().length;
  const over = { state: "unknown", changedAt: isoUtc(clock.now()) };
  const used = new Map<string, unknown>();
  for (const id of await store.damagedKeys(COMMANDS)) {
    if ((await store.document(COMMANDS, id)) === undefined) used.set(id, over);
  }
  const writing = isArmed ? { at: armed.at, by: armed.by, damaged: 0 } : undefined;
  return new Map([
    [ARMED, new Map([[WRITING, writing]])],
    [COMMANDS, used],
  ]);
}
