import { expect, test } from "vitest";
import { onlyLine, simulatedServer, workplace } from "./plenum.ts";

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
  const service = await simulatedServer({ history: { no_log: { tags: ["10170"] } } });
  const place = workplace(service.url);
  const source = { base_url: service.url, token: { file: "token" }, time_zone: "Europe/Oslo", spread: "0s" };
  // With the default quota, requests would wait for the first inventory.
  const quota = { list_requests_per_minute: 120 };
  place.configure({
    sources: {
      main: {
        ...source,
        quota,
        read: [{ name: "warm", select: { units: ["°C"] }, every: "30s" }],
        history: [{ name: "log", select: { sites: [6] }, resolution: "1h" }],
      },
    },
  });
  const rowsOf = async (...args: readonly string[]) =>
    JSON.parse((await place.plenum(...args, "--json")).stdout) as readonly Row[];
  return { service, place, rowsOf };
}

test("`tags` without a worker lists tags from the service, and sends no tag request", async () => {
  const { service, place, rowsOf } = await placed();
  const { code, stdout, stderr } = await place.plenum("tags", "--site", "6");
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
  const asked = service.simulator.truth.requests().map(({ path }) => path);
  expect(asked.filter((path) => /\/tags\/(read|write|history)/.test(path))).toEqual([]);
});

test("`tags` reports unknown ids and still prints the known tags", async () => {
  const { place } = await placed();
  const { code, stdout, stderr } = await place.plenum("tags", "10169", "nope,10001", "--site", "6");
  expect([code, stdout.split("\n").length]).toEqual([78, 3]);
  expect(stderr).toContain(
    "There is no tags nope, 10001 among the 8 tags of main. `plenum tags --search` finds them by their names.\n",
  );
  const site = await place.plenum("hosts", "--site", "99");
  expect(site.code).toBe(78);
  expect(onlyLine(site.stderr)).toMatch(
    /^The token sees no site 99; it sees 1 \(.+\), 6 \(.+\)\. `plenum sites` lists them\.$/,
  );
  const unit = await place.plenum("tags", "--unit", "C", "--site", "6");
  expect([unit.code, onlyLine(unit.stderr)]).toEqual([
    78,
    'No tag has the unit "C"; there are °C (4), none (2), l/s (1), W (1).',
  ]);
  const system = await place.plenum("tags", "--system", "999999");
  expect([system.code, onlyLine(system.stderr)]).toEqual([
    78,
    "No tag that fits belongs to the system 999999. `plenum systems` lists the systems.",
  ]);
  const wrong = await place.plenum("tags", "--class", "cold");
  expect([wrong.code, onlyLine(wrong.stderr)]).toEqual([78, "There is no class cold under `read`; there are warm."]);
});

test("`tags` prints the tags of a running worker with value, age, class and log", async () => {
  const { service, place, rowsOf } = await placed();
  const worker = place.start("run");
  await worker.says("Plenum is running");
  const own = () => rowsOf("tags", "--site", "6");
  await expect
    .poll(async () => (await own()).filter(({ hasLog }) => hasLog !== null).length, { timeout: 40_000 })
    .toBe(8);
  await expect.poll(async () => (await own()).some(({ readAt }) => readAt !== null), { timeout: 40_000 }).toBe(true);
  const rows = await own();
  expect(rows.filter(({ hasLog }) => hasLog === false).map(({ id }) => id)).toEqual(["10170"]);
  expect(rows.find(({ class: name }) => name === "warm")).toMatchObject({ value: expect.anything() });

  const before = service.simulator.truth.requests().filter(({ path }) => path.endsWith("/tags")).length;
  const shown = await place.plenum("tags", "--search", "10169");
  expect(shown.stdout).toMatch(/\n10169 /);
  expect(onlyLine(shown.stderr)).toMatch(/^1 tag of main, as the worker listed them [\d.]+ (s|min) ago\.$/);
  expect(service.simulator.truth.requests().filter(({ path }) => path.endsWith("/tags"))).toHaveLength(before);
  const [system] = await rowsOf("systems", "--site", "6");
  expect((await rowsOf("tags", "--system", system?.id ?? "")).length).toBeGreaterThan(0);
  worker.signal("SIGTERM");
  await worker.ended;
}, 180_000);
