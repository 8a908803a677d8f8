import { once } from "node:events";
import { createServer } from "node:net";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { PostgresConfig } from "#connectors/postgres/config.ts";
import { createPostgresSink } from "#connectors/postgres/sink.ts";
import { errorText } from "#src/core/errors/errors.ts";
import { sqlErrorToFailure } from "#src/core/postgres/error-meaning.ts";
import { parsePostgresAddress } from "#src/core/postgres/server-address.ts";
import { connectTo } from "../../query-postgres.ts";
import { absent, freePort, startPostgres } from "../../real-servers.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { stopAfterTest } from "../../test-resources.ts";
import { contextFor, never } from "../context.ts";
import {
  createDatabase,
  type Database,
  failureText,
  openSink,
  optionsFor,
  sinkIn,
  useServer,
  write,
} from "./test-database.ts";

const PASSWORD = "not-to-be-told-anywhere";

describe.skipIf(absent("postgres"))("the PostgreSQL sink with failures of the server", () => {
  const server = useServer();
  beforeAll(() => {
    process.env.PG_TEST_PASSWORD = PASSWORD;
  });
  afterAll(() => {
    delete process.env.PG_TEST_PASSWORD;
  });

  async function failureOf(work: Promise<unknown> = Promise.resolve()): Promise<string> {
    const text = await failureText(work);
    expect(text).not.toContain(PASSWORD);
    return text;
  }

  async function opening(database: Database, options: Readonly<Record<string, unknown>> = {}): Promise<string> {
    const sink = sinkIn(database, options);
    const said = await failureOf(sink.open(never()));
    expect(await failureOf(sink.probe?.(never()))).toBe(said);
    return said;
  }

  async function role(database: Database, grants = ""): Promise<string> {
    const name = `${database.name}_role`;
    await database.query(`create role ${name} login password '${PASSWORD}'; ${grants.replaceAll("{role}", name)}`);
    return name;
  }

  const here = () => `The database server at 127.0.0.1:${server().port}`;
  const password = { env: "PG_TEST_PASSWORD" };

  test("the sink accepts a correct password, and reports a wrong or missing password", async () => {
    const database = await createDatabase(server());
    const user = await role(database, `grant create on database ${database.name} to {role}`);
    expect(await opening(database, { user, password })).toBe("");
    expect(await opening(database, { user })).toBe(
      `config: ${here()} asks for a password. Give the password of the role ${user}.`,
    );
    await database.query(`alter role ${user} password 'another'`);
    expect(await opening(database, { user, password })).toBe(
      `config: ${here()} does not accept the password: password authentication failed for user "${user}" (28P01). Check the password of the role ${user}.`,
    );
  });

  test("the sink reports a missing database, and a database whose encoding cannot store every text", async () => {
    const database = await createDatabase(server(), "encoding 'LATIN1' template template0 locale 'C'");
    expect(await opening(database)).toBe(
      "config: The database keeps texts as LATIN1, in which not every name can be written. Create one with encoding 'UTF8'.",
    );
    expect(await opening(database, { database: "nowhere" })).toBe(
      `config: ${here()} has no such database: database "nowhere" does not exist (3D000). Create it, or write the name of one that is there.`,
    );
  });

  test("open and probe report missing rights", async () => {
    const database = await createDatabase(server());
    const user = await role(database);
    const sink = sinkIn(database, { user, password });
    expect(await failureOf(sink.probe?.(never()))).toBe(
      "config: The role may not create tables in the database. Have its owner run: grant create on the database to that role.",
    );
    expect(await failureOf(sink.open(never()))).toMatch(/^config: .* does not give us the right: permission denied/);
    await sinkIn(database).open(never());
    await database.query(`grant usage on schema plenum to ${user}; grant select on plenum.schema_version to ${user}`);
    expect(await failureOf(sink.probe?.(never()))).toMatch(
      /^config: The role may not write into plenum\.\w+\. Have its owner run: grant select, insert, update on all tables in schema plenum to that role\.$/,
    );
    expect(await failureOf(write(sink, [valueEvent(1)]))).toMatch(
      /does not give us the right: permission denied for table value \(42501\)/,
    );
    await database.query(`grant select, insert, update on all tables in schema plenum to ${user}`);
    expect(await failureOf(sink.probe?.(never()))).toBe("");
    await write(sink, [valueEvent(1), sampleEvent("tag-added")]);
  });

  test("the sink reports a read-only database", async () => {
    const database = await createDatabase(server());
    await database.query(`alter database ${database.name} set default_transaction_read_only = on`);
    expect(await opening(database)).toBe(
      "config: The database only lets us read (default_transaction_read_only). Set it to off for the role or the database.",
    );
  });

  test("the sink reports a refused connection, a server that is not PostgreSQL, and a server that never responds", async () => {
    const port = await freePort();
    const sinkAt = (more: object) => {
      const config = PostgresConfig.parse({ ...optionsFor({ port }, "x"), ...more });
      return createPostgresSink(config, contextFor("x"));
    };
    expect(await failureOf(sinkAt({}).open(never()))).toBe(
      `retryable: The database server at 127.0.0.1:${port} could not be reached: it refuses the connection (ECONNREFUSED). If that stays so, check whether it is running, and the port in host.`,
    );
    const far = createServer((socket) => socket.on("data", () => reply === null || socket.end(reply)));
    let reply: string | null = "HTTP/1.1 400 Bad Request\r\n\r\n";
    far.listen(port, "127.0.0.1");
    await once(far, "listening");
    onTestFinished(() => void far.close());
    expect(await failureOf(sinkAt({ sslmode: "verify-full" }).open(never()))).toBe(
      `config: The database server at 127.0.0.1:${port} does not answer as PostgreSQL does. Check host and port.`,
    );
    reply = null;
    expect(await failureOf(sinkAt({ connect_timeout: "200ms" }).open(never()))).toBe(
      `retryable: The database server at 127.0.0.1:${port} could not be reached: no answer in time (TimeoutError).`,
    );
  });

  async function lockTable(database: Database) {
    const client = await connectTo(server(), database.name);
    onTestFinished(() => client.end());
    await client.query("begin; lock table plenum.value");
    return { release: () => client.query("rollback") };
  }

  async function waitingForLock(database: Database): Promise<void> {
    const countWaiting =
      "select count(*)::int from pg_stat_activity where application_name = 'plenum' and wait_event_type = 'Lock' and datname = current_database()";
    await expect.poll(() => database.query(countWaiting)).toEqual([[1]]);
  }

  test("the server stops a statement after the timeout, and the events are retried", async () => {
    const { database, sink } = await openSink(server(), { timeout: "1s" });
    const lock = await lockTable(database);
    expect(await failureOf(write(sink, [valueEvent(1)]))).toBe(
      `retryable: ${here()} took too long and was stopped: canceling statement due to statement timeout (57014). If that stays so, raise timeout, and the sink's deadline.`,
    );
    await lock.release();
    await write(sink, [valueEvent(1)]);
  });

  test("a server that is killed during a write stores none of its rows, and the sink reconnects", async () => {
    const { database, sink } = await openSink(server());
    await lockTable(database);
    const writing = failureOf(write(sink, [valueEvent(1)]));
    await waitingForLock(database);
    await server().kill();
    expect(await writing).toMatch(/^retryable: .* (broke the connection|ends the connection)/);
    expect(await failureOf(write(sink, [valueEvent(1)]))).toMatch(/^retryable: .*ECONNREFUSED/);
    await server().startAgain();
    await write(sink, [valueEvent(1)]);
    expect(await database.query("select count(*)::int from plenum.value")).toEqual([[1]]);
  });

  test("the sink warns when the database lowers synchronous_commit, and PGOPTIONS has no effect", async () => {
    const lines: string[] = [];
    const log = pino({ level: "warn" }, { write: (line: string) => void lines.push(line) });
    const database = await createDatabase(server());
    const warnings = async () => {
      lines.length = 0;
      const sink = database.sink({}, { ...contextFor("x"), log });
      await sink.open(never());
      await sink.close();
      return lines.map((line) => JSON.parse(line).synchronous_commit);
    };
    // fsync is off here, so the warning appears anyway; the other setting counts.
    process.env.PGOPTIONS = "-c synchronous_commit=off";
    onTestFinished(() => {
      delete process.env.PGOPTIONS;
    });
    expect(await warnings()).toEqual(["on"]);
    await database.query(`alter database ${database.name} set synchronous_commit = off`);
    expect(await warnings()).toEqual(["off"]);
  });

  test("the sink reports a restarted server as new only if the restart may have lost commits", async () => {
    const strict = stopAfterTest(await startPostgres());
    const sinks = await Promise.all([server(), strict].map(async (each) => sinkIn(await createDatabase(each))));
    const look = async (before: readonly (string | null)[]) => {
      const lives = [];
      for (const [n, sink] of sinks.entries()) {
        await sink.open(never());
        lives.push(await sink.detectRestart?.(before[n] ?? null, never()));
      }
      return lives;
    };
    const first = await look([null, null]);
    expect(first.map((life) => life?.isNew)).toEqual([false, false]);
    const lives = first.map((life) => life?.instanceId ?? "");
    expect((await look(lives)).map((life) => life?.isNew)).toEqual([false, false]);
    for (const each of [server(), strict]) {
      await each.kill();
      await each.startAgain();
    }
    for (const sink of sinks) await sink.close();
    const instances = await look(lives);
    expect(instances.map((life) => life?.isNew)).toEqual([true, false]);
    expect((await look(["00000009", "00000009"]))[1]?.isNew, "another timeline").toBe(true);
  });
});

