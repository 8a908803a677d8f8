import { expect, onTestFinished, test } from "vitest";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const MINUTE = 60_000;

async function fetchReport({ worker }: VirtualWorker): Promise<StatusReport> {
  return (await (await fetch(`${worker.statusUrl()}/api/status`)).json()) as StatusReport;
}

test("the plan and its metric are updated after a change of the inventory", async () => {
  const virtual = await startVirtualWorker({
    simulator: { sites: [1, 6], alarms: { recorded: false } },
    source: {
      schedules: { sites: "* * * * *", tags: "* * * * *" },
      read: [{ name: "all", every: "20s" }],
      history: [{ name: "past", resolution: "5m", backfill: "1d" }],
    },
  });
  onTestFinished(() => virtual.clear());
  const { simulator, clock, worker } = virtual;
  const all = simulator.world.tags.size;
  simulator.control.changeToken("simulator-token", { sites: [6] });
  await clock.advance(5 * MINUTE);
  const initialReport = await fetchReport(virtual);
  const few = initialReport.sources[0]?.counts.tags ?? 0;
  expect(few).toBeLessThan(20);
  const classes = [{ name: "all", tags: few, targetSeconds: 20, promisedSeconds: 20, stretch: 1 }];
  const fittingPlan = { basis: "state", sites: 1, tags: few, fits: true, classes, changes: [] };
  expect(initialReport.sources[0]?.plan).toMatchObject(fittingPlan);
  expect(initialReport.sources[0]?.plan?.classes[0]?.measuredSeconds).toBeLessThanOrEqual(20);
  expect(initialReport.notices).toEqual([]);
  simulator.control.changeToken("simulator-token", { sites: "all" });
  await clock.advance(4 * MINUTE);
  const { sources, notices } = await fetchReport(virtual);
  const plan = sources[0]?.plan;
  expect(plan).toMatchObject({ sites: 2, tags: all, fits: false });
  const promisedSeconds = plan?.classes[0]?.promisedSeconds ?? 0;
  expect(promisedSeconds).toBeGreaterThan(20);
  expect(plan?.changes.length).toBeGreaterThan(0);
  expect(notices.filter((notice) => notice.includes("older than configured"))).toHaveLength(1);
  const metrics = await (await fetch(`${worker.statusUrl()}/metrics`)).text();
  const gaugeText = /^plenum_freshness_promised_seconds\{.*\} ([\d.]+)$/m.exec(metrics)?.[1];
  expect(Number(gaugeText)).toBeGreaterThan(20);
  expect(Math.abs(Number(gaugeText) / promisedSeconds - 1)).toBeLessThan(0.05);
});
