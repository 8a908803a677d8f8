import { rmSync } from "node:fs";
import { afterAll, describe, expect, test } from "vitest";
import { errorText } from "#src/core/errors/errors.ts";
import { createAuthority } from "../../connectors/mqtt/certificates.ts";
import { absent, temporaryFolder } from "../../real-servers.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { createHarness, startServerForTests } from "./postgres-harness.ts";

describe.skipIf(absent("postgres"))("TLS to the state database", () => {
  const folder = temporaryFolder();
  const authority = createAuthority(folder);
  const server = startServerForTests({ tls: authority.issue("server") });
  afterAll(() => rmSync(folder, { recursive: true }));

  const rigged = () => closeAfterTest(createHarness(server()));

  const address = (host = "127.0.0.1") => `postgresql://postgres@${host}:${server().port}/postgres`;

  const refusal = (config: Readonly<Record<string, unknown>>) =>
    rigged()
      .open({ config })
      .then(() => "", errorText);

  test("encrypts every connection, including the listening connection", async () => {
    const harness = rigged();
    const database = await harness.open({ config: { url: address(), ca_file: authority.caFile } });
    const heard: string[] = [];
    database.onNotified("somewhere", () => heard.push("somewhere"));
    await expect
      .poll(async () => {
        await database.transact([database.notify("somewhere")]);
        return heard.length;
      })
      .toBeGreaterThan(0);
    const kinds = await harness.query(
      `select ssl from pg_stat_ssl join pg_stat_activity using (pid)
       where application_name = 'plenum' group by ssl`,
    );
    expect(kinds).toEqual([[true]]);
  });

  test("rejects a certificate of an unknown authority, of a wrong authority, and for another host name", async () => {
    const unknown =
      /^The certificate of the database server at 127\.0\.0\.1:\d+ .* \([A-Z_]+\)\. If it has a private authority, give its certificate as ca_file/;
    expect(await refusal({ url: address() })).toMatch(unknown);
    const another = createAuthority(folder, "another").caFile;
    expect(await refusal({ url: address(), ca_file: another })).toMatch(unknown);
    expect(await refusal({ url: address("localhost"), ca_file: authority.caFile })).toMatch(
      /^The certificate of the database server at localhost:\d+ is for another name \(ERR_TLS_CERT_ALTNAME_INVALID\)\./,
    );
  });
});
