import { writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { onlyLine, servedHarness, tagRequests } from "./plenum.ts";

interface Row {
  readonly id: string;
  readonly unit: string | null;
  readonly siteId: number;
  readonly class: string | null;
  readonly hasLog: boolean | null;
  readonly value?: unknown;
  readonly readAt: string | null;
}

async function placed() {
  const { service, cli } = await servedHarness({ history: { no_log: { tags: ["10170"] } } });
  cli.configure({
    source: {
      ...{ spread: "0s", names: "names.csv" },
      // With the default quota, requests would wait for the first inventory.
      quota: { list_requests_per_minute: 120 },
      read: [{ name: "warm", select: { units: ["°C"] }, every: "30s" }],
      history: [{ name: "log", select: { sites: [6] }, resolution: "1h" }],
    },
  });
  writeFileSync(cli.path("names.csv"), "tag_id,path,alias,unit_code\n10169,b1/360/GT11,Supply air,\n");
  const readRows = (...args: readonly string[]) => cli.json<readonly Row[]>(...args);
  return { service, cli, rowsOf: readRows };
}

test("plenum tags without a worker lists tags from the service, and sends no tag request", async () => {
  const { service, cli, rowsOf } = await placed();
  const { code, stdout, stderr } = await cli.plenum("tags", "--site", "6");
  expect(code).toBe(0);
  expect(stdout).toMatch(/^id +name +value +unit +age +class +log +site +description\n10\d{3} /);
  expect(onlyLine(stderr)).toBe("8 tags of main, as the service lists them.");
  const warm = await rowsOf("tags", "--class", "warm");
  expect(new Set(warm.map(({ unit }) => unit))).toEqual(new Set(["°C"]));
  expect(warm).toEqual(await rowsOf("tags", "--unit", "°C"));
  const [first] = warm;
  expect(first).toMatchObject({ class: "warm", hasLog: null, readAt: null });
  expect(first).not.toHaveProperty("value");
  const [system] = await rowsOf("systems", "--site", "6");
  const ofSystem = await rowsOf("tags", "--system", system?.id ?? "");
  expect(ofSystem.length).toBeGreaterThan(0);
  expect(new Set(ofSystem.map(({ siteId }) => siteId))).toEqual(new Set([6]));
  for (const kind of ["gateways", "hosts"]) expect((await rowsOf(kind)).length, kind).toBeGreaterThan(0);
  expect(tagRequests(service)).toEqual([]);
});

test("plenum tags reports unknown ids and still prints the known tags", async () => {
  const { cli } = await placed();
  const { code, stdout, stderr } = await cli.plenum("tags", "10169", "nope,10001", "--site", "6");
  expect([code, stdout.split("\n").length]).toEqual([78, 3]);
  expect(stderr).toContain(
    "There is no tags nope, 10001 among the 8 tags of main. `plenum tags --search` finds them by their names.\n",
  );
});

test("plenum tags prints the tags of a running worker with value, age, read class and history log", async () => {
  const { service, cli, rowsOf } = await placed();
  const worker = await cli.run();
  const ownTags = () => rowsOf("tags", "--site", "6");
  await expect.poll(async () => (await ownTags()).filter(({ hasLog }) => hasLog !== null).length).toBe(8);
  await expect.poll(async () => (await ownTags()).some(({ readAt }) => readAt !== null)).toBe(true);
  const rows = await ownTags();
  expect(rows.filter(({ hasLog }) => hasLog === false).map(({ id }) => id)).toEqual(["10170"]);
  expect(rows.find(({ class: name }) => name === "warm")).toMatchObject({ value: expect.anything() });
  const listsBefore = service.simulator.truth.requests().filter(({ path }) => path.endsWith("/tags")).length;
  const searchOutput = await cli.plenum("tags", "--search", "360/gt");
  expect(searchOutput.stdout).toMatch(/^id +name +alias +value .*\n10169 .* Supply air /);
  expect(onlyLine(searchOutput.stderr)).toMatch(/^1 tag of main, as the worker listed them [\d.]+ (s|min) ago\.$/);
  expect(service.simulator.truth.requests().filter(({ path }) => path.endsWith("/tags"))).toHaveLength(listsBefore);
  const [system] = await rowsOf("systems", "--site", "6");
  expect((await rowsOf("tags", "--system", system?.id ?? "")).length).toBeGreaterThan(0);
  await worker.stop();
});
