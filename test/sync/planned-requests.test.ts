import { expect, onTestFinished, test } from "vitest";
import { buildPlanSettings } from "#src/app/build-sync.ts";
import { loadRequestableTags } from "#src/engine/sync/inventory/requestable-tags.ts";
import { reportPlan } from "#src/engine/sync/plan/report.ts";
import { loadPlanFacts } from "#src/engine/sync/quota-plan-inputs.ts";
import { planForBuilding, planLines } from "#src/ui/setup/setup-choices.ts";
import { buildingWith } from "../setup/buildings.ts";
import { startVirtualWorker } from "../virtual-worker.ts";

const HOUR_MS = 3_600_000;
const comfort = (every: string) => ({ name: "comfort", every, select: { units: ["°C"] } });
const TWO_CLASSES = [comfort("1m"), { name: "rest", every: "5m" }];

test.each<[configuration: string, source: { readonly read: readonly object[]; readonly history?: readonly object[] }]>([
  ["32 % of the quota", { read: TWO_CLASSES }],
  ["with history", { read: TWO_CLASSES, history: [{ name: "log", resolution: "5m", every: "15m" }] }],
  ["96 % of the quota", { read: [comfort("30s"), { name: "rest", every: "70s" }] }],
])(
  "requests in the service's log and emitted rows are within 5 % of the plan and of the setup page: %s",
  async (_, source) => {
    const virtual = await startVirtualWorker({
      simulator: { alarms: { recorded: false } },
      source: { ...source, schedules: { alarms: false, gateways: false, hosts: false, systems: false } },
      eventsFolder: null,
    });
    onTestFinished(() => virtual.clear());
    const { clock, config, simulator, worker } = virtual;
    await clock.advance(HOUR_MS);
    const [fromMs, requestsBefore] = [clock.now(), simulator.truth.requests().length];
    await clock.advance(HOUR_MS);

    const entry = config.sources.main;
    if (entry === undefined) throw new Error("There is no source.");
    const settings = buildPlanSettings("main", entry, config.state);
    const plan = reportPlan(await loadPlanFacts(worker.store, settings, clock, null));
    expect(plan).toMatchObject({ fits: true, learning: null, backfill: null });
    const requests = simulator.truth.requests().slice(requestsBefore);
    const countRequests = (name: string) => requests.filter(({ endpoint }) => endpoint === name).length;
    const laneRates = new Map(plan.lanes.map(({ lane, requestsPerMinute }) => [lane, requestsPerMinute * 60]));
    expectWithin5Percent(countRequests("read"), laneRates.get("live"), "read requests");
    expectWithin5Percent(countRequests("history"), laneRates.get("history"), "history requests");

    const values = (await virtual.events()).filter(
      ({ type, time }) => type === "tag-value" && Date.parse(time) >= fromMs,
    );
    const isComfort = ({ data }: (typeof values)[number]) => "tag" in data && data.tag.unit === "°C";
    for (const { name, rowsPerDay } of plan.classes) {
      const rows = values.filter((value) => isComfort(value) === (name === "comfort"));
      expectWithin5Percent(24 * rows.length, rowsPerDay, `rows of ${name}`);
    }
    const unitCounts: Record<string, number> = {};
    for (const { tag } of await loadRequestableTags(worker.store, "main"))
      unitCounts[tag.unit ?? ""] = (unitCounts[tag.unit ?? ""] ?? 0) + 1;
    const setupPlan = planForBuilding(config, buildingWith(unitCounts), clock.now(), buildPlanSettings);
    const [, rows] = /stores (\d+) rows of values a day/.exec(planLines(setupPlan).join("\n")) ?? [];
    expectWithin5Percent(24 * values.length, Number(rows), "rows on the setup page");
  },
);

function expectWithin5Percent(counted: number, planned: number | undefined, of: string): void {
  const deviation = Math.abs(counted - (planned ?? Number.NaN));
  expect(deviation, `${of}: ${counted} instead of ${planned}`).toBeLessThanOrEqual(0.05 * (planned ?? 0));
}
