import type { ConnectorContext, ServerInstance } from "../../src/core/connector.ts";
import type { SinceBoot } from "../../src/core/runtime/clock.ts";
import { abortable, sleepFor, WOKEN } from "../../src/core/runtime/waiting.ts";
import { brokerAddress, clientOptions, passwordOf } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import { openLink } from "./link.ts";

/**
 * Whether the broker was restarted, from two words of its own. The one is that it has forgotten the session which it was
 * asked to keep; every broker says so. The other is its uptime, which Mosquitto publishes: one that writes its state to
 * the disk every half hour has the session again after a crash, and not the messages.
 */
interface StoredBroker {
  /** Seconds that it had been up; null where it does not tell. */
  readonly uptime: number | null;
  /** When it told so, milliseconds since 1970. */
  readonly atMs: number;
  /** The same as measured; only what was measured since the same moment can be compared. */
  readonly measured?: SinceBoot;
}

export interface BrokerReport extends StoredBroker {
  /** It has forgotten the session that an earlier connection asked it to keep. */
  readonly sessionLost: boolean;
}

/** The uptime is published every 10 s, so what is retained of it can be so old, and an answer takes its time, in milliseconds. */
const SLACK_MS = 15_000;

export function serverInstanceOf(
  before: string | null,
  { sessionLost, ...now }: BrokerReport,
): ServerInstance {
  const stored = before === null ? null : parseStoredBroker(before);
  return { life: JSON.stringify(now), isNew: stored !== null && (sessionLost || isYounger(now, stored)) };
}

/**
 * It has been up for less time than it should have been by now, by measured time, which nobody sets. Where it has been up
 * for more, the measuring stood still meanwhile, as in a machine that sleeps, and only the wall clock knows for how long.
 */
function isYounger(now: StoredBroker, before: StoredBroker): boolean {
  if (now.uptime === null || before.uptime === null) return false;
  const grownMs = (now.uptime - before.uptime) * 1_000;
  const measuredMs = measuredBetween(before, now);
  if (measuredMs !== null && grownMs <= measuredMs + SLACK_MS) return isBehind(grownMs, measuredMs);
  return isBehind(grownMs, now.atMs - before.atMs);
}

function isBehind(grownMs: number, passedMs: number): boolean {
  return grownMs < Math.max(0, passedMs - SLACK_MS);
}

/** Null where it was not measured, or by another clock: after a start of the machine, and at another member. */
function measuredBetween({ measured: before }: StoredBroker, { measured: now }: StoredBroker): number | null {
  if (before === undefined || now === undefined || before.boot !== now.boot) return null;
  return now.ms < before.ms ? null : now.ms - before.ms;
}

/** Null for a text that was not written here. */
function parseStoredBroker(text: string): StoredBroker | null {
  try {
    return JSON.parse(text) as StoredBroker;
  } catch {
    return null;
  }
}

const UPTIME = "$SYS/broker/uptime";
/** How long is waited for the retained word, in milliseconds. */
const UPTIME_WITHIN_MS = 2_000;

/**
 * Seconds that the broker has been up; null when it does not tell, or not us. Asked over a connection of its own: some
 * brokers hang up on whoever subscribes to what he may not.
 */
export async function uptimeOf(
  config: MqttConfig,
  context: ConnectorContext,
  clientId: string,
  signal: AbortSignal,
): Promise<number | null> {
  const told = Promise.withResolvers<number | null>();
  try {
    const link = await openLink(
      {
        client: clientOptions(config, {
          clientId,
          will: null,
          password: passwordOf(config, context.clock)(),
          keepsSession: false,
        }),
        address: brokerAddress(config),
        publishDeadlineMs: UPTIME_WITHIN_MS,
        clock: context.clock,
        async onMessage({ topic, payload }) {
          if (topic === UPTIME) told.resolve(uptimeIn(payload.toString()));
        },
      },
      signal,
    );
    const over = new AbortController();
    const late = sleepFor(context.clock, UPTIME_WITHIN_MS, over.signal).then(() => told.resolve(null));
    link.lost.addEventListener("abort", () => told.resolve(null), { once: true });
    try {
      await link.subscribe([UPTIME], "with what is retained");
      return await abortable(told.promise, signal);
    } finally {
      over.abort(WOKEN);
      await late;
      await link.end();
    }
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    context.log.debug({ err: error }, "the broker does not say how long it has been up");
    return null;
  }
}

/** Mosquitto writes `86400 seconds`. */
export function uptimeIn(text: string): number | null {
  const [, seconds] = /^\s*(\d{1,12})\b/.exec(text) ?? [];
  return seconds === undefined ? null : Number(seconds);
}
