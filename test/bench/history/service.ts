import type { Transport, TransportReply } from "#src/engine/source/transport.ts";
import type { VirtualClock } from "../../virtual-clock.ts";

const BUCKET_MS = 300_000;
const LATENCY_MS = 150;

/**
 * Tag endpoints of a service with sparse logs, so that a year of 3,000 tags is fetched in seconds. `ideal` counts the
 * requests for the returned values if each had been as large as the limit at that time.
 */
export function createLoggedService(clock: VirtualClock, limit: number, withoutLog: ReadonlySet<string>) {
  const service = {
    limit,
    count: { series: 0, refused: 0, probes: 0, poisoned: 0, reads: 0, ideal: 0 },
    replyCounts: new Map<string, number>(),
  };

  const buildResponse = (path: string, query: URLSearchParams): object => {
    const ids = (query.get("tags") ?? "").split(",");
    const record = (id: string) => ({ type: "tags", id, attributes: { display_name: `T${id}` } });
    if (path.endsWith("/read")) {
      service.count.reads++;
      return { data: ids.map((id) => ({ ...record(id), value: 1 })) };
    }
    const fromTime = query.get("from") ?? "";
    const isProbe = query.get("resolution") === "1mo";
    const buckets = Math.round((Date.parse(query.get("to") ?? "") - Date.parse(fromTime)) / BUCKET_MS);
    if (isProbe) service.count.probes++;
    else service.count.series++;
    if (ids.some((id) => withoutLog.has(id))) {
      if (!isProbe) service.count.poisoned++;
      return { errors: [{ status: 404, message: "No log was found.", meta: [] }] };
    }
    // The request reaches one bucket further back than the wanted range.
    if (!isProbe && (buckets - 1) * ids.length > service.limit) {
      service.count.refused++;
      return { errors: [{ status: 504, message: "Historical data could not be retrieved.", meta: [] }] };
    }
    if (!isProbe) {
      service.count.ideal += ((buckets - 1) * ids.length) / service.limit;
      for (const id of ids) service.replyCounts.set(id, (service.replyCounts.get(id) ?? 0) + buckets - 1);
    }
    const measurements = isProbe ? [{ timestamp: fromTime, value: 1 }] : [];
    return { data: ids.map((id) => ({ ...record(id), measurements })) };
  };

  const transport: Transport = async (request, signal): Promise<TransportReply> => {
    await clock.sleep(LATENCY_MS, signal);
    const [path = "", query = ""] = request.path.split("?");
    const body = JSON.stringify(buildResponse(path, new URLSearchParams(query)));
    const headers = { "content-type": "application/json" };
    return { status: 200, headers, body: new TextEncoder().encode(body) };
  };
  return Object.assign(service, { transport });
}
