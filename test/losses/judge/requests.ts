import { type StoredQuarantine, syncSet } from "#src/engine/sync/snapshot.ts";
import type { LoggedRequest } from "#src/simulator/request-log.ts";
import type { Stage } from "../stage.ts";
import { clockTime } from "./punctual.ts";

const MINUTE_MS = 60_000;
/** Quota, lists (30 a minute), and requests without a limit. */
const ALL_PER_MINUTE = 20 + 30 + 10;
const ALL_PER_START = 10;
/** Requests a minute to a failing endpoint: six rejections, three controls and one pending request. */
const DEAD_PER_MINUTE = 10;
const WHILE_MS = 2 * MINUTE_MS;

function most(times: readonly number[], spanMs: number): { readonly count: number; readonly atMs: number } {
  let best = { count: 0, atMs: 0 };
  let first = 0;
  for (const [place, atMs] of times.entries()) {
    while ((times[first] ?? atMs) <= atMs - spanMs) first += 1;
    if (place - first + 1 > best.count) best = { count: place - first + 1, atMs };
  }
  return best;
}

const timesOf = (requests: readonly LoggedRequest[]) => requests.map(({ atMs }) => atMs);

/** Rule 4: at most 20 requests of the quota in any 60 s. */
export function quotaIsKept({ virtual }: Stage): readonly string[] {
  const busiest = virtual.simulator.truth.busiestMinute();
  return busiest <= 20 ? [] : [`${busiest} requests of the quota within 60 s`];
}

/** Rule 4: the service is not flooded, and a dead endpoint is requested ever more rarely. */
export function serviceIsNotFlooded({ virtual, troubles, starts }: Stage): readonly string[] {
  const requests = virtual.simulator.truth.requests();
  const all = most(timesOf(requests), MINUTE_MS);
  const dead = troubles.flatMap(({ trouble, fromMs, toMs }) =>
    (trouble.dead ?? []).flatMap((endpoint) => {
      const inside = requests.filter(
        (each) => each.endpoint === endpoint && each.atMs > fromMs + WHILE_MS && each.atMs < toMs,
      );
      const { count, atMs } = most(timesOf(inside), MINUTE_MS);
      const begun = starts.filter((startMs) => startMs <= atMs && startMs > atMs - MINUTE_MS - WHILE_MS).length;
      return count <= DEAD_PER_MINUTE * (1 + begun)
        ? []
        : [`${count} requests to ${endpoint} in a minute at ${clockTime(atMs)}, though ${trouble.name}`];
    }),
  );
  const lately = starts.filter((startMs) => startMs <= all.atMs && startMs > all.atMs - MINUTE_MS).length;
  return [
    ...(all.count <= ALL_PER_MINUTE + ALL_PER_START * lately
      ? []
      : [`${all.count} requests in a minute at ${clockTime(all.atMs)}`]),
    ...dead,
  ];
}

const ME_SPAN_MS = 10 * MINUTE_MS;
const ME_PER_START = 3;
const ME_SLACK = 3;

/** Rule 4: token information is requested once a minute on average. */
export function tokenRequestsAreRare({ virtual, starts, troubles }: Stage): readonly string[] {
  // While the service is or seems unavailable, the worker probes it with the same request.
  const away = troubles.filter(({ trouble }) => trouble.seemsAway === true);
  const asked = timesOf(virtual.simulator.truth.requests().filter(({ endpoint }) => endpoint === "me")).filter(
    (atMs) => !away.some(({ fromMs, toMs }) => atMs >= fromMs && atMs <= toMs + MINUTE_MS),
  );
  const begun = most(starts, ME_SPAN_MS).count;
  const { count, atMs } = most(asked, ME_SPAN_MS);
  const limit = ME_SPAN_MS / MINUTE_MS + ME_PER_START * begun + ME_SLACK;
  return count <= limit ? [] : [`GET me ${count} times within ten minutes, at ${clockTime(atMs)}`];
}

/** Rule 4, at any time: only rejected tags are in quarantine. */
export async function onlyRejectedTagsAreQuarantined(stage: Stage): Promise<readonly string[]> {
  const set = syncSet("quarantine", "main");
  const held = await stage.virtual.worker.store.documents<StoredQuarantine>(set);
  const refused = new Set(stage.troubles.flatMap(({ trouble }) => [...(trouble.refusesTags ?? [])]));
  const innocent = [...held.keys()].filter((id) => !refused.has(id));
  if (innocent.length === 0) return [];
  const why = held.get(innocent[0] ?? "")?.reason;
  return [`${innocent.length} tags set aside that were never refused by themselves, as ${innocent[0]}: ${why}`];
}

/** Rule 4, at the end: no tag is in quarantine. */
export async function quarantineIsEmpty(stage: Stage): Promise<readonly string[]> {
  const set = syncSet("quarantine", "main");
  const held = await stage.virtual.worker.store.documents<StoredQuarantine>(set);
  if (held.size === 0) return [];
  const [[id, { until, reason }] = ["", { until: "", reason: "" }]] = held;
  return [`${held.size} healthy tags are still set aside, as ${id} until ${until}: ${reason}`];
}
