import { type StoredTagQuarantine, syncSet } from "#src/engine/sync/stored-documents.ts";
import type { LoggedRequest } from "#src/simulator/request-log.ts";
import type { Harness } from "../loss-harness.ts";
import { clockTime } from "./punctual.ts";

const MINUTE_MS = 60_000;
/** Quota, lists (30 a minute), and requests without a limit. */
const ALL_PER_MINUTE = 20 + 30 + 10;
const ALL_PER_START = 10;
/** Requests a minute to a failing endpoint: six rejections, three controls and one pending request. */
const DEAD_PER_MINUTE = 10;
const WHILE_MS = 2 * MINUTE_MS;

function busiestWindow(times: readonly number[], rangeMs: number): { readonly count: number; readonly atMs: number } {
  let busiest = { count: 0, atMs: 0 };
  let firstIndex = 0;
  for (const [index, atMs] of times.entries()) {
    while ((times[firstIndex] ?? atMs) <= atMs - rangeMs) firstIndex += 1;
    if (index - firstIndex + 1 > busiest.count) busiest = { count: index - firstIndex + 1, atMs };
  }
  return busiest;
}

const requestTimes = (requests: readonly LoggedRequest[]) => requests.map(({ atMs }) => atMs);

/** Rule 4: at most 20 requests of the quota in any 60 s. */
export function quotaIsMet({ virtual }: Harness): readonly string[] {
  const busiest = virtual.simulator.truth.busiestMinute();
  return busiest <= 20 ? [] : [`${busiest} requests of the quota within 60 s`];
}

/** Rule 4: the service is not flooded, and a dead endpoint is requested ever more rarely. */
export function serviceIsNotFlooded({ virtual, faults, starts }: Harness): readonly string[] {
  const requests = virtual.simulator.truth.requests();
  const all = busiestWindow(requestTimes(requests), MINUTE_MS);
  const floodedEndpoints = faults.flatMap(({ fault, fromMs, toMs }) =>
    (fault.dead ?? []).flatMap((endpoint) => {
      const duringFault = requests.filter(
        (each) => each.endpoint === endpoint && each.atMs > fromMs + WHILE_MS && each.atMs < toMs,
      );
      const { count, atMs } = busiestWindow(requestTimes(duringFault), MINUTE_MS);
      const recentStarts = starts.filter((startMs) => startMs <= atMs && startMs > atMs - MINUTE_MS - WHILE_MS).length;
      return count <= DEAD_PER_MINUTE * (1 + recentStarts)
        ? []
        : [`${count} requests to ${endpoint} in a minute at ${clockTime(atMs)}, though ${fault.name}`];
    }),
  );
  const startsBefore = starts.filter((startMs) => startMs <= all.atMs && startMs > all.atMs - MINUTE_MS).length;
  return [
    ...(all.count <= ALL_PER_MINUTE + ALL_PER_START * startsBefore
      ? []
      : [`${all.count} requests in a minute at ${clockTime(all.atMs)}`]),
    ...floodedEndpoints,
  ];
}

const ME_SPAN_MS = 10 * MINUTE_MS;
const ME_PER_START = 3;
const ME_SLACK = 3;

/** Rule 4: token information is requested once a minute on average. */
export function tokenRequestsAreRare({ virtual, starts, faults }: Harness): readonly string[] {
  // While the service is or seems unavailable, the worker probes it with the same request.
  const outages = faults.filter(({ fault }) => fault.looksLikeOutage === true);
  const tokenRequests = requestTimes(
    virtual.simulator.truth.requests().filter(({ endpoint }) => endpoint === "me"),
  ).filter((atMs) => !outages.some(({ fromMs, toMs }) => atMs >= fromMs && atMs <= toMs + MINUTE_MS));
  const startCount = busiestWindow(starts, ME_SPAN_MS).count;
  const { count, atMs } = busiestWindow(tokenRequests, ME_SPAN_MS);
  const limit = ME_SPAN_MS / MINUTE_MS + ME_PER_START * startCount + ME_SLACK;
  return count <= limit ? [] : [`GET me ${count} times within ten minutes, at ${clockTime(atMs)}`];
}

/** Rule 4, at any time: only rejected tags are in quarantine. */
export async function onlyRejectedTagsAreQuarantined(harness: Harness): Promise<readonly string[]> {
  const set = syncSet("quarantine", "main");
  const quarantined = await harness.virtual.worker.store.documents<StoredTagQuarantine>(set);
  const refusedTags = new Set(harness.faults.flatMap(({ fault }) => [...(fault.refusesTags ?? [])]));
  const wronglyQuarantined = [...quarantined.keys()].filter((id) => !refusedTags.has(id));
  if (wronglyQuarantined.length === 0) return [];
  const why = quarantined.get(wronglyQuarantined[0] ?? "")?.reason;
  return [
    `${wronglyQuarantined.length} tags set aside that were never refused by themselves, as ${wronglyQuarantined[0]}: ${why}`,
  ];
}

/** Rule 4, at the end: no tag is in quarantine. */
export async function quarantineIsEmpty(harness: Harness): Promise<readonly string[]> {
  const set = syncSet("quarantine", "main");
  const quarantined = await harness.virtual.worker.store.documents<StoredTagQuarantine>(set);
  if (quarantined.size === 0) return [];
  const [[id, { until, reason }] = ["", { until: "", reason: "" }]] = quarantined;
  return [`${quarantined.size} healthy tags are still set aside, as ${id} until ${until}: ${reason}`];
}
