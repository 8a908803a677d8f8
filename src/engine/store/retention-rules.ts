import { type Event, isUrgent } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Loss } from "./gap-sums.ts";
import type { RetentionBounds, SinkPosition } from "./store.ts";

/** What one transaction removes at most, so that others wait a few milliseconds only. */
export const SLICE_ROWS = 250;
export const SLICE_BYTES = 4 * 1024 ** 2;
/** A full log is emptied by a twentieth more than it has to be: rare large steps instead of constant nibbling. */
export const EMPTIED_TO = 0.95;
/** Dead letters may take this share of the log's bytes. */
export const LETTER_SHARE = 0.1;

/** An event that is about to go. */
export interface Leaving {
  readonly position: number;
  readonly committed_ms: number;
}

interface Losers {
  /** The sinks in use, and how far they are. */
  readonly sinks: readonly (Pick<SinkPosition, "position" | "urgent"> & { readonly name: string })[];
  /** Whether a sink is to get it once more. */
  readonly isMarked: (sink: string, position: number) => boolean;
  /** Null where it is not known what the event was. */
  readonly eventAt: (position: number) => Event | null;
  readonly wanted: RetentionBounds["wanted"];
}

/** Who loses what when these events go, as far as they wanted it, and which sinks lose one that they were never offered. */
export function lossesOf(
  leaving: readonly Leaving[],
  reason: Loss["reason"],
  { sinks, isMarked, eventAt, wanted }: Losers,
): { readonly lost: readonly Loss[]; readonly withoutOffer: ReadonlySet<string> } {
  const lost: Loss[] = [];
  const withoutOffer = new Set<string>();
  for (const { position, committed_ms } of leaving) {
    const without = sinks.filter((sink) => position > sink.position || isMarked(sink.name, position));
    if (without.length === 0) continue;
    const event = eventAt(position);
    const time = event?.time ?? isoUtc(committed_ms);
    for (const { name, position: cursor, urgent } of without) {
      const isDelivered = event !== null && isUrgent(event.type) && position <= urgent;
      if (isDelivered && !isMarked(name, position)) continue;
      if (event !== null && wanted?.(name, event) === false) continue;
      lost.push({ sink: name, reason, time });
      if (position > cursor && !isDelivered) withoutOffer.add(name);
    }
  }
  return { lost, withoutOffer };
}
