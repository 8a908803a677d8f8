import { sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { elapsedMs, type Moment, momentOf } from "../../core/runtime/moment.ts";
import { loop, persist, within } from "../../core/runtime/waiting.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { createFleetDocument, readBody, removeBody, writeBody } from "./fleet-document.ts";
import { withTimeLimit } from "./timing.ts";

/**
 * Kill switch of the fleet, stored in the database. Each member reads it every second, and treats it as thrown after two
 * seconds without a read. A switch thrown here counts here at once, and is written until the database has it.
 */
export interface FleetKillSwitch extends Service {
  readonly remedy: string;
  thrown(): boolean;
  /** Stops writes of this member when it returns, and those of all members two seconds after it resolves. */
  throwIt(by: string, at: string): Promise<void>;
}

export interface ThrownKillSwitch {
  readonly by: string;
  readonly at: string;
}

export const KILL_SWITCH_KEY = "kill-switch";
const LOOK_EVERY_MS = 1_000;
/** The switch counts as thrown if it was not read for this long. */
const UNREAD_LIMIT_MS = 2_000;
const STATEMENT_LIMIT_MS = 1_000;
const BACKOFF = { firstMs: 200, maxMs: 1_000 };

export function createFleetKillSwitch(options: {
  readonly database: StateDatabase;
  readonly clock: Clock;
  readonly log: Log;
}): FleetKillSwitch {
  const { database, clock, log } = options;
  const document = createFleetDocument<ThrownKillSwitch>({ database, key: KILL_SWITCH_KEY, log });
  const stopping = new AbortController();
  let running: Promise<void> | null = null;
  /** Start of the latest successful read. */
  let seen: Moment | null = null;
  let throwing: Promise<void> | null = null;
  let isBlind = false;

  const isUnseen = () => seen === null || elapsedMs(clock, seen) > UNREAD_LIMIT_MS;

  async function record(thrown: ThrownKillSwitch): Promise<void> {
    try {
      await persist({
        ...{ clock, signal: stopping.signal, backoff: BACKOFF },
        work: () => withTimeLimit(clock, STATEMENT_LIMIT_MS, document.write(thrown)),
        fault: (error, inMs) =>
          log.warn({ inMs, reason: sentence(error) }, "the kill switch is thrown here, and not yet in the whole fleet"),
      });
      throwing = null;
    } catch (error) {
      // It stays thrown here for the rest of this process.
      log.error({ reason: sentence(error) }, "the kill switch was thrown here, and could not be told to the fleet");
    }
  }

  return startedOnce({
    name: "kill-switch",
    remedy: "run plenum writes resume",
    thrown: () => throwing !== null || document.read() !== null || isUnseen(),
    throwIt(by, at) {
      throwing ??= record({ by, at });
      return throwing;
    },
    async start(signal) {
      running = loop({
        clock,
        signal: AbortSignal.any([signal, stopping.signal]),
        looks: true,
        async turn() {
          const sent = momentOf(clock);
          await withTimeLimit(clock, STATEMENT_LIMIT_MS, document.refresh());
          seen = sent;
          if (isBlind) log.info("the kill switch of the fleet can be looked at again");
          isBlind = false;
          return LOOK_EVERY_MS;
        },
        fault(error) {
          if (isBlind || !isUnseen()) return;
          isBlind = true;
          log.warn({ reason: sentence(error) }, "the kill switch of the fleet cannot be looked at: writing is stopped");
        },
        backoff: BACKOFF,
      });
    },
    async stop(deadlineMs) {
      if (throwing !== null) await within(clock, deadlineMs, throwing);
      stopping.abort(new Stopping());
      document.close();
      await running;
    },
  });
}

export async function readFleetKillSwitch(database: StateDatabase): Promise<ThrownKillSwitch | null> {
  const body = await readBody(database, KILL_SWITCH_KEY);
  return body === null ? null : (JSON.parse(body) as ThrownKillSwitch);
}

/** No member writes from two seconds after it resolves. */
export async function throwFleetKillSwitch(database: StateDatabase, thrown: ThrownKillSwitch): Promise<void> {
  await writeBody(database, KILL_SWITCH_KEY, JSON.stringify(thrown));
}

/** False when the switch was thrown again meanwhile, and stays thrown. */
export async function releaseFleetKillSwitch(database: StateDatabase): Promise<boolean> {
  const body = await readBody(database, KILL_SWITCH_KEY);
  return body === null || removeBody(database, KILL_SWITCH_KEY, body);
}
