import { expect, test } from "vitest";
import { MINUTE, workerOverHttp } from "./worker-over-http.ts";

test("the read plan and its metric are updated after the list of tags changes", async () => {
  const { clock, metrics, report, simulator } = await workerOverHttp({
    simulator: { sites: [1, 6], alarms: { recorded: false } },
    source: {
      schedules: { sites: "* * * * *", tags: "* * * * *" },
      read: [{ name: "all", every: "20s" }],
      history: [{ name: "past", resolution: "5m", backfill: "1d" }],
    },
  });
  const all = simulator.world.tags.size;
  simulator.control.changeToken("simulator-token", { sites: [6] });
  await clock.advance(5 * MINUTE);
  const initialReport = await report();
  const few = initialReport.sources[0]?.counts.tags ?? 0;
  expect(few).toBeLessThan(20);
  const classes = [{ name: "all", tags: few, targetSeconds: 20, promisedSeconds: 20, stretch: 1 }];
  const fittingPlan = { basis: "state", sites: 1, tags: few, fits: true, classes, changes: [] };
  expect(initialReport.sources[0]?.plan).toMatchObject(fittingPlan);
  expect(initialReport.sources[0]?.plan?.classes[0]?.measuredSeconds).toBeLessThanOrEqual(20);
  expect(initialReport.notices).toEqual([]);
  simulator.control.changeToken("simulator-token", { sites: "all" });
  await clock.advance(4 * MINUTE);
  const { sources, notices } = await report();
  const plan = sources[0]?.plan;
  expect(plan).toMatchObject({ sites: 2, tags: all, fits: false });
  const promisedSeconds = plan?.classes[0]?.promisedSeconds ?? 0;
  expect(promisedSeconds).toBeGreaterThan(20);
  expect(plan?.changes.length).toBeGreaterThan(0);
  expect(notices.filter((notice) => notice.includes("older than configured"))).toHaveLength(1);
  const gaugeText = /^plenum_freshness_promised_seconds\{.*\} ([\d.]+)$/m.exec(await metrics())?.[1];
  expect(Number(gaugeText)).toBeGreaterThan(20);
  expect(Math.abs(Number(gaugeText) / promisedSeconds - 1)).toBeLessThan(0.05);
});
