import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { servedHarness, tagRequests } from "./plenum.ts";

const HEADER = "tag_id,path,alias,unit_code";

test("plenum names adds missing tags to the names file, keeps existing entries, and reports mistakes in the file", async () => {
  const { service, cli } = await servedHarness();
  cli.configure();
  expect(await cli.refusal("names", "--write")).toBe(
    "78 The source main has no names file. Set sources.main.names, e.g. to names.csv in the folder of the configuration file.",
  );
  cli.configure({ source: { names: "names.csv" } });
  const file = cli.path("names.csv");
  expect((await cli.plenum("names", "check")).stdout).toMatch(
    /names\.csv does not exist; write it with `plenum names --write`\.\n$/,
  );
  const { stdout } = await cli.plenum("names");
  expect(stdout).toContain(`${HEADER}\n10001,b1/432.001/OE001_Energi,b1_432.001_OE001_Energi,kW.h\n`);

  writeFileSync(file, `${HEADER}\n10002,mine,"My, name",\n`);
  expect((await cli.plenum("names", "--write")).code).toBe(0);
  const lines = readFileSync(file, "utf8").split("\n");
  expect(lines.slice(0, 3)).toEqual([
    HEADER,
    "10001,b1/432.001/OE001_Energi,b1_432.001_OE001_Energi,kW.h",
    '10002,mine,"My, name",',
  ]);
  const { code, stdout: sound } = await cli.plenum("names", "check");
  expect([code, sound]).toEqual([0, `${file} has 141 tags and no mistakes.\n`]);

  writeFileSync(file, `${HEADER}\n10001,a,10002,\n10002,A,,\n99,,,\n`);
  const checked = await cli.plenum("names", "check");
  expect(checked.code).toBe(78);
  expect(checked.stdout.trimEnd().split("\n")).toEqual([
    "Line 2: The alias 10002 is the id of another tag.",
    "Line 3: The path A is already in line 2.",
    "Line 4: The source has no tag 99.",
  ]);
  expect(await cli.refusal("names")).toContain("78 The names file has mistakes. Line 2:");
  expect((await cli.plenum("check", "--no-lists")).stdout).toMatch(
    /names of main +warning .*Line 3: The path A is already in line 2/,
  );
  expect(tagRequests(service)).toEqual([]);

  chmodSync(file, 0o666);
  const sinks = { broker: { mqtt: { url: "mqtt://127.0.0.1:1", commands: { enabled: true } } } };
  cli.configure({ source: { names: "names.csv" }, sinks });
  expect(await cli.refusal("run")).toContain(`${file} (mode 666`);
});
