import { resolve } from "node:path";
import { setFlagsFromString } from "node:v8";
import type { Command } from "commander";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { Store } from "../../engine/store/store.ts";
import type { FleetStatus, SourceTakeover } from "../../scale/fleet/fleet-status.ts";
import type { TakeoverReason } from "../../scale/fleet/fleet-tables.ts";
import type { DemoMember, FleetDemo } from "../demo/fleet-demo.ts";
import type { CliContext } from "../shell/command-context.ts";
import { programName } from "../shell/exit-codes.ts";
import { formatClockTime } from "../shell/terminal-output.ts";
import { createTerminalFeed, newEventPages } from "./terminal-event-feed.ts";

const VALUE_COUNT_INTERVAL_MS = 5_000;

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--folder <path>", "where the demo keeps its state and its events", "plenum-demo")
    .option("--fleet <members>", "so many members, on a PostgreSQL that is installed here; keeps nothing")
    .addHelpText("after", "\nExamples:\n  plenum demo --folder /tmp/plenum-demo\n  plenum demo --fleet 3")
    .action(async (options: { readonly folder: string; readonly fleet?: string }) => {
      const { info: printLines } = context.terminal();
      if (options.fleet !== undefined) return runFleetDemo(parseMemberCount(options.fleet), context);
      printLines("Starting the simulated service, an MQTT broker and the worker …");
      // This flag saves 15 MB of memory and costs a third more processor time.
      setFlagsFromString("--optimize-for-size");
      const { startDemo } = await import("../demo/single-worker-demo.ts");
      const demo = await startDemo({ folder: resolve(options.folder) });
      const brokerAddress = new URL(demo.brokerUrl);
      const plenumCommand = programName();
      printLines(
        "",
        demo.isContinued
          ? "  Going on where the last demo stopped."
          : "  Real building readings are being replayed, two minutes in every second.",
        "",
        `  status page   ${demo.statusUrl}`,
        `  inbox         ${demo.inboxUrl}  (stands for a chat channel: an alarm appears, changes and closes there)`,
        `  values        mosquitto_sub -h ${brokerAddress.hostname} -p ${brokerAddress.port} -t 'plenum/+/+/tag/+/value' -v`,
        `  alarms        mosquitto_sub -h ${brokerAddress.hostname} -p ${brokerAddress.port} -t 'plenum/+/+/alarm/+/state' -v`,
        `  all events    tail -f ${demo.folder}/events/*.jsonl`,
        `  write         mosquitto_pub -h ${brokerAddress.hostname} -p ${brokerAddress.port} -q 1 -t plenum/cmd/demo/10169/set -m 75`,
        `  commands      ${plenumCommand} tags --demo · ${plenumCommand} status --demo · ${plenumCommand} explain 10169 --demo  (any of them)`,
        `  the service   ${demo.serviceUrl}  (the simulator; 20 requests a minute, as the real one)`,
        "",
        "  Ctrl-C ends it; the next start goes on from there.",
        "",
      );
      await printDemoEvents(demo.worker.store, printLines, context.signal);
      printLines("Stopping …");
      const stopBeganMs = performance.now();
      await demo.stop();
      printLines(`Stopped cleanly in ${((performance.now() - stopBeganMs) / 1000).toFixed(1)} s.`);
    });
}

async function printDemoEvents(store: Store, printLines: PrintLines, signal: AbortSignal): Promise<void> {
  const terminalFeed = createTerminalFeed(printLines, systemClock.now);
  const [latestEvent] = await store.outbox.latest(1);
  let valueCount = 0;
  let lastValueCountAtMs = performance.now();
  for await (const page of newEventPages(store, latestEvent?.position ?? 0, signal)) {
    page.forEach(terminalFeed.printEvent);
    valueCount += page.filter(({ event }) => event.type === "tag-value").length;
    if (valueCount === 0 || performance.now() - lastValueCountAtMs < VALUE_COUNT_INTERVAL_MS) continue;
    printLines(`${formatClockTime(systemClock.now())}   ${valueCount} values read`);
    valueCount = 0;
    lastValueCountAtMs = performance.now();
  }
}

type PrintLines = (...lines: readonly string[]) => void;

const POLL_INTERVAL_MS = 1_000;
const RESPONSE_TIMEOUT_MS = 2_000;
const START_TIMEOUT_MS = 120_000;
const MAX_DEMO_FLEET_MEMBERS = 9;

function parseMemberCount(text: string): number {
  const memberCount = Number(text);
  if (Number.isInteger(memberCount) && memberCount >= 1 && memberCount <= MAX_DEMO_FLEET_MEMBERS) return memberCount;
  throw new ConfigError(`A fleet of the demo has 1 to ${MAX_DEMO_FLEET_MEMBERS} members, not ${text}.`);
}

