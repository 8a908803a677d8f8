import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createTerminalFeed } from "#src/cli/running/terminal-event-feed.ts";
import type { Event } from "#src/core/model/event.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { runProgram } from "../plenum-process.ts";
import { sampleOfEveryKind } from "../sample-events.ts";
import { QUIET_SITE, servedHarness } from "./plenum.ts";

function createRecordedFeed() {
  const lines: string[] = [];
  const time = { ms: 0 };
  const happenings = createTerminalFeed(
    (line) => lines.push(line.replace(/^\d\d:\d\d:\d\d /, "")),
    () => time.ms,
  );
  return { lines, time, happenings, log: createLog({ level: "info", destination: happenings.destination }) };
}

const logged = (event: Event) => ({ position: 1, committedAt: "2026-06-01T00:00:00.000Z", event });

test("the terminal feed prints a log line as a sentence, and not again within five minutes", () => {
  const { lines, log, time } = createRecordedFeed();
  const fields = { sink: "lake", problem: "It refuses the connection.", waitMs: 800 };
  for (const ms of [0, 60_000, 299_000]) {
    time.ms = ms;
    log.warn(fields, "The sink does not accept events.");
  }
  expect(lines).toEqual(["! lake: The sink does not accept events. It refuses the connection."]);
  time.ms = 301_000;
  log.warn(fields, "The sink does not accept events.");
  log.child({ source: "campus" }).info("the service is back");
  log.error({ err: new Error("no room") }, "a job broke");
  log.info({ status: "http://127.0.0.1" }, "Plenum is running");
  expect(lines.slice(1)).toEqual([
    "! lake: The sink does not accept events. It refuses the connection.",
    "  campus: the service is back.",
    "! A job broke. no room",
  ]);
  log.info("stopped");
  log.warn("plenum.yaml is gone");
  expect(lines.slice(4)).toEqual(["  Stopped.", "! plenum.yaml is gone."]);
});

test("the terminal feed prints problems and changes of the configuration, and changes that need a restart", () => {
  const { lines, log } = createRecordedFeed();
  const problems = ["plenum.yaml:9:22 evry: unknown. Did you mean every?", "plenum.yaml:12:3 a port is a number"];
  log.warn({ file: "plenum.yaml", problems }, "the configuration file is wrong and changes nothing");
  log.info({ changes: ["a: 1 → 2 (at once)"], pending: [] }, "the configuration was changed");
  log.info({ changes: [], pending: ["b: 1 → 2 (needs a restart: it)"] }, "a restart has to follow");
  expect(lines).toEqual([
    "! The configuration file is wrong and changes nothing. plenum.yaml:9:22 evry: unknown. Did you mean every? plenum.yaml:12:3 a port is a number.",
    "  The configuration was changed. a: 1 → 2 (at once).",
    "  A restart has to follow. b: 1 → 2 (needs a restart: it).",
  ]);
});

test("the terminal feed does not report that all is well while a sink rejects events", () => {
  const { lines, log, happenings } = createRecordedFeed();
  log.warn({ sink: "hook", problem: "ENOTFOUND" }, "The sink does not accept events.");
  happenings.printReadiness([]);
  log.info({ sink: "hook" }, "The sink accepts events again.");
  happenings.printReadiness(["The polls stand still."]);
  happenings.printReadiness([]);
  expect(lines).toEqual([
    "! hook: The sink does not accept events. ENOTFOUND",
    "  All is well but for what was said of hook.",
    "  hook: The sink accepts events again.",
    "! The polls stand still.",
    "  All is well again.",
  ]);
});

test("the terminal feed prints events of alarms, gateways and writes, and one line for all initial alarms", () => {
  const { lines, happenings } = createRecordedFeed();
  const kinds: string[] = [];
  for (const event of sampleOfEveryKind()) {
    const linesBefore = lines.length;
    const data = event.type === "alarm-raised" ? { ...event.data, initial: false } : event.data;
    happenings.printEvent(logged({ ...event, data } as Event));
    if (lines.length > linesBefore) kinds.push(event.type);
  }
  expect(new Set(kinds)).toEqual(
    new Set([
      "alarm-raised",
      "alarm-resolved",
      "alarm-acknowledged",
      "alarm-retriggered",
      "alarm-vanished",
      "gateway-online",
      "gateway-offline",
      "command-result",
      "command-not-restored",
      "token-expiring",
    ]),
  );
  for (const line of lines) expect(line).toMatch(/^[ !] [A-Z].*: \S/);
  const firstStart = createRecordedFeed();
  const [raised] = sampleOfEveryKind().filter(({ type }) => type === "alarm-raised");
  if (raised === undefined) throw new Error("no sample");
  const initial = { ...raised, data: { ...raised.data, initial: true } } as Event;
  for (let n = 0; n < 300; n += 1) firstStart.happenings.printEvent(logged(initial));
  firstStart.happenings.printReadiness([]);
  expect(firstStart.lines).toEqual(["  300 alarms are active already.", "  All is well: polls, state, sinks."]);
});

test("the terminal feed prints readiness when it changes", () => {
  const { lines, happenings } = createRecordedFeed();
  for (const reasons of [[], [], ["Sink lake is blocked."], ["Sink lake is blocked."], [], []])
    happenings.printReadiness(reasons);
  expect(lines).toEqual(["  All is well: polls, state, sinks.", "! Sink lake is blocked.", "  All is well again."]);
});

function hasScript(): boolean {
  try {
    return execFileSync("script", ["--version"]).toString().includes("util-linux");
  } catch {
    return false;
  }
}

test.skipIf(!hasScript())("plenum run at a real terminal prints sentences and no JSON", async () => {
  const { service, cli } = await servedHarness(QUIET_SITE);
  cli.configure({ source: { schedules: { alarms: "*/5 * * * * *" } } });
  const main = join(import.meta.dirname, "../../src/cli/main.ts");
  const running = runProgram("script", ["-qec", `exec '${process.execPath}' '${main}' run`, "/dev/null"], {
    cwd: cli.folder,
  });
  onTestFinished(async () => void (await running.end("SIGKILL")));
  await running.waitForOutput(/Plenum is running; status page http:\S+\. Ctrl-C stops it\./);
  await running.waitForOutput("All is well: polls, state, sinks.");
  service.simulator.control.raiseAlarm({ siteId: 6, description: "Too cold" });
  await running.waitForOutput(/! Alarm [A-Z]: /);
  expect(running.output()).not.toContain('{"level"');
});
