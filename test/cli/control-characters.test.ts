import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { printableLine, toPrintableJson } from "#src/core/values/printable-text.ts";
import { RESTORE_SET, UNRESTORED_SET } from "#src/engine/commands/pending-value-restores.ts";
import { openStore } from "#src/engine/store/open.ts";
import { documentSet, type Store } from "#src/engine/store/store.ts";
import { syncSet } from "#src/engine/sync/stored-documents.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { type Ended, type Harness, openHarness, simulatedServer, WRITING } from "./plenum.ts";
import { FORBIDDEN, HOSTILE, poisoned, poisoningProxy } from "./poisoning-proxy.ts";

const FROM_STATE: readonly (readonly [args: string, shows: boolean])[] = [
  ["status", true],
  ["explain 10169", true],
  ["explain ALARM", true],
  ["gaps", true],
  ["gaps 10169", true],
  ["complete", false],
  ["plan", false],
  ["outbox", false],
  ["outbox dead", true],
  ["backfill", false],
  ["writes restores", true],
  ["writes approval", false],
  ["audit verify", false],
];
const FROM_SERVICE: readonly (readonly [args: string, shows: boolean])[] = [
  ["sites", true],
  ["alarms", true],
  ["alarms --status all", true],
  ["read 10169", true],
  ["history 10169", true],
  ["write 10169 75", true],
  ["check", true],
];

function expectPrintable(what: string, { stdout, stderr }: Pick<Ended, "stdout" | "stderr">, shows: boolean): void {
  const all = `${stdout}${stderr}`;
  if (shows) expect(all, what).toContain("EVIL");
  const hit = FORBIDDEN.exec(all);
  expect(hit === null ? null : all.slice(hit.index - 40, hit.index + 40), what).toBeNull();
  expect(
    all.split("\n").filter((line) => line.startsWith("FORGED")),
    what,
  ).toEqual([]);
}

async function tryAll(cli: Harness, commands: typeof FROM_STATE, alarm: string): Promise<void> {
  const commandLines = commands.flatMap(([line]) => {
    const typedLine = line.replace("ALARM", alarm);
    return [typedLine, `${typedLine} --json`];
  });
  const results = await cli.each(commandLines);
  expect(results).toHaveLength(commandLines.length);
  for (const [n, [line, shows]] of commands.entries()) {
    for (const [what, each] of [line, `${line} --json`].map((text, m) => [text, results[2 * n + m]] as const)) {
      if (each === undefined) throw new Error(`Nothing came of ${what}.`);
      expectPrintable(what, each, shows);
      if (what.endsWith("--json") && each.stdout !== "") JSON.parse(each.stdout);
    }
  }
}

async function storeHostileTexts(store: Store): Promise<void> {
  const at = "2026-11-21T10:00:00Z";
  const times = { at, againAt: "2026-11-23T10:00:00Z" };
  const ledgers = await store.documents<{ readonly spans: readonly object[] }>(documentSet("history", "main"));
  const command = { id: `c${HOSTILE}`, siteId: 6, source: "main", tagId: "10169", value: 75 };
  const restore = { command, before: 60, dueAt: times.at };
  const unrestoredValue = { ...restore, commandId: `c${HOSTILE}`, reason: HOSTILE, message: HOSTILE, said: HOSTILE };
  const [ledger] = ledgers;
  await store.commit({
    documents: [
      { set: syncSet("quarantine", "main"), put: [["10169", { until: times.againAt, reason: HOSTILE, times: 2 }]] },
      { set: documentSet("poll", "main"), put: [["tags", { lastSuccess: at, lastAttempt: at, problem: HOSTILE }]] },
      { set: syncSet("health", "main"), put: [["health", { status: HOSTILE, time: null, askedAt: at }]] },
      { set: syncSet("availability", "main"), put: [["service", { since: times.at, reason: HOSTILE }]] },
      ...(ledger === undefined
        ? []
        : [
            {
              set: documentSet("history", "main"),
              put: [[ledger[0], { ...ledger[1], refusal: { said: HOSTILE, times: 2, ...times } }] as const],
            },
          ]),
      { set: RESTORE_SET, put: [["main/10169", restore]] },
      { set: UNRESTORED_SET, put: [["main/10169", poisoned(unrestoredValue)]] },
    ],
  });
}