async function runFleetDemo(memberCount: number, context: CliContext): Promise<void> {
  const { info: printLines } = context.terminal();
  printLines(`Starting PostgreSQL, six simulated services, a broker and ${memberCount} members …`);
  const { startFleetDemo } = await import("../demo/fleet-demo.ts");
  const program = [process.execPath, ...process.execArgv, process.argv[1] ?? ""];
  const demo = await startFleetDemo({ memberCount, commandLine: program, signal: context.signal });
  try {
    for (const member of demo.members) reportMemberEnd(member, printLines, context.signal);
    if (!(await waitUntilSourcesAreAssigned(demo, context.signal))) return;
    printAddresses(demo, printLines);
    await printTakeovers(demo, printLines, context.signal);
  } finally {
    printLines("Stopping …");
    await demo.stop();
    printLines("Stopped; nothing of it is left.");
  }
}

function printAddresses({ members, inboxUrl, brokerUrl }: FleetDemo, printLines: PrintLines): void {
  const brokerAddress = new URL(brokerUrl);
  const plenumCommand = programName();
  printLines(
    "",
    "  Six services with a building each are shared out among the members. Kill one, and look how the others go on:",
    "",
    ...members.map(({ name, pid, statusUrl }) => `  ${name}      ${statusUrl}   kill -9 ${pid}`),
    "",
    "  Each page shows the whole fleet.",
    `  inbox         ${inboxUrl}  (stands for a chat channel)`,
    `  values        mosquitto_sub -h ${brokerAddress.hostname} -p ${brokerAddress.port} -t 'plenum/+/+/tag/+/value' -v`,
    `  commands      ${plenumCommand} fleet --demo · ${plenumCommand} fleet drain member-1 --demo · ${plenumCommand} status --demo`,
    "",
    "  Ctrl-C ends all of it; nothing is kept.",
    "",
  );
}

function reportMemberEnd(member: DemoMember, printLines: PrintLines, signal: AbortSignal): void {
  void member.endReason.then((endReason) => {
    if (signal.aborted) return;
    const lastErrorLine = endReason.startsWith("SIG") ? "" : ` ${member.errorOutput().trim().split("\n").at(-1) ?? ""}`;
    printLines(
      `${formatClockTime(systemClock.now())}  ${member.name} ended (${endReason}).${lastErrorLine} The other members take its sources within 15 s.`,
    );
  });
}

async function waitUntilSourcesAreAssigned(demo: FleetDemo, signal: AbortSignal): Promise<boolean> {
  const startDeadlineMs = systemClock.monotonic() + START_TIMEOUT_MS;
  while (systemClock.monotonic() < startDeadlineMs) {
    const fleetStatus = await fetchFleetStatus(demo, signal);
    const areAllSourcesAssigned =
      fleetStatus !== null &&
      fleetStatus.members.length === demo.members.length &&
      fleetStatus.sources.every(({ holder }) => holder !== null);
    if (areAllSourcesAssigned) return true;
    if (!(await sleepFor(systemClock, POLL_INTERVAL_MS, signal))) return false;
  }
  return true;
}

async function fetchFleetStatus({ members }: FleetDemo, signal: AbortSignal): Promise<FleetStatus | null> {
  for (const { isRunning, statusUrl } of members) {
    if (!isRunning()) continue;
    const timeoutSignal = AbortSignal.any([signal, AbortSignal.timeout(RESPONSE_TIMEOUT_MS)]);
    const response = await fetch(new URL("/api/fleet", statusUrl), { signal: timeoutSignal }).catch(() => null);
    if (response?.ok === true) return (await response.json().catch(() => null)) as FleetStatus | null;
  }
  return null;
}

async function printTakeovers(demo: FleetDemo, printLines: PrintLines, signal: AbortSignal): Promise<void> {
  let seenTakeoverKeys: ReadonlySet<string> | null = null;
  do {
    const fleetStatus = await fetchFleetStatus(demo, signal);
    if (fleetStatus === null) continue;
    const newTakeovers = fleetStatus.takeovers.filter(
      (takeover) => seenTakeoverKeys !== null && !seenTakeoverKeys.has(takeoverKey(takeover)),
    );
    seenTakeoverKeys = new Set(fleetStatus.takeovers.map(takeoverKey));
    for (const { at, from, reason, source, to } of newTakeovers.toReversed())
      printLines(
        `${at.slice(11, 19)}  ${source.padEnd(8)} ${from ?? "no member"} → ${to}  (${TAKEOVER_REASON_TEXTS[reason]})`,
      );
  } while (await sleepFor(systemClock, POLL_INTERVAL_MS, signal));
}

const takeoverKey = ({ epoch, source }: SourceTakeover) => `${source} ${epoch}`;

const TAKEOVER_REASON_TEXTS: Readonly<Record<TakeoverReason, string>> = {
  first: "it had no member before",
  joined: "to balance the members",
  left: "its member stopped",
  drained: "its member was drained",
  "lease-ran-out": "its member no longer reports",
  "could-not-start": "its member could not start it",
  unreachable: "its member did not reach its service",
};
