import { expect, test } from "vitest";
import { english } from "#src/ui/setup/messages.ts";
import { doubts, seenLines, tokenSaid } from "#src/ui/setup/seen-lines.ts";
import { seenWith, TOKEN } from "./buildings.ts";

const NOW = Date.parse("2026-11-02T12:00:00Z");
const doubtsOf = (seen: Parameters<typeof doubts>[0]) => doubts(seen).map(english);

test.each([
  [null, "which never expires"],
  ["2027-11-02T12:00:00Z", "valid until 2027-11-02"],
  ["2026-12-02T12:00:00Z", "valid until 2026-12-02"],
  ["2026-12-02T11:59:59Z", "which expires in 29 days (2026-12-02)"],
  ["2026-11-04T11:00:00Z", "which expires in 1 day (2026-11-04)"],
])("a token with the end %s: %s", (expiresAt, words) => {
  const seen = seenWith({ "°C": 3 }, { expiresAt });
  expect(english(tokenSaid(seen, NOW))).toBe(`Token "Plenum" of Kari Nordmann, ${words}`);
});

test("a building as lines: some of many sites, systems with most tags, and nothing that was not seen", () => {
  const sites = Array.from({ length: 10 }, (_, n) => ({ id: n + 1, displayName: `Site ${n + 1}` }));
  const seen = {
    ...seenWith({ "°C": 3 }, { sites }),
    systems: [
      { id: "5", code: "VS1", displayName: "Heating 1", tags: 18 },
      { id: "6", code: "LB1", displayName: "Air 1", tags: 0 },
    ],
  };
  const lines = seenLines(seen, NOW);
  expect(lines).toContain("10 sites:");
  expect(lines).toContain("  1  Site 1, 3 tags");
  expect(lines).toContain("  8  Site 8");
  expect(lines).toContain("  and 2 more");
  expect(lines).toContain("Largest systems: VS1 Heating 1 (18).");
  expect(lines.find((line) => line.endsWith("active alarms."))).toBe("about 30 tags (°C 30), 0 active alarms.");

  const unread = seenLines({ ...seen, sites: seen.sites.slice(0, 1), systems: [], alarms: null }, NOW);
  expect(unread).toContain("1 site:");
  expect(unread.filter((line) => /more|Largest|alarm\b.*\.$/.test(line))).toEqual([]);
});

test("what somebody should know before relying on it", () => {
  expect(doubtsOf(seenWith({ "°C": 3 }))).toEqual([]);
  expect(doubtsOf({ ...seenWith({ "°C": 3 }), isEstimate: true })).toEqual([
    "3 tags were looked at; units and numbers of the others are assumed to be alike.",
  ]);
  expect(doubtsOf(seenWith({}))).toEqual([
    "There is no tag in this site: a user who has permission for components only sees tags through the views.",
  ]);
  const sites = [1, 2].map((id) => ({ id, displayName: `Site ${id}` }));
  expect(doubtsOf(seenWith({}, { sites }))[0]).toMatch(/^There is no tag in these 2 sites: /);
  const abilities = ["write:tags"];
  expect(doubtsOf(seenWith({}, { abilities }))).toEqual([
    "The token may not read tags (read:tags): alarms are followed, and no value is read.",
    "The token may not read alarms (read:alarms): values are read, and no alarm is followed.",
    "The token may write tags. Writing stays off; a token without write:tags is safer.",
  ]);
  expect(TOKEN.abilities).not.toContain("write:tags");
});
