import { rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { absent, temporaryFolder } from "../../real-servers.ts";
import { valueEvent } from "../../sample-events.ts";
import { never } from "../context.ts";
import { createAuthority } from "../mqtt/certificates.ts";
import { createDatabase, type Database, failureText, sinkIn, useServer, write } from "./test-database.ts";

describe.skipIf(absent("postgres"))("TLS of the PostgreSQL sink", () => {
  const folder = temporaryFolder();
  const authority = createAuthority(folder);
  const server = useServer({ tls: authority.issue("server") });
  let database: Database;

  beforeAll(async () => {
    database = await createDatabase(server());
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  async function opening(options: Readonly<Record<string, unknown>>): Promise<string> {
    const failure = await failureText(sinkIn(database, { sslmode: "verify-full", ...options }).open(never()));
    return failure.replace(/^\w+: /, "");
  }

  test("the PostgreSQL sink encrypts the connection and checks the certificate against ca_file", async () => {
    const sink = sinkIn(database, { sslmode: "verify-full", ca_file: authority.caFile });
    await write(sink, [valueEvent(1)]);
    const connections =
      "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'plenum'";
    expect(await database.query(connections)).toEqual([[true]]);
  });

  test("the PostgreSQL sink refuses an unknown or a different certificate authority, regardless of the environment variables", async () => {
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
    process.env.PGSSLMODE = "no-verify";
    onTestFinished(() => {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
      delete process.env.PGSSLMODE;
    });
    const unknown =
      /^The certificate of the database server at 127\.0\.0\.1:\d+ .* \([A-Z_]+\)\. If it has a private authority, give its certificate as ca_file/;
    expect(await opening({})).toMatch(unknown);
    expect(await opening({ ca_file: createAuthority(folder, "another").caFile })).toMatch(unknown);
  });

  test("the PostgreSQL sink refuses a certificate for another host name", async () => {
    expect(await opening({ host: "localhost", ca_file: authority.caFile })).toMatch(
      /^The certificate of the database server at localhost:\d+ is for another name \(ERR_TLS_CERT_ALTNAME_INVALID\)\. Check host\.$/,
    );
  });

  test("the PostgreSQL sink refuses a server without TLS", async () => {
    await database.query("alter system set ssl = off");
    await database.query("select pg_reload_conf()");
    await expect
      .poll(() => opening({ ca_file: authority.caFile }))
      .toMatch(
        /^The database server at 127\.0\.0\.1:\d+ does not speak TLS \(it says so\)\. Check host: another port, or sslmode: disable where that is safe\.$/,
      );
  });
});
