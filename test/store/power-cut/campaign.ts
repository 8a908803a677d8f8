import { mkdirSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";
import { toCloudEvent } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { verifyAudit } from "#src/engine/commands/audit/audit-log.ts";
import { openStore } from "#src/engine/store/open.ts";
import { FileConfig } from "../../../connectors/file/config.ts";
import { createFileSink } from "../../../connectors/file/sink.ts";
import { seededRandom } from "../../commands/seeded-random.ts";
import { createRunFolder } from "../../run-folders.ts";
import { valueEvent } from "../../sample-events.ts";
import { chooseTemporaryRoot } from "../../temporary-root.ts";
import { createDisk } from "./disk.ts";
import { record } from "./record.ts";

/** Who works on a folder, and what has to be found in it after the power was cut; null when it is as promised. */
interface RecordedProgram {
  readonly child: string;
  /** `said`: the last number that was said to be on disk, -1 when none was. */
  problemOf(folder: string, said: number): Promise<string | null>;
}

const SUBJECTS: Readonly<Record<"store" | "file sink", RecordedProgram>> = {
  store: { child: "child.ts", problemOf: problemOfStore },
  "file sink": { child: "file-child.ts", problemOf: problemOfFiles },
};

/** Cuts the power at every step of a recorded run, several times each, until so many states were looked at. */
export async function cutPower(of: keyof typeof SUBJECTS, states: number, seed: number) {
  const { child, problemOf } = SUBJECTS[of];
  const base = realpathSync(createRunFolder(chooseTemporaryRoot()));
  try {
    const steps = record(child, join(base, "state"), join(base, "trace"));
    const random = seededRandom(seed);
    const disk = createDisk();
    /** One sentence for each state that was not as promised. */
    const broken: string[] = [];
    const each = Math.ceil(states / steps.length);
    let said = -1;
    for (const [index, step] of steps.entries()) {
      disk.take(step);
      if (step.kind === "said") said = step.number;
      for (let n = 0; n < each; n += 1) {
        const folder = join(base, "found");
        mkdirSync(folder);
        disk.cut(folder, random);
        const problem = await problemOf(folder, said);
        if (problem !== null) broken.push(`after step ${index} (${step.kind}), cut ${n}: ${problem}`);
        rmSync(folder, { recursive: true });
      }
    }
    return { steps: steps.length, states: steps.length * each, broken };
  } finally {
    rmSync(base, { recursive: true });
  }
}

/** Everything that was said is there, nothing is half there, and the file is sound. */
async function problemOfStore(folder: string, said: number): Promise<string | null> {
  const store = await openStore({ folder, clock: systemClock });
  try {
    const { quarantinedFile: quarantined, damaged } = await store.describe();
    if (quarantined !== undefined) return `the state was set aside after ${said + 1} commits`;
    if (damaged.length > 0) return `damaged rows of ${damaged.map(({ table }) => table).join(", ")}`;
    const events = await store.outbox.latest(1_000);
    if (events.length < said + 1) return `${said + 1} commits were said, ${events.length} are there`;
    if (events.length > said + 2) return `${events.length} events are there after ${said + 1} commits`;
    for (const [back, { event }] of events.entries()) {
      const wanted = valueEvent(events.length - 1 - back);
      if (JSON.stringify(event) !== JSON.stringify(wanted)) return `event ${wanted.id} is not what was committed`;
    }
    const last = await store.document<number>("last", "n");
    if (last !== (events.length === 0 ? undefined : events.length - 1)) return `events and snapshot differ: ${last}`;
    const audit = await verifyAudit(store, null);
    if (audit.brokenAt !== null) return `the audit log breaks at record ${audit.brokenAt}`;
    if (audit.records !== events.length) return `${audit.records} audit records, ${events.length} events`;
    return null;
  } finally {
    await store.close();
  }
}

/**
 * Checks that every acknowledged event is there in order once the sink has opened the folder again, followed only by
 * complete events of the interrupted write.
 */
async function problemOfFiles(folder: string, said: number): Promise<string | null> {
  const config = FileConfig.parse({ folder, max_file_mb: 1, keep_files: 1_000 });
  const sink = createFileSink(config, { log: createLog({ level: "silent" }), clock: systemClock } as Parameters<
    typeof createFileSink
  >[1]);
  await sink.open(new AbortController().signal);
  await sink.close();
  const text = readdirSync(folder)
    .toSorted()
    .map((name) => readFileSync(join(folder, name), "utf8"))
    .join("");
  if (text !== "" && !text.endsWith("\n")) return "the last line is not whole";
  const lines = text === "" ? [] : text.slice(0, -1).split("\n");
  if (lines.length < said + 1) return `${said + 1} events were said, ${lines.length} are there`;
  for (const [index, line] of lines.entries()) {
    const wanted = JSON.stringify(toCloudEvent(valueEvent(index)));
    if (line !== wanted) return `line ${index + 1} is not event ${index}: ${JSON.stringify(line.slice(0, 60))}`;
  }
  return null;
}
