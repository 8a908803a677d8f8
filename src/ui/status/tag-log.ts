import { RESOLUTIONS } from "../../core/model/building.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import { isComplete, type StoredHistory } from "../../engine/sync/snapshot.ts";
import type { TagResponse } from "./responses.ts";

/** State of a tag's log by resolution, totals after each; without series that are not followed. */
export async function tagLog(store: Pick<Store, "document">, source: string, id: string): Promise<TagResponse["log"]> {
  const series = RESOLUTIONS.flatMap((resolution) => [resolution, `${resolution} total`]);
  const set = documentSet("history", source);
  const held = await Promise.all(
    series.map(async (name) => [name, await store.document<StoredHistory>(set, `${id} ${name}`)] as const),
  );
  return held.flatMap(([resolution, ledger]) => (ledger === undefined ? [] : [{ resolution, ...saidOf(ledger) }]));
}

function saidOf(held: StoredHistory): Omit<TagResponse["log"][number], "resolution"> {
  const { refusal, spans = [], state, watermark } = held;
  const isHad = spans.some(({ why }) => why === "points" || why === "null");
  const known = { knownUntil: isHad ? watermark : null, holes: holesOf(held) };
  if (state === "no-log") return { state: `no log: ${refusal?.said ?? "the service says so"}`, ...known };
  if (refusal !== null) return { state: `refused: ${refusal.said}`, ...known };
  if (state === "unproven") return { state: "not followed yet: it is not known whether there is a log", ...known };
  return { state: "followed", ...known };
}

/** Number of configured ranges up to the watermark that were not fetched. */
export function holesOf(held: StoredHistory): number {
  if (isComplete(held)) return 0;
  const { since, spans = [], watermark, wished } = held;
  let until = wished < since ? wished : since;
  let holes = 0;
  for (const { from, to, why } of spans) {
    if (why === "refused") continue;
    if (from > until) holes += 1;
    if (to > until) until = to;
  }
  return holes + (until < watermark ? 1 : 0);
}
