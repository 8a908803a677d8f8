import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { ConfigError, errorText, Retryable } from "#src/core/errors/errors.ts";
import { PostgresState } from "#src/engine/store/state-config.ts";
import { SCHEMA_VERSION } from "#src/scale/postgres/schema.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { connectTo } from "../../query-postgres.ts";
import { freePort, programPath, startPostgres } from "../../real-servers.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { createHarness, type Harness, startServerForTests, urlAt } from "./postgres-harness.ts";

const PASSWORD = "PLENUM_TEST_STATE_PASSWORD";

describe.skipIf(programPath("postgres") === null)("opening the state database", () => {
  const server = startServerForTests();
  let harness: Harness;

  beforeEach(() => {
    harness = closeAfterTest(createHarness(server()));
  });
  afterEach(() => void delete process.env[PASSWORD]);

  /** Replaces `AbortSignal.timeout` by limits that the test aborts. */
  function timeLimits(): readonly AbortController[] {
    const limits: AbortController[] = [];
    const spy = vi.spyOn(AbortSignal, "timeout").mockImplementation(() => {
      const limit = new AbortController();
      limits.push(limit);
      return limit.signal;
    });
    onTestFinished(() => spy.mockRestore());
    return limits;
  }

  async function refused(config: Readonly<Record<string, unknown>> = {}, migrate = true) {
    const error: unknown = await harness.open({ config, migrate }).catch((reason: unknown) => reason);
    if (!(error instanceof Error)) throw new Error("It was opened.");
    return { passes: error instanceof Retryable, isConfig: error instanceof ConfigError, says: errorText(error) };
  }

  async function expectRefusal(config: Readonly<Record<string, unknown>>, text: string): Promise<void> {
    expect(await refused(config)).toMatchObject({ isConfig: true, says: expect.stringContaining(text) });
  }

  test("creates one schema when two processes start at once", async () => {
    const opened = await Promise.all([harness.open(), harness.open(), harness.open()]);
    expect(await harness.query(`select schema_version from ${harness.schema}.meta`)).toEqual([[SCHEMA_VERSION]]);
    const [first] = opened;
    expect(first?.name).toBe(`127.0.0.1:${server().port}/postgres, schema ${harness.schema}`);
    expect(first?.table("event")).toBe(`"${harness.schema}"."event"`);
    expect(await first?.describe()).toMatchObject({
      schemaVersion: SCHEMA_VERSION,
      server: expect.stringMatching(/^127\.0\.0\.1:\d+, PostgreSQL 1\d/),
      synchronousCommit: "on",
      dataChecksums: false,
      isReplica: false,
    });
    expect((await first?.describe())?.bytes).toBeGreaterThan(100_000);
  });

  test("limits a statement to 8 s and an idle transaction to 3 s; a command may set lower limits", async () => {
    const LIMITS =
      "select current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')";
    const database = await harness.open();
    const within = (opened: StateDatabase) => opened.transaction(async (session) => (await session.query(LIMITS)).rows);
    expect(await within(database)).toEqual([["8s", "3s"]]);
    expect((await database.query(LIMITS)).rows).toEqual([["8s", "0"]]);
    expect((await database.query(LIMITS, [], 60_000)).rows[0]?.[0]).toBe("1min");
    expect(await within(await harness.open({ statementTimeoutMs: 2_000 }))).toEqual([["2s", "2s"]]);
    expect(await within(await harness.open({ allowsLongTransaction: true }))).toEqual([["1h", "1min"]]);
  });

  test("keeps a connection open beyond the connection timeout", async () => {
    const limits = timeLimits();
    const database = await harness.open();
    const pid = async () => (await database.query("select pg_backend_pid()")).rows;
    const before = await pid();
    expect(limits.length).toBeGreaterThan(0);
    for (const limit of limits) limit.abort(new Error("late"));
    expect(await pid()).toEqual(before);
  });

  test("times out when the server does not respond to the check of the schema", async () => {
    await harness.open();
    const limits = timeLimits();
    const owner = await connectTo(server());
    await owner.query(`begin; lock table ${harness.schema}.meta`);
    const opening = harness.open().catch((error: unknown) => error);
    await expect
      .poll(() => harness.query("select 1 from pg_stat_activity where wait_event_type = 'Lock'"))
      .toHaveLength(1);
    for (const limit of limits) limit.abort(new Retryable("late"));
    expect(await opening).toMatchObject({ message: "late" });
    await owner.query("rollback");
    await owner.end();
  });

  test("rejects a newer schema, an older schema that needs a migration, and a schema of another program", async () => {
    expect((await refused({}, false)).says).toContain("There is no state in the schema");
    await harness.open();
    await harness.query(`update ${harness.schema}.meta set schema_version = 99`);
    const newer = await refused();
    expect(newer).toMatchObject({ isConfig: true });
    expect(newer.says).toContain(
      `by a newer Plenum (schema 99, this one knows ${SCHEMA_VERSION}). Run the newer version`,
    );
    await harness.query(`update ${harness.schema}.meta set schema_version = 0`);
    expect((await refused({}, false)).says).toContain(`is older (0 instead of ${SCHEMA_VERSION})`);
    await harness.query(
      `drop schema ${harness.schema} cascade; create schema ${harness.schema}; create table ${harness.schema}.value (x int)`,
    );
    expect((await refused()).says).toContain(
      "belongs to something else. Let state.postgres.schema name one of its own.",
    );
  });

  test("reports a missing or wrong password, a missing privilege, an unknown database and a wrong port", async () => {
    const role = `poor_${harness.schema}`;
    await harness.query(`create role ${role} login password 'right'`);
    const config = { url: urlAt(server().port, role), password: { env: PASSWORD } };
    const advice = `Grant the role ${role} create on the database, or make it the owner of the schema.`;
    await expectRefusal({ url: config.url }, `asks for a password. Give the password of the role ${role}.`);
    process.env[PASSWORD] = "wrong";
    await expectRefusal(config, "does not accept the password");
    process.env[PASSWORD] = "right";
    await expectRefusal(config, advice);
    await expectRefusal({ url: urlAt(server().port).replace("/postgres?", "/nothing?") }, "has no such database");
    const away = await refused({ url: urlAt(await freePort()) });
    expect(away).toMatchObject({ passes: true, isConfig: false });
    expect(away.says).toContain("the port in url");
  });

  test("rejects a read-only database, and uses the writable one of several servers", async () => {
    const role = `reading_${harness.schema}`;
    await harness.query(
      `create role ${role} login superuser password 'right'; alter role ${role} set default_transaction_read_only = on`,
    );
    process.env[PASSWORD] = "right";
    await expectRefusal({ url: urlAt(server().port, role), password: { env: PASSWORD } }, "only lets us read");
    const several = (ports: readonly number[], user = "postgres") =>
      urlAt(0, user).replace("127.0.0.1:0", ports.map((port) => `127.0.0.1:${port}`).join(","));
    const url = several([await freePort(), server().port], role);
    const noneIsThere = await refused({ url, password: { env: PASSWORD } });
    expect(noneIsThere).toMatchObject({ passes: true });
    expect(noneIsThere.says).toMatch(/^None of the database servers at .* takes writes at the moment/);

    // A server with this setting looks like a replica.
    const other = await startPostgres({ lines: ["fsync = off", "default_transaction_read_only = on"] });
    try {
      const database = await harness.open({ config: { url: several([await freePort(), other.port, server().port]) } });
      expect((await database.describe()).server).toContain(`127.0.0.1:${server().port},`);
      await harness.query("alter system set default_transaction_read_only = on");
      await harness.query("select pg_reload_conf()");
      const insertDocument = () => database.query("insert into fleet_document values ('k', '1')").catch(errorText);
      await expect
        .poll(insertDocument)
        .toMatch(/^The server of \S+, schema \S+ has become a replica; the next one is looked for/);
      await expect
        .poll(() => database.query("select 1").then(() => "answered", errorText))
        .toMatch(/^None of the database servers/);
    } finally {
      const owner = await connectTo(server());
      await owner.query("set default_transaction_read_only = off");
      await owner.query("alter system reset default_transaction_read_only");
      await owner.query("select pg_reload_conf()");
      await owner.end();
      await expect.poll(() => harness.query("show default_transaction_read_only")).toEqual([["off"]]);
      await other.stop();
    }
  });

  test("reports a lost database at once, and reconnects when the server is back", async () => {
    const database = await harness.open();
    await server().kill();
    await expect(database.query("select 1")).rejects.toThrow(Retryable);
    await expect(database.query("select 1")).rejects.toThrow(Retryable);
    await server().startAgain();
    await expect.poll(() => database.query("select 1").then(({ rows }) => rows, String)).toEqual([[1]]);
  });

  test("rejects invalid options in the configuration", () => {
    const complaint = (config: object) => {
      const parsed = PostgresState.safeParse(config);
      return parsed.success ? null : parsed.error.issues.map(({ message }) => message).join(" ");
    };
    expect(complaint({ url: "postgresql://plenum@a.example:5432,b.example/plenum" })).toBeNull();
    expect(complaint({ url: "postgresql://plenum@a.example:5432,/plenum" })).toContain("whole address");
    expect(complaint({ url: "postgresql://plenum:secret@a.example/plenum" })).toContain("option password");
    expect(complaint({ url: "postgresql://plenum@localhost,b.example/plenum?sslmode=disable" })).toContain(
      "allow_plain",
    );
    expect(complaint({ url: "postgresql://plenum@localhost/plenum?sslmode=disable" })).toBeNull();
    expect(complaint({ url: "postgresql://plenum@a.example/plenum", schema: "pg_x" })).toContain("pg_");
  });
});
