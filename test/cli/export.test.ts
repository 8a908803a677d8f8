import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { query, rowsIn, tableIn } from "../connectors/parquet/duckdb-query.ts";
import { type Harness, onlyLine, openHarness, type Service, simulatedServer } from "./plenum.ts";

async function createExportSetup(options: SimulatorOptionsInput = {}): Promise<{ service: Service; here: Harness }> {
  const service = await simulatedServer({ sites: [6], alarms: { recorded: false }, ...options });
  return { service, here: openHarness(service.url) };
}

const EXPORT = ["export", "--from", "5d", "--resolution", "1h", "--to-folder", "lake"] as const;
const COUNTED_COLUMNS =
  "count(*)::INTEGER AS rows, count(DISTINCT (tag_id, time))::INTEGER AS buckets, count(DISTINCT tag_id)::INTEGER AS tags";

const countHistory = (here: Harness) => rowsIn(here.path("lake"), "history", COUNTED_COLUMNS);

describe("plenum export", () => {
  test("writes history and dimensions once, finalizes the days, and deletes its own state", async () => {
    const { here, service } = await createExportSetup();
    const { code, stdout } = await here.plenum(...EXPORT, "--json");
    const outcome = JSON.parse(stdout);
    expect([code, outcome]).toEqual([0, expect.objectContaining({ complete: true, tags: 8, holes: [], troubles: [] })]);
    expect(await countHistory(here)).toEqual([
      { rows: outcome.had + outcome.null, buckets: outcome.had + outcome.null, tags: 8 },
    ]);
    const range = "min(time) >= now() - INTERVAL 122 HOUR AND max(time) < now() AS within";
    expect(await rowsIn(here.path("lake"), "history", range)).toEqual([{ within: true }]);
    const namedRows = await query(`
      SELECT count(*)::INTEGER AS rows, count(t.name)::INTEGER AS named, count(b.name)::INTEGER AS placed
      FROM ${tableIn(here.path("lake"), "history")} h
      LEFT JOIN ${tableIn(here.path("lake"), "tag")} t ON t.tag_id = h.tag_id AND t.is_current
      LEFT JOIN ${tableIn(here.path("lake"), "site")} b ON b.site_id = h.site_id AND b.is_current`);
    const rows = outcome.had + outcome.null;
    expect(namedRows).toEqual([{ rows, named: rows, placed: rows }]);
    expect(await rowsIn(here.path("lake"), "gateway", "count(*) > 0 AS found")).toEqual([{ found: true }]);
    const days = readdirSync(here.path("lake/_manifests/site=6"));
    expect(days).toHaveLength(outcome.sealedDays);
    for (const manifestName of days) {
      const manifest = JSON.parse(readFileSync(here.path(`lake/_manifests/site=6/${manifestName}`), "utf8"));
      expect(manifest.account).toMatchObject({ expected: 192, pending: 0, refused: 0, series: 8 });
      expect(manifest.tables.history).toMatchObject({ rows: 192, files: [expect.anything()] });
    }
    expect(existsSync(here.path("lake/.export"))).toBe(false);
    const errors = service.simulator.truth.requests().filter(({ errorStatus }) => errorStatus !== null);
    expect(errors).toEqual([]);
    expect(await here.refusal(...EXPORT)).toBe(
      `78 The folder ${here.path("lake")} is not empty, and no export was begun there. Name one that is empty or does not exist yet: two exports in one folder would double what both have.`,
    );
  });

  test("reports tags for which the service has no history, and rejected requests with the message of the service", async () => {
    const refusedTag = {
      match: { endpoints: ["history" as const], tag_id: "10170" },
      fault: { kind: "error" as const, status: 422, message: "Not this one." },
    };
    const { here } = await createExportSetup({ history: { no_log: { tags: ["10169"] } }, faults: [refusedTag] });
    const { code, stdout } = await here.plenum(...EXPORT);
    expect(stdout).toMatch(/^\d+ values and \d+ intervals without one, of 8 tags, .* 0 days are sealed\.$/m);
    expect(stdout).toMatch(
      /^not had.*: 10169 .*the service says that it has no log of it; at 20[\d :+-]+ \([^)]+\): /m,
    );
    expect(stdout).toMatch(
      /^not had.*: 10170 .*requested and refused; at 20[\d :+-]+ \([^)]+\): .*Not this one\..*; asked again after 20/m,
    );
    expect([code, stdout]).toEqual([3, expect.stringContaining("It is not complete; the same command")]);
    expect(existsSync(here.path("lake/.export"))).toBe(true);
    expect(await here.refusal("export", "--from", "6d", "--resolution", "1h", "--to-folder", "lake")).toBe(
      `78 Another export was begun in ${here.path("lake")}, and is not complete. Repeat that one with the same options, or name another folder.`,
    );
  });

  test("resumes after a kill and writes no value twice", async () => {
    const slow = {
      match: { endpoints: ["history" as const] },
      when: { skip: 2 },
      fault: { kind: "slow" as const, delay_ms: 60_000 },
    };
    const { here, service } = await createExportSetup({ faults: [slow], history: { max_values: 300 } });
    const killedExport = here.start(...EXPORT);
    const requested = () => service.simulator.truth.requests().filter(({ endpoint }) => endpoint === "history").length;
    await expect.poll(requested).toBeGreaterThan(2);
    await killedExport.kill();
    service.simulator.control.setFaults([]);
    const { code, stdout } = await here.plenum(...EXPORT, "--json");
    const outcome = JSON.parse(stdout);
    expect([code, outcome.complete]).toEqual([0, true]);
    const buckets = outcome.had + outcome.null;
    expect(buckets).toBeGreaterThan(900);
    expect(await countHistory(here)).toEqual([{ rows: buckets, buckets, tags: 8 }]);
  });
});

