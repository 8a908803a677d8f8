import { expect, test } from "vitest";
import { createBackPressure } from "#src/delivery/back-pressure.ts";

test("holds the backfill from a tenth of the log on, lets it go on below half of that, and says so once", async () => {
  let pending = 0;
  const said: string[] = [];
  const note = (_: object, text: string) => void said.push(text);
  const pressure = createBackPressure({
    outbox: { pendingBytes: async () => pending },
    maxBytes: 100 * 1024 ** 2,
    log: { info: note, warn: note } as never,
  });
  const at = async (mebibytes: number) => {
    pending = mebibytes * 1024 ** 2;
    return pressure.mayFetchPast();
  };
  expect([await at(0), await at(10), await at(11), await at(9), await at(6)]).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
  expect(pressure.notices()).toEqual([expect.stringMatching(/6 MiB of events have not reached every sink/)]);
  expect([await at(5), await at(10)]).toEqual([true, true]);
  expect(pressure.notices()).toEqual([]);
  expect(said).toEqual(["the backfill waits until the sinks have taken more", "the backfill goes on"]);
  expect(pressure.mostBytes).toBe(2 * 1024 ** 2);
});
