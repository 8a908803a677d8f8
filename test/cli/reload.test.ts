import { chmodSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import type { ReloadReport } from "#src/core/model/config-change-report.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { type Harness, QUIET_SITE, readEvents, servedHarness } from "./plenum.ts";

const READ_CLASSES = [{ name: "all", every: "1m" }];

// biome-ignore lint/suspicious/noExplicitAny: as deep as the file
type Written = Record<string, any>;

function written(cli: Harness): Written {
  return parse(readFileSync(cli.path("plenum.yaml"), "utf8")) as Written;
}

function edited(cli: Harness, edit: (file: Written) => void): string {
  const file = written(cli);
  edit(file);
  return stringify(file);
}

function replace(cli: Harness, edit: (file: Written) => void): void {
  writeFileSync(cli.path(".plenum.yaml.swp"), edited(cli, edit));
  renameSync(cli.path(".plenum.yaml.swp"), cli.path("plenum.yaml"));
}

const statusOf = (cli: Harness) => cli.json<StatusReport>("status");

describe("a configuration file that is edited while the worker runs", () => {
  test("is applied when it is correct, and rejected and reported when it is wrong", async () => {
    const { cli } = await servedHarness(QUIET_SITE);
    cli.configure({ source: { read: READ_CLASSES } });
    const worker = await cli.run();
    replace(cli, (file) => (file.sources.main.read[0].every = "5m"));
    await worker.waitForOutput("sources.main.read.all.every: 1m → 5m (with the next request)");
    const completeText = edited(cli, (file) => (file.sinks.more = { file: { folder: "more" }, from: "beginning" }));
    writeFileSync(cli.path("plenum.yaml"), `${completeText.slice(0, completeText.indexOf("time_zone"))}time_zo`);
    await worker.waitForOutput("the configuration file is wrong and changes nothing");
    const status = await statusOf(cli);
    expect(status.notices[0]).toMatch(/^The configuration file plenum\.yaml is rejected: plenum\.yaml:\d+:\d+ /);
    expect(status.notices.join("\n")).not.toContain("is wrong and changes nothing");
    const checkOutput = await cli.plenum("check");
    expect(checkOutput.code).toBe(78);
    expect(checkOutput.stderr).toMatch(/plenum\.yaml:\d+:\d+/);
    const [line = ""] = checkOutput.stderr.trim().split("\n");
    expect(await worker.waitForOutput('"problems"')).toContain(line.replace(/^.*plenum\.yaml:/, ""));
    writeFileSync(cli.path("plenum.yaml"), completeText);
    await worker.waitForOutput("the configuration file is right again");
    await worker.waitForOutput("sinks.more: added, file");
    replace(cli, (file) => (file.sources.main.read[0].every = "1s"));
    await worker.waitForOutput("20 requests a minute are one every 3 s");
    replace(cli, (file) => (file.sources.main.read[0].every = "2m"));
    worker.signal("SIGHUP");
    await worker.waitForOutput("5m → 2m");
    replace(cli, (file) => {
      file.sources.main.time_zone = "Europe/Stockholm";
      file.log = { level: "debug" };
    });
    const dry = await cli.plenum("reload", "--dry-run");
    expect([dry.code, dry.stdout]).toEqual([
      0,
      expect.stringContaining("sources.main.time_zone: Europe/Oslo → Europe/Stockholm (needs a restart:"),
    ]);
    const { code, stdout } = await cli.plenum("reload", "--json");
    const report = JSON.parse(stdout) as ReloadReport;
    expect([code, report.by]).toEqual([0, "command"]);
    expect(report.pending.map(({ path }) => path)).toEqual(["sources.main.time_zone"]);
    const { notices, configuration } = await statusOf(cli);
    expect(notices.join("\n")).toContain("A change of the configuration waits for a restart: sources.main.time_zone.");
    expect(configuration?.refused).toBeNull();
    worker.signal("SIGTERM");
    const { code: ended } = await worker.ended;
    expect(ended).toBe(0);
    const changes = readEvents(cli.path("events")).filter(({ type }) => type === "configuration-changed");
    expect(changes.map(({ data }) => ("by" in data ? data.by : null)).slice(0, 3)).toEqual(["file", "file", "signal"]);
    const addedSinkIds = readEvents(cli.path("more")).map(({ id }) => id);
    expect(new Set(addedSinkIds).size).toBe(addedSinkIds.length);
    expect(readEvents(cli.path("events")).map(({ id }) => id)).toEqual(addedSinkIds);
  });

  test.skipIf(process.platform === "win32")("is not applied while other users may write to the file", async () => {
    const { cli } = await servedHarness(QUIET_SITE);
    const file = cli.path("plenum.yaml");
    chmodSync(file, 0o666);
    expect(await cli.refusal("run")).toMatch(/^78 .*Run: chmod go-w plenum\.yaml/);
    const checkOutput = await cli.plenum("check", "--no-lists", "--json");
    expect(checkOutput.code).toBe(78);
    expect(JSON.parse(checkOutput.stdout)).toContainEqual({
      what: "configuration",
      result: "wrong",
      detail: expect.stringContaining("Run: chmod go-w plenum.yaml"),
    });
    expect((await cli.plenum("check", "--no-lists", "--allow-writable-config")).code).toBe(0);
    const worker = await cli.run("--allow-writable-config");
    await worker.stop();
    chmodSync(file, 0o644);
    const careful = await cli.run();
    writeFileSync(
      file,
      edited(cli, ({ sinks }) => (sinks.more = { file: { folder: "more" } })),
    );
    chmodSync(file, 0o666);
    const warningLog = await careful.waitForOutput("the configuration file is wrong and changes nothing");
    expect(warningLog).toContain("Others than the owner can write to the configuration file");
    expect(warningLog).not.toContain("sinks.more: added");
    expect((await cli.plenum("writes", "stop")).code).toBe(0);
    chmodSync(file, 0o644);
    await careful.waitForOutput("sinks.more: added, file");
  });
});
