import { spawn } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { seededRandom } from "../../../commands/seeded-random.ts";
import { temporaryFolder } from "../../../real-servers.ts";
import { filesIn, rowsIn } from "../duckdb-query.ts";
import { inS3, startS3 } from "../s3-server.ts";

export interface KillResult {
  readonly kills: number;
  readonly interrupted: number;
  readonly compacting: number;
  readonly compacted: number;
  readonly events: number;
  /** Events without a row, and rows beyond the first of an event. */
  readonly lost: number;
  readonly doubled: number;
}

const CHILD = join(import.meta.dirname, "child.ts");
const EVENTS_A_KILL = 60;

/** Kills a real writer process (SIGKILL) at random moments and starts another one, until the last may finish. */
export async function killDuringCommits(
  where: "folder" | "s3",
  table_format: "plain" | "delta",
  kills: number,
  seed: number,
): Promise<KillResult> {
  const random = seededRandom(seed);
  const root = temporaryFolder("plenum-lake-killed");
  const lake = join(root, "lake");
  const s3 = where === "s3" ? await startS3() : null;
  try {
    const config = JSON.stringify({
      ...(s3 === null ? { folder: lake } : inS3(s3)),
      table_format,
      max_rows: 30,
      max_age: "24h",
    });
    let wanted = 0;
    let interrupted = 0;
    let compacting = 0;
    const count = (line: string) => {
      if (line.startsWith("landing")) interrupted += 1;
      if (line.includes(", compacting")) compacting += 1;
    };
    for (let n = 0; n < kills; n++) {
      wanted += EVENTS_A_KILL;
      count(await run(root, config, wanted, random));
    }
    count(await run(root, config, wanted, null));
    s3?.dump(lake);
    const compacted = filesIn(lake).filter((file) => /\/(?:hour|day)-[^/]*$/.test(file)).length;
    return { kills, interrupted, compacting, compacted, events: wanted, ...(await countLostAndDoubled(lake, wanted)) };
  } finally {
    await s3?.close();
    rmSync(root, { recursive: true, force: true });
  }
}

async function run(root: string, config: string, wanted: number, random: (() => number) | null): Promise<string> {
  mkdirSync(join(root, "state"), { recursive: true, mode: 0o700 });
  const child = spawn(process.execPath, [CHILD, join(root, "state"), config, String(wanted)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  const delivers = new Promise<string>((resolve) =>
    child.stdout?.once("data", (word: Buffer) => resolve(word.toString())),
  );
  const word = await Promise.race([delivers, ended]);
  const timer = random === null ? null : setTimeout(() => child.kill("SIGKILL"), 600 * random());
  const code = await ended;
  if (timer !== null) clearTimeout(timer);
  else if (code !== 0) throw new Error("The writer did not finish.");
  return typeof word === "string" ? word : "";
}

async function countLostAndDoubled(lake: string, wanted: number) {
  const counted = { lost: 0, doubled: 0 };
  const expected = { value: 0, alarm: 0 };
  for (let n = 0; n < wanted; n++) {
    if (n % 50 === 7) expected.alarm += 1;
    else if (n % 50 !== 9) expected.value += 1;
  }
  for (const [table, count] of Object.entries(expected)) {
    const [row] = await rowsIn(lake, table, "count(*)::INTEGER AS rows, count(DISTINCT event_id)::INTEGER AS events");
    counted.lost += count - Number(row?.events ?? 0);
    counted.doubled += Number(row?.rows ?? 0) - Number(row?.events ?? 0);
  }
  for (const table of ["tag", "alarm_episode"]) {
    const [row] = await rowsIn(lake, table, "count(*)::INTEGER AS rows");
    if (wanted > 50 && row?.rows !== 1) counted.lost += 1;
  }
  return counted;
}
