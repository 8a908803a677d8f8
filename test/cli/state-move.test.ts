import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { StateMoveResult } from "#src/scale/move-to-postgres/move-state.ts";
import { connectTo } from "../ask-postgres.ts";
import { absent, type RealServer, startPostgres } from "../real-servers.ts";
import { createTwoSourceState } from "../store/move/two-sources.ts";
import { onlyLine, workplace } from "./plenum.ts";

describe.skipIf(absent("postgres"))("plenum state move", { timeout: 120_000 }, () => {
  let server: RealServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.stop());
  const source = { base_url: "http://127.0.0.1:9", token: { file: "token" }, time_zone: "Europe/Oslo" };

  test("plenum state move moves and prints the tables, rejects a running worker, and reports a repeated move", async () => {
    const cli = workplace("http://127.0.0.1:9");
    cli.configure({ sources: { main: source, annex: { ...source, token: cli.token("annex") } } });
    const to = ["--to", `postgresql://postgres@127.0.0.1:${server.port}/postgres?sslmode=disable`];
    expect(await cli.refusal("state", "move", ...to)).toMatch(/^78 There is no state in .*state\./);
    await createTwoSourceState(cli.path("state"));
    const moveOutput = await cli.plenum("state", "move", ...to);
    expect(moveOutput.stderr).toBe("");
    expect(moveOutput.stdout).toMatch(
      /is in 127\.0\.0\.1:\d+\/postgres, schema plenum_state now, for 4 sources: main, annex, /,
    );
    expect(moveOutput.stdout).toMatch(/\n {2}event +107 rows\n {4}main: 87 rows, digest [0-9a-f]{16}\n/);
    expect(moveOutput.stdout).toContain("Next: say so in the configuration (state.postgres), and start the members");
    expect(moveOutput.code).toBe(0);
    expect(await cli.refusal("run")).toMatch(
      /^78 The state in the folder .* was moved to 127\.0\.0\.1:\d+\/postgres, schema plenum_state at .*\. Set state\.postgres/,
    );
    const repeatedMove = await cli.plenum("state", "move", ...to, "--json");
    expect(JSON.parse(repeatedMove.stdout) as StateMoveResult).toMatchObject({ wasThere: true, tables: [] });
  });

  test("plenum state move uses the database of the configuration and moves the kill switch", async () => {
    const cli = workplace("http://127.0.0.1:9");
    await createTwoSourceState(cli.path("state"));
    writeFileSync(cli.path("state/WRITES-STOPPED"), "by hand\n");
    const url = `postgresql://postgres@127.0.0.1:${server.port}/postgres?sslmode=disable`;
    cli.configure({
      state: { folder: "state", postgres: { url, schema: "configured" } },
      sinks: { out: { webhook: { url: "http://127.0.0.1:9/", unsigned: true } } },
    });
    expect(await cli.refusal("state", "move", "--schema", "other")).toMatch(/^78 .*Without --to/);
    const moveOutput = await cli.plenum("state", "move");
    expect([moveOutput.stderr, moveOutput.code]).toEqual(["", 0]);
    expect(moveOutput.stdout).toContain("Next: start the members: plenum run.");
    const client = await connectTo(server);
    const { rows } = await client.query("select key, body from configured.fleet_document where key = 'kill-switch'");
    await client.end();
    expect(JSON.parse(rows[0]?.body)).toMatchObject({ by: expect.stringContaining(cli.path("state")) });
  });

  test.each<[string, readonly string[], string]>([
    ["no database", [], "It is not said which database the state is to be moved to."],
    ["an address with a password", ["--to", "postgresql://a:b@db/x"], "--to: Leave the password out of the address"],
    ["an address without TLS", ["--to", "postgresql://a@db/x?sslmode=disable"], "add --allow-plain"],
    ["an unreachable database", ["--to", "postgresql://a@127.0.0.1:9/x?sslmode=disable"], "127.0.0.1:9"],
  ])("`state move` reports one message for the target: %s", async (_, args, sentence) => {
    const cli = workplace("http://127.0.0.1:9");
    const { stderr, code } = await cli.plenum("state", "move", ...args);
    expect(onlyLine(stderr)).toContain(sentence);
    expect([75, 78]).toContain(code);
  });
});
