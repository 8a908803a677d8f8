import { describe, expect, onTestFinished, test } from "vitest";
import { lifeOfBroker, uptimeIn } from "#connectors/mqtt/broker-life.ts";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import { systemClock } from "#src/clock.ts";
import { absent, startMosquitto } from "../../real-servers.ts";
import { contextFor, never } from "../context.ts";

const HOUR_S = 3_600;
const AT = Date.UTC(2026, 10, 22);

/** What the broker said first, and whether it is a new life after so many seconds. */
function isNew(
  first: { readonly uptime: number | null },
  later: { readonly afterS: number; readonly uptime: number | null; readonly sessionLost?: boolean },
): boolean {
  const before = lifeOfBroker(null, { ...first, atMs: AT, sessionLost: true });
  expect(before.isNew).toBe(false);
  const { afterS, uptime, sessionLost = false } = later;
  return lifeOfBroker(before.life, { uptime, atMs: AT + afterS * 1_000, sessionLost }).isNew;
}

describe("the life of a broker", () => {
  test("is another when it has forgotten our session", () => {
    expect(isNew({ uptime: null }, { afterS: 60, uptime: null, sessionLost: true })).toBe(true);
    expect(isNew({ uptime: null }, { afterS: 60, uptime: null })).toBe(false);
  });

  test("is another when it has been up for less than it should have been", () => {
    // It still had the session, from its disk.
    expect(isNew({ uptime: 2 * HOUR_S }, { afterS: 60, uptime: 3 })).toBe(true);
    expect(isNew({ uptime: 3 }, { afterS: 24 * HOUR_S, uptime: 4 })).toBe(true);
    expect(isNew({ uptime: 3 }, { afterS: 24 * HOUR_S, uptime: 23 * HOUR_S })).toBe(true);
  });

  test("is the same while it grows old with us, though what is retained of its uptime is 10 s old", () => {
    for (const lagS of [0, 5, 10]) {
      expect(isNew({ uptime: HOUR_S }, { afterS: HOUR_S, uptime: 2 * HOUR_S - lagS })).toBe(false);
    }
    expect(isNew({ uptime: HOUR_S }, { afterS: 5, uptime: HOUR_S })).toBe(false);
    expect(isNew({ uptime: HOUR_S }, { afterS: -2 * HOUR_S, uptime: HOUR_S + 60 })).toBe(false);
  });

  test("is not known where it does not tell one of the two times", () => {
    expect(isNew({ uptime: null }, { afterS: 60, uptime: 3 })).toBe(false);
    expect(isNew({ uptime: HOUR_S }, { afterS: 60, uptime: null })).toBe(false);
  });

  test("as another program wrote it is none", () => {
    expect(lifeOfBroker("{", { uptime: 1, atMs: AT, sessionLost: true }).isNew).toBe(false);
  });
});

describe.skipIf(absent("mosquitto"))("the life of a broker that another member of a fleet has seen", () => {
  test.each([-300, 300])("is the same to a member whose clock is %i s ahead", async (aheadS) => {
    const broker = await startMosquitto();
    onTestFinished(() => broker.stop());
    const share = { fleet: "0a1b2c3d", source: "north", now: Date.now };
    const lifeBy = async (aheadMs: number, before: string | null) => {
      const clock = { ...systemClock, now: () => Date.now() + aheadMs };
      const config = MqttConfig.parse({ url: broker.url });
      const sink = createMqttSink(config, { ...contextFor("broker"), clock, share });
      await sink.open(never());
      try {
        return await sink.look?.(before, never());
      } finally {
        await sink.close();
      }
    };
    const first = await lifeBy(0, null);
    expect(await lifeBy(aheadS * 1_000, first?.life ?? null)).toMatchObject({ isNew: false });
  });
});

test.each([
  ["86400 seconds", 86_400],
  ["0 seconds", 0],
  ["17", 17],
  ["", null],
  ["up since Tuesday", null],
  ["-3 seconds", null],
])("the uptime in %j is %s", (text, seconds) => expect(uptimeIn(text)).toBe(seconds));
