import { setTimeout as sleep } from "node:timers/promises";
import { seededRandom } from "../commands/seeded-random.ts";
import type { Evidence, FaultRecord, ReceivedEvent, ServiceRecord, Takeover, Verdict } from "./evidence.ts";
import { drawFaults, type Fault, storyOf } from "./faults.ts";
import { createFleet, type Harness, type HarnessOptions } from "./fleet-harness.ts";
import { judge } from "./judge.ts";
import type { Member } from "./member.ts";

/** Runs a fleet under load with random faults, each until the fleet is well again; the judges check the evidence. */
interface TakeoverReport extends Verdict {
  readonly takeovers: number;
  readonly faults: number;
  readonly story: readonly string[];
  readonly output: ReadonlyMap<string, string>;
}

interface TakeoverCampaign extends Omit<HarnessOptions, "members"> {
  readonly takeovers?: number;
  readonly plan?: readonly (readonly Fault[])[];
  readonly pauseMs: number;
  readonly graceMs: number;
  readonly print?: (line: string) => void;
  readonly signal?: AbortSignal;
}

const MEMBERS = ["a", "b", "c"];
const CALM_MS = 1_000;

export async function runTakeovers(campaign: TakeoverCampaign): Promise<TakeoverReport> {
  const harness = await createFleet({ ...campaign, members: MEMBERS });
  try {
    return await play(harness, campaign);
  } finally {
    await harness.close();
  }
}

async function play(harness: Harness, campaign: TakeoverCampaign): Promise<TakeoverReport> {
  const { seed, sources, plan, print = () => {}, signal } = campaign;
  const random = seededRandom(seed);
  const story: string[] = [];
  const faults: FaultRecord[] = [];
  const takeovers: Takeover[] = [];
  const problems: string[] = [];
  let faultRounds = 0;
  const movedSources = () => takeovers.filter(({ from, to }) => from !== null && from !== to).length;

  const attempt = (what: string, work: Promise<unknown>) =>
    work.catch((error: unknown) => {
      problems.push(`${what}: ${error instanceof Error ? error.message : String(error)}`);
    });

  await attempt("at the start", begin(harness, sources));
  if (problems.length > 0) return { takeovers: 0, faults: 0, story, problems, figures: [], output: outputOf(harness) };
  const fromMs = Date.now();
  takeovers.push(...(await harness.observer.newTakeovers()));
  print(`${sources} sources are polled by ${MEMBERS.length} members`);

  function isEnough(): boolean {
    if (signal?.aborted === true) return true;
    return plan === undefined ? movedSources() >= (campaign.takeovers ?? 0) : faultRounds >= plan.length;
  }

  while (!isEnough() && problems.length === 0) {
    const drawn = plan?.[faultRounds] ?? drawFaults(random, MEMBERS);
    faultRounds += 1;
    const received = drawn.map(storyOf).join(" and ");
    story.push(`${new Date().toISOString()} ${received}`);
    const appliedFaults: AppliedFault[] = [];
    const strikeAll = drawn.map(async (fault) => void appliedFaults.push(await applyFault(harness, fault)));
    await attempt(received, Promise.all(strikeAll));
    const faultsEndedMs = Date.now();
    await attempt(received, waitUntilHealthy(harness, sources));
    const recoveryS = ((Date.now() - faultsEndedMs) / 1_000).toFixed(1);
    takeovers.push(...(await harness.observer.newTakeovers()));
    await sleep(CALM_MS);
    const toMs = Date.now();
    faults.push(...appliedFaults.map((each) => ({ ...each, toMs, story: received })));
    print(`${movedSources()} takeovers after ${faults.length} faults: ${received}; well ${recoveryS} s after it`);
  }

  await attempt("at the end", settle(harness, campaign));
  const evidence = await gatherEvidence(harness, { fromMs, graceMs: campaign.graceMs, faults, takeovers });
  problems.push(...(await stopMembers(harness)));
  const verdict = judge(evidence);
  return {
    takeovers: movedSources(),
    faults: faults.length,
    story,
    problems: [...problems, ...verdict.problems],
    figures: verdict.figures,
    output: outputOf(harness),
  };
}

function outputOf({ members }: Harness): TakeoverReport["output"] {
  return new Map([...members].map(([name, member]) => [name, member.output()]));
}

async function begin(harness: Harness, sources: number): Promise<void> {
  await Promise.all([...harness.members.values()].map((member) => member.start()));
  await waitUntilHealthy(harness, sources);
}

async function settle(harness: Harness, { sources, pauseMs }: TakeoverCampaign): Promise<void> {
  harness.commander.stop();
  await harness.services.request("stop");
  for (const member of harness.members.values()) member.setClock(0);
  await sleep(pauseMs);
  await waitUntilHealthy(harness, sources);
  const open = async () => {
    const ids = await harness.receivers.request<readonly string[]>("openCommands");
    return ids.length === 0 ? null : ids.join(", ");
  };
  await until(open, 90_000, "accepted commands have no end");
  const newest = await harness.observer.newest();
  await until(() => isDelivered(harness, newest), 120_000, "not everything is delivered");
}

