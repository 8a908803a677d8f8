import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { SimulatorOptions, type SimulatorOptionsInput } from "#src/simulator/options.ts";
import { START_MS, simulatedService } from "./simulated-service.ts";

const DEMO: SimulatorOptionsInput = { epoch: START_MS, speed: 360, anchor: "next-alarm" };
const PACKAGE = fileURLToPath(new URL("../../src/simulator", import.meta.url));

describe("a restart of the simulator with the same epoch", () => {
  const readEverything = (service: ReturnType<typeof simulatedService>) => [
    service.get("alarms", { status: "all", per_page: 500 }).body,
    service.get("tags/read", { tags: "10001,10168,10192,10310" }).body,
    service.get("tags/history", {
      tags: "10168,10169,10192",
      from: "2026-11-21T08:00:00Z",
      to: "2026-11-21T12:00:00Z",
      resolution: "5m",
      tz: "Europe/Oslo",
    }).body,
    service.get("gateways", { site_id: 6 }).body,
    service.get("me").body,
  ];

  test("returns the same data as before the restart", () => {
    const firstService = simulatedService(DEMO);
    firstService.advance(1000);
    expect(readEverything(simulatedService(DEMO, START_MS + 1_000_000))).toEqual(readEverything(firstService));
  });

  test("keeps all changes with the exported state", () => {
    const firstService = simulatedService(DEMO);
    const { control } = firstService.simulator;
    firstService.advance(30);
    firstService.post("tags/write", { tags: [{ tag_id: "10169", value: 61.5 }] });
    control.acknowledgeAlarm("500088", "Kari");
    const id = control.raiseAlarm({ siteId: 6 });
    control.setGateway(108, false);
    control.changeInventory("tags", "10001", { attributes: { display_name: "Renamed" } });
    control.changeToken("simulator-token", { sites: [1, 6, 9, 14] });
    firstService.advance(600);
    const state = JSON.parse(JSON.stringify(firstService.simulator.exportState()));

    const secondService = simulatedService(DEMO, firstService.nowMs());
    expect(readEverything(secondService)).not.toEqual(readEverything(firstService));
    secondService.simulator.importState(state);
    expect(readEverything(secondService)).toEqual(readEverything(firstService));
    expect(secondService.simulator.control.raiseAlarm({ siteId: 6 })).not.toBe(id);
  });

  test("rejects the exported state of another epoch", () => {
    const state = simulatedService(DEMO).simulator.exportState();
    const { simulator } = simulatedService({ ...DEMO, epoch: START_MS + 1000 });
    expect(() => simulator.importState(state)).toThrow(/another epoch/);
  });
});

describe("simulated time", () => {
  test("maps each recorded sample to its time divided by the speed, in reads and history", () => {
    const service = simulatedService(DEMO);
    const { truth, world } = service.simulator;
    const site = world.sites.get(9);
    const rows = readFileSync(join(PACKAGE, "data/series/trh-r1.csv"), "utf8").trim().split("\n").slice(1);
    const recorded = rows.map((row) => ({ atMs: Date.parse(row.slice(0, 20)), value: Number(row.split(",")[3]) }));
    for (let step = 0; step < 300; step += 1) {
      service.advance(1.7);
      const recordedMs = (site?.firstSampleMs ?? 0) + (site?.timeline.positionAt(service.nowMs()) ?? 0);
      const sample = recorded.findLast(({ atMs }) => atMs <= recordedMs);
      expect(truth.value("10192", service.nowMs())).toBe(sample?.value);
    }
    const range = { fromMs: START_MS, toMs: START_MS + 300_000, resolution: "5m", tz: "UTC" } as const;
    const inRange = recorded.filter(({ atMs }) => {
      const wallMs = START_MS + (atMs - (site?.firstSampleMs ?? 0) - (site?.timeline.positionAt(START_MS) ?? 0)) / 360;
      return wallMs >= START_MS && wallMs < START_MS + 300_000;
    });
    expect(inRange.length).toBe(180);
    const mean = inRange.reduce((sum, { value }) => sum + value, 0) / inRange.length;
    expect(truth.history({ tagId: "10192", ...range })).toEqual([
      { startMs: START_MS, value: expect.closeTo(mean, 3) },
    ]);
    const ahead = truth.history({ tagId: "10192", ...range, toMs: START_MS + 86_400_000 });
    expect(ahead.at(-1)?.startMs).toBeLessThanOrEqual(service.nowMs());
  });

  test("at speed 1 has weeks of history and alarms in the next week", () => {
    const { truth } = simulatedService().simulator;
    const week = 7 * 86_400_000;
    const weeks = { fromMs: START_MS - 4 * week, toMs: START_MS, resolution: "1d", tz: "UTC" } as const;
    for (const tagId of ["10001", "10168", "10192", "10308", "10312", "10316"])
      expect(truth.history({ tagId, ...weeks }).length).toBeGreaterThanOrEqual(28);
    expect(truth.alarms.transitions(START_MS, START_MS + week).length).toBeGreaterThan(10);
  });

  test("has no values and history before the recording begins", () => {
    const { truth } = simulatedService({ anchor: "start" }).simulator;
    expect(truth.history({ tagId: "10001", fromMs: 0, toMs: START_MS, resolution: "1mo", tz: "UTC" })).toEqual([]);
    expect(truth.value("10001", START_MS - 1000)).toBeNull();
  });
});

describe("the simulator package", () => {
  test("imports no other package of Plenum", () => {
    const files = readdirSync(PACKAGE, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
    expect(files.length).toBeGreaterThan(10);
    for (const file of files) {
      for (const [, from = ""] of readFileSync(join(PACKAGE, file), "utf8").matchAll(/from "([^"]+)"/g)) {
        const isOwn = from.startsWith(".") && join(PACKAGE, file, "..", from).startsWith(PACKAGE);
        expect(
          isOwn || from.startsWith("node:") || ["yaml", "zod", "luxon"].includes(from),
          `${file} imports ${from}`,
        ).toBe(true);
      }
    }
  });

  test("has a description and a default for every option, and rejects an unknown option", () => {
    expect(undescribed(z.toJSONSchema(SimulatorOptions, { io: "input" }), "options")).toEqual([]);
    expect(SimulatorOptions.parse({}).tokens[0]?.token).toBe("simulator-token");
    expect(SimulatorOptions.safeParse({ spede: 2 }).success).toBe(false);
  });
});

function undescribed(schema: unknown, path: string): string[] {
  if (typeof schema !== "object" || schema === null) return [];
  const properties = "properties" in schema && typeof schema.properties === "object" ? schema.properties : {};
  return [
    ...Object.entries(properties ?? {}).flatMap(([name, part]) =>
      typeof part === "object" && part !== null && "description" in part ? [] : [`${path}.${name}`],
    ),
    ...Object.entries(schema).flatMap(([name, part]) => undescribed(part, `${path}.${name}`)),
  ];
}
