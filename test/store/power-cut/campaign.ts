import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "#src/clock.ts";
import { openStore } from "#src/store/open.ts";
import { seededRandom } from "../../commands/seeded-random.ts";
import { valueEvent } from "../../sample-events.ts";
import { createDisk } from "./disk.ts";
import { record } from "./record.ts";

export interface PowerCuts {
  /** Writes, syncs and names that were recorded. */
  readonly steps: number;
  readonly states: number;
  /** One sentence for each state that was not as promised. */
  readonly broken: readonly string[];
}

/** A disk in memory, where there is one: looking at what is left syncs at every turn, and nothing of it has to last. */
const IN_MEMORY = "/dev/shm";

/** Cuts the power at every step of a recorded run, several times each, until so many states were looked at. */
export async function cutPower(states: number, seed: number): Promise<PowerCuts> {
  const base = realpathSync(mkdtempSync(join(existsSync(IN_MEMORY) ? IN_MEMORY : tmpdir(), "plenum-power-")));
  try {
    const steps = record(join(base, "state"), join(base, "trace"));
    const random = seededRandom(seed);
    const disk = createDisk();
    const broken: string[] = [];
    const each = Math.ceil(states / steps.length);
    let said = -1;
    for (const [place, step] of steps.entries()) {
      disk.take(step);
      if (step.kind === "said") said = step.number;
      for (let n = 0; n < each; n += 1) {
        const folder = join(base, "found");
        mkdirSync(folder);
        disk.cut(folder, random);
        const problem = await problemOf(folder, said);
        if (problem !== null) broken.push(`after step ${place} (${step.kind}), cut ${n}: ${problem}`);
        rmSync(folder, { recursive: true });
      }
    }
    return { steps: steps.length, states: steps.length * each, broken };
  } finally {
    rmSync(base, { recursive: true });
  }
}

/** Everything that was said is there, nothing is half there, and the file is sound. */
async function problemOf(folder: string, said: number): Promise<string | null> {
  const store = await openStore({ folder, clock: systemClock });
  try {
    const { setAside, damaged } = await store.describe();
    if (setAside !== undefined) return `the state was set aside after ${said + 1} commits`;
    if (damaged.length > 0) return `damaged rows of ${damaged.map(({ table }) => table).join(", ")}`;
    const events = await store.outbox.latest(1_000);
    if (events.length < said + 1) return `${said + 1} commits were said, ${events.length} are there`;
    if (events.length > said + 2) return `${events.length} events are there after ${said + 1} commits`;
    for (const [back, { event }] of events.entries()) {
      const wanted = valueEvent(events.length - 1 - back);
      if (JSON.stringify(event) !== JSON.stringify(wanted))
        return `event ${wanted.id} is not what was committed`;
    }
    const last = await store.document<number>("last", "n");
    if (last !== (events.length === 0 ? undefined : events.length - 1))
      return `events and snapshot differ: ${last}`;
    return null;
  } finally {
    await store.close();
  }
}