describe("the classification of PostgreSQL errors (sqlErrorToFailure)", () => {
  const address = parsePostgresAddress({ host: "db", database: "d", user: "plenum" });
  const said = (code: string, message = "words") => {
    const error = Object.assign(new Error(message), { code, severity: "ERROR", detail: "Failing row contains (…)" });
    const failure = sqlErrorToFailure(error, address);
    expect(errorText(failure)).not.toContain("Failing row");
    return `${failure.kind}: ${errorText(failure)}`;
  };

  test.each([
    [
      "53100",
      "retryable: The database server at db:5432 has no room on its disk: words (53100). Make room on it; the events wait.",
    ],
    ["57P03", "retryable: The database server at db:5432 is starting, stopping or recovering: words (57P03)."],
    ["40P01", "retryable: The database server at db:5432 had somebody else in the way: words (40P01)."],
    [
      "55P03",
      "retryable: The database server at db:5432 waited too long for a lock: words (55P03). Somebody holds the tables; look into pg_locks there.",
    ],
    ["08P01", "retryable: The database server at db:5432 could not do it: words (08P01)."],
    [
      "25006",
      "config: The database server at db:5432 only lets us read: words (25006). Write the address of the primary; this may be a replica.",
    ],
    [
      "P0001",
      "config: The database server at db:5432 refuses every row: words (P0001). Somebody has changed the tables: put them back as they were made, or let schema name another.",
    ],
    [
      "28000",
      "config: The database server at db:5432 does not let us in: words (28000). Check user and database, and allow both in its pg_hba.conf.",
    ],
  ])("sqlErrorToFailure maps error code %s to a failure kind and advice", (code, expected) => {
    expect(said(code)).toBe(expected);
  });

  test("long messages of the server are shortened", () => {
    expect(said("XX000", "x".repeat(10_000)).length).toBeLessThan(500);
  });
});
