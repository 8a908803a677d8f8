import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createTagNamesFileWatch } from "#src/app/reload/tag-names-file-watch.ts";
import type { TagNamesById } from "#src/engine/sync/inventory/tag-naming.ts";
import { testFolder } from "../test-resources.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
const HEADER = "tag_id,path,alias,unit_code\n";
let folder: string;
let file: string;
beforeEach(() => {
  folder = testFolder("names-file");
  file = join(folder, "names.csv");
});

describe("the names of tags", () => {
  let virtual: VirtualWorker;
  afterEach(() => virtual.clear());

  async function startWorker(names?: string): Promise<void> {
    virtual = await startVirtualWorker({
      simulator: { sites: [3], alarms: { recorded: false } },
      source: {
        ...{ schedules: { tags: "0 */2 * * * *", alarms: false, resolved_sweep: false } },
        ...{ read: [{ name: "all", every: "1m" }], ...(names !== undefined && { names }) },
      },
      eventsFolder: null,
    });
    await virtual.clock.advance(5 * MINUTE_MS);
  }
  const eventsOf = async (...kinds: string[]) =>
    (await virtual.events()).filter(({ type }) => kinds.includes(type)) as unknown as readonly {
      readonly time: string;
      readonly data: { readonly tag: { readonly id: string }; readonly before?: object };
    }[];
  const tagsOf = async (...kinds: string[]) => (await eventsOf(...kinds)).map(({ data }) => data.tag);
  const lastTags = async (kind: string, id: string) => (await tagsOf(kind)).findLast((tag) => tag.id === id);
  const NO_TAG = { id: "" };

  test("are in every event of a tag, and a changed file causes one event for each changed tag", async () => {
    await startWorker();
    const [{ id } = NO_TAG, second = NO_TAG] = await tagsOf("tag-added");
    expect(Object.keys(second)).toEqual(["id", "displayName", "description", "unit"]);
    writeFileSync(file, `${HEADER}${id},b3/pump,Pump,Cel\n`);
    await virtual.reload((written) => (written.sources.main.names = file));
    await virtual.clock.advance(5 * MINUTE_MS);
    const names = { alias: "Pump", path: "b3/pump", unitCode: "Cel" };
    expect((await eventsOf("tag-changed")).map(({ data }) => data)).toEqual([
      { tag: expect.objectContaining({ id, ...names }), before: { alias: null, path: null, unitCode: null } },
    ]);
    expect(await lastTags("tag-value", id)).toMatchObject(names);
    expect(await lastTags("tag-value", second.id)).toEqual(second);

    writeFileSync(file, `${HEADER}${id},b3/pump,Main pump,Cel\n`);
    await virtual.clock.advance(5 * MINUTE_MS);
    expect((await eventsOf("tag-changed")).at(-1)?.data).toMatchObject({ before: { alias: "Pump" } });
    expect(await lastTags("tag-value", id)).toMatchObject({ alias: "Main pump" });
    await virtual.restart("stop");
    await virtual.clock.advance(5 * MINUTE_MS);
    expect(await eventsOf("tag-changed")).toHaveLength(2);

    await virtual.reload((written) => delete written.sources.main.names);
    await virtual.clock.advance(5 * MINUTE_MS);
    expect(await lastTags("tag-changed", id)).toEqual({ ...(await tagsOf("tag-added"))[0] });
    expect(await eventsOf("series-break")).toEqual([]);
  });

  test("stay while the file has a mistake or is removed, also over a restart", async () => {
    await startWorker(file);
    const [{ id } = NO_TAG] = await tagsOf("tag-added");
    writeFileSync(file, `${HEADER}${id},b3/pump,Pump,\n`);
    await virtual.clock.advance(5 * MINUTE_MS);
    writeFileSync(file, `${HEADER}${id},b3/fan,Fan,,,\n`);
    await virtual.clock.advance(5 * MINUTE_MS);
    rmSync(file);
    await virtual.clock.advance(5 * MINUTE_MS);
    await virtual.restart("crash");
    await virtual.clock.advance(5 * MINUTE_MS);
    expect(await lastTags("tag-changed", id)).toMatchObject({ alias: "Pump", path: "b3/pump" });
    expect(await lastTags("tag-value", id)).toMatchObject({ alias: "Pump", path: "b3/pump" });
  });

  test("are in the first event of a tag when the file exists before the first list", async () => {
    await startWorker();
    const [{ id } = NO_TAG] = await tagsOf("tag-added");
    await virtual.clear();
    writeFileSync(file, `${HEADER}${id},,Pump,\n`);
    await startWorker(file);
    expect(await lastTags("tag-added", id)).toMatchObject({ alias: "Pump" });
    expect(await tagsOf("tag-changed")).toEqual([]);
  });
});

describe("the watch of the names file", () => {
  test("reports a missing or invalid file until the file is valid, and reads the file at a new path at once", async () => {
    const clock = createVirtualClock(Date.UTC(2026, 0, 1));
    const applied: TagNamesById[] = [];
    const lines: string[] = [];
    const MISSING = `The names file of main cannot be used, so the last names stay in force. ${file} does not exist; write it with \`plenum names --write\`.`;
    const log = pino({}, { write: (line: string) => void lines.push(line) });
    const follower = createTagNamesFileWatch({
      ...{ source: "main", file, clock, log, knownTagIds: () => new Set(["1"]) },
      changeNames: (names) => void applied.push(names),
      commitNames: async () => {},
    });
    await follower.start(new AbortController().signal);
    expect(follower.notices()).toEqual([MISSING]);
    writeFileSync(file, `${HEADER}1,a/,b\n1,a,b\n1,c,d\n`);
    await clock.advance(10 * SECOND_MS);
    expect(follower.notices()[0]).toMatch(
      /Line 2: The cell path has an empty level\. 1 more: run `plenum names check`\.$/,
    );
    expect(applied).toEqual([]);
    writeFileSync(file, `${HEADER}1,a,b\n`);
    await clock.advance(10 * SECOND_MS);
    expect([follower.notices(), [...(applied.at(-1) ?? [])]]).toEqual([[], [["1", { path: "a", alias: "b" }]]]);
    const missingFileLogs = () => lines.filter((line) => line.includes("does not exist")).length;
    expect([applied.length, missingFileLogs()]).toEqual([1, 1]);
    rmSync(file);
    await clock.advance(10 * MINUTE_MS);
    expect(follower.notices()).toEqual([MISSING]);
    expect([applied.length, missingFileLogs()]).toEqual([1, 2]);
    writeFileSync(file, `${HEADER}1,a,b\n`);
    await clock.advance(10 * SECOND_MS);
    expect(follower.notices()).toEqual([]);
    await follower.changeFile(undefined);
    expect(applied.at(-1)?.size).toBe(0);
    await follower.changeFile(folder);
    expect(follower.notices()[0]).toContain(`${folder} is not a file.`);
    await follower.stop(1_000);
    expect(clock.sleepers()).toBe(0);
  });
});
