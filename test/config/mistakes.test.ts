import { describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { parseYaml } from "#src/app/config/load.ts";
import { locateOptionsInText } from "#src/app/config/yaml-variables-and-errors.ts";
import { checkSinkSites, compareSourceWithBuilding } from "#src/cli/checking/check-building.ts";
import { createCheckReport } from "#src/cli/checking/check-report.ts";
import { BUILDING } from "../sync/building-of-eight-tags.ts";
import { MISTAKES, SOURCE } from "./configured.ts";

function reportedMistakes(written: string, isOfBuilding: boolean): readonly string[] {
  try {
    const config = parseYaml({ schema: Config, file: "f", text: written, environment: {} });
    return isOfBuilding ? reportedMismatches(written, config) : [];
  } catch (error) {
    return (error as Error).message.split("\n").map((line) => line.replace(/^f:/, ""));
  }
}

function reportedMismatches(written: string, config: Config): readonly string[] {
  const report = createCheckReport(locateOptionsInText("f", written));
  const [entry] = Object.values(config.sources);
  if (entry === undefined) return [];
  const building = { ...BUILDING, followed: entry.inventory.sites ?? null };
  compareSourceWithBuilding({ name: "main", sourceConfig: entry, config, building, report });
  checkSinkSites(config, new Map([["main", building]]), report);
  return report.results
    .filter(({ result }) => result !== "ok")
    .map(({ place = "", detail }) => `${place.replace(/^f:/, "")} ${detail}`);
}

describe("a common mistake in the configuration", () => {
  test.each(MISTAKES)("is reported with its line and the correct form: $what", ({ what, written, said }) => {
    const lines = reportedMistakes(written, what.startsWith("building"));
    expect(lines).toEqual(said);
    for (const line of lines) expect(line).toMatch(/^\d+:\d+ .*\.$|^\d+:\d+ .*\?$/);
  });

  test("is reported without plain-text secrets", () => {
    const all = MISTAKES.flatMap(({ said }) => said).join("\n");
    expect(all).not.toMatch(/geheim|abcdef123456|1234567890|8\|abc/);
  });
});

test("the configuration accepts the schedule @daily and an address that ends with /api/v1/", () => {
  const allMessages = `${SOURCE.replace("example.com", "example.com/api/v1/")}    schedules: { tags: "@daily" }\n`;
  const { main } = parseYaml({ schema: Config, file: "f", text: allMessages, environment: {} }).sources;
  expect([main?.schedules.tags, main?.base_url]).toEqual(["0 0 * * *", "https://monitoring.example.com"]);
});
