import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { PlanReport } from "#src/engine/sync/plan/report.ts";
import { type Harness, type Service, servedHarness, tagRequests } from "./plenum.ts";

const CLASSES = [
  { name: "comfort", every: "1m", select: { units: ["°C"] } },
  { name: "rest", every: "15m" },
];
const HISTORY = [{ name: "log", resolution: "5m", every: "1h", backfill: "30d" }];

async function createPlanSetup(parts: object = {}, state: object = {}): Promise<{ service: Service; cli: Harness }> {
  const { service, cli } = await servedHarness();
  cli.configure({ state: { folder: "state", ...state }, source: { read: CLASSES, history: HISTORY, ...parts } });
  return { service, cli };
}

function parsePlans(stdout: string): readonly PlanReport[] {
  expect(stdout.trimEnd().split("\n")).toHaveLength(1);
  return JSON.parse(stdout) as PlanReport[];
}

describe("plenum plan without a worker", () => {
  test("uses the service's lists of sites and tags, reads no tag and leaves no files behind", async () => {
    const { service, cli } = await createPlanSetup();
    const { code, stdout, stderr } = await cli.plenum("plan");
    expect(code).toBe(0);
    expect(stderr.replaceAll(/^Planning … \d+ s\n/gm, "")).toBe("");
    expect(stdout).toMatch(/^source main: 2 sites, 141 tags, as the service lists them\n/);
    expect(stdout).toMatch(/^ +live +\d+\.\d\d +\d+\.\d %$/m);
    expect(stdout).toMatch(/^ +comfort +\d+ +60 s +60 s +[\d.]+ s +– +\d+ +\d+\.\d\d$/m);
    expect(stdout).toMatch(/^ +rest +\d+ +15 min +15 min /m);
    expect(stdout).toMatch(/^Reading every one of them once takes \d+ s\.$/m);
    expect(stdout).toMatch(/^ +log +141 +5m +\d\.\d{3} +0$/m);
    expect(stdout).toMatch(
      /^The backfill takes \d+ requests, [\d.]+ a minute, and is done at 20[\d-]+ [\d:]+ [+-]\d\d:\d\d \(in [^)]+\)\.$/m,
    );
    const [, atBest] =
      /^If the service bears larger replies than it has shown, it takes (\d+) and is done at 20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))?\.$/m.exec(
        stdout,
      ) ?? [];
    expect(stdout).toMatch(
      /^It fits: the intervals need \d+ % of the plannable quota\. By this plan no value becomes older than its interval\.$/m,
    );
    expect(tagRequests(service)).toEqual([]);
    expect(existsSync(cli.path("state"))).toBe(false);
    const [plan] = parsePlans((await cli.plenum("plan", "--json")).stdout);
    expect(plan).toMatchObject({ basis: "lists", sites: 2, tags: 141, fits: true, changes: [] });
    expect(plan?.backfill?.requestsAtBest).toBe(Number(atBest));
    expect(plan?.backfill?.requestsAtBest).toBeLessThan(plan?.backfill?.requestsLeft ?? 0);
    expect(plan?.lanes.map(({ lane }) => lane)).toEqual(["write", "live", "history", "spare"]);
  });

  test("plans more history requests for a smaller outbox limit, because each request must be smaller", async () => {
    const ofLog = async (mebibytes: number) => {
      const { cli } = await createPlanSetup({}, { max_bytes: mebibytes * 1024 ** 2 });
      return parsePlans((await cli.plenum("plan", "--json")).stdout)[0]?.backfill?.requestsAtBest ?? 0;
    };
    // A fiftieth of 100 MiB is 32,768 values, half a response of the default `max_body_bytes` in 400 MiB.
    const [small, middle, large, huge] = [await ofLog(100), await ofLog(400), await ofLog(800), await ofLog(1_600)];
    expect(small).toBeGreaterThan(middle);
    expect(middle).toBeGreaterThan(large);
    expect(huge).toBe(large);
  });

  test("reports an unreachable service in one message", async () => {
    const { service, cli } = await createPlanSetup();
    await service.close();
    expect(await cli.refusal("plan")).toMatch(/^75 .*could not be asked/);
  });
});

test("plenum plan uses the stored state and the current configuration file, during and after a run", async () => {
  const { service, cli } = await createPlanSetup();
  const worker = await cli.run();
  const plan = async (...more: readonly string[]) =>
    parsePlans((await cli.plenum("plan", "--json", ...more)).stdout)[0];
  const completePlan = { basis: "state", sites: 2, tags: 141, fits: true };
  await expect.poll(() => plan()).toMatchObject(completePlan);
  cli.configure({ source: { read: [{ name: "all", every: "10s" }] } });
  expect(await plan()).toMatchObject({ basis: "state", fits: false, classes: [{ name: "all", tags: 141 }] });
  const requestsBefore = tagRequests(service).length;
  expect(await plan("--ask")).toMatchObject({ basis: "lists", fits: false });
  expect(tagRequests(service).length - requestsBefore).toBeLessThanOrEqual(1);
  await worker.stop();
  expect(await plan()).toMatchObject({ basis: "state", tags: 141 });
});
