import { expect, test } from "vitest";
import type { SilentSensors } from "#src/core/model/tag-event-data.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { sampleEvent } from "../sample-events.ts";
import { workplace } from "./plenum.ts";

test("plenum silent-sensors prints the last report as text and JSON, or the reason why there is no report", async () => {
  const cli = workplace("http://127.0.0.1:9");
  const sensorReport: SilentSensors = sampleEvent("silent-sensors").data;
  const commit = async (set: string, key: string, value: unknown) => {
    const store = await openStore({ folder: cli.path("state"), clock: systemClock });
    await store.commit({ documents: [{ set, put: [[key, value]] }] });
    await store.close();
  };

  await commit("sensors/main", "period", { from: "2026-11-02T06:20:00.000Z", watchedMs: 7_300_000 });
  expect((await cli.plenum("silent-sensors", "--utc")).stderr).toContain(
    "There is no report yet: what is read has been watched since 2026-11-02T06:20:00.000Z, for 2 h.",
  );

  await commit("silent-sensors/main", "1 1", sensorReport);
  const reportOutput = await cli.plenum("silent-sensors");
  expect(reportOutput.stdout).toContain("10042");
  expect(reportOutput.stdout).toContain("It was 21.5 °C at each of 1008 readings.");
  expect(reportOutput.stderr).toContain("1 never-moved. 311 of 320 tags judged, 168 h watched");
  expect(await cli.json("silent-sensors")).toEqual([sensorReport]);
  await commit("site/main", "2", { value: { id: 2, displayName: "South" }, missingSince: null });
  expect((await cli.plenum("silent-sensors", "--site", "2")).stdout).toBe("");
  expect((await cli.plenum("silent-sensors", "--site", "two")).code).not.toBe(0);
  cli.configure({ source: { silent_sensors: false } });
  expect((await cli.plenum("silent-sensors", "--site", "2")).stderr).toContain("silent_sensors is false");
});
