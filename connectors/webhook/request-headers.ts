import type { Event } from "../../src/core/model/event.ts";
import { type Sequence, sequenceAttributes } from "../../src/core/model/sequence.ts";
import type { Payload } from "./payload.ts";
import { signature } from "./signature.ts";

/** What the headers of a request say besides the event. */
export interface RequestMarks {
  /** Seconds since 1970. */
  readonly seconds: number;
  /** With none nothing is signed. */
  readonly keys: readonly Buffer[];
  readonly sequence: Sequence | null;
}

/** The headers of the request that tells an event, but those that the configuration adds: Standard Webhooks. */
export function requestHeaders(
  event: Pick<Event, "id">,
  { contentType, body }: Payload,
  { seconds, keys, sequence: number }: RequestMarks,
): Readonly<Record<string, string>> {
  const { sequence = "", sequenceepoch: epoch = "" } = sequenceAttributes(number);
  return {
    "content-type": contentType,
    "webhook-id": event.id,
    "webhook-timestamp": String(seconds),
    ...(sequence === "" ? {} : { "plenum-sequence": sequence, "plenum-sequence-epoch": epoch }),
    ...(keys.length === 0 ? {} : { "webhook-signature": signature(keys, event.id, seconds, body) }),
  };
}
