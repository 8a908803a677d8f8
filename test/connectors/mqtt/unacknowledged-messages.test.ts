import fc from "fast-check";
import { expect, test } from "vitest";
import { createUnacknowledgedQueue } from "#connectors/mqtt/unacknowledged-messages.ts";

type QueueStep =
  | { readonly do: "add" }
  | { readonly do: "take"; readonly nth: number }
  | { readonly do: "take-unknown" }
  | { readonly do: "take-all" };

const anyStep: fc.Arbitrary<QueueStep> = fc.oneof(
  { weight: 60, arbitrary: fc.constant({ do: "add" } as const) },
  { weight: 30, arbitrary: fc.record({ do: fc.constant("take" as const), nth: fc.constant(0) }) },
  { weight: 20, arbitrary: fc.record({ do: fc.constant("take" as const), nth: fc.nat(50) }) },
  { weight: 2, arbitrary: fc.constant({ do: "take-unknown" } as const) },
  { weight: 1, arbitrary: fc.constant({ do: "take-all" } as const) },
);

test("the table of messages in flight behaves like an ordered map for any order of acknowledgements", () => {
  fc.assert(
    fc.property(fc.array(anyStep, { maxLength: 400, size: "max" }), (steps) => {
      const flight = createUnacknowledgedQueue<{ readonly id: number }>();
      const expectedMessages = new Map<number, { readonly id: number }>();
      let lastId = 0;
      for (const queueStep of steps) {
        if (queueStep.do === "add") {
          lastId = (lastId % 65_535) + 1;
          const sentMessage = { id: lastId };
          expectedMessages.set(lastId, sentMessage);
          flight.add(sentMessage);
        } else if (queueStep.do === "take") {
          const id = [...expectedMessages.keys()][Math.min(queueStep.nth, expectedMessages.size - 1)] ?? 1;
          expect(flight.take(id)).toBe(expectedMessages.get(id));
          expectedMessages.delete(id);
        } else if (queueStep.do === "take-unknown") {
          expect(flight.take(60_000)).toBeUndefined();
        } else {
          expect(flight.takeAll()).toEqual([...expectedMessages.values()]);
          expectedMessages.clear();
        }
        expect(flight.size()).toBe(expectedMessages.size);
        expect(flight.getOldest()).toBe([...expectedMessages.values()][0]);
        expect(flight.has(lastId)).toBe(expectedMessages.has(lastId));
      }
    }),
  );
});

test("the table of messages in flight stays small while one message remains unacknowledged", () => {
  const flight = createUnacknowledgedQueue<{ readonly id: number }>();
  const firstMessage = { id: 1 };
  flight.add(firstMessage);
  for (let n = 0; n < 20_000; n += 1) {
    const id = 2 + (n % 6_000);
    flight.add({ id });
    flight.add({ id: 65_000 });
    expect(flight.take(id)?.id).toBe(id);
    expect(flight.take(65_000)?.id).toBe(65_000);
  }
  expect(flight.getOldest()).toBe(firstMessage);
  expect(flight.slotCount()).toBeLessThan(200);
});

test("packet ids of acknowledged messages are reused after the id 65,535", () => {
  const flight = createUnacknowledgedQueue<{ readonly id: number }>();
  for (let n = 0; n < 140_000; n += 1) {
    const id = (n % 65_535) + 1;
    expect(flight.has(id)).toBe(false);
    flight.add({ id });
    if (n >= 20) flight.take(((n - 20) % 65_535) + 1);
  }
  expect(flight.size()).toBe(20);
  expect(flight.slotCount()).toBeLessThan(200);
});
