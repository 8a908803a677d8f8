import { beforeEach, describe, expect, test } from "vitest";
import { createBackPressure, maxHistoryResponseBytes } from "#src/engine/delivery/back-pressure.ts";
import type { EventLogPressure } from "#src/engine/store/store.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const MEBIBYTE = 1024 ** 2;
const clock = createVirtualClock(Date.parse("2026-11-21T09:00:00Z"));
let pressure: EventLogPressure;
let said: string[];
beforeEach(() => {
  pressure = { bytes: 0, pendingBytes: 0, oldestTelemetry: null };
  said = [];
});

function create(outbox = { pressure: async () => pressure }) {
  const note = (_: object, text: string) => void said.push(text);
  return createBackPressure({ outbox, maxBytes: 100 * MEBIBYTE, clock, log: { info: note, warn: note } as never });
}

test("the backfill pauses above 10 % of the outbox limit, resumes at 5 %, and logs each change once", async () => {
  const gate = create();
  const at = async (mebibytes: number) => {
    pressure = { ...pressure, pendingBytes: mebibytes * MEBIBYTE };
    await clock.advance(1_000);
    return gate.mayFetchHistory();
  };
  expect([await at(0), await at(10)]).toEqual([true, true]);
  expect([await at(11), await at(9), await at(6)]).toEqual([false, false, false]);
  expect(gate.notices()).toEqual([expect.stringMatching(/6 MiB of events have not reached every sink/)]);
  expect([await at(5), await at(10)]).toEqual([true, true]);
  expect(gate.notices()).toEqual([]);
  expect(said).toEqual(["the backfill pauses until the sinks have received more events", "the backfill continues"]);
});

test("the backfill gate queries the size of the outbox at most once a second, however many callers ask", async () => {
  let looks = 0;
  const gate = create({
    async pressure() {
      looks += 1;
      return pressure;
    },
  });
  for (let n = 0; n < 20; n += 1) {
    await Promise.all([gate.mayFetchHistory(), gate.mayFetchHistory()]);
    await clock.advance(100);
  }
  expect(looks).toBe(2);
});

test("a history response is limited to one fiftieth of the outbox limit", () => {
  expect(maxHistoryResponseBytes(100 * MEBIBYTE)).toBe(2 * MEBIBYTE);
});

describe("the backfill with an almost full outbox of 100 MiB", () => {
  test.each([
    [95, 14, false],
    [95, 15, true],
    [90, 1, true],
  ])(
    "with %d MiB in the outbox and an oldest value that is %d minutes old, may continue: %s",
    async (mebibytes, minutes, expected) => {
      const oldestTelemetry = new Date(clock.now() - minutes * 60_000).toISOString();
      pressure = { bytes: mebibytes * MEBIBYTE, pendingBytes: 0, oldestTelemetry };
      expect(await create().mayFetchHistory()).toBe(expected);
      expect(said).toEqual([]);
    },
  );
});
