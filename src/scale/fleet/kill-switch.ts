import { sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { elapsedMs, type Moment, momentOf } from "../../core/runtime/moment.ts";
import { loop, persist, within } from "../../core/runtime/waiting.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { answered } from "./answered.ts";
import { createFleetDocument, readBody, removeBody, writeBody } from "./document.ts";

/**
 * Stops all writing of the whole fleet until somebody lets it go on. It lies in the database, so that any member and
 * the command line can throw it, and is asked before every single write without a wait: each member looks once a second
 * and when it is notified, and one that has not seen it for two seconds takes it for thrown.
 *
 * Thrown here, it counts here at once, and is written until it is in the database. Were this member to end before, the
 * database would be away, which stops the others as well; or only our way to it, and then nobody there was told.
 */
export interface FleetKillSwitch extends Service {
  /** What a person does to go on. */
  readonly remedy: string;
  thrown(): boolean;
  /** Nothing leaves from here any more when it returns; two seconds after it resolves nothing leaves anywhere. */
  throwIt(by: string, at: string): Promise<void>;
}

/** Who threw it, and when (ISO 8601, UTC). */
export interface Thrown {
  readonly by: string;
  readonly at: string;
}

/** The key of its document. */
export const KILL_SWITCH = "kill-switch";
const LOOK_EVERY_MS = 1_000;
/** Without a look for so long it counts as thrown. */
const BLIND_MS = 2_000;
/** A look that is not answered within this time is made anew. */
const ANSWER_MS = 1_000;
const BACKOFF = { firstMs: 200, maxMs: 1_000 };

export function createFleetKillSwitch(options: {
  readonly database: StateDatabase;
  readonly clock: Clock;
  readonly log: Log;
}): FleetKillSwitch {
  const { database, clock, log } = options;
  const document = createFleetDocument<Thrown>({ database, key: KILL_SWITCH, log });
  const stopping = new AbortController();
  let running: Promise<void> | null = null;
  /** From before the latest look that was answered. */
  let seen: Moment | null = null;
  let throwing: Promise<void> | null = null;
  let isBlind = false;

  async function look(): Promise<void> {
    const sent = momentOf(clock);
    await answered(clock, ANSWER_MS, document.refresh());
    seen = sent;
    if (isBlind) log.info("the kill switch of the fleet can be looked at again");
    isBlind = false;
  }

  function fault(error: unknown): void {
    if (isBlind || !cannotSee()) return;
    isBlind = true;
    log.warn(
      { reason: sentence(error) },
      "the kill switch of the fleet cannot be looked at: writing is stopped",
    );
  }

  const cannotSee = () => seen === null || elapsedMs(clock, seen) > BLIND_MS;

  async function record(thrown: Thrown): Promise<void> {
    try {
      await persist({
        clock,
        signal: stopping.signal,
        work: () => answered(clock, ANSWER_MS, document.write(thrown)),
        fault: (error, inMs) =>
          log.warn(
            { inMs, reason: sentence(error) },
            "the kill switch is thrown here, and not yet in the whole fleet",
          ),
        backoff: BACKOFF,
      });
      throwing = null;
    } catch (error) {
      // It stays thrown here for the rest of this process.
      log.error(
        { reason: sentence(error) },
        "the kill switch was thrown here, and could not be told to the fleet",
      );
    }
  }

  return startedOnce({
    name: "kill-switch",
    remedy: "run plenum writes resume",
    thrown: () => throwing !== null || document.read() !== null || cannotSee(),
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
          await look();
          return LOOK_EVERY_MS;
        },
        fault,
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

/** Null while it is not thrown. */
export async function readFleetKillSwitch(database: StateDatabase): Promise<Thrown | null> {
  const body = await readBody(database, KILL_SWITCH);
  return body === null ? null : (JSON.parse(body) as Thrown);
}

/** Two seconds after it resolves no member writes any more. */
export async function throwFleetKillSwitch(database: StateDatabase, thrown: Thrown): Promise<void> {
  await writeBody(database, KILL_SWITCH, JSON.stringify(thrown));
}

/** False where it was thrown anew meanwhile, and stays so. */
export async function releaseFleetKillSwitch(database: StateDatabase): Promise<boolean> {
  const body = await readBody(database, KILL_SWITCH);
  return body === null || removeBody(database, KILL_SWITCH, body);
}
