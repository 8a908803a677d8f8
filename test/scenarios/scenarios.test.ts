import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { stepsIn, worldIn } from "./story.ts";
import { walk } from "./walk.ts";

const HERE = import.meta.dirname;
const folders = readdirSync(HERE, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);

describe("scenarios (trap 23, trap 36, trap 37, trap 38, trap 39, trap 40)", () => {
  test.each(folders)("%s", async (name) => {
    const { told, expected } = await walk(worldIn(`${HERE}/${name}`), stepsIn(`${HERE}/${name}`));
    expect(told).toEqual(expected);
    expect(expected.flat().length).toBeGreaterThan(0);
  });
});
