import { type Event, toCloudEvent } from "../../src/core/model/event.ts";
import { type Sequence, sequenceAttributes } from "../../src/core/model/sequence.ts";
import type { WebhookConfig } from "./config.ts";

export interface Payload {
  readonly contentType: string;
  /** Exactly the bytes that are signed and sent. */
  readonly body: Buffer;
}

export function payloadOf(
  event: Event,
  format: WebhookConfig["format"],
  sequence?: Sequence | null,
): Payload {
  if (format === "cloudevents") {
    return {
      contentType: "application/cloudevents+json; charset=utf-8",
      body: Buffer.from(JSON.stringify(toCloudEvent(event, sequenceAttributes(sequence)))),
    };
  }
  const { type, time, data, ...envelope } = event;
  return {
    contentType: "application/json; charset=utf-8",
    body: Buffer.from(
      JSON.stringify({ type, timestamp: time, data, ...envelope, ...sequenceAttributes(sequence) }),
    ),
  };
}
