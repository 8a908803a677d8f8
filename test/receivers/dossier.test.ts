import { afterEach, describe, expect, test } from "vitest";
import type { Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { contextFor, never } from "../connectors/context.ts";
import { alarm, START } from "../receiver/trial.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import type { Contestant } from "./battery.ts";
import { CONTESTANTS, sinkOf } from "./contestants.ts";
import { DRAWN, valuesInState } from "./dossier-state.ts";
import type { ReceiverFarEnd } from "./far-end.ts";
import { HOSTILE_NAMES } from "./told-samples.ts";

/** Expectations of every receiver, from the stored state through sink and connector to its test server. */

let end: ReceiverFarEnd | undefined;
let sink: Sink | undefined;

afterEach(async () => {
  await sink?.close();
  await end?.stop();
});

async function telling(contestant: Contestant, options: object, names: readonly string[]) {
  let monotonicMs = 0;
  const clock = { now: () => START, monotonic: () => monotonicMs, sleep: async () => undefined };
  const store = createMemoryStore(clock.now);
  await valuesInState(
    store,
    START,
    names.map((displayName) => ({ displayName })),
  );
  end = await contestant.start(clock.now);
  sink = await sinkOf(contestant, end, contextFor("people", clock, store), options);
  let position = 0;
  const offer = async (event: Event) => {
    position += 1;
    // No receiver has a longer rate limit than this between two calls.
    monotonicMs += 10_000;
    const receipt = await sink?.write([event], never(), undefined, {
      positions: [position],
      committedAt: [""],
      again: false,
    });
    expect(receipt?.rejected).toEqual([]);
  };
  const seen = () => end?.things().flatMap(({ texts }) => texts) ?? [];
  return { offer, seen };
}

const OWN = `VS1-GT11 ${DRAWN}`;

describe.each(CONTESTANTS)("$name", (contestant) => {
  test("opens an alarm with the time series of its system and keeps them at its end", async () => {
    const { offer, seen } = await telling(contestant, {}, ["VS1-SP01"]);
    const one = alarm(1, { priority: "A" });
    await offer(one.raised());
    const opened = seen().join("\n");
    expect(opened).toContain("Values until 2026-11-02 13:00:00 +01:00");
    expect(opened).toContain(OWN);
    expect(opened).toContain(`VS1-SP01 ${DRAWN}`);
    await offer(one.resolved(5));
    // PagerDuty takes no text with an end.
    const shows = seen().filter((text) => text.includes(OWN)).length;
    expect(shows).toBeGreaterThanOrEqual(contestant.name === "webhook pagerduty" ? 1 : 2);
  });

  test("opens an alarm of an unconfigured priority without time series", async () => {
    const { offer, seen } = await telling(contestant, { dossier: { priorities: ["A"] } }, []);
    await offer(alarm(1, { priority: "B" }).raised());
    expect(seen().join("\n")).toContain("Alarm 1");
    expect(seen().join("\n")).not.toMatch(/[▁▂▃▅▆▇█]/);
  });

  test("shows hostile and long tag names without control characters", async () => {
    const { offer, seen } = await telling(contestant, {}, HOSTILE_NAMES);
    await offer(alarm(1, { priority: "A" }).raised());
    const text = seen().join("\n");
    expect(text).toContain(OWN);
    expect(text).not.toMatch(/[\u202a-\u202e\u2066-\u2069]|[^\P{Cc}\n]/u);
  });

  test("reports the start of its last request, so the deadline of the write cuts off no request", async () => {
    let monotonicMs = 1_000;
    const clock = { ...systemClock, now: () => START, monotonic: () => monotonicMs };
    end = await contestant.start(clock.now);
    sink = await sinkOf(contestant, end, contextFor("people", clock));
    expect(sink.lastStepMs?.()).toBe(Number.NEGATIVE_INFINITY);
    for (const n of [1, 2]) {
      monotonicMs += 20_000;
      await sink.write([alarm(n).raised()], never());
      expect(sink.lastStepMs?.()).toBe(monotonicMs);
    }
  });
});
