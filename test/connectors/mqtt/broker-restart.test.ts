import type { Packet } from "mqtt-packet";
import { describe, expect, test } from "vitest";
import { detectBrokerRestart, parseUptime } from "#connectors/mqtt/detect-broker-restart.ts";
import { systemClock, type TimeSinceBoot } from "#src/core/runtime/clock.ts";
import { absent } from "../../real-servers.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { contextFor, never } from "../context.ts";
import { startScriptedBroker } from "./scripted-broker.ts";
import { createTestSink, startMosquittoInTest } from "./test-sink.ts";

const HOUR_S = 3_600;
const AT = Date.UTC(2026, 10, 22);

function isNew(
  first: { readonly uptime: number | null },
  later: { readonly afterS: number; readonly uptime: number | null; readonly sessionLost?: boolean },
): boolean {
  const firstInstance = detectBrokerRestart(null, { ...first, atMs: AT, sessionLost: true });
  expect(firstInstance.isNew).toBe(false);
  const { afterS, uptime, sessionLost = false } = later;
  return detectBrokerRestart(firstInstance.instanceId, { uptime, atMs: AT + afterS * 1_000, sessionLost }).isNew;
}

describe("the detection of a new broker instance by its reported uptime", () => {
  test("reports a new instance when the broker lost the session", () => {
    expect(isNew({ uptime: null }, { afterS: 60, uptime: null, sessionLost: true })).toBe(true);
    expect(isNew({ uptime: null }, { afterS: 60, uptime: null })).toBe(false);
  });

  test("reports a new instance when the uptime is shorter than the time that passed", () => {
    expect(isNew({ uptime: 2 * HOUR_S }, { afterS: 60, uptime: 3 })).toBe(true);
    expect(isNew({ uptime: 3 }, { afterS: 24 * HOUR_S, uptime: 4 })).toBe(true);
    expect(isNew({ uptime: 3 }, { afterS: 24 * HOUR_S, uptime: 23 * HOUR_S })).toBe(true);
  });

  test("reports the same instance while the uptime grows with time, also with a report that is 10 s old", () => {
    for (const lagS of [0, 5, 10])
      expect(isNew({ uptime: HOUR_S }, { afterS: HOUR_S, uptime: 2 * HOUR_S - lagS })).toBe(false);
    expect(isNew({ uptime: HOUR_S }, { afterS: 5, uptime: HOUR_S })).toBe(false);
    expect(isNew({ uptime: HOUR_S }, { afterS: -2 * HOUR_S, uptime: HOUR_S + 60 })).toBe(false);
  });

  test("reports the same instance when one of the two uptimes is unknown", () => {
    expect(isNew({ uptime: null }, { afterS: 60, uptime: 3 })).toBe(false);
    expect(isNew({ uptime: HOUR_S }, { afterS: 60, uptime: null })).toBe(false);
  });

  test("reports the same instance when the stored text is unreadable", () => {
    expect(detectBrokerRestart("{", { uptime: 1, atMs: AT, sessionLost: true }).isNew).toBe(false);
  });
});

describe("the detection of a new broker instance with time measured since boot", () => {
  const life = (uptime: number, wallS: number, measured: TimeSinceBoot | undefined) => ({
    ...{ uptime, atMs: AT + wallS * 1_000, sessionLost: false },
    ...(measured === undefined ? {} : { measured }),
  });
  const on = (boot: string, s: number): TimeSinceBoot => ({ bootId: boot, ms: s * 1_000 });

  function isNew(uptime: number, { wallS, measuredS }: { wallS: number; measuredS: number }): boolean {
    const firstId = detectBrokerRestart(null, life(HOUR_S, 0, on("this", 500))).instanceId;
    return detectBrokerRestart(firstId, life(uptime, wallS, on("this", 500 + measuredS))).isNew;
  }

  test.each([4_200, -4_200, 30 * 24 * HOUR_S])(
    "reports the same instance after the wall clock was set by %i s",
    (stepS) => {
      for (const lagS of [-10, 0, 10])
        expect(isNew(2 * HOUR_S - lagS, { wallS: HOUR_S + stepS, measuredS: HOUR_S })).toBe(false);
    },
  );

  test.each([0, 600, -600, -2 * HOUR_S])(
    "reports a new instance when the uptime is shorter than the measured time, with the wall clock set by %i s",
    (stepS) => {
      const passedTimes = { wallS: HOUR_S + stepS, measuredS: HOUR_S };
      expect(isNew(2 * HOUR_S - 16, passedTimes)).toBe(true);
      expect(isNew(HOUR_S + 60, passedTimes)).toBe(true);
      expect(isNew(3, passedTimes)).toBe(true);
    },
  );

  test("uses the wall clock when measured time stood still, as on a suspended machine", () => {
    const asleep = { wallS: 8 * HOUR_S, measuredS: 60 };
    expect(isNew(9 * HOUR_S, asleep)).toBe(false);
    expect(isNew(7 * HOUR_S, asleep)).toBe(true);
    expect(isNew(HOUR_S - 1, asleep)).toBe(true);
  });

  test.each([
    ["the machine was restarted", on("this", 500), on("other", 900)],
    ["the time since boot went back", on("this", 500), on("this", 499)],
    ["no measured time before", undefined, on("this", 900)],
    ["no measured time now", on("this", 500), undefined],
  ])("uses the wall clock when no measured times can be compared: %s", (_, first, later) => {
    const firstId = detectBrokerRestart(null, life(HOUR_S, 0, first)).instanceId;
    expect(detectBrokerRestart(firstId, life(2 * HOUR_S, HOUR_S, later)).isNew).toBe(false);
    expect(detectBrokerRestart(firstId, life(2 * HOUR_S, HOUR_S + 600, later)).isNew).toBe(true);
    expect(detectBrokerRestart(firstId, life(HOUR_S + 60, HOUR_S, later)).isNew).toBe(true);
  });
});

