import { existsSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import type { CheckResult } from "#src/cli/checking/check-report.ts";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { freePort } from "../real-servers.ts";
import { type Harness, onlyLine, openHarness, type Service, servedHarness } from "./plenum.ts";

const ALL = ["read:alarms", "read:tags", "read:gateways", "read:hosts", "read:systems"];
const tokenWith = (abilities: readonly string[], more: object = {}) => ({
  tokens: [{ token: "simulator-token", abilities: [...abilities], ...more }],
});

async function prepared(
  source: object,
  sections: object = {},
  simulator: SimulatorOptionsInput = {},
): Promise<{ service: Service; cli: Harness }> {
  const { service, cli } = await servedHarness(simulator);
  cli.configure({ source, ...sections });
  return { service, cli };
}

async function runCheck(cli: Harness, ...more: readonly string[]) {
  const { code, stdout, stderr } = await cli.plenum("check", "--json", ...more);
  const checkLines = JSON.parse(stdout || "[]") as readonly CheckResult[];
  /** Failed lines, each with the line of the file that it names. */
  const file = readFileSync(cli.path("plenum.yaml"), "utf8").split("\n");
  const failedLines = checkLines
    .filter(({ result }) => result !== "ok")
    .map(({ what, result, detail, place: at = "" }) => {
      const [, line = "0"] = at.split(":");
      return [what, result, detail, (file[Number(line) - 1] ?? "").trim()];
    });
  return { code, stderr, lines: checkLines, told: failedLines };
}

const tagLists = ({ simulator }: Service) =>
  simulator.truth.requests().filter(({ path }) => path.endsWith("/api/v1/tags")).length;

describe("plenum check: comparison of the configuration with the building", () => {
  test("reports selections that match no tag with their line in the file, and prints one line for each check that passes", async () => {
    const { service, cli } = await prepared(
      {
        read: [
          { name: "warm", every: "30s", select: { units: ["C"] } },
          { name: "meters", every: "10m", select: { units: ["kWh"], sites: [1] } },
          { name: "late", every: "10m", select: { name: "*_Teller" } },
          { name: "rest", every: "15m" },
        ],
        history: [{ name: "daily", resolution: "1d", backfill: "30d", select: { ids: ["999"] } }],
        alarms: { sites: [1, 9] },
      },
      {
        commands: {
          enabled: true,
          allow: [
            { type: "number", min: 0, max: 1, site_id: 1, tag_id: "10169" },
            { type: "boolean", site_id: 1, tag_id: "10001" },
          ],
        },
        sinks: { files: { file: { folder: "events" }, filter: { sites: [1, 5], priorities: ["A", "D"] } } },
      },
      tokenWith([...ALL, "write:tags"]),
    );
    const { code, lines, told } = await runCheck(cli);
    const sites = "there are 1 (Cambridge Estates A), 6 (Bygg 105 Office).";
    expect(told).toEqual([
      ["writing", "warning", expect.stringMatching(/^No sink listens for commands, /), "sinks:"],
      ["main: alarms of sites", "warning", `The token sees no site 9; ${sites}`, "- 9"],
      [
        "main: read warm",
        "warning",
        'No tag has the unit "C"; there are kWh 133, °C 4, "" (none) 2, l/s 1, W 1. Write "°C". Nothing is read of this class.',
        "- C",
      ],
      [
        "main: read late",
        "warning",
        expect.stringMatching(/^All \d+ tags of this class are taken by meters \(\d+\), which stands before it/),
        "- name: late",
      ],
      [
        "main: history daily",
        "warning",
        "There is no tag 999; ids are such as 10001, 10002, 10003. Nothing is read of this class.",
        '- "999"',
      ],
      ["main: commands", "wrong", "Tag 10169 is at site 6 (Bygg 105 Office), not 1: write site_id: 6.", "site_id: 1"],
      ["sink files", "warning", "The service knows no priority D; its alarms have A, B, C.", "- D"],
      ["sink files", "warning", `No event can be of a site 5; ${sites}`, "- 5"],
    ]);
    expect(code).toBe(78);
    const fine = lines.filter(({ result }) => result === "ok").map(({ what, detail }) => `${what}: ${detail}`);
    expect(fine).toContain("main: building: 141 tags, as the service lists them");
    expect(fine).toContain("main: read meters: 133 tags, at most 10m old");
    expect(fine).toContain("main: read rest: 8 tags, at most 15m old");
    expect(fine).toContain("main: commands: 1 tag of commands.allow found in the building: 10001");
    expect(fine.join("\n")).not.toContain("may be written");
    expect(fine).toContainEqual(expect.stringMatching(/^main: quota: the intervals need \d+ % of the/));
    expect(fine).toContainEqual(expect.stringMatching(/^source main: the token may read:alarms, read:tags, /));
    const requestedPaths = service.simulator.truth.requests().map(({ path }) => path);
    expect(requestedPaths.filter((path) => /tags\/|systems|hosts|gateways/.test(path))).toEqual([]);
    expect(requestedPaths.filter((path) => path.endsWith("/alarms"))).toHaveLength(1);
    expect(existsSync(cli.path("state"))).toBe(false);
  });

  test("exits with code 0 on a warning, with 78 under --strict, and requests no list with --no-lists", async () => {
    const { service, cli } = await prepared({ read: [{ name: "all", every: "5s" }] }, {}, tokenWith(ALL));
    const { code, told, stderr } = await runCheck(cli);
    expect([code, stderr]).toEqual([0, ""]);
    expect(told).toEqual([
      [
        "main: quota",
        "warning",
        expect.stringMatching(
          /^the intervals need \d+ % of the plannable quota, so values become older than configured\. The cheapest change: Let the values of class all become \d+s old instead of 5s\. read: \[\{name: all, every: \d+s\}\]$/,
        ),
        "",
      ],
    ]);
    const listsBefore = tagLists(service);
    const strictCheck = await cli.plenum("check", "--strict");
    expect(strictCheck.code).toBe(78);
    expect(onlyLine(strictCheck.stderr)).toMatch(/^1 of \d+ checks did not pass\.$/);
    expect(tagLists(service)).toBeGreaterThan(listsBefore);
    const listsAfter = tagLists(service);
    expect((await runCheck(cli, "--no-lists", "--strict")).told).toEqual([]);
    expect(tagLists(service)).toBe(listsAfter);
  });

  test("uses the state of a running worker and accepts the port that the worker uses", async () => {
    const { service, cli } = await prepared(
      { read: [{ name: "warm", every: "30s", select: { units: ["C"] } }] },
      { status: { port: await freePort() } },
      tokenWith(ALL),
    );
    const worker = cli.start("run");
    const log = await worker.waitForOutput("a class selects no tag");
    expect(log).toMatch(/"list":"read","class":"warm","reason":"No tag has the unit \\"C\\"; there are kWh 133, /);
    const listsBefore = tagLists(service);
    const { code, lines, told } = await runCheck(cli);
    expect([code, told.map(([what]) => what)]).toEqual([0, ["main: read warm"]]);
    expect(tagLists(service)).toBe(listsBefore);
    const details = lines.map(({ detail }) => detail);
    expect(details).toContain("141 tags, from the worker's state");
    expect(details).toContainEqual(expect.stringMatching(/^on 127\.0\.0\.1:\d+; a worker is running on this state$/));
    const requestedCheck = await runCheck(cli, "--ask");
    expect(requestedCheck.lines.map(({ detail }) => detail)).toContain("141 tags, as the service lists them");
    const port = await freePort();
    const otherConfig = parse(readFileSync(cli.path("plenum.yaml"), "utf8")) as object;
    writeFileSync(cli.path("other.yaml"), stringify({ ...otherConfig, status: { port } }));
    const beside = await cli.plenum("check", "--json", "--config", "other.yaml");
    const machineLines = (JSON.parse(beside.stdout) as readonly CheckResult[]).slice(1, 4);
    expect(machineLines.map(({ what, result, detail }) => [what, result, detail])).toEqual([
      ["state folder", "ok", expect.anything()],
      [
        "state folder",
        "warning",
        `A worker that was started with ${cli.path("plenum.yaml")} uses state, so no other worker can start on it: set state.folder to another folder, unless this configuration is to take its place.`,
      ],
      ["status page", "ok", `127.0.0.1:${port} is free`],
    ]);
    await worker.stop();
  });
});

describe("plenum check: the token", () => {
  test("reports each missing permission with the option to do without it, and a near token expiry", async () => {
    const soon = new Date(Date.now() + 3.5 * 86_400_000).toISOString();
    const { cli } = await prepared({}, {}, tokenWith(["read:tags", "read:alarms"], { expires_at: soon }));
    const { code, told } = await runCheck(cli);
    expect(code).toBe(78);
    const lacks = (list: string) =>
      `the token lacks read:${list}, which the lists of ${list} need; have it added, or do without: sources.main.schedules: { ${list}: false }`;
    expect(told.map(([what, result, detail]) => [what, result, detail])).toEqual([
      [
        "source main",
        "warning",
        expect.stringMatching(/, in 3 days: have a new one made, and put it where `token` says$/),
      ],
      ["source main", "wrong", lacks("gateways")],
      ["source main", "wrong", lacks("hosts")],
      ["source main", "wrong", lacks("systems")],
    ]);
    cli.configure({ source: { schedules: { gateways: false, hosts: false, systems: false } } });
    expect((await runCheck(cli)).code).toBe(0);
  });

  test("reports that the building cannot be compared when the token lacks read:tags", async () => {
    const token = tokenWith(ALL.filter((ability) => ability !== "read:tags"));
    const { cli } = await prepared({ read: [{ name: "all", every: "1m" }] }, {}, token);
    const { told } = await runCheck(cli);
    expect(told).toContainEqual([
      "main: building",
      "warning",
      "not compared with the configuration: that needs read:tags",
      "",
    ]);
  });
});

describe("plenum check: this machine", () => {
  const NOWHERE = "http://127.0.0.1:9";

  test("reports a status address of another machine, a state path that is a file, and a missing sink", async () => {
    const cli = openHarness(NOWHERE);
    writeFileSync(cli.path("secret"), "longer-than-12-letters\n", { mode: 0o600 });
    const status = { host: "192.0.2.7", port: 9850, password: { file: "secret" }, behind_tls_proxy: true };
    cli.configure({ status, state: { folder: "token" }, sinks: {} });
    const { told } = await runCheck(cli);
    expect(told.filter(([what]) => what !== "source main")).toEqual([
      [
        "state folder",
        "wrong",
        "The state folder token is a file. Set state.folder to a folder that the worker may write.",
        "folder: token",
      ],
      [
        "status page",
        "wrong",
        "The status page's address 192.0.2.7:9850 cannot be used (EADDRNOTAVAIL). Set status.host to an address of this machine, such as 127.0.0.1.",
        "port: 9850",
      ],
      [
        "sinks",
        "warning",
        expect.stringMatching(/^No sink is configured: what happens is kept for 1d and goes nowhere\./),
        "",
      ],
    ]);
  });

  test("reports folders that are broken links", async () => {
    const cli = openHarness(NOWHERE);
    symlinkSync("/nowhere/at-all", cli.path("away"));
    const brokenLink = `${realpathSync(cli.folder)}/away`;
    cli.configure({
      state: { folder: "away" },
      sinks: { files: { file: { folder: "away" } }, lake: { parquet: { folder: "away/lake" } } },
    });
    const { told } = await runCheck(cli);
    const hint = "Make the folder that it leads to, or";
    const nowhere = `${brokenLink} is a link that leads nowhere. ${hint} choose another folder.`;
    expect(told.filter(([what]) => what !== "source main")).toEqual([
      [
        "state folder",
        "wrong",
        `The state folder away cannot be used: ${brokenLink} is a link that leads nowhere. ${hint} set state.folder to another.`,
        "folder: away",
      ],
      ["sink files", "wrong", nowhere, ""],
      ["sink lake", "wrong", nowhere, ""],
    ]);
    const { code, stderr } = await cli.plenum("run");
    expect([code, stderr.trimEnd().split("\n").at(-1)]).toEqual([78, told[0]?.[2]]);
  });
});
