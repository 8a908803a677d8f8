import { describe, expect, test } from "vitest";
import {
  compareTagClasses,
  findSelectionMismatches,
  findSiteMismatches,
  findWritableMismatches,
  joinWords,
  type WritableTag,
} from "#src/engine/sync/selectors-without-match.ts";
import type { TagSelection } from "#src/engine/sync/tag-selection.ts";
import { BUILDING } from "./building-of-eight-tags.ts";

const UNITS = 'there are °C 3, kWh 2, % 1, m³ 1, "" (none) 1.';
const emitted = (select: TagSelection, building = BUILDING) =>
  findSelectionMismatches(select, building).map(({ path, message }) => `${path.join(".")}: ${message}`);

describe("the comparison of a tag selection with the building", () => {
  test.each<[what: string, select: TagSelection]>([
    ["no field", {}],
    ["fields that all match tags", { sites: [1], units: ["°C", ""], name: "*RT*", ids: ["101"], systems: ["12"] }],
    ["an exclude that removes some tags", { units: ["°C"], exclude: { sites: [6] } }],
  ])("finds no mismatch in a selection with %s", (_what, select) => {
    expect(emitted(select)).toEqual([]);
  });

  test.each<[select: TagSelection, said: string]>([
    [{ units: ["C"] }, `units.0: No tag has the unit "C"; ${UNITS} Write "°C".`],
    [{ units: ["m3"] }, `units.0: No tag has the unit "m3"; ${UNITS} Write "m³".`],
    [{ sites: [5] }, "sites.0: The token sees no site 5; there are 1 (School), 6 (Town hall), 7 (Bath)."],
    [{ sites: [1, 7] }, "sites.1: Site 7 is not on the list inventory.sites of this source: add it there too."],
    [
      { systems: ["14"] },
      "systems.0: There is no system with the id 14; there are 12 (360.001 Ventilation), 13 (320.002 Heating).",
    ],
    [
      { systems: ["360.001"] },
      'systems.0: There is no system with the id 360.001; there are 12 (360.001 Ventilation). Write the id: "12".',
    ],
    [{ systems: ["13"] }, "systems.0: The system 13 (320.002 Heating) has no tags."],
    [{ name: "RT" }, 'name: The name of no tag fits "RT"; 3 tags contain it: write "*RT*".'],
    [{ name: ["*RT*", "RT4*"] }, 'name.1: The name of no tag fits "RT4*"; 2 tags contain it: write "*RT4*".'],
    [
      { name: "*supply*" },
      'name: The name of no tag fits "*supply*"; names are such as 360.001-RT401, 360.001-RT402, 360.001-RT501.',
    ],
    [{ ids: ["999", "101", "998"] }, "ids.0: There are no tags 999, 998; ids are such as 101, 102, 103."],
    [
      { ids: ["JV401_State"] },
      'ids.0: There is no tag JV401_State; ids are such as 101, 102, 103. That is a name; its id is "108".',
    ],
    [
      { sites: [6], units: ["%"] },
      ": Each field has tags by itself (sites 3, units 1), and no tag is in all of them. Without `units` it has 3, with the units °C, kWh.",
    ],
    [
      { units: ["°C"], exclude: { name: "*RT*" } },
      "exclude: This takes out all 3 tags that the rest of the selection has: nothing is left.",
    ],
    [{ exclude: { units: ["ppm"] } }, `exclude.units.0: No tag has the unit "ppm"; ${UNITS}`],
  ])("explains why the selection %j does not fit the building", (select, said) => {
    expect(emitted(select)).toEqual([said]);
  });

  test("reports nothing for a building without tags", () => {
    expect(emitted({ units: ["C"] }, { ...BUILDING, tags: [] })).toEqual([]);
  });

  test("reports a site without tags, and a system without tags when the list of systems is missing", () => {
    expect(emitted({ sites: [7] }, { ...BUILDING, followed: null })).toEqual([
      "sites.0: Site 7 has no tags that the token may see.",
    ]);
    expect(emitted({ systems: ["14"] }, { ...BUILDING, systems: null })).toEqual([
      "systems.0: No tag belongs to a system 14.",
    ]);
  });
});

describe("the comparison of read classes with the building", () => {
  const compared = (...classes: { name: string; select: TagSelection }[]) =>
    compareTagClasses(classes, BUILDING).map(({ name, tags, mismatches }) => [
      name,
      tags,
      ...mismatches.map(({ message }) => message),
    ]);

  test("counts for each class the tags that no earlier class selects", () => {
    expect(compared({ name: "warm", select: { units: ["°C"] } }, { name: "rest", select: {} })).toEqual([
      ["warm", 3],
      ["rest", 5],
    ]);
  });

  test("reports a class whose tags all belong to earlier classes", () => {
    expect(
      compared(
        { name: "school", select: { sites: [1] } },
        { name: "warm", select: { units: ["°C"] } },
        { name: "supply", select: { name: "*RT*" } },
      ),
    ).toEqual([
      ["school", 5],
      ["warm", 1],
      [
        "supply",
        0,
        "All 3 tags of this class are taken by school (2), warm (1), which stand before it: put the more specific one first.",
      ],
    ]);
  });

  test("for a read class that selects no tag, reports only which option of its selection matches nothing", () => {
    const found = compared({ name: "all", select: {} }, { name: "cold", select: { units: ["K"] } });
    expect(found[1]).toEqual(["cold", 0, expect.stringMatching(/^No tag has the unit "K";/)]);
  });
});

describe("the comparison of a writable tag with the building", () => {
  const entry: WritableTag = { type: "number", site_id: 1, tag_id: "101", unit: "°C", gateway_id: "3" };
  const said = (changed: Partial<WritableTag>) =>
    findWritableMismatches({ ...entry, ...changed }, BUILDING).map(
      ({ path, message }) => `${path.join(".")}: ${message}`,
    );

  test.each<[changed: Partial<WritableTag>, said: readonly string[]]>([
    [{}, []],
    [{ tag_id: "104", unit: "%" }, []],
    [{ tag_id: "999" }, ["tag_id: There is no tag 999 at any site that is followed."]],
    [
      { tag_id: "999", site_id: 5 },
      ["site_id: The token sees no site 5; there are 1 (School), 6 (Town hall), 7 (Bath)."],
    ],
    [{ site_id: 6 }, ["site_id: Tag 101 is at site 1 (School), not 6: write site_id: 1."]],
    [{ unit: "C" }, ['unit: Tag 101 has the unit "°C", not "C".']],
    [{ type: "boolean" }, ["type: Tag 101 was read as a number: write type: number."]],
    [{ tag_id: "108", unit: undefined, type: "boolean" }, []],
    [{ tag_id: "108", type: "boolean" }, ['unit: Tag 108 has no unit, not "°C".']],
    [{ gateway_id: "9" }, ["gateway_id: Site 1 has no gateway 9; there are 3 (GW-1)."]],
  ])("reports each field that differs when the entry has %j", (changed, expected) => {
    expect(said(changed)).toEqual(expected);
  });
});

test("findSiteMismatches describes a token without sites, and joinWords shortens a long list", () => {
  expect(findSiteMismatches([4], { sites: [], followed: null })).toEqual([
    { path: [0], message: "The token sees no site 4; it sees none." },
  ]);
  expect(joinWords(["a", "b", "c"], 2)).toBe("a, b and 1 more");
});
