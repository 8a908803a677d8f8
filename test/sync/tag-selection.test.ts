import { describe, expect, test } from "vitest";
import { globMatches } from "#src/core/values/glob.ts";
import { HistoryConfig } from "#src/engine/sync/history/config.ts";
import { ReadConfig } from "#src/engine/sync/read/config.ts";
import {
  createClassFinder,
  createTagFilter,
  type SelectableTag,
  TagSelection,
} from "#src/engine/sync/tag-selection.ts";
import { effortOf } from "../effort.ts";

function tag(fields: Partial<SelectableTag["tag"]> & { siteId?: number; systemIds?: string[] }): SelectableTag {
  const { siteId = 1, systemIds = [], ...rest } = fields;
  return {
    tag: { id: "1", displayName: "VS1-GT11", description: "Supply temperature", unit: "°C", ...rest },
    siteId,
    systemIds,
  };
}

const chosen = (selection: unknown, tag: SelectableTag) => createTagFilter(TagSelection.parse(selection))(tag);

describe("a selection of tags", () => {
  test("selects every tag when it has no fields", () => {
    expect(chosen({}, tag({}))).toBe(true);
  });

  test("selects the tags that match every field; a field matches if any of its entries does", () => {
    expect(chosen({ sites: [1, 2], units: ["°C"] }, tag({ siteId: 2 }))).toBe(true);
    expect(chosen({ sites: [1, 2], units: ["kWh"] }, tag({ siteId: 2 }))).toBe(false);
    expect(chosen({ systems: ["5"] }, tag({ systemIds: ["4", "5"] }))).toBe(true);
    expect(chosen({ ids: ["7"] }, tag({ id: "1" }))).toBe(false);
    expect(chosen({ units: [""] }, tag({ unit: null }))).toBe(true);
  });

  test("matches names regardless of case", () => {
    expect(chosen({ name: "vs1-gt*" }, tag({}))).toBe(true);
    expect(chosen({ name: "*TEMPERATURE" }, tag({}))).toBe(true);
    expect(chosen({ name: ["x*", "vs?-gt11"] }, tag({}))).toBe(true);
    expect(chosen({ name: "gt11" }, tag({}))).toBe(false);
  });

  test("excludes the tags of exclude, and rejects an empty exclude", () => {
    expect(chosen({ exclude: { units: ["°C"] } }, tag({}))).toBe(false);
    expect(chosen({ exclude: { units: ["kWh"] } }, tag({}))).toBe(true);
    expect(TagSelection.safeParse({ exclude: {} }).success).toBe(false);
    expect(TagSelection.safeParse({ site: [1] }).success).toBe(false);
  });

  test("matches all characters of a pattern literally except * and ?", () => {
    expect(globMatches("a.b(c)[d]+", "A.b(C)[d]+")).toBe(true);
    expect(globMatches("a.b", "axb")).toBe(false);
    expect(globMatches("**", "")).toBe(true);
    expect(globMatches("Å*ö", "åäÖ")).toBe(true);
  });

  test("matches a pattern with many asterisks against a long name in little time", async () => {
    const effort = await effortOf(() => expect(globMatches(`${"*a".repeat(50)}*b`, "a".repeat(5_000))).toBe(false));
    expect(effort).toBeLessThan(100);
  });
});

describe("classes of tags", () => {
  test("contain each tag in the first class that selects the tag", () => {
    const classes = ReadConfig.parse([
      { name: "comfort", select: { units: ["°C"] }, every: "1m", firm: true },
      { name: "rest", every: "1h" },
    ]);
    const classOf = createClassFinder(classes);
    expect(classOf(tag({}))?.name).toBe("comfort");
    expect(classOf(tag({ unit: "kWh" }))).toMatchObject({ name: "rest", every: 3_600_000, on_change: false });
  });

  test("are rejected with a reason if their settings are invalid", () => {
    const problems = (schema: typeof ReadConfig | typeof HistoryConfig, value: unknown) =>
      schema.safeParse(value).error?.issues.map((issue) => issue.message) ?? [];
    expect(problems(ReadConfig, [{ name: "a", every: "1s" }])[0]).toContain("every 3 s");
    expect(
      problems(ReadConfig, [
        { name: "a", every: "1m" },
        { name: "a", every: "2m" },
      ])[0],
    ).toContain("used twice");
    expect(problems(HistoryConfig, [{ name: "h", resolution: "1h", time_zone: "Mars/Base" }])[0]).toContain("IANA");
    expect(problems(HistoryConfig, [{ name: "h", resolution: "1h", time_zone: "+02:00" }])[0]).toContain("IANA");
    expect(problems(HistoryConfig, [{ name: "h", resolution: "5m", total: true }])[0]).toContain("1h or longer");
  });
});
