import { HttpError } from "@influxdata/influxdb-client";
import type { ServerInstance } from "../../src/core/connector.ts";
import type { Exchange } from "./exchange.ts";

/** The measurements of a server's own; VictoriaMetrics has 100 kB of them, and this one near the end. */
const MAX_METRICS_BYTES = 4 * 1024 ** 2;

/**
 * When the server was started, as Prometheus' libraries tell it (`process_start_time_seconds`): VictoriaMetrics and
 * InfluxDB 1.x and 2 do, to whoever asks. Null where it is not told: another product, a gateway in front, no right.
 */
export async function lifeOfServer(
  exchange: Pick<Exchange, "get">,
  before: string | null,
  signal: AbortSignal,
): Promise<ServerInstance | null> {
  let body: string;
  try {
    body = (await exchange.get("/metrics", signal, MAX_METRICS_BYTES)).body;
  } catch (error) {
    if (error instanceof HttpError) return null;
    throw error;
  }
  const startedAt = startTimeIn(body);
  if (startedAt === null) return null;
  const latest = before === null ? Number.NaN : Number(before);
  // The latest start that was ever seen counts: two servers that answer in turns would otherwise be new at each look.
  if (startedAt <= latest) return { life: String(latest), isNew: false };
  return { life: String(startedAt), isNew: before !== null };
}

/** Seconds since 1970. */
export function startTimeIn(metrics: string): number | null {
  const [, text] = /^process_start_time_seconds(?:\{[^}]*\})? ([0-9.eE+]+)/m.exec(metrics) ?? [];
  const seconds = Number(text);
  return text === undefined || !Number.isFinite(seconds) || seconds <= 0 ? null : seconds;
}
