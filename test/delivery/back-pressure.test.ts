import { expect, test } from "vitest";
import { createBackPressure } from "#src/delivery/back-pressure.ts";

test("holds history from half a log on, lets it go on below two fifths, and says so once", async () => {
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
    return pressure.mayFetch();
  };
  expect([await at(0), await at(50), await at(51), await at(45), await at(41)]).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
  expect(pressure.notices()).toEqual([expect.stringMatching(/41 MiB of events have not reached every sink/)]);
  expect([await at(40), await at(50)]).toEqual([true, true]);
  expect(pressure.notices()).toEqual([]);
  expect(said).toEqual(["history waits until the sinks have taken more", "history goes on"]);
  expect(pressure.mostBytes).toBe(10 * 1024 ** 2);
});
