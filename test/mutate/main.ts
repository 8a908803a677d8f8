import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { seededRandom } from "../commands/seeded-random.ts";
import { EQUIVALENTS } from "./equivalents.ts";
import { type Mutant, mutantsOf } from "./mutants.ts";
import { type Player, startPlayer } from "./play.ts";
import { filesOf, ROOMS, ROOT, type Room } from "./rooms.ts";

/**
 * Which changes of the code do the tests notice? (`npm run mutate`)
 *
 *     node test/mutate/main.ts [room …] [--sample 40] [--minutes 60]
 *
 * Of the changes of each room as many are tried as `--sample` says, always the same ones; PLENUM_SEED takes others. Two
 * processes play them. Ends with exit code 1 when of a room less than 90 % is noticed, or when time runs out.
 */
const GOAL = 0.9;
const LANES = 2;

type Verdict = "killed" | "timeout" | "survived" | "not tried";

interface Job {
  readonly room: Room;
  readonly mutant: Mutant;
  verdict: Verdict;
}

const { values, positionals } = parseArgs({
  options: {
    sample: { type: "string", default: "40" },
    minutes: { type: "string", default: "60" },
  },
  allowPositionals: true,
});
const unknown = positionals.find((name) => !ROOMS.some((room) => room.name === name));
if (unknown !== undefined)
  throw new Error(`No room is called ${unknown}; ${ROOMS.map(({ name }) => name).join(", ")}.`);
const rooms = ROOMS.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
const seed = Number(process.env.PLENUM_SEED ?? 1);
const untilMs = performance.now() + Number(values.minutes) * 60_000;
const textOf = (file: string) => readFileSync(join(ROOT, file), "utf8");

const jobs = rooms.flatMap((room) => sampleOf(room).map((mutant): Job => ({ room, mutant, verdict: "not tried" })));
const trials = jobs.filter(({ mutant }) => !isEquivalent(mutant));
const waiting = [...trials];
/** Milliseconds that the tests of a room take with the code as it is. */
const usual = new Map<Room, Promise<number>>();

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

// Whatever is killed leaves its temporary files behind, so they all lie in one folder, which goes however this ends.
const temporary = mkdtempSync(join(tmpdir(), "plenum-mutate-"));
process.once("exit", () => rmSync(temporary, { recursive: true, force: true, maxRetries: 5 }));
await Promise.all(Array.from({ length: LANES }, () => playAll()));
process.exitCode = report() ? 0 : 1;

function sampleOf(room: Room): readonly Mutant[] {
  const all = filesOf(room).flatMap((file) => mutantsOf(file, textOf(file)));
  const random = seededRandom(seed);
  const drawn = all.map((mutant) => ({ mutant, at: random() })).toSorted((a, b) => a.at - b.at);
  return drawn.slice(0, Number(values.sample)).map(({ mutant }) => mutant);
}

function isEquivalent({ file, before, after }: Mutant): boolean {
  return EQUIVALENTS.some((each) => each.file === file && each.before === before && each.after === after);
}

async function playAll(): Promise<void> {
  let player: Player | null = null;
  try {
    for (let job = waiting.shift(); job !== undefined && performance.now() < untilMs; job = waiting.shift()) {
      if (player === null || player.room !== job.room || !player.isAlive()) {
        player?.end();
        player = startPlayer(job.room, { TMPDIR: temporary });
      }
      const usualMs = await usualMsOf(job.room, player);
      const limitMs = Math.min(4 * usualMs + 15_000, untilMs - performance.now());
      const { file, start, end, replacement } = job.mutant;
      const text = textOf(file);
      const mutated = text.slice(0, start) + replacement + text.slice(end);
      const played = await player.play({ file, text: mutated }, limitMs);
      job.verdict = played === null ? "timeout" : played.failed === null ? "survived" : "killed";
      if (job.verdict === "survived") show(job.mutant);
    }
  } finally {
    player?.end();
  }
}

function usualMsOf(room: Room, player: Player): Promise<number> {
  const known = usual.get(room) ?? measure(room, player);
  usual.set(room, known);
  return known;
}

async function measure(room: Room, player: Player): Promise<number> {
  const played = await player.play({ file: null, text: "" }, Math.max(0, untilMs - performance.now()));
  if (played === null) throw new Error(`The tests of ${room.name} came to no end.`);
  if (played.failed !== null) throw new Error(`Without any change fails: ${played.failed}`);
  return played.tookMs;
}

/** A survivor: its first line is where, the others can be copied into equivalents.ts. */
function show({ file, line, before, after }: Mutant): void {
  process.stdout.write(`\n${file}:${line}\n  - ${before}\n  + ${after}\n`);
}

/** Whether all rooms reach the goal. */
function report(): boolean {
  const rows = rooms.map((room) => {
    const mine = trials.filter((job) => job.room === room);
    const count = (verdict: Verdict) => mine.filter((job) => job.verdict === verdict).length;
    const noticed = count("killed") + count("timeout");
    return {
      room: room.name,
      tried: mine.length - count("not tried"),
      killed: count("killed"),
      timeout: count("timeout"),
      survived: count("survived"),
      "not tried": count("not tried"),
      equivalent: jobs.filter((job) => job.room === room).length - mine.length,
      "noticed %": Math.round((1000 * noticed) / Math.max(1, mine.length)) / 10,
    };
  });
  console.table(rows);
  process.stdout.write(`seed ${seed}, ${values.sample} of each room; the goal is ${GOAL * 100} %\n`);
  return rows.every((row) => row["noticed %"] >= GOAL * 100);
}
