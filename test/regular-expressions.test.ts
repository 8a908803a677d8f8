import { describe, expect, test } from "vitest";
import { maskCredentials } from "#src/core/runtime/log.ts";
import { isAlarmSilenced } from "#src/engine/silence/alarm-silences.ts";
import { normalizeTime } from "#src/engine/source/service-records.ts";
import { effortOf } from "./effort.ts";
import { ALARM } from "./sample-events.ts";
import { programs, textOf } from "./structure/imports.ts";

/** Each file that builds a regular expression at run time, with the reason why its parts are safe. */
const BUILT_FROM_CONSTANTS: Readonly<Record<string, string>> = {
  "connectors/email/config.ts": "puts one constant expression into two",
  "connectors/file/partitioned-files.ts":
    "the sink's file name, which the schema limits to plain characters, and constants",
  "connectors/kafka/topic-template.ts": "escaped text of the configured topic around `[\\w-]+`",
  "connectors/mqtt/topics.ts": "escaped levels of the configured layout around `[^/]+`",
  "connectors/parquet/s3-store.ts": "the name of an XML element, a constant of each call",
};

describe("regular expressions", () => {
  test("are built at run time only in the listed files", () => {
    const foundFiles = programs().filter((file) => /\bRegExp\s*\(/.test(textOf(file)));
    expect(foundFiles.toSorted()).toEqual(Object.keys(BUILT_FROM_CONSTANTS));
  });

  // With quadratic and cubic expressions these took 51 s, 5 s, 12 s and 6 s.
  test.each<[string, () => unknown, unknown]>([
    [
      "a silence's pattern and a long alarm name",
      () => {
        const trigger = { ...ALARM.trigger, displayName: "pump hall fan ".repeat(350) };
        return isAlarmSilenced({ ...SILENCE, name: "*pump*hall*fan*stopped" }, "main", { ...ALARM, trigger });
      },
      false,
    ],
    ["letters in place of a time", () => normalizeTime("a".repeat(40_000)).isTime, false],
    ["a log message that resembles an address", () => maskCredentials("a.".repeat(30_000)).length, 60_000],
  ])("need less time than 100 reference computations for a long input: %s", async (_, run, result) => {
    expect(await effortOf(() => expect(run()).toBe(result))).toBeLessThan(100);
  });
});

const SILENCE = {
  ...{ id: "s1", source: null, site: null, alarm: null, priorities: null, isTold: false },
  ...{ from: "2026-11-21T10:00:00.000Z", to: "2026-11-21T11:00:00.000Z", reason: "Repair", madeBy: "cli" },
};
