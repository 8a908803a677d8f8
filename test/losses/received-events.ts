import type { AnyEvent } from "#src/core/model/event.ts";
import type { LoggedEvent } from "#src/engine/store/store.ts";
import type { Harness } from "./loss-harness.ts";

/** Events as a sink would have received them. Times are milliseconds since 1970. */
export type ReceivedEvents = ReturnType<typeof createReceivedEvents>;

export interface ReceivedPoint {
  readonly value: number | boolean | null;
  readonly times: number;
}

export interface ReceivedValue {
  readonly atMs: number;
  readonly isNull: boolean;
}

export function seriesKey(tagId: string, resolution: string): string {
  return `${tagId} ${resolution}`;
}

export function createReceivedEvents(harness: Harness, onEvent: (event: LoggedEvent) => void = () => undefined) {
  /** By series (`<tag> <resolution>`), then by the start of the bucket. */
  const points = new Map<string, Map<number, ReceivedPoint>>();
  const values = new Map<string, ReceivedValue[]>();
  const added = new Map<string, number>();
  let lastPosition = 0;

  function takeOne(event: AnyEvent, atMs: number): void {
    if (event.type === "tag-value") {
      const { tag, time, value } = event.data;
      const tagValues = values.get(tag.id) ?? [];
      values.set(tag.id, tagValues);
      tagValues.push({ atMs: Date.parse(time), isNull: value === null });
    } else if (event.type === "tag-added") {
      const { id } = event.data.tag;
      if (!added.has(id)) added.set(id, atMs);
    } else if (event.type === "tag-history") {
      const { tag, resolution, revised } = event.data;
      const seriesPoints = points.get(seriesKey(tag.id, resolution)) ?? new Map<number, ReceivedPoint>();
      points.set(seriesKey(tag.id, resolution), seriesPoints);
      for (const { time, value } of event.data.points) {
        const times = (seriesPoints.get(Date.parse(time))?.times ?? 0) + (revised ? 0 : 1);
        seriesPoints.set(Date.parse(time), { value, times });
      }
    }
  }

  return {
    points,
    values,
    added,
    /** Takes the events since the last look. */
    async look(): Promise<void> {
      const { outbox } = harness.virtual.worker.store;
      const [last] = await outbox.latest(1);
      if (last === undefined || last.position <= lastPosition) return;
      for (const logged of (await outbox.latest(last.position - lastPosition)).toReversed()) {
        if (logged.position <= lastPosition) continue;
        takeOne(logged.event as AnyEvent, Date.parse(logged.committedAt));
        onEvent(logged);
      }
      lastPosition = last.position;
    },
  };
}
