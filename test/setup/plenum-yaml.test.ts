import { describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { parseYaml } from "#src/app/config/load.ts";
import { buildConfigurationValues, draftConfiguration } from "#src/cli/running/write-first-configuration.ts";
import type { BuildingSummary } from "#src/ui/setup/building-inspection.ts";
import { proposeChoices, quotaUseText, type SetupChoices } from "#src/ui/setup/setup-choices.ts";
import { buildingWith, CONFIGURATION_VALUES, HISTORY, sitesNamed } from "./buildings.ts";

function draftFor(building: BuildingSummary, change: (choices: SetupChoices) => SetupChoices = (choices) => choices) {
  const proposed = proposeChoices(
    building,
    HISTORY,
    (tried) => draftConfiguration(CONFIGURATION_VALUES, tried, building).plan,
  );
  const choices = change(proposed);
  const { text, plan } = draftConfiguration(CONFIGURATION_VALUES, choices, building);
  const config = parseYaml({ schema: Config, file: "plenum.yaml", text, environment: {} });
  const source = config.sources.campus;
  if (source === undefined) throw new Error("no source");
  return { choices, text, plan, source, lines: text.trimEnd().split("\n") };
}

const USUAL = { "°C": 80, "%": 50, kWh: 40, "": 30 };

describe("plenumYaml (the configuration that the setup writes)", () => {
  test("returns a valid configuration of 21 to 33 lines that states its share of the quota", () => {
    const { lines, source, plan, text } = draftFor(buildingWith(USUAL));
    expect(lines.length).toBeGreaterThan(20);
    expect(lines.length).toBeLessThan(34);
    expect(source.read.map(({ name, every, select }) => [name, every, select.units])).toEqual([
      ["readings", 30_000, ["°C", "%"]],
      ["meters", 900_000, ["kWh"]],
      ["the rest", 120_000, undefined],
    ]);
    expect(source.history).toMatchObject([{ resolution: "1h", backfill: 7 * 86_400_000 }]);
    expect(plan.classes.map(({ tags }) => tags)).toEqual([130, 40, 30]);
    expect(quotaUseText(plan)).toMatch(/^These intervals take \d\d % of the quota \(20 requests a minute\)\.$/);
    expect(text).toContain(`# ${quotaUseText(plan)}`);
    expect(text).toContain("# 200 tags (°C 80, % 50, kWh 40, no unit 30).");
    expect(text).not.toContain("schedules");
  });

  test("contains the token file, the token's expiry and up to three sites", () => {
    const commentLines = (expiresAt: string | null, names: readonly string[]) => {
      return draftFor(buildingWith(USUAL, { expiresAt, sites: sitesNamed(...names) })).lines.slice(1, 3);
    };
    expect(commentLines(null, ["A"])).toEqual(['# Token "Plenum" of Kari Nordmann, never expires.', "# It sees A:"]);
    expect(commentLines("2027-11-02T12:00:00Z", ["A", "B", "C"])).toEqual([
      '# Token "Plenum" of Kari Nordmann, expires 2027-11-02.',
      "# It sees A, B, C:",
    ]);
    expect(commentLines(null, ["A", "B", "C", "D", "E"])[1]).toBe("# It sees A, B, C and 2 more sites:");
  });

  test("fetches history every 6 h above 1,000 tags and daily above 4,000", () => {
    const everyOf = (tags: number) => /every: (\w+)\s+backfill/.exec(draftFor(buildingWith({ "°C": tags })).text)?.[1];
    expect([everyOf(10), everyOf(1_500), everyOf(4_500)]).toEqual([undefined, "6h", "1d"]);
    const withoutBackfill = draftFor(buildingWith(USUAL), (choices) => ({
      ...choices,
      history: { resolution: "1d", backfillDays: 0 },
      polite: 0.5,
    }));
    expect([withoutBackfill.source.history[0]?.backfill, withoutBackfill.source.quota.polite]).toEqual([0, 0.5]);
    expect(withoutBackfill.text).not.toContain("backfill:");
    expect(draftFor(buildingWith(USUAL)).text).not.toContain("polite");
  });

  test.each([10, 300, 3_000, 30_000])("leaves a fifth of the quota unused with %i tags", (tags) => {
    const { plan, choices } = draftFor(buildingWith({ "°C": tags * 0.6, kWh: tags * 0.2, "": tags * 0.2 }));
    expect(plan.load).toBeLessThanOrEqual(0.8);
    expect(plan.fits).toBe(true);
    expect(plan.tags).toBe(tags);
    expect(choices.every.readings).toBeGreaterThanOrEqual(30_000);
  });

  test("has no read class and no history for a building without tags", () => {
    const { source, plan, text } = draftFor(buildingWith({}));
    expect([source.read, source.history, plan.load]).toEqual([[], [], 0]);
    expect(text).toContain("0 tags");
  });

  test("has one read class that selects everything when all tags are in one group", () => {
    const { source } = draftFor(buildingWith({ "": 5 }));
    expect(source.read).toMatchObject([{ name: "everything", select: {}, every: 30_000 }]);
  });

  test("switches off the lists that the token may not read", () => {
    const { source, text } = draftFor(buildingWith({}, { abilities: ["read:alarms"] }));
    expect(text).toContain("# The token may not read tags, gateways, hosts, systems.");
    expect(source.schedules).toMatchObject({ tags: false, gateways: false, hosts: false, systems: false });
    expect(source.schedules.alarms).not.toBe(false);
    const valuesOnly = draftFor(buildingWith(USUAL, { abilities: ["read:tags", "write:tags"] }));
    expect(valuesOnly.source.schedules).toMatchObject({ alarms: false, resolved_sweep: false });
    expect(valuesOnly.text).toContain("# The token may write tags.");
  });

  test("excludes the units of a group that is not read from the last read class", () => {
    const every = { readings: 60_000, meters: null, rest: 300_000 };
    const { source, plan } = draftFor(buildingWith(USUAL), (choices) => ({ ...choices, every, history: null }));
    expect(source.read).toMatchObject([
      { name: "readings", select: { units: ["°C", "%"] } },
      { name: "the rest", select: { exclude: { units: ["kWh"] } } },
    ]);
    expect([plan.classes.map(({ tags }) => tags), plan.tagsNotRead, source.history]).toEqual([[130, 30], 40, []]);
  });

  test("quotes hostile names and units of the service", () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: what a configuration would replace.
    const hostile = 'x"\n  evil: ${HOME} # \u202e\u0007 - {}';
    const token = { name: hostile, user: { id: 1, name: hostile, email: "" }, sites: sitesNamed(hostile) };
    const { source, text } = draftFor(buildingWith({ [hostile]: 3, kWh: 2, "": 1 }, token));
    expect(source.read[0]?.select.units).toEqual([hostile]);
    for (const unseen of ["\u202e", "\u0007"]) expect(text).not.toContain(unseen);
    expect(text.split("\n").filter((line) => line.startsWith("  evil"))).toEqual([]);
  });

  test("uses absolute paths for a configuration outside the working directory", () => {
    const frame = buildConfigurationValues("/etc/plenum/plenum.yaml", 9851, {
      ...CONFIGURATION_VALUES,
      tokenFile: "/etc/plenum/token",
    });
    const { text } = draftConfiguration(frame, draftFor(buildingWith(USUAL)).choices, buildingWith(USUAL));
    expect(text).toContain("status: { port: 9851 } # 9850 was taken\n");
    expect(text).toContain("folder: /etc/plenum/state\n");
    expect(text).toContain("files: { file: { folder: /etc/plenum/events } }\n");
  });
});
