import { cpSync, existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { closingRecordFor } from "#src/cli/watching/state-store-command.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { AUDIT_START_HASH, hashEntry, verifyAudit } from "#src/engine/commands/audit/audit-log.ts";
import { openStore } from "#src/engine/store/open.ts";
import { PostgresState } from "#src/engine/store/state-config.ts";
import { STATE_MOVE_MARK_FILE } from "#src/engine/store/state-folder.ts";
import type { Store } from "#src/engine/store/store.ts";
import { type MoveOptions, moveStateFolder, type StateMoveResult } from "#src/scale/move-to-postgres/move-state.ts";
import { openStateDatabase } from "#src/scale/postgres/open-state-database.ts";
import { openSourceState } from "#src/scale/postgres/source-state.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { absent, temporaryFolder } from "../../real-servers.ts";
import { valueEvent } from "../../sample-events.ts";
import { replay, seed } from "../../seed.ts";
import { closeAfterTest, testFolder } from "../../test-resources.ts";
import { CLOCK } from "../filled-state.ts";
import { startCuttingProxy } from "../postgres/cutting-proxy.ts";
import { startServerForTests, urlAt } from "../postgres/postgres-harness.ts";
import { drain, editState, ids } from "../store-steps.ts";
import { startByteCuttingProxy } from "./byte-cutting-proxy.ts";
import { createTwoSourceState, OWN, type TwoSources } from "./two-sources.ts";

const clock: Clock = { ...systemClock, now: CLOCK.now };
const log = createLog({ level: "silent" });
const SINKS = ["ahead", "behind"];

describe.skipIf(absent("postgres"))("moving a state from a folder into a database", () => {
  const server = startServerForTests();
  let sample: string;
  let furnished: TwoSources;
  let folder: string;
  let schema: string;
  let schemas = 0;

  beforeAll(async () => {
    sample = temporaryFolder("plenum-move");
    furnished = await createTwoSourceState(sample);
  });
  afterAll(() => rmSync(sample, { recursive: true, force: true }));
  beforeEach(() => {
    folder = testFolder("plenum-moved");
    cpSync(sample, folder, { recursive: true });
    schemas += 1;
    schema = `moved${schemas}`;
  });

  async function open(port = server().port, named = schema): Promise<StateDatabase> {
    const config = PostgresState.parse({ url: urlAt(port), schema: named });
    return closeAfterTest(await openStateDatabase({ config, clock, log, migrate: true, allowsLongTransaction: true }));
  }

  async function move(options: Partial<MoveOptions> = {}): Promise<StateMoveResult> {
    return moveStateFolder({
      folder,
      database: options.database ?? (await open()),
      sources: ["main", "annex"],
      fleetDocuments: new Map(),
      closingRecord: () => null,
      clock: CLOCK,
      log,
      ...options,
    });
  }

  async function shard(source: string, state?: StateDatabase): Promise<Store> {
    return closeAfterTest(await openSourceState(state ?? (await open()), { source, access: { epoch: 0 }, clock, log }));
  }

  const drained = async (store: Store, sink: string) => ids(await drain(store, sink, 7));

  async function expectDelivered(): Promise<void> {
    for (const source of ["main", "annex"]) {
      const store = await shard(source);
      for (const sink of SINKS) {
        const got = await drained(store, sink);
        expect(new Set(got), `${sink} of ${source}`).toEqual(furnished.bySource.get(sink)?.get(source));
        expect(got, "no event twice").toHaveLength(new Set(got).size);
      }
    }
  }

  async function documentsOf(source: string): Promise<Record<string, Record<string, unknown>>> {
    const store = await shard(source);
    const sets = [...Object.keys(OWN), "tag/main", "value/main", "tag/annex", "alarm/sold"];
    const found = await Promise.all(sets.map(async (set) => [set, await store.documents(set)] as const));
    return Object.fromEntries(
      found.filter(([, documents]) => documents.size > 0).map(([set, all]) => [set, Object.fromEntries(all)]),
    );
  }

  test("stores documents of a source with that source, and documents without a source where their kind requires", async () => {
    const moved = await move();
    expect(moved).toMatchObject({ wasThere: false, sources: ["main", "annex", "sold", "spare"], leftBehind: [] });
    const own = (set: string, ...keys: readonly string[]) =>
      Object.fromEntries(keys.map((key) => [key, OWN[set]?.[key]]));
    const both = {
      "command-armed": own("command-armed", "writing"),
      "command-audit": own("command-audit", "size"),
      "sink-ended-at": own("sink-ended-at", "gone"),
      "sink-life": own("sink-life", "behind"),
      snapshot: own("snapshot", "behind"),
    };
    const minutes = own("plot-own", "minutes");
    const annex = await documentsOf("annex");
    expect(annex).toEqual({
      ...both,
      command: own("command", "open", "over"),
      "command-wear": own("command-wear", "annex/20001"),
      "command-wear-rehearsal": own("command-wear-rehearsal", "annex/20001"),
      "command-restore": own("command-restore", "annex/20001"),
      silence: own("silence", "all", "one"),
      "plot-own": {
        ...minutes,
        raised: { through: 40, alarms: [expect.objectContaining({ source: "annex", count: 1 })] },
        refused: { annex: [expect.objectContaining({ what: "values" })] },
      },
      "memory/pages": own("memory/pages", "a2", "a3", "storm"),
      "tag/annex": { 20001: { name: "Annex" } },
    });
    expect(await documentsOf("main")).toEqual({
      ...both,
      command: own("command", "over", "foreign"),
      "command-wear": own("command-wear", "main/10042"),
      "command-not-restored": own("command-not-restored", "main/10042"),
      "command-lock": own("command-lock", "main/tag/10042"),
      silence: own("silence", "all"),
      "plot-own": {
        ...minutes,
        raised: { through: 40, alarms: [expect.objectContaining({ source: "main", count: 2 })] },
      },
      "memory/pages": own("memory/pages", "a1", "storm"),
      "memory/lake": own("memory/lake", "life"),
      "tag/main": Object.fromEntries(furnished.documents.get("tag/main") ?? []),
      "value/main": Object.fromEntries(furnished.documents.get("value/main") ?? []),
    });
    expect(await documentsOf("sold")).toEqual({ "alarm/sold": { 1: { name: expect.any(String) } } });
  });

  test("delivers each undelivered event once to every sink, and continues the positions", async () => {
    await move();
    await expectDelivered();
    for (const source of ["main", "annex"]) {
      const store = await shard(source);
      expect((await store.commit({ events: [valueEvent(9_000)] })).lastPosition).toBe(furnished.end + 1);
    }
  });

  test("moves dead letters, gaps, the ages of events, the quota and the reasons why sinks ended", async () => {
    await move();
    const [main, annex] = [await shard("main"), await shard("annex")];
    for (const [sink, letters] of furnished.letters) {
      const found = await main.outbox.deadLetters(sink);
      expect(new Set(found.map(({ event }) => event?.id))).toEqual(letters);
      expect(await annex.outbox.deadLetters(sink)).toEqual([]);
    }
    const gaps = await (await open()).query(`select source, sink, count::integer from ${schema}.gap`);
    expect(gaps.rows).toEqual([["main", "behind", 3]]);
    const before = await looking();
    for (const store of [main, annex]) {
      const lag = await store.outbox.lag();
      const was = await before.outbox.lag();
      expect(lag.map(({ sink, position, ended }) => ({ sink, position, ended }))).toEqual(
        was.map(({ sink, position, ended }) => ({ sink, position, ended })),
      );
    }
    // In the database's time; the folder had its own clock.
    const shiftMs = async (bucket: string) => {
      const [slot] = await annex.quotaStore.load(bucket);
      expect([slot?.id, (slot?.countedByMs ?? 0) - (slot?.sentAtMs ?? 0)]).toEqual([9, expect.closeTo(0.875, 2)]);
      return (slot?.sentAtMs ?? 0) - CLOCK.now();
    };
    for (const bucket of ["annex/values", "annex/lists"])
      expect((await shiftMs(bucket)) + CLOCK.now()).toBeLessThanOrEqual(Date.now());
    expect(await annex.quotaStore.loadClock("annex", "boot-1")).toEqual({ wallMs: CLOCK.now(), sinceBootMs: 1234.5 });
    expect(await main.quotaStore.load("main")).toHaveLength(3);
    const acquire = await main.quotaStore.loadPause("main");
    expect((acquire?.untilMs ?? 0) - (acquire?.orderedAtMs ?? 0)).toBeCloseTo(30_000, 0);
    // An event older than the bound by the folder's running time is removed.
    const bounds = { maxBytes: 2 ** 30, maxAgeMs: 2 ** 40, ranMs: 1, replayMs: 30_000 };
    expect((await annex.outbox.prune(bounds)).removed).toBe(0);
  });

  async function looking(): Promise<Store> {
    return closeAfterTest(await openStore({ folder, clock: CLOCK, readOnly: true }));
  }

  test("continues sequence numbers with one source, and starts new epochs with several sources", async () => {
    const countOf = async (store: Store) => (await store.outbox.next("behind", 1)).counted;
    const before = await countOf(await looking());
    await move({ sources: ["main"] });
    expect(await countOf(await shard("main"))).toEqual(before);
    rmSync(join(folder, STATE_MOVE_MARK_FILE));
    schema = `${schema}b`;
    await move();
    const [main, annex] = [await countOf(await shard("main")), await countOf(await shard("annex"))];
    expect([main?.number, annex?.number]).toEqual([0, 0]);
    expect(new Set([before?.epoch, main?.epoch, annex?.epoch]).size).toBe(3);
  });

  test("copies the complete audit log to each source, and each source continues its own copy", async () => {
    const closing: MoveOptions["closingRecord"] = (name, source, { sequence, body }) => ({
      name,
      source,
      sequence,
      body,
    });
    await move({ closingRecord: closing });
    for (const source of ["main", "annex"]) {
      const records = await (await shard(source)).records("audit", 0, 100);
      const last = furnished.records.at(-1);
      expect(records.map(({ body }) => body)).toEqual([
        ...furnished.records,
        { name: "audit", source, sequence: furnished.records.length, body: last },
      ]);
    }
  });

  test("copies the separately stored head of the audit log to each source, and each source continues the chain", async () => {
    let head = AUDIT_START_HASH;
    const store = await openStore({ folder, clock: CLOCK });
    const records = ["accepted", "sending", "confirmed"].map((step) => {
      const record = hashEntry(head, { at: "2026-11-02T07:00:00.000Z", commandId: "set-1", step, detail: { step } });
      head = record.hash;
      return { log: "audit", body: record };
    });
    editState(folder, "delete from record");
    await store.commit({ records });
    await store.close();
    await move({ closingRecord: closingRecordFor(folder, "the database") });
    const heads = new Set<string>();
    for (const source of ["main", "annex"]) {
      const verdict = await verifyAudit(await shard(source), { records: 3, head });
      expect(verdict).toMatchObject({ records: 4, hasExpected: true, brokenAt: null });
      heads.add(verdict.head);
    }
    expect(heads.size).toBe(2);
  });

  test("reports on a second run that the state was moved already, and no worker starts with the moved folder", async () => {
    await move();
    expect(await move()).toMatchObject({ wasThere: true, movedAt: "2026-11-02T08:00:00.000Z" });
    await expect(openStore({ folder, clock: CLOCK })).rejects.toThrow(
      /^The state in the folder .* was moved to 127\.0\.0\.1:\d+\/postgres, schema moved\d+ at 2026-11-02T08:00:00\.000Z\.$/,
    );
    await expect(openStore({ folder, clock: CLOCK, locksFolder: false })).rejects.toThrow("was moved to");
    cpSync(join(sample, "plenum.db"), join(folder, "plenum.db"));
    await expect(openStore({ folder, clock: CLOCK })).rejects.toThrow("was moved to");
    const elsewhere = await open(server().port, `${schema}_other`);
    await expect(move({ database: elsewhere })).rejects.toThrow("was moved to");
  });

  test("moves no data when the run is interrupted; the next run moves all of it", async () => {
    const way = closeAfterTest(await startByteCuttingProxy(server().port));
    // A name of the same length, so that the measured run sends as many bytes as the others.
    const whole = await open(way.port, schema.replace("moved", "timed"));
    way.cutAfter(Number.POSITIVE_INFINITY);
    await move({ database: whole });
    rmSync(join(folder, STATE_MOVE_MARK_FILE));
    const bytes = way.bytesToCommit();
    for (let n = 0; n < 6; n += 1) {
      const database = await open(way.port);
      // Below 1, so that the commit itself never passes.
      const at = Math.floor((((seed * (n + 1) * 7919) % 10_007) / 10_007) * bytes);
      way.cutAfter(at);
      await expect(move({ database }), `cut after ${at} of ${bytes} bytes; ${replay}`).rejects.toThrow();
      await database.close();
      const rows = await (await open()).query(`select count(*)::integer from ${schema}.event`);
      expect(rows.rows, replay).toEqual([[0]]);
    }
    if (existsSync(join(folder, STATE_MOVE_MARK_FILE))) {
      await expect(openStore({ folder, clock: CLOCK })).rejects.toThrow(
        "it is not known yet whether the move was committed",
      );
    } else await (await openStore({ folder, clock: CLOCK })).close();
    expect(await move()).toMatchObject({ wasThere: false });
    await expectDelivered();
  });

  test("checks on the next run whether a commit without a response succeeded; no worker starts meanwhile", async () => {
    const proxy = closeAfterTest(await startCuttingProxy(server().port));
    const database = await open(proxy.port);
    const cut = proxy.cut("unanswered");
    await expect(move({ database })).rejects.toThrow();
    await cut;
    expect(JSON.parse(readFileSync(join(folder, STATE_MOVE_MARK_FILE), "utf8"))).toMatchObject({ movedAt: null });
    await expect(openStore({ folder, clock: CLOCK })).rejects.toThrow(
      "it is not known yet whether the move was committed",
    );
    const again = await open();
    await expect(move({ database: again })).rejects.toThrow("is being moved to");
    expect(await move({ database: { ...again, name: database.name } })).toMatchObject({ wasThere: true });
    await expectDelivered();
  });

  test("rejects a source that the database already contains, and changes no data", async () => {
    const database = await open();
    await database.query(`insert into ${schema}.source (name) values ('annex')`);
    const annex = await shard("annex", database);
    await annex.commit({ documents: [{ set: "tag/annex", put: [["1", {}]] }] });
    await expect(move({ database })).rejects.toThrow("holds another state of the source annex already");
    expect((await database.query(`select name from ${schema}.source`)).rows).toEqual([["annex"]]);
    await (await openStore({ folder, clock: CLOCK })).close();
  });

  test("rejects a folder that is in use, has no state, or has a damaged state", async () => {
    const worker = await openStore({ folder, clock: CLOCK });
    await expect(move()).rejects.toThrow("Another worker uses the state folder");
    await worker.close();
    await expect(move({ folder: join(folder, "nothing") })).rejects.toThrow("There is no state in");
    editState(folder, "update sink set position = 77 where name = 'ahead'; pragma wal_checkpoint(truncate)");
    await expect(move()).rejects.toThrow("A cursor in");
  });

  test("requires tag writes to be armed again if the moved state was a copy", async () => {
    await (await openStore({ folder, clock: CLOCK })).close();
    const copy = testFolder("plenum-copy");
    cpSync(join(folder, "plenum.db"), join(copy, "plenum.db"));
    await move({ folder: copy });
    expect((await (await shard("main")).documents("command-armed")).size).toBe(0);
  });

  test("leaves damaged documents out of the database", async () => {
    editState(
      folder,
      `update document set body = '{"a": 1}' where set_name = 'command-wear' and key = 'main/10042';
      update document set body = '{}' where set_name = 'command' and key = 'open';
      update dead_letter set body = 'x' where position = 3;
      update event set body = 'x' where position = 20;
      update record set body = 'x' where sequence = 2;
      insert into document values ('from-the-future', 'a', '1', row_checksum('from-the-future', 'a', '1'));`,
    );
    const moved = await move();
    expect(moved.leftBehind).toEqual([
      { what: "documents from-the-future, which this version does not know", rows: 1 },
      { what: "dead letters, which are damaged", rows: expect.any(Number) },
    ]);
    const main = await shard("main");
    // Write limits are lost, so writing must be armed again; a command whose entry is lost is never sent again.
    expect((await main.documents("command-armed")).size).toBe(0);
    for (const source of ["main", "annex"]) {
      const journal = await (await shard(source)).documents("command");
      expect(journal.get("open"), source).toMatchObject({ state: "unknown" });
    }
    const records = await main.records("audit", 0, 10);
    expect(records.map(({ sequence }) => sequence)).toEqual([1, 2, 3, 4, 5]);
    expect(records[1]?.body).toEqual({});
    const rotten = [...furnished.events.keys()][19] ?? "";
    expect(await drained(main, "behind")).not.toContain(rotten);
  });
});
