import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { TagPoints } from "#src/core/codec/points.ts";
import type { Event } from "#src/core/model/event.ts";
import type { SilentSensors } from "#src/core/model/tag-event-data.ts";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { SilentSensorsConfig } from "#src/engine/sync/sensors/config.ts";
import { createSensorWatch, type SensorWatch } from "#src/engine/sync/sensors/silent-sensor-watch.ts";
import type { StoredSensorPeriod } from "#src/engine/sync/stored-documents.ts";
import { createVirtualClock } from "../../virtual-clock.ts";
import { createMemoryStore } from "../memory-store.ts";
import { inventory, tagNamed } from "../trial-building.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const START = Date.UTC(2026, 5, 1);
const log = pino({ level: "silent" });

type Rig = Awaited<ReturnType<typeof startWatch>>;

const SITE = { id: 3, displayName: "Site" };

/** Tags whose ids begin with 1 stand still, with 2 could not be read, with 3 move. */
async function startWatch(ids: readonly string[], config: object = {}) {
  const clock = createVirtualClock(START, { turns: 20 });
  const store = createMemoryStore(() => clock.now());
  const clockCheck = createClockCheck({ clock, log });
  const settings = SilentSensorsConfig.parse(config);
  if (settings === false) throw new Error("switched off");
  const tags = ids.map((id) => tagNamed(id, { displayName: `RT${id}` }));
  await inventory(store, "main", tags, SITE.id);
  let abort = new AbortController();
  let watch = await createWatch();
  let reading = 0;

  async function createWatch(): Promise<SensorWatch> {
    const sensorWatch = createSensorWatch({
      ...{ source: "main", store, clock, clockCheck, log, config: settings as SilentSensorsConfig },
      classOf: ({ tag }) => `class ${tag.id[0]}`,
    });
    await sensorWatch.start(abort.signal);
    return sensorWatch;
  }

  onTestFinished(async () => {
    abort.abort();
    await clock.advance(1);
  });
  return {
    clock,
    store,
    doubt: clockCheck,
    watch: () => watch,
    /** Reads each tag every hour, for `ms`. */
    async run(ms: number) {
      for (let hour = 0; hour < ms / HOUR; hour++) {
        reading += 1;
        for (const id of ids)
          watch.read(id, id.startsWith("1") ? 21.5 : id.startsWith("2") ? null : reading, clock.now());
        await clock.advance(HOUR);
      }
    },
    async restart(how: "stop" | "kill") {
      if (how === "stop") await watch.stop(1_000);
      abort.abort();
      await clock.advance(1);
      abort = new AbortController();
      watch = await createWatch();
    },
    reports: () => store.events.filter((event): event is Event<"silent-sensors"> => event.type === "silent-sensors"),
  };
}

const describeFindings = (report: Event<"silent-sensors"> | undefined) =>
  report?.data.findings.map(({ finding, tag }) => `${finding} ${tag.id}`);
const storedReports = (rig: Rig) => rig.store.documents<SilentSensors>("silent-sensors/main");

