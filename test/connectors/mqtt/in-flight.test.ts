import fc from "fast-check";
import { expect, test } from "vitest";
import { createInFlightQueue } from "#connectors/mqtt/in-flight.ts";

type Step =
  | { readonly do: "add" }
  | { readonly do: "take"; readonly nth: number }
  | { readonly do: "take-unknown" }
  | { readonly do: "take-all" };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 60, arbitrary: fc.constant({ do: "add" } as const) },
  { weight: 30, arbitrary: fc.record({ do: fc.constant("take" as const), nth: fc.constant(0) }) },
  { weight: 20, arbitrary: fc.record({ do: fc.constant("take" as const), nth: fc.nat(50) }) },
  { weight: 2, arbitrary: fc.constant({ do: "take-unknown" } as const) },
  { weight: 1, arbitrary: fc.constant({ do: "take-all" } as const) },
);

test("the table of messages in flight behaves like an ordered map for any order of acknowledgements", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 400, size: "max" }), (steps) => {
      const flight = createInFlightQueue<{ readonly id: number }>();
      const known = new Map<number, { readonly id: number }>();
      let last = 0;
      for (const each of steps) {
        if (each.do === "add") {
          last = (last % 65_535) + 1;
          const sent = { id: last };
          known.set(last, sent);
          flight.add(sent);
        } else if (each.do === "take") {
          const id = [...known.keys()][Math.min(each.nth, known.size - 1)] ?? 1;
          expect(flight.take(id)).toBe(known.get(id));
          known.delete(id);
        } else if (each.do === "take-unknown") {
          expect(flight.take(60_000)).toBeUndefined();
        } else {
          expect(flight.takeAll()).toEqual([...known.values()]);
          known.clear();
        }
        expect(flight.size()).toBe(known.size);
        expect(flight.oldest()).toBe([...known.values()][0]);
        expect(flight.has(last)).toBe(known.has(last));
      }
    }),
  );
});

test("the table of messages in flight stays small while one message remains unacknowledged", () => {
  const flight = createInFlightQueue<{ readonly id: number }>();
  const first = { id: 1 };
  flight.add(first);
  for (let n = 0; n < 20_000; n += 1) {
    const id = 2 + (n % 6_000);
    flight.add({ id });
    flight.add({ id: 65_000 });
    expect(flight.take(id)?.id).toBe(id);
    expect(flight.take(65_000)?.id).toBe(65_000);
  }
  expect(flight.oldest()).toBe(first);
  expect(flight.slots()).toBeLessThan(200);
});

test("packet ids are reused after 65,535", () => {
  const flight = createInFlightQueue<{ readonly id: number }>();
  for (let n = 0; n < 140_000; n += 1) {
    const id = (n % 65_535) + 1;
    expect(flight.has(id)).toBe(false);
    flight.add({ id });
    if (n >= 20) flight.take(((n - 20) % 65_535) + 1);
  }
  expect(flight.size()).toBe(20);
  expect(flight.slots()).toBeLessThan(200);
});