type KnownEvidence = Pick<Evidence, "fromMs" | "graceMs" | "faults" | "takeovers">;

async function gatherEvidence(harness: Harness, known: KnownEvidence): Promise<Evidence> {
  const { observer, services, receivers, commander } = harness;
  const delivered = await observer.delivered();
  const due = new Map<string, number>();
  for (const [source, , position] of delivered)
    due.set(source, Math.min(position, due.get(source) ?? Number.POSITIVE_INFINITY));
  const received = await receivers.request<readonly ReceivedEvent[]>("record");
  return {
    ...known,
    received,
    due,
    services: await services.request<readonly ServiceRecord[]>("record"),
    log: await observer.log(),
    commands: commander.sent,
  };
}

async function stopMembers({ members }: Harness): Promise<readonly string[]> {
  const codes = await Promise.all(
    [...members.values()].map(async (member) => [member.name, await member.stop()] as const),
  );
  return codes
    .filter(([, code]) => code !== 0)
    .map(([name, code]) => `${name} ended with ${code} when it was told to stop`);
}

const LOOK_EVERY_MS = 300;
const HEALTHY_WITHIN_MS = 90_000;

export async function until(condition: () => Promise<string | null>, withinMs: number, what: string): Promise<void> {
  const endMs = performance.now() + withinMs;
  let why: string | null = "";
  while (why !== null) {
    if (performance.now() > endMs) throw new Error(`${what} within ${withinMs / 1_000} s: ${why}`);
    why = await condition().catch(String);
    if (why !== null) await sleep(LOOK_EVERY_MS);
  }
}

async function waitUntilHealthy(harness: Harness, sources: number): Promise<void> {
  const sinceMs = Date.now();
  const { members, observer, services } = harness;
  await until(
    async () => {
      const { members: present, owned } = await observer.inspect();
      const missing = [...members.keys()].filter((name) => !present.includes(name));
      if (missing.length > 0) return `${missing.join(", ")} takes no part`;
      const counts = [...members.keys()].map((name) => owned.get(name) ?? 0);
      const sum = counts.reduce((a, b) => a + b, 0);
      if (sum !== sources) return `${sources - sum} sources are held by nobody`;
      if (Math.max(...counts) - Math.min(...counts) > 1) return `they hold ${counts.join(", ")}`;
      const silent = await services.request<readonly string[]>("silentSince", sinceMs);
      return silent.length === 0 ? null : `not polled: ${silent.join(", ")}`;
    },
    HEALTHY_WITHIN_MS,
    "the fleet is not well",
  );
}

export async function isDelivered({ observer }: Harness, newest: ReadonlyMap<string, number>): Promise<string | null> {
  const behind = (await observer.delivered()).filter(([source, , position]) => position < (newest.get(source) ?? 0));
  return behind.map(([source, sink, position]) => `${source} ${sink} is at ${position}`).join(", ") || null;
}

type AppliedFault = Omit<FaultRecord, "toMs" | "story">;

const COMMIT_WITHIN_MS = 5_000;

async function applyFault({ database, members, observer }: Harness, fault: Fault): Promise<AppliedFault> {
  if (fault.clock !== null) members.get(fault.clock.member)?.setClock(fault.clock.aheadS);
  const member = members.get(fault.member ?? "");
  const [begin, end] = stepsOf(fault, member, database, observer);
  let fromMs = Date.now();
  await begin();
  if (fault.kind.endsWith("in-commit")) fromMs = Date.now();
  await sleep(fault.lastsMs);
  await end();
  return { kind: fault.kind, member: fault.member, fromMs, endMs: Date.now() };
}

type Step = () => unknown;

function stepsOf(
  { kind, tornAt }: Fault,
  member: Member | undefined,
  database: Harness["database"],
  observer: Harness["observer"],
): readonly [begin: Step, end: Step] {
  const heal = () => member?.way.heal();
  switch (kind) {
    case "kill":
    case "stop":
      return [() => member?.[kind](), () => member?.start()];
    case "freeze":
      return [() => member?.freeze(), () => member?.thaw()];
    case "cut":
    case "stall":
      return [() => member?.way[kind](), heal];
    case "cut-in-commit":
    case "stall-in-commit":
      return [() => faultInCommit(member, kind === "cut-in-commit" ? "cut" : "stall", tornAt), heal];
    case "drain":
      return [() => observer.drain(member?.name ?? "", true), () => observer.drain(member?.name ?? "", false)];
    case "database-restart":
    case "database-kill":
      return [() => endDatabase(database, kind), () => database.startAgain()];
  }
}

async function endDatabase(database: Harness["database"], kind: "database-restart" | "database-kill"): Promise<void> {
  if (kind === "database-kill") return database.kill();
  database.signal("SIGINT");
  await database.end();
}

async function faultInCommit(member: Member | undefined, what: "cut" | "stall", tornAt: number): Promise<void> {
  member?.way.inNextChange(what, tornAt);
  const untilMs = performance.now() + COMMIT_WITHIN_MS;
  while (member?.way.isActive() === false && performance.now() < untilMs) await sleep(5);
}
