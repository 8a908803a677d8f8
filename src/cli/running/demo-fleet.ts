import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { FleetStatus, Reason, Takeover } from "../../scale/fleet/status.ts";
import type { DemoMember, FleetDemo } from "../demo/fleet.ts";
import { called } from "../shell/called.ts";
import type { CliContext } from "../shell/context.ts";

const LOOK_EVERY_MS = 1_000;
/** A page that does not answer is asked again later. */
const ANSWER_WITHIN_MS = 2_000;
const START_WITHIN_MS = 120_000;
const MOST_MEMBERS = 9;

/** Throws `ConfigError` for what is no number of members. */
export function membersIn(text: string): number {
  const members = Number(text);
  if (Number.isInteger(members) && members >= 1 && members <= MOST_MEMBERS) return members;
  throw new ConfigError(`A fleet of the demo has 1 to ${MOST_MEMBERS} members, not ${text}.`);
}

/** Runs the demo of a fleet until Ctrl-C, and says who takes what over. */
export async function runFleetDemo(members: number, context: CliContext): Promise<void> {
  const { say } = context.terminal();
  say(`Starting PostgreSQL, six simulated services, a broker and ${members} members …`);
  // Loaded when asked for: no other command needs the simulator and the broker in memory.
  const { startFleetDemo } = await import("../demo/fleet.ts");
  const program = [process.execPath, ...process.execArgv, process.argv[1] ?? ""];
  const demo = await startFleetDemo({ members, program, signal: context.signal });
  try {
    for (const member of demo.members) watchEnd(member, say, context.signal);
    if (!(await started(demo, context.signal))) return;
    sayWhere(demo, say);
    await sayTakeovers(demo, say, context.signal);
  } finally {
    say("Stopping …");
    await demo.stop();
    say("Stopped; nothing of it is left.");
  }
}

type Say = (...lines: readonly string[]) => void;

function sayWhere({ members, inboxUrl, brokerUrl }: FleetDemo, say: Say): void {
  const broker = new URL(brokerUrl);
  const plenum = called();
  say(
    "",
    "  Six services with a building each are shared out among the members. Kill one, and look how the others go on:",
    "",
    ...members.map(({ name, pid, statusUrl }) => `  ${name}      ${statusUrl}   kill -9 ${pid}`),
    "",
    "  Each page shows the whole fleet.",
    `  inbox         ${inboxUrl}  (stands for a chat channel)`,
    `  values        mosquitto_sub -h ${broker.hostname} -p ${broker.port} -t 'plenum/+/+/tag/+/value' -v`,
    `  commands      ${plenum} fleet --demo · ${plenum} fleet drain member-1 --demo · ${plenum} status --demo`,
    "",
    "  Ctrl-C ends all of it; nothing is kept.",
    "",
  );
}

function watchEnd(member: DemoMember, say: Say, signal: AbortSignal): void {
  void member.ended.then((how) => {
    if (signal.aborted) return;
    const last = how.startsWith("SIG") ? "" : ` ${member.errorOutput().trim().split("\n").at(-1) ?? ""}`;
    say(`${time()}  ${member.name} ended (${how}).${last} What it held, the others take within 15 s.`);
  });
}

/** True once the members hold all sources; false when it is to end. */
async function started(demo: FleetDemo, signal: AbortSignal): Promise<boolean> {
  const until = systemClock.monotonic() + START_WITHIN_MS;
  while (systemClock.monotonic() < until) {
    const status = await ask(demo, signal);
    const isWhole =
      status !== null &&
      status.members.length === demo.members.length &&
      status.sources.every(({ holder }) => holder !== null);
    if (isWhole) return true;
    if (!(await sleepFor(systemClock, LOOK_EVERY_MS, signal))) return false;
  }
  return true;
}

/** Of the first member that answers. */
async function ask({ members }: FleetDemo, signal: AbortSignal): Promise<FleetStatus | null> {
  for (const { isRunning, statusUrl } of members) {
    if (!isRunning()) continue;
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_WITHIN_MS)]);
    const answer = await fetch(new URL("/api/fleet", statusUrl), { signal: limit }).catch(() => null);
    if (answer?.ok === true) return (await answer.json().catch(() => null)) as FleetStatus | null;
  }
  return null;
}

async function sayTakeovers(demo: FleetDemo, say: Say, signal: AbortSignal): Promise<void> {
  let known: ReadonlySet<string> | null = null;
  do {
    const status = await ask(demo, signal);
    if (status === null) continue;
    const fresh = status.takeovers.filter((each) => known !== null && !known.has(keyOf(each)));
    known = new Set(status.takeovers.map(keyOf));
    for (const { at, from, reason, source, to } of fresh.toReversed())
      say(`${at.slice(11, 19)}  ${source.padEnd(8)} ${from ?? "nobody"} → ${to}  (${WHY[reason]})`);
  } while (await sleepFor(systemClock, LOOK_EVERY_MS, signal));
}

const keyOf = ({ epoch, source }: Takeover) => `${source} ${epoch}`;

const WHY: Readonly<Record<Reason, string>> = {
  first: "nobody had it before",
  joined: "so that all have their share",
  left: "its member stopped",
  drained: "its member was drained",
  "lease-ran-out": "its member was not heard of any more",
  "could-not-start": "its member could not start it",
  unreachable: "its member did not reach its service",
};

function time(): string {
  return new Date().toISOString().slice(11, 19);
}
