import type { ConnectorContext, ServerInstance } from "../../src/core/connector.ts";
import type { TimeSinceBoot } from "../../src/core/runtime/clock.ts";
import { sleepFor } from "../../src/core/runtime/waiting.ts";
import { valueOr } from "../../src/core/values/value-or-fallback.ts";
import { openBrokerLink } from "./broker-link.ts";
import { configureBroker } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";

/** State of the broker at the last check. A lost session or a short uptime reveals a restart of the broker. */
interface StoredBrokerState {
  readonly uptime: number | null;
  readonly atMs: number;
  readonly measured?: TimeSinceBoot;
}

type BrokerCheck = StoredBrokerState & { readonly sessionLost: boolean };

/** Tolerance in uptime comparisons: brokers publish the uptime every 10 s, and the response takes time. */
const UPTIME_TOLERANCE_MS = 15_000;

export function detectBrokerRestart(storedId: string | null, { sessionLost, ...current }: BrokerCheck): ServerInstance {
  const previousState = storedId === null ? null : valueOr(() => JSON.parse(storedId) as StoredBrokerState, null);
  const isNewInstance = previousState !== null && (sessionLost || isUptimeTooShort(current, previousState));
  return { instanceId: JSON.stringify(current), isNew: isNewInstance };
}

/** Returns true if the uptime grew less than the elapsed time. If this machine was suspended, compares wall times. */
function isUptimeTooShort(current: StoredBrokerState, previous: StoredBrokerState): boolean {
  if (current.uptime === null || previous.uptime === null) return false;
  const uptimeGrowthMs = (current.uptime - previous.uptime) * 1_000;
  const elapsedMs = measureElapsedMs(previous.measured, current.measured);
  const isPlausible = elapsedMs !== null && uptimeGrowthMs <= elapsedMs + UPTIME_TOLERANCE_MS;
  return uptimeGrowthMs < Math.max(0, (isPlausible ? elapsedMs : current.atMs - previous.atMs) - UPTIME_TOLERANCE_MS);
}

function measureElapsedMs(from: TimeSinceBoot | undefined, to: TimeSinceBoot | undefined): number | null {
  if (from === undefined || to === undefined || from.bootId !== to.bootId) return null;
  return to.ms < from.ms ? null : to.ms - from.ms;
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
  const uptimeReport = Promise.withResolvers<number | null>();
  try {
    const link = await openBrokerLink(
      configureBroker(config, context.clock),
      {
        clientId,
        publishDeadlineMs: UPTIME_TIMEOUT_MS,
        async onMessage({ topic, payload }) {
          if (topic === UPTIME_TOPIC) uptimeReport.resolve(parseUptime(payload.toString()));
        },
      },
      signal,
    );
    // The wait ends at the latest when the link is disconnected.
    const timeoutPromise = sleepFor(context.clock, UPTIME_TIMEOUT_MS, link.lossSignal, signal).then(() => null);
    try {
      await link.subscribe([UPTIME_TOPIC], "include retained messages");
      const uptime = await Promise.race([uptimeReport.promise, timeoutPromise]);
      signal.throwIfAborted();
      return uptime;
    } finally {
      await link.disconnect();
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
