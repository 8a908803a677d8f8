import { describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { applySinkReceipt, type EventBatch, takeBatch } from "#src/engine/delivery/batches.ts";
import type { LoggedEvent, OfferedEvents } from "#src/engine/store/store.ts";
import { valueEvent } from "../sample-events.ts";

const logged = (count: number): readonly LoggedEvent[] =>
  Array.from({ length: count }, (_, n) => ({
    position: 11 + n,
    committedAt: "2026-11-02T06:00:00.000Z",
    event: valueEvent(n),
  }));
const offer = (count: number): OfferedEvents => ({
  isRepeat: false,
  events: logged(count),
  counted: { epoch: "e", number: 100 },
});
const batchOf = (count: number): EventBatch => takeBatch(offer(count), () => true, count);
const AWAY = new Retryable("It is away.");

describe("applyReceipt", () => {
  test("settles all events of a complete receipt and does not count rejected events as accepted", () => {
    expect(applySinkReceipt("a", batchOf(3), { rejected: [{ index: 1, reason: "No." }] })).toEqual({
      settlement: {
        isRepeat: false,
        through: 13,
        rejected: [{ position: 12, reason: "No.", sequence: { epoch: "e", number: 102 } }],
        counted: { epoch: "e", number: 103 },
        documents: [],
      },
      acceptedCount: 2,
      buffered: null,
      toRetry: null,
    });
  });

  test.each([
    ["no value", undefined],
    ["rejections that are not a list", { rejected: "all" }],
    ["an event beyond the last", { rejected: [{ index: 2, reason: "No." }] }],
    ["an event before the first", { rejected: [{ index: -1, reason: "No." }] }],
    ["a fractional index", { rejected: [{ index: 0.5, reason: "No." }] }],
    ["a retry beyond the last event", { rejected: [], retry: { from: 3, error: AWAY } }],
    ["both buffered and retried", { rejected: [], buffered: true, retry: { from: 2, error: AWAY } }],
  ])("settles no event for an invalid receipt: %s", (_, receipt) => {
    expect(applySinkReceipt("a", batchOf(2), receipt as never)).toMatchObject({
      settlement: null,
      acceptedCount: 0,
      toRetry: { head: { position: 11 }, count: 2, error: expect.any(Retryable) },
    });
  });
});
