import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { setDraining } from "#src/scale/fleet/status.ts";
import { createRandom } from "#src/simulator/random.ts";
import { absent, type RealServer, startPostgres } from "../real-servers.ts";
import { replay, seed } from "../seed.ts";
import { createRig, type TestMember } from "./rig.ts";

describe.skipIf(absent("postgres"))("a fleet with random failures", () => {
  let server: RealServer;
  beforeAll(async () => {
    server = await startPostgres({ lines: ["fsync = off", "max_connections = 100"] });
  });
  afterAll(() => server.stop());

  test("never lets two members hold the same source under random faults", async () => {
    const rig = createRig(server);
    onTestFinished(() => rig.close());
    const { next: random } = createRandom(seed);
    const pick = (list: readonly string[]) => list[Math.floor(random() * list.length)] ?? "";
    const operator = await rig.database();
    const running = new Map<string, TestMember>();
    const names = ["a", "b", "c", "d"];
    const done: string[] = [];
    const ended = (name: string) => {
      const member = running.get(name);
      running.delete(name);
      return member;
    };
    const heal = (name: string) => {
      running.get(name)?.network.heal();
      running.get(name)?.clock.resume();
    };
    // What was never there cannot be drained.
    const drain = (name: string, isDraining: boolean) =>
      setDraining(operator, name, isDraining).catch((error: unknown) => error);
    const actions: Readonly<Record<string, (name: string) => unknown>> = {
      async start(name) {
        if (!running.has(name)) running.set(name, await rig.member(name));
      },
      stop: (name) => ended(name)?.stop(),
      crash: (name) => ended(name)?.crash(),
      pause: (name) => running.get(name)?.clock.pause(),
      cut: (name) => running.get(name)?.network.cut(),
      stall: (name) => running.get(name)?.network.stall(),
      heal,
      drain: (name) => drain(name, true),
      undrain: (name) => drain(name, false),
    };
    const often = [...Object.keys(actions), "start", "start", "start", "heal", "heal", "undrain"];
    for (let n = 0; n < 40; n += 1) {
      const [action, name] = [pick(often), pick(names)];
      done.push(`${action} ${name}`);
      await actions[action]?.(name);
      await systemClock.sleep(random() * 300);
    }
    const said = `${done.join(", ")}; ${replay}`;
    for (const name of names) {
      heal(name);
      await actions.start?.(name);
      await drain(name, false);
    }
    await rig.settled(...running.values());
    expect(rig.faults, said).toEqual([]);
  });
});
