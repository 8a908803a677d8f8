import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { setTimeout as wait } from "node:timers/promises";
import * as fc from "fast-check";
import { type RealServer, temporaryFolder } from "../../real-servers.ts";
import { expectedRows, READ_ROWS } from "./kill-events.ts";
import { type Database, optionsFor } from "./test-database.ts";

export interface KillResult {
  readonly events: number;
  readonly rows: number;
  readonly serverKills: number;
  readonly lost: number;
  readonly doubled: number;
  readonly dead: number;
}

const SERVER_EVERY = 6;
const LONGEST_LIFE_MS = 250;

export async function landUnderKills(
  server: RealServer,
  database: Database,
  kills: number,
  seed: number,
): Promise<KillResult> {
  const folder = temporaryFolder();
  const options = JSON.stringify(optionsFor(server, database.name));
  const killDelaysMs = fc.sample(fc.integer({ min: 0, max: LONGEST_LIFE_MS }), { numRuns: 2 * kills, seed });
  let serverKills = 0;
  try {
    for (let n = 0; n < kills; n++) {
      const child = await deliverUntilKilled(folder, options);
      await wait(killDelaysMs[2 * n]);
      if (n % SERVER_EVERY === SERVER_EVERY - 1) {
        serverKills++;
        await server.kill();
        await server.startAgain();
        await wait(killDelaysMs[2 * n + 1]);
      }
      child.kill("SIGKILL");
      await once(child, "close");
    }
    const { made, dead } = await deliverToEnd(folder, options);
    const found = countsOf((await database.query(READ_ROWS)).map(([cells]) => JSON.stringify(cells)));
    const expected = countsOf(expectedRows(made));
    return {
      events: made,
      rows: [...expected.values()].reduce((sum, count) => sum + count, 0),
      serverKills,
      lost: countExcess(expected, found),
      doubled: countExcess(found, expected),
      dead,
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function deliverUntilKilled(folder: string, options: string) {
  const child = started(folder, options, "go");
  await once(child.stdout, "data");
  return child;
}

async function deliverToEnd(folder: string, options: string) {
  const child = started(folder, options, "finish");
  const closed = once(child, "close");
  const totals = (await json(child.stdout)) as { made: number; dead: number };
  await closed;
  return totals;
}

function started(folder: string, options: string, mode: "go" | "finish") {
  const program = join(import.meta.dirname, "kill-child.ts");
  return spawn(process.execPath, [program, folder, options, mode], { stdio: ["ignore", "pipe", "inherit"] });
}

function countsOf(rows: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const row of rows) counts.set(row, (counts.get(row) ?? 0) + 1);
  return counts;
}

function countExcess(counts: ReadonlyMap<string, number>, others: ReadonlyMap<string, number>): number {
  return [...counts].reduce((sum, [row, count]) => sum + Math.max(0, count - (others.get(row) ?? 0)), 0);
}