test("no command prints control characters from the service, as text or JSON, with or without a worker", async () => {
  const { url, simulator } = await simulatedServer({ sites: [6], alarms: { recorded: false } });
  const alarm = simulator.control.raiseAlarm({ siteId: 6, description: "Too cold" });
  const cli = openHarness(url);
  const rejection = JSON.stringify({ code: "invalid", message: HOSTILE });
  const receiver = await startStubInTest(() => ({ status: 400, body: rejection }));
  const sections = async (refusing: RegExp | null) => ({
    source: {
      base_url: await poisoningProxy(url, refusing),
      read: [{ name: "all", every: "1m" }],
      history: [{ name: "log", resolution: "5m", backfill: "1d" }],
    },
    sinks: { lake: { influxdb: { url: receiver.url, bucket: "b" }, from: "beginning" } },
    commands: WRITING,
  });
  cli.configure(await sections(/\/history|\/write/));
  const worker = await cli.run("--arm-writing");
  const isComplete = async () => {
    const { counts } = (await cli.json<StatusReport>("status")).sources[0] ?? {};
    return counts?.tags === 8 && counts.alarms === 1 && counts.values > 0;
  };
  await expect.poll(isComplete).toBe(true);
  const letters = async () => (await cli.plenum("outbox", "dead")).stdout;
  await expect.poll(letters).toContain("lake");
  await tryAll(cli, [...FROM_STATE.filter(([line]) => line !== "writes restores"), ...FROM_SERVICE], alarm);
  worker.signal("SIGTERM");
  const log = (await worker.ended).stderr;
  expectPrintable("the log", { stdout: "", stderr: log }, true);
  for (const line of log.trimEnd().split("\n")) JSON.parse(line);
  const store = await openStore({ folder: cli.path("state"), clock: systemClock });
  await storeHostileTexts(store);
  await store.close();
  await tryAll(cli, FROM_STATE, alarm);
  cli.configure(await sections(/./));
  await tryAll(
    cli,
    FROM_SERVICE.filter(([line]) => !line.startsWith("write")),
    alarm,
  );
});

test("the terminal removes control characters from echoed arguments and from texts of the configuration", async () => {
  const cli = openHarness("http://127.0.0.1:9");
  const typedText = HOSTILE.replaceAll("\0", "");
  for (const args of [[typedText], ["sites", "--source", typedText], [`--${typedText}`]]) {
    const { stderr } = await cli.plenum(...args);
    expectPrintable(args.join(" "), { stdout: "", stderr: stderr.replaceAll("\n", " ") }, true);
  }
  cli.configure({ log: { level: HOSTILE }, [HOSTILE]: 1 });
  expectPrintable("a wrong configuration", await cli.plenum("status"), true);
});

test("JSON has the same content after control characters are escaped", () => {
  const json = JSON.stringify({ [HOSTILE]: [HOSTILE, "Ærlig 22 °C ✓"] });
  expect(JSON.parse(toPrintableJson(json))).toEqual(JSON.parse(json));
  expect(FORBIDDEN.test(toPrintableJson(json))).toBe(false);
  expect(printableLine("Ærlig 22 °C ✓ 東京 \ud800.")).toBe("Ærlig 22 °C ✓ 東京 \ufffd.");
});

test("every module prints through the terminal that removes control characters", () => {
  const folder = join(import.meta.dirname, "../../src");
  const allowed: Readonly<Record<string, RegExp>> = {
    "cli/shell/terminal-output.ts": /process\.std(out|err)/g,
    "cli/running/run-command.ts": /process\.stderr\.isTTY/g,
    "cli/start-command-line.ts": /for \(const stream of \[process\.stdout, process\.stderr\]\)/g,
    "cli/running/init-command.ts": /process\.stderr\.(isTTY|write\((chunk|"\\n"|printableLine\())/g,
    "cli/shell/uncaught-errors.ts": /console\[method\]/g,
  };
  const printingFiles = readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .filter((file) => {
      const source = readFileSync(join(folder, file), "utf8").replaceAll(allowed[file] ?? /$^/g, "");
      return /process\.std(out|err)|\bconsole[.[]|writeSync\([12],/.test(source);
    });
  expect(printingFiles).toEqual([]);
});
