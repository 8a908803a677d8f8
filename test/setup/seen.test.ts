import { expect, test } from "vitest";
import { english } from "#src/ui/setup/messages.ts";
import { seenBuilding, tagsForPlan } from "#src/ui/setup/seen.ts";
import { sourceName } from "#src/ui/setup/source-name.ts";
import { guessZone } from "#src/ui/setup/time-zone.ts";
import { ALARM } from "../sample-events.ts";
import { seenWith, TOKEN, tagsOf } from "./buildings.ts";

test("tags that were not listed are assumed to be like those that were", () => {
  const sites = [1, 2, 3].map((id) => ({ id, displayName: `Site ${id}` }));
  const seen = seenBuilding({
    token: { ...TOKEN, sites },
    tagsOf: new Map([
      [1, { total: 400, listed: tagsOf({ "°C": 75, "": 25 }) }],
      [2, { total: 100, listed: tagsOf({ kWh: 100 }) }],
    ]),
    systems: [],
    alarms: null,
  });
  expect(seen.units).toEqual([
    { unit: "°C", tags: 450 },
    { unit: "", tags: 150 },
    { unit: "kWh", tags: 150 },
  ]);
  expect([seen.tags, seen.listed, seen.isEstimate, seen.alarms]).toEqual([750, 200, true, null]);
  expect(seen.sites.map(({ tags }) => tags)).toEqual([400, 100, null]);
  expect(tagsForPlan(seen)).toHaveLength(750);
});

test("units are told the most frequent first, and none with fewer than one tag", () => {
  expect(seenWith({ "%": 1, "°C": 3, kWh: 2 }).units.map(({ unit }) => unit)).toEqual(["°C", "kWh", "%"]);
  const rare = seenBuilding({
    ...{ token: TOKEN, systems: [], alarms: null },
    tagsOf: new Map([[1, { total: 2, listed: tagsOf({ "°C": 9, kWh: 1 }) }]]),
  });
  expect(rare.units).toEqual([
    { unit: "°C", tags: 2 },
    { unit: "kWh", tags: 1 },
  ]);
});

test("tags for a plan are placed in the first site", () => {
  const sites = [7, 8].map((id) => ({ id, displayName: `Site ${id}` }));
  const [tag] = tagsForPlan(seenWith({ "°C": 1, "": 1 }, { sites }));
  expect(tag).toMatchObject({ siteId: 7, tag: { unit: "°C" } });
});

test.each([
  ["Kvarnholmen 4", "kvarnholmen_4"],
  ["Østre Ænes – Skole", "ostre_aenes_skole"],
  ["Přístav/2", "pristav_2"],
  ["東京", "building"],
])("the source of the only site %s is called %s", (displayName, name) => {
  expect(sourceName({ sites: [{ id: 1, displayName, tags: 1 }] })).toBe(name);
});

const alarmAt = (triggeredAt: string, triggeredAtRaw: string) => ({ ...ALARM, triggeredAt, triggeredAtRaw });

function guess(seen: Parameters<typeof guessZone>[0], machineZone: string) {
  const { proposed, note } = guessZone(seen, machineZone);
  return { proposed, note: note === null ? null : english(note) };
}

test("a time zone is proposed where nothing speaks against it, and never taken for certain", () => {
  const winter = alarmAt("2026-11-02T06:15:00.000Z", "2026-11-02T07:15:00+01:00");
  const summer = alarmAt("2026-07-02T06:15:00.000Z", "2026-07-02T08:15:00+02:00");
  const utc = alarmAt("2026-07-02T06:15:00.000Z", "2026-07-02T06:15:00+00:00");
  expect(guess(seenWith({}), "Europe/Oslo")).toEqual({ proposed: "Europe/Oslo", note: null });
  expect(guess(seenWith({}), "UTC").proposed).toBeNull();
  expect(guess(seenWith({}, {}, [winter]), "UTC").note).toBe("An alarm of 2026-11-02 has a time at +01:00.");
  expect(guess(seenWith({}, {}, [utc]), "Europe/Oslo").note).toBeNull();
  expect(guess(seenWith({}, {}, [winter, summer]), "Europe/Oslo")).toEqual({
    proposed: "Europe/Oslo",
    note: "The times of the alarms fit Europe/Oslo, as this machine.",
  });
  expect(guess(seenWith({}, {}, [winter]), "Europe/Helsinki")).toEqual({
    proposed: null,
    note: "An alarm of 2026-11-02 has a time at +01:00, which Europe/Helsinki, this machine's zone, does not have then.",
  });
});
