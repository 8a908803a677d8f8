import { afterEach, expect, test } from "vitest";
import { sized } from "../sizes.ts";
import { createProcessRig, isEnd, type ProcessRig } from "./worker-process.ts";

let rig: ProcessRig | undefined;
afterEach(async () => {
  await rig?.close();
});

/** Set `PLENUM_KILL_ROUNDS` for more rounds of about twelve seconds. */
const ROUNDS = Number(process.env.PLENUM_KILL_ROUNDS ?? sized(2, 1));
const STEPS = [
  ["accepted", "before"],
  ["accepted", "after"],
  ["sending", "before"],
  ["sending", "after"],
  ["post", "before"],
  ["post", "during"],
  ["post", "after"],
  ["read", "before"],
  ["read", "during"],
  ["read", "after"],
  ["end", "before"],
  ["end", "after"],
] as const;

test.each(Array.from({ length: ROUNDS }, (_, n) => n + 1))(
  `a kill -9 at each of ${STEPS.length} steps of a command causes at most one write request for each id, round %i`,
  async () => {
    rig = await createProcessRig();
    const { simulator, tags } = rig;
    const ids: string[] = [];
    const acknowledged = new Set<string>();
    let child = await rig.start();
    for (const [step, moment] of STEPS) {
      child.say(`kill ${step} ${moment}`);
      const number = ids.length + 1;
      const id = `${number}-${step}-${moment}`;
      ids.push(id);
      child.say(JSON.stringify({ id, tag: tags[number % tags.length], value: 1000 + number }));
      await child.ended;
      for (const each of child.acknowledged) acknowledged.add(each);
      child = await rig.start();
      if (acknowledged.has(id)) await expect.poll(() => child.results.has(id), { timeout: 15_000 }).toBe(true);
    }
    await child.kill();

    const writes = simulator.truth.writes();
    const { verdict, audit, results } = await rig.remains();
    expect(verdict).toMatchObject({ brokenAt: null });
    for (const [index, id] of ids.entries()) {
      const posts = writes.filter((write) => write.value === 1001 + index);
      expect(posts.length, `POSTs of ${id}`).toBeLessThanOrEqual(1);
      const told = results.filter((result) => result.commandId === id);
      if (acknowledged.has(id)) expect(told.length, `results of ${id}`).toBe(1);
      expect(told.length, `results of ${id}`).toBeLessThanOrEqual(1);
      const steps = audit.filter((record) => record.commandId === id).map((record) => record.step);
      if (posts.length > 0) expect(steps, id).toContain("sending");
      expect(told.map((result) => result.outcome)).toEqual(steps.filter(isEnd));
      if (told[0]?.outcome === "expired") expect(posts, `${id} was told as expired`).toEqual([]);
      if (told[0]?.outcome === "confirmed") expect(posts, `${id} was told as confirmed`).toHaveLength(1);
    }
    const outcomes = new Set(results.map((result) => result.outcome));
    expect([...outcomes].toSorted()).toEqual(["confirmed", "expired", "mismatch"]);
  },
  180_000,
);