describe("plenum export rejects an impossible request with one message", () => {
  test.each([
    [["--from", "1d", "--to", "2d"], 2, "--from has to be before --to."],
    [
      ["--from", "10m", "--resolution", "1mo", "--to", "5m"],
      2,
      "No interval of 1mo has closed since --from; the first will by itself.",
    ],
    [["--from", "1d", "--site", "7"], 78, "The state knows no site 7 of main. `plenum sites` lists the sites."],
    [
      ["99999998,99999999", "--from", "1d"],
      78,
      "The state knows no tags 99999998, 99999999 of main. `plenum tags` lists the tags.",
    ],
    [
      ["--from", "1d", "--unit", "furlong"],
      78,
      "No tag fits this selection. `plenum sites` lists the sites; names are patterns, * is any text.",
    ],
  ])("for the options %j", async (options, code, message) => {
    const { here } = await createExportSetup();
    const exportResult = await here.plenum("export", "--to-folder", "lake", ...options);
    expect([exportResult.code, onlyLine(exportResult.stderr)]).toEqual([code, message]);
    expect(existsSync(here.path("lake")) ? readdirSync(here.path("lake")) : []).toEqual([]);
  });

  test("rejects a configuration that a running worker uses", async () => {
    const { here } = await createExportSetup();
    await here.run();
    expect(await here.refusal(...EXPORT)).toBe(
      "78 A worker runs with this configuration, and an export would spend its quota. Stop it for the time of the export, or give it a `parquet` sink and order the past with `plenum backfill`.",
    );
    expect(existsSync(here.path("lake"))).toBe(false);
  });

  test("rejects an invalid token and a token without read:tags", async () => {
    const { here } = await createExportSetup({ tokens: [{ token: "simulator-token", abilities: ["read:alarms"] }] });
    expect(await here.refusal(...EXPORT)).toBe(
      "78 The token of main lacks read:tags, without which there is no history. Make one in the user profile of the service that has it.",
    );
    writeFileSync(here.path("token"), "another");
    expect(await here.refusal(...EXPORT)).toMatch(/^78 .*oken/);
  });
});
