import { setTimeout as pause } from "node:timers/promises";
import { connectAsync, type MqttClient } from "mqtt";
import { afterEach, describe, expect, test } from "vitest";
import { absent, freePort, type RealServer, startMosquitto } from "../real-servers.ts";
import { createProcessRig, isEnd, type ProcessRig } from "./worker-process.ts";

/** Commands over a real broker, while the broker goes away and the worker is killed. */
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

const COMMANDS = 400;

interface Sent {
  readonly id: string;
  readonly value: number;
  readonly isLawful: boolean;
  readonly payload: string;
  readonly topic: string;
  readonly retain: boolean;
}

function message(n: number, tags: readonly string[]): Sent {
  const tag = tags[n % tags.length] ?? "";
  const id = `m${n}`;
  const value = 1000 + n;
  const topic = "plenum/cmd/main/set";
  const body = { id, tag, value };
  const lawful = { id, value, topic, isLawful: true, retain: false, payload: JSON.stringify(body) };
  const unlawful = { ...lawful, isLawful: false };
  switch (n % 10) {
    case 0:
      return { ...unlawful, retain: true, topic: `plenum/cmd/main/${tag}/set` };
    case 3: {
      const issued_at = new Date(Date.now() - 60_000).toISOString();
      return { ...unlawful, payload: JSON.stringify({ ...body, issued_at }) };
    }
    case 5:
      return { ...unlawful, payload: JSON.stringify({ ...body, value: 1e6 + n }), value: 1e6 + n };
    case 7:
      return { ...unlawful, payload: lawful.payload.slice(n % 3 === 0 ? 1 : 0, -2) };
    default:
      return n % 4 === 0 ? { ...lawful, topic: `plenum/cmd/main/${tag}/set` } : lawful;
  }
}

describe.skipIf(absent("mosquitto"))("at a real Mosquitto", () => {
  test(`${COMMANDS} commands, 3 in 10 of them twice, with the broker and the worker killed`, async () => {
    const rig: ProcessRig = await createProcessRig();
    closing.push(() => rig.close());
    const port = await freePort();
    let broker: RealServer = await startMosquitto({ port });
    closing.push(() => broker.stop());
    let worker = await rig.start(broker.url);
    let sender: MqttClient = await connectAsync(broker.url, { protocolVersion: 5 });
    closing.push(() => sender.endAsync(true));

    const sent: Sent[] = [];
    for (let n = 0; n < COMMANDS; n += 1) {
      const next = message(n, rig.tags);
      sent.push(next);
      const repeated = n % 10 < 3 ? [sent[Math.floor(n / 2)] ?? next] : [];
      for (const { topic, payload, retain } of [next, ...repeated]) {
        await sender.publishAsync(topic, payload, { qos: 1, retain });
      }
      // So that not nearly every command is superseded by the next one for its tag.
      await pause(10);
      if (n % 100 === 40) {
        await worker.kill();
        worker = await rig.start(broker.url);
      }
      if (n % 200 === 90) {
        await sender.endAsync(true);
        await broker.kill();
        broker = await startMosquitto({ port });
        sender = await connectAsync(broker.url, { protocolVersion: 5 });
      }
    }

    // Something fresh gets through after all that, and everything that was taken has its end.
    await expect
      .poll(
        async () => {
          const id = `fresh-${performance.now()}`;
          const body = { id, tag: rig.tags[0], value: 999 - sent.length * Math.random() };
          await sender.publishAsync("plenum/cmd/main/set", JSON.stringify(body), { qos: 1 });
          return [...worker.results.keys()].some((each) => each.startsWith("fresh-"));
        },
        { timeout: 20_000, interval: 500 },
      )
      .toBe(true);
    await expect.poll(() => rig.openCommands(), { timeout: 20_000, interval: 500 }).toBe(0);
    await worker.kill();

    const { audit, results, verdict } = await rig.remains();
    expect(verdict).toMatchObject({ brokenAt: null });
    const writes = rig.simulator.truth.writes();
    let written = 0;
    for (const { id, value, isLawful } of sent) {
      const posts = writes.filter((write) => write.value === value);
      written += posts.length;
      expect(posts.length, id).toBeLessThanOrEqual(isLawful ? 1 : 0);
      const steps = audit.filter((record) => record.commandId === id && record.detail.by === undefined);
      const accepted = audit.filter((record) => record.commandId === id && record.step === "accepted");
      expect(accepted.length, id).toBeLessThanOrEqual(isLawful ? 1 : 0);
      expect(steps.filter(({ step }) => isEnd(step)).length, id).toBe(accepted.length);
    }
    expect(writes.length).toBe(written + writes.filter((write) => Number(write.value) < 1000).length);
    expect(written).toBeGreaterThan(50);
    const reasons = new Set(results.map((result) => result.reason));
    for (const reason of ["duplicate", "retained", "expired", "out-of-range", "unreadable"]) {
      expect(reasons, reason).toContain(reason);
    }
  }, 90_000);
});