describe("the report on silent sensors", () => {
  test("emits a report once a week for each site with its findings, and keeps the latest report stored", async () => {
    const rig = await startWatch(["10001", "20001", "30001"]);
    await rig.run(7 * DAY - HOUR);
    expect(rig.reports()).toEqual([]);
    await rig.run(2 * HOUR);
    const [report] = rig.reports();
    expect(report).toMatchObject({
      subject: `site/${SITE.id}`,
      siteid: String(SITE.id),
      data: {
        ...{ site: SITE, from: "2026-06-01T00:00:00.000Z", to: "2026-06-08T00:00:00.000Z" },
        ...{ watchedHours: 168, tags: 3, judged: 3, part: 1, parts: 1 },
        counts: { "never-moved": 1, "always-null": 1, "log-differs": 0, "log-clock-off": 0 },
      },
    });
    expect(describeFindings(report)).toEqual(["never-moved 10001", "always-null 20001"]);
    expect([...(await storedReports(rig)).values()]).toEqual([report?.data]);
    await rig.run(7 * DAY);
    expect(rig.reports()).toHaveLength(2);
    expect(rig.reports()[1]?.data.from).toBe(report?.data.to);
    expect(new Set(rig.reports().map(({ id }) => id)).size).toBe(2);
    expect([...(await storedReports(rig)).values()]).toEqual([rig.reports()[1]?.data]);
  });

  test("emits at most 500 findings in a part, and the next report replaces all stored parts", async () => {
    const ids = Array.from({ length: 1_201 }, (_, n) => String(10_000 + n));
    const rig = await startWatch(ids, { every: "1d" });
    await rig.run(DAY + HOUR);
    const reportParts = rig.reports().map(({ data }) => data);
    expect(reportParts.map(({ part, findings }) => [part, findings.length])).toEqual([
      [1, 500],
      [2, 500],
      [3, 201],
    ]);
    expect(reportParts.every((part) => part.parts === 3 && part.counts["never-moved"] === 1_201)).toBe(true);
    expect(reportParts.flatMap(({ findings }) => findings.map(({ tag }) => tag.id))).toEqual(ids);
    await rig.store.commit({ documents: [{ set: documentSet("tag", "main"), remove: ids.slice(1) }] });
    await rig.run(DAY);
    expect([...(await storedReports(rig)).keys()]).toEqual([`${SITE.id} 1`]);
  });

  test("counts readings from before a restart, with at most two writes an hour", async () => {
    const rig = await startWatch(["10001", "30001"]);
    await rig.run(3 * DAY);
    const commits = rig.store.commits();
    await rig.run(10 * HOUR);
    expect(rig.store.commits() - commits).toBeLessThanOrEqual(2 * 10);
    await rig.restart("stop");
    await rig.run(DAY);
    await rig.restart("kill");
    await rig.run(3 * DAY);
    const [report] = rig.reports();
    expect(describeFindings(report)).toEqual(["never-moved 10001"]);
    const readings = report?.data.findings[0]?.readings ?? 0;
    expect(readings).toBeGreaterThanOrEqual(166);
    expect(readings).toBeLessThanOrEqual(169);
  });

  test("contains no tag that was not read long enough because the worker was stopped or the clock was set forward", async () => {
    const rig = await startWatch(["10001"]);
    await rig.run(DAY);
    await rig.restart("stop");
    rig.clock.suspend(6 * DAY);
    await rig.restart("stop");
    await rig.run(2 * HOUR);
    expect(rig.reports().map(({ data }) => [data.judged, data.findings, data.watchedHours])).toEqual([[0, [], 24]]);
    await rig.run(DAY);
    rig.clock.stepWall(10 * DAY);
    await rig.run(DAY);
    expect(rig.reports()).toHaveLength(1);
    rig.doubt.recordServiceClock("main", 0);
    rig.doubt.recordServiceClock("main", 0);
    await rig.run(2 * HOUR);
    expect(rig.reports()).toHaveLength(2);
    expect(rig.reports()[1]?.data).toMatchObject({ judged: 0, findings: [] });
  });

  test("completes a report interrupted by a crash after the restart, with the same event ids", async () => {
    const ids = Array.from({ length: 600 }, (_, n) => String(10_000 + n));
    const rig = await startWatch(ids, { every: "1d" });
    await rig.run(DAY - HOUR);
    const commit = rig.store.commit.bind(rig.store);
    let emittedEvents = 0;
    rig.store.commit = async (change) => {
      emittedEvents += (change.events ?? []).length;
      if (emittedEvents === 2) throw new Error("The disk is full.");
      return commit(change);
    };
    await rig.run(HOUR);
    expect(rig.reports()).toHaveLength(1);
    rig.store.commit = commit;
    await rig.restart("kill");
    await rig.run(2 * HOUR);
    expect(rig.reports().map(({ data }) => data.part)).toEqual([1, 2]);
    expect(rig.store.repeated).toEqual([rig.reports()[0]?.id]);
    expect((await rig.store.document<StoredSensorPeriod>("sensors/main", "period"))?.from).toMatch(/^2026-06-02/);
  });

  test.each<[string, object, readonly string[]]>([
    ["contains no tag excluded by class", { exclude: { classes: ["class 1"] } }, ["always-null 20001"]],
    ["contains no tag excluded by any of several fields", { exclude: { ids: ["10001"], name: "RT2*" } }, []],
    ["contains no never-moved for a name that may rest", { may_rest: { name: "rt1*" } }, ["always-null 20001"]],
  ])("with exceptions in the configuration, %s", async (_, config, findings) => {
    const rig = await startWatch(["10001", "20001", "30001"], { every: "1d", ...config });
    await rig.run(DAY + HOUR);
    expect(rig.reports().map(describeFindings)).toEqual([findings]);
  });

  test.each([
    ["the clock agrees with the service's clock", 0, ["log-differs 30001"]],
    ["the clock is unverified", 5 * HOUR, []],
  ])("compares live values with the log only if the clock is verified: %s", async (_, stepMs, findings) => {
    const rig = await startWatch(["30001"], { every: "1d" });
    if (stepMs > 0) rig.clock.stepWall(stepMs);
    for (let hour = 0; hour < 23; hour++) {
      const time = new Date(rig.clock.now()).toISOString();
      rig.watch().read("30001", 20 + hour, rig.clock.now() + HOUR / 2);
      await rig.clock.advance(HOUR);
      rig
        .watch()
        .logged("30001", "1h", TagPoints.fromMeasurements([{ time, value: 1_000 * (20 + hour) }]), rig.clock.now());
    }
    rig.doubt.recordServiceClock("main", 0);
    rig.doubt.recordServiceClock("main", 0);
    await rig.clock.advance(2 * HOUR);
    expect(rig.reports().map(describeFindings)).toEqual([findings]);
  });
});
