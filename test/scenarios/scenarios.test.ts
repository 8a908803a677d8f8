import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { playScenario } from "./play-scenario.ts";
import { readSteps, readWorld } from "./scenario-files.ts";

const FOLDER = import.meta.dirname;
const folders = readdirSync(FOLDER, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);

describe("scenarios", () => {
  test.each(folders)("emits the expected events in the scenario %s", async (name) => {
    const folder = `${FOLDER}/${name}`;

    const { told, expected } = await playScenario(readWorld(folder), readSteps(folder));
    expect(told).toEqual(expected);
    expect(expected.flat().length).toBeGreaterThan(0);
  });
});
