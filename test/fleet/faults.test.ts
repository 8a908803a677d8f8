import { describe, expect, test } from "vitest";
import { absent } from "../real-servers.ts";
import { fleetsInPostgres } from "./postgres-fleet.ts";

describe.skipIf(absent("postgres") || absent("faketime"))("a fleet whose database has a wrong clock", () => {
  const { server, begin } = fleetsInPostgres(true);

  test.each([-600, 600])("a fleet replaces only the killed member in time after a clock step of %i s", async (byS) => {
    const harness = begin();
    server().setClock(0);
    const [a, b, c] = [await harness.member("a"), await harness.member("b"), await harness.member("c")];
    await harness.settled(a, b, c);
    const trueMs = Date.now();
    server().setClock(byS);
    const [[nowMs] = []] = await harness.query("select extract(epoch from clock_timestamp())::double precision * 1000");
    // Nearer to the new clock than to true time.
    expect(Math.abs(Number(nowMs) - trueMs - byS * 1_000)).toBeLessThan(Math.abs(byS) * 500);
    await a.crash();
    await harness.settled(b, c);
    expect(await harness.query("select name from member where gone = 'lost'")).toEqual([["a"]]);
  });
});