describe.skipIf(absent("mosquitto"))("a broker instance that another fleet member recorded", () => {
  test.each([-300, 300])(
    "a member of a fleet whose clock is %i s ahead detects the same broker instance",
    async (aheadS) => {
      const broker = await startMosquittoInTest();
      const share = { fleet: "0a1b2c3d", source: "north", now: Date.now };
      const detectByMember = async (aheadMs: number, before: string | null) => {
        const clock = { ...systemClock, now: () => Date.now() + aheadMs, sinceBoot: () => null };
        const sink = createTestSink(broker.url, {}, { ...contextFor("broker"), clock, assignment: share });
        await sink.open(never());
        const serverInstance = await sink.detectRestart?.(before, never());
        await sink.close();
        return serverInstance;
      };
      const firstInstance = await detectByMember(0, null);
      expect(await detectByMember(aheadS * 1_000, firstInstance?.instanceId ?? null)).toMatchObject({ isNew: false });
    },
  );
});

describe("the detection of a new broker instance after the wall clock was set by ten minutes", () => {
  const UP_S = 1_000;

  test.each([
    ["within one run of the worker", null, "one sink"],
    ["within one run of the worker on Linux", "9f0e1d2c", "one sink"],
    ["in two runs of the worker on one machine", "9f0e1d2c", "two sinks"],
  ])("reports the same instance %s, and a new instance when the broker was restarted", async (_, boot, sinks) => {
    const now = { wallMs: AT, measuredMs: 5_000, uptimeS: UP_S };
    const broker = closeAfterTest(await startScriptedBroker(5, (packet) => replyWithUptime(packet, now.uptimeS)));
    const clock = {
      ...systemClock,
      now: () => now.wallMs,
      monotonic: () => now.measuredMs,
      sinceBoot: () => (boot === null ? null : { bootId: boot, ms: now.measuredMs }),
    };
    const createSink = () => createTestSink(broker.url, {}, { ...contextFor("broker"), clock });
    let sink = createSink();
    let life: string | null = null;
    const detectInstance = async () => {
      await expect.poll(() => sink.open(never())).toBeUndefined();
      const serverInstance = await sink.detectRestart?.(life, never());
      life = serverInstance?.instanceId ?? null;
      return serverInstance?.isNew;
    };
    expect(await detectInstance()).toBe(false);
    for (const [uptimeS, isNewLife] of [
      [UP_S + HOUR_S, false],
      [UP_S + HOUR_S + 60, true],
    ] as const) {
      now.wallMs += (HOUR_S + 600) * 1_000;
      now.measuredMs += HOUR_S * 1_000;
      now.uptimeS = uptimeS;
      broker.cut();
      if (sinks === "two sinks") sink = createSink();
      let isNew: boolean | undefined;
      const readLife = async () => {
        isNew = await detectInstance();
        return life;
      };
      await expect.poll(readLife).toContain(`"uptime":${uptimeS}`);
      expect(isNew).toBe(isNewLife);
    }
  });

  function replyWithUptime(packet: Packet, uptimeS: number): readonly Packet[] | undefined {
    if (packet.cmd === "connect") return [{ cmd: "connack", sessionPresent: true, reasonCode: 0, returnCode: 0 }];
    if (packet.cmd !== "subscribe") return undefined;
    const uptime = { topic: "$SYS/broker/uptime", payload: `${uptimeS} seconds` };
    return [
      { cmd: "suback", messageId: packet.messageId ?? 0, granted: [1] },
      { cmd: "publish", ...uptime, qos: 0, retain: true, dup: false },
    ];
  }
});

test.each([
  ["86400 seconds", 86_400],
  ["0 seconds", 0],
  ["17", 17],
  ["", null],
  ["up since Tuesday", null],
  ["-3 seconds", null],
])("the uptime in the text %j is %s", (text, seconds) => expect(parseUptime(text)).toBe(seconds));
