import type { SinkStateChange } from "../../core/connector.ts";
import type { Settlement } from "../store/store.ts";
import { type Batch, countedAfter, sinkStateChange } from "./offer.ts";

/**
 * Settles the beginning of a batch while the rest of it is still being written: a webhook with 20 events under way,
 * killed at the 19th, would otherwise send 18 again, and in a loop of crashes never come past them.
 *
 * What cannot be settled now is settled with the receipt, which covers all of it; so a failure here is no news.
 */
export function createEarly(
  sink: string,
  { batch, again, urgent, counted: before }: Pick<Batch, "batch" | "again" | "urgent" | "counted">,
  settle: (settlement: Settlement) => Promise<void>,
) {
  const underWay = new Set<Promise<void>>();
  let settled = 0;

  return {
    accepted(count: number, remembered?: SinkStateChange): void {
      const last = batch[count - 1];
      // The last of a batch comes with its receipt, and with what the filter took out behind it.
      if (last === undefined || count <= settled || count === batch.length) return;
      settled = count;
      const documents = sinkStateChange(sink, remembered);
      const counted = countedAfter(before, count);
      const work = attempt(settle, {
        again,
        urgent,
        through: last.position,
        rejected: [],
        counted,
        documents,
      });
      underWay.add(work);
      void work.finally(() => underWay.delete(work));
    },

    async done(): Promise<void> {
      await Promise.all(underWay);
    },
  };
}

async function attempt(settle: (settlement: Settlement) => Promise<void>, what: Settlement): Promise<void> {
  try {
    await settle(what);
  } catch {
    // The receipt settles it, and persists.
  }
}
