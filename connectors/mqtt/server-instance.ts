import type { ConnectorContext, ServerInstance } from "../../src/core/connector.ts";
import type { TimeSinceBoot } from "../../src/core/runtime/clock.ts";
import { ENDED_EARLY, rejectOnAbort, sleepFor } from "../../src/core/runtime/waiting.ts";
import { configureBroker } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import { openBrokerLink } from "./link.ts";

/** State of the broker at the last check. A lost session or a short uptime reveals a restart of the broker. */
interface StoredBrokerState {
  readonly uptime: number | null;
  readonly atMs: number;
  readonly measured?: TimeSinceBoot;
}

interface BrokerReport extends StoredBrokerState {
  readonly sessionLost: boolean;
}

/** Tolerance in uptime comparisons: brokers publish the uptime every 10 s, and the response takes time. */
const UPTIME_TOLERANCE_MS = 15_000;

export function detectServerInstance(before: string | null, { sessionLost, ...now }: BrokerReport): ServerInstance {
  let stored: StoredBrokerState | null;
  try {
    stored = before === null ? null : (JSON.parse(before) as StoredBrokerState);
  } catch {
    stored = null;
  }
  return { instanceId: JSON.stringify(now), isNew: stored !== null && (sessionLost || isUptimeTooShort(now, stored)) };
}

/** Returns true if the uptime grew less than time passed. After a suspension only the wall clock counts. */
function isUptimeTooShort(now: StoredBrokerState, before: StoredBrokerState): boolean {
  if (now.uptime === null || before.uptime === null) return false;
  const grownMs = (now.uptime - before.uptime) * 1_000;
  const measuredMs = measureElapsedMs(before, now);
  const isMeasured = measuredMs !== null && grownMs <= measuredMs + UPTIME_TOLERANCE_MS;
  return grownMs < Math.max(0, (isMeasured ? measuredMs : now.atMs - before.atMs) - UPTIME_TOLERANCE_MS);
}

function measureElapsedMs(
  { measured: before }: StoredBrokerState,
  { measured: now }: StoredBrokerState,
): number | null {
  if (before === undefined || now === undefined || before.boot !== now.boot) return null;
  return now.ms < before.ms ? null : now.ms - before.ms;
}

const UPTIME_TOPIC = "$SYS/broker/uptime";
const UPTIME_TIMEOUT_MS = 2_000;

/** Returns the uptime in seconds. Uses a separate connection: some brokers disconnect on a forbidden subscription. */
export async function readBrokerUptime(
  config: MqttConfig,
  context: ConnectorContext,
  clientId: string,
  signal: AbortSignal,
): Promise<number | null> {
  const reported = Promise.withResolvers<number | null>();
  try {
    const link = await openBrokerLink(
      configureBroker(config, context.clock),
      {
        clientId,
        publishDeadlineMs: UPTIME_TIMEOUT_MS,
        async onMessage({ topic, payload }) {
          if (topic === UPTIME_TOPIC) reported.resolve(parseUptime(payload.toString()));
        },
      },
      signal,
    );
    const over = new AbortController();
    const late = sleepFor(context.clock, UPTIME_TIMEOUT_MS, over.signal).then(() => reported.resolve(null));
    link.lost.addEventListener("abort", () => reported.resolve(null), { once: true });
    try {
      await link.subscribe([UPTIME_TOPIC], "with what is retained");
      return await rejectOnAbort(reported.promise, signal);
    } finally {
      over.abort(ENDED_EARLY);
      await late;
      await link.end();
    }
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    context.log.debug({ err: error }, "the broker does not say how long it has been up");
    return null;
  }
}

export function parseUptime(text: string): number | null {
  const [, seconds] = /^\s*(\d{1,12})\b/.exec(text) ?? [];
  return seconds === undefined ? null : Number(seconds);
}
