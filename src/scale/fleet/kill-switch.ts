import { errorText } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { elapsedMs, readClocks, type TimeReading } from "../../core/runtime/elapsed-time.ts";
import { OrderlyStop, startServiceOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { endsWithin, retryUntilDone, runLoop } from "../../core/runtime/waiting.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { withTimeLimit } from "./lease-timing.ts";
import {
  createFleetDocument,
  readFleetDocument,
  removeFleetDocument,
  writeFleetDocument,
} from "./shared-json-document.ts";

/**
 * Kill switch for tag writes, in the database. Members read the switch every second, and stop writing after two seconds
 * without a read. The member that throws the switch stops at once, and retries until the switch is stored.
 */
export type FleetKillSwitch = ReturnType<typeof createFleetKillSwitch>;

export interface ThrownKillSwitch {
  readonly by: string;
  readonly at: string;
}

export const KILL_SWITCH_DOCUMENT_KEY = "kill-switch";
const KILL_SWITCH_READ_INTERVAL_MS = 1_000;
const KILL_SWITCH_UNREAD_LIMIT_MS = 2_000;
const STATEMENT_TIMEOUT_MS = 1_000;
const KILL_SWITCH_RETRY_BACKOFF = { firstMs: 200, maxMs: 1_000 };

export function createFleetKillSwitch(options: {
  readonly database: StateDatabase;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { database, clock, log } = options;
  const switchDocument = createFleetDocument<ThrownKillSwitch>({ database, key: KILL_SWITCH_DOCUMENT_KEY, log });
  const stopController = new AbortController();
  let readLoop: Promise<void> | null = null;
  let lastReadAt: TimeReading | null = null;
  let storingThrownSwitch: Promise<void> | null = null;
  let isUnreadSwitchReported = false;
  const isKillSwitchUnread = () => lastReadAt === null || elapsedMs(clock, lastReadAt) > KILL_SWITCH_UNREAD_LIMIT_MS;

  async function storeThrownSwitch(thrown: ThrownKillSwitch): Promise<void> {
    try {
      await retryUntilDone({
        ...{ clock, signal: stopController.signal, backoff: KILL_SWITCH_RETRY_BACKOFF },
        work: () => withTimeLimit(clock, STATEMENT_TIMEOUT_MS, switchDocument.write(thrown)),
        onFault: (error, inMs) =>
          log.warn(
            { inMs, reason: errorText(error) },
            "the kill switch is thrown here, and not yet in the whole fleet",
          ),
      });
      storingThrownSwitch = null;
    } catch (error) {
      // The switch stays thrown in this process until the process ends.
      log.error({ reason: errorText(error) }, "the kill switch was thrown here, and could not be told to the fleet");
    }
  }

  return startServiceOnce({
    name: "kill-switch",
    remedy: "run plenum writes resume",
    isThrown: () => storingThrownSwitch !== null || switchDocument.read() !== null || isKillSwitchUnread(),
    /** Stops tag writes of this member at once, and of all members at most two seconds after the promise resolves. */
    throwSwitch(by: string, at: string): Promise<void> {
      storingThrownSwitch ??= storeThrownSwitch({ by, at });
      return storingThrownSwitch;
    },
    async start(signal) {
      readLoop = runLoop({
        clock,
        signal: AbortSignal.any([signal, stopController.signal]),
        alignSleeps: true,
        async step() {
          const sentAt = readClocks(clock);
          await withTimeLimit(clock, STATEMENT_TIMEOUT_MS, switchDocument.refresh());
          lastReadAt = sentAt;
          if (isUnreadSwitchReported) log.info("the kill switch of the fleet can be looked at again");
          isUnreadSwitchReported = false;
          return KILL_SWITCH_READ_INTERVAL_MS;
        },
        onFault(error) {
          if (isUnreadSwitchReported || !isKillSwitchUnread()) return;
          isUnreadSwitchReported = true;
          log.warn(
            { reason: errorText(error) },
            "the kill switch of the fleet cannot be looked at: writing is stopped",
          );
        },
        backoff: KILL_SWITCH_RETRY_BACKOFF,
      });
    },
    async stop(deadlineMs) {
      if (storingThrownSwitch !== null) await endsWithin(clock, deadlineMs, storingThrownSwitch);
      stopController.abort(new OrderlyStop());
      switchDocument.close();
      await readLoop;
    },
  });
}

export async function readFleetKillSwitch(database: StateDatabase): Promise<ThrownKillSwitch | null> {
  const body = await readFleetDocument(database, KILL_SWITCH_DOCUMENT_KEY);
  return body === null ? null : (JSON.parse(body) as ThrownKillSwitch);
}

export async function throwFleetKillSwitch(database: StateDatabase, thrown: ThrownKillSwitch): Promise<void> {
  await writeFleetDocument(database, KILL_SWITCH_DOCUMENT_KEY, JSON.stringify(thrown));
}

/** Releases the kill switch; returns false if somebody has set it again meanwhile, so that it stays set. */
export async function releaseFleetKillSwitch(database: StateDatabase): Promise<boolean> {
  const body = await readFleetDocument(database, KILL_SWITCH_DOCUMENT_KEY);
  return body === null || removeFleetDocument(database, KILL_SWITCH_DOCUMENT_KEY, body);
}
