import type { Tag, TagValue } from "#src/core/model/building.ts";
import { makeEvent, sourceUri } from "#src/core/model/event.ts";
import type { Store } from "#src/engine/store/store.ts";
import { TAG } from "../sample-events.ts";

export async function storeTagValues(store: Store, nowMs: number, others: readonly Partial<Tag>[] = []): Promise<void> {
  const tags = [TAG, ...others.map((other, n) => ({ ...TAG, id: `2${n}`, ...other }))];
  await store.commit({
    documents: [
      {
        set: "tag/main",
        put: tags.map((tag) => [tag.id, { value: tag, siteId: 1, since: "", missingSince: null }] as const),
      },
      { set: "tag-system/main", put: tags.map(({ id }) => [id, { systemIds: ["5"] }] as const) },
    ],
  });
  const values = [21.4, 21, 20.4, 19.9, 19.1, 18.6, 18.4, 18.2, 18.2];
  for (const tag of tags) {
    await store.commit({ events: values.map((value, n) => tagReading(tag, nowMs - (8 - n) * 20 * 60_000, value)) });
  }
}

export function tagReading(tag: Tag, atMs: number, value: TagValue) {
  const time = new Date(atMs).toISOString();
  return makeEvent({
    type: "tag-value",
    source: sourceUri("main"),
    subject: `site/1/tag/${tag.id}`,
    time,
    siteId: 1,
    data: { tag, value, quality: "good", time, latencyMs: 90, lastGood: null, behindGateway: null },
    facts: [time],
  });
}

export const SPARKLINE_TEXT = "█▇▅▃▁▁ 18.2–21.4 °C, last 18.2, 3 h";
