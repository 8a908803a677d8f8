import { describe, expect, test } from "vitest";
import { seenWith } from "./buildings.ts";
import { ADDRESS, WISHES, world } from "./page-world.ts";

describe("what the page walks through", () => {
  test("begins with the address: before it there is nothing to plan or to write", async () => {
    const { setup, given } = world();
    const asked = { timeZone: "Europe/Oslo", mqttUrl: "", wishes: WISHES };
    expect(() => setup.plan(WISHES)).toThrow("Nothing was looked at yet; begin with the address.");
    expect(() => setup.write(asked)).toThrow("Nothing was looked at yet; begin with the address.");
    const signal = AbortSignal.abort();
    await expect(setup.look({ ...ADDRESS, token: "  " }, signal)).rejects.toThrow("The access token is missing.");
    expect([given, setup.looked, setup.written]).toEqual([[], null, null]);
  });

  test("shows what was seen, with wishes that fit, and plans others", async () => {
    const { setup, given } = world();
    const looked = await setup.look(ADDRESS, new AbortController().signal);
    const reach = { ...ADDRESS, token: "secret", baseUrl: "https://bms.example.com" };
    expect(given).toEqual([reach]);
    expect(looked).toMatchObject({
      ...{ baseUrl: "https://bms.example.com", alarms: 0, doubts: [] },
      notes: [{ values: { end: "/api/v1" } }],
      tags: { values: { tags: 35 } },
      zone: { proposed: "Europe/Oslo", note: null },
      groups: [
        { group: "readings", tags: 30, units: ["°C"] },
        { group: "meters", tags: 5, units: ["kWh"] },
      ],
      wishes: { every: { readings: 30_000, meters: 900_000, rest: null }, polite: 1 },
      plan: { fits: true, change: null },
    });
    expect(looked.wishes.history).toEqual({ resolution: "1h", backfillDays: 7 });
    expect(setup.looked).toBe(looked);
    expect(setup.plan(looked.wishes)).toEqual(looked.plan);
    const every = { readings: 15_000, meters: 15_000, rest: null };
    const more = setup.plan({ ...looked.wishes, every });
    expect(more.load).toBeGreaterThan(looked.plan.load);
    expect(more.fits).toBe(true);
    expect(more.lines).toHaveLength(3);
    const many = world();
    many.answers.seen = seenWith({ "°C": 3_000 });
    const first = await many.setup.look(ADDRESS, new AbortController().signal);
    const tooMuch = many.setup.plan({
      ...first.wishes,
      every: { readings: 3_000, meters: null, rest: null },
    });
    expect([tooMuch.fits, typeof tooMuch.change]).toEqual([false, "string"]);
  });

  test("is written once, with what was looked at last", async () => {
    const { setup, given } = world();
    await setup.look({ ...ADDRESS, address: "https://old.example.com" }, new AbortController().signal);
    await setup.look({ ...ADDRESS, allowPlainHttp: true }, new AbortController().signal);
    const asked = { timeZone: "Europe/Oslo", mqttUrl: "", wishes: WISHES };
    const written = setup.write(asked);
    expect(setup.written).toBe(written);
    expect(given.at(-1)).toEqual({
      ...asked,
      ...{ baseUrl: "https://bms.example.com", allowPlainHttp: true, token: "secret" },
    });
    expect(() => setup.write(asked)).toThrow("plenum.yaml is written already.");
  });
});
