import { expect, test } from "vitest";
import type { BuildingSummary } from "#src/ui/setup/building-inspection.ts";
import {
  buildingSummaryLines,
  buildingWarnings,
  guessTimeZone,
  tokenText,
} from "#src/ui/setup/building-summary-texts.ts";
import { ALARM } from "../sample-events.ts";
import { buildingWith, NOW, sitesNamed } from "./buildings.ts";

test.each([
  [null, "which never expires"],
  ["2027-11-02T12:00:00Z", "valid until 2027-11-02"],
  ["2026-12-02T12:00:00Z", "valid until 2026-12-02"],
  ["2026-12-02T11:59:59Z", "which expires in 29 days (2026-12-02)"],
  ["2026-11-04T11:00:00Z", "which expires in 1 day (2026-11-04)"],
])("tokenText describes a token that expires at %s: %s", (expiresAt, words) => {
  const building = buildingWith({ "°C": 3 }, { expiresAt });
  expect(tokenText(building, NOW)).toBe(`Token "Plenum" of Kari Nordmann, ${words}`);
});

test("buildingLines lists 8 of 10 sites and the systems with tags, and omits lists that were not read", () => {
  const sites = sitesNamed(...Array.from({ length: 10 }, (_, n) => `Site ${n + 1}`));
  const building = {
    ...buildingWith({ "°C": 3 }, { sites }),
    systems: [
      { id: "5", code: "VS1", displayName: "Heating 1", tags: 18 },
      { id: "6", code: "LB1", displayName: "Air 1", tags: 0 },
    ],
  };
  expect(buildingSummaryLines(building, NOW)).toEqual([
    "",
    'Token "Plenum" of Kari Nordmann, valid until 2027-11-02; abilities: read:alarms, read:tags, read:gateways, read:hosts, read:systems.',
    "10 sites:",
    "  1  Site 1, 3 tags",
    ...[2, 3, 4, 5, 6, 7, 8].map((id) => `  ${id}  Site ${id}`),
    "  and 2 more",
    "about 30 tags (°C 30), 0 active alarms.",
    "Largest systems: VS1 Heating 1 (18).",
    "3 tags were looked at; units and numbers of the others are assumed to be alike.",
    "",
  ]);
  const unread = { ...building, sites: building.sites.slice(0, 1), systems: [], alarms: null };
  const lines = buildingSummaryLines(unread, NOW).slice(2, 5);
  expect(lines).toEqual(["1 site:", "  1  Site 1, 3 tags", "about 30 tags (°C 30)."]);
});

test.each<[string, BuildingSummary, readonly unknown[]]>([
  ["nothing about a complete building", buildingWith({ "°C": 3 }), []],
  [
    "that units are extrapolated",
    { ...buildingWith({ "°C": 3 }), isEstimate: true },
    ["3 tags were looked at; units and numbers of the others are assumed to be alike."],
  ],
  [
    "that the site has no tag",
    buildingWith({}),
    ["There is no tag in this site: a user who has permission for components only sees tags through the views."],
  ],
  [
    "that two sites have no tag",
    buildingWith({}, { sites: sitesNamed("A", "B") }),
    [expect.stringMatching(/^There is no tag in these 2 sites: /)],
  ],
  [
    "about missing and superfluous permissions of the token",
    buildingWith({}, { abilities: ["write:tags"] }),
    [
      "The token may not read tags (read:tags): alarms are followed, and no value is read.",
      "The token may not read alarms (read:alarms): values are read, and no alarm is followed.",
      "The token may write tags. Writing stays off; a token without write:tags is safer.",
    ],
  ],
])("buildingWarnings warns %s", (_, building, warnings) => {
  expect(buildingWarnings(building)).toEqual(warnings);
});

const winter = { ...ALARM, triggeredAt: "2026-11-02T06:15:00.000Z", triggeredAtRaw: "2026-11-02T07:15:00+01:00" };
const summer = { ...ALARM, triggeredAt: "2026-07-02T06:15:00.000Z", triggeredAtRaw: "2026-07-02T08:15:00+02:00" };
const utc = { ...ALARM, triggeredAt: "2026-07-02T06:15:00.000Z", triggeredAtRaw: "2026-07-02T06:15:00+00:00" };
test.each([
  [[], "Europe/Oslo", "Europe/Oslo", null],
  [[], "UTC", null, null],
  [[utc], "Europe/Oslo", "Europe/Oslo", null],
  [[winter, summer], "Europe/Oslo", "Europe/Oslo", "The times of the alarms fit Europe/Oslo, as this machine."],
  [[winter], "UTC", null, "An alarm of 2026-11-02 has a time at +01:00."],
  [
    ...([[winter], "Europe/Helsinki", null] as const),
    "An alarm of 2026-11-02 has a time at +01:00, which Europe/Helsinki, this machine's zone, does not have then.",
  ],
])(
  "guessZone for the alarms of case %# on a machine in %s proposes the zone %s",
  (alarms, machineZone, proposed, note) => {
    expect(guessTimeZone(buildingWith({}, {}, alarms), machineZone)).toEqual({ proposed, note });
  },
);
