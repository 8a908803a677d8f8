import { setTimeout as sleep } from "node:timers/promises";
import { seededRandom } from "../commands/seeded-random.ts";
import { type AppliedFault, applyFault } from "./apply-fault.ts";
import type { Evidence, FaultRecord, ReceivedEvent, ServiceRecord, Takeover, Verdict } from "./evidence.ts";
import { drawFaults, type Fault, storyOf } from "./faults.ts";
import { isDelivered, until, waitUntilHealthy } from "./fleet-health.ts";
import { judge } from "./judge/judge.ts";
import { type Stage, type StageOptions, setStage } from "./stage.ts";

/** Runs a fleet under load with random faults, each until the fleet is well again; the judges check the evidence. */
export interface TakeoverReport extends Verdict {
  readonly takeovers: number;
  readonly faults: number;
  readonly story: readonly string[];
  readonly output: ReadonlyMap<string, string>;
}

export interface TakeoverCampaign extends Omit<StageOptions, "members"> {
  readonly takeovers?: number;
  readonly plan?: readonly (readonly Fault[])[];
  readonly restMs: number;
  readonly soonMs: number;
  readonly say?: (line: string) => void;
  readonly signal?: AbortSignal;
}

const MEMBERS = ["a", "b", "c"];
const CALM_MS = 1_000;

export async function runTakeovers(campaign: TakeoverCampaign): Promise<TakeoverReport> {
  const stage = await setStage({ ...campaign, members: MEMBERS });
  try {
    return await play(stage, campaign);
  } finally {
    await stage.close();
  }
}

async function play(stage: Stage, campaign: TakeoverCampaign): Promise<TakeoverReport> {
  const { seed, sources, plan, say = () => {}, signal } = campaign;
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

  await attempt("at the start", begin(stage, sources));
  if (problems.length > 0) return { takeovers: 0, faults: 0, story, problems, figures: [], output: outputOf(stage) };
  const fromMs = Date.now();
  takeovers.push(...(await stage.observer.newTakeovers()));
  say(`${sources} sources are polled by ${MEMBERS.length} members`);

  function isEnough(): boolean {
    if (signal?.aborted === true) return true;
    return plan === undefined ? movedSources() >= (campaign.takeovers ?? 0) : faultRounds >= plan.length;
  }

  while (!isEnough() && problems.length === 0) {
    const drawn = plan?.[faultRounds] ?? drawFaults(random, MEMBERS);
    faultRounds += 1;
    const told = drawn.map(storyOf).join(" and ");
    story.push(`${new Date().toISOString()} ${told}`);
    const appliedFaults: AppliedFault[] = [];
    const strikeAll = drawn.map(async (fault) => void appliedFaults.push(await applyFault(stage, fault)));
    await attempt(told, Promise.all(strikeAll));
    const faultsEndedMs = Date.now();
    await attempt(told, waitUntilHealthy(stage, sources));
    const recoveryS = ((Date.now() - faultsEndedMs) / 1_000).toFixed(1);
    takeovers.push(...(await stage.observer.newTakeovers()));
    await sleep(CALM_MS);
    const toMs = Date.now();
    faults.push(...appliedFaults.map((each) => ({ ...each, toMs, story: told })));
    say(`${movedSources()} takeovers after ${faults.length} faults: ${told}; well ${recoveryS} s after it`);
  }

  await attempt("at the end", settle(stage, campaign));
  const evidence = await gatherEvidence(stage, { fromMs, soonMs: campaign.soonMs, faults, takeovers });
  problems.push(...(await stopMembers(stage)));
  const verdict = judge(evidence);
  return {
    takeovers: movedSources(),
    faults: faults.length,
    story,
    problems: [...problems, ...verdict.problems],
    figures: verdict.figures,
    output: outputOf(stage),
  };
}

function outputOf({ members }: Stage): TakeoverReport["output"] {
  return new Map([...members].map(([name, member]) => [name, member.output()]));
}

async function begin(stage: Stage, sources: number): Promise<void> {
  await Promise.all([...stage.members.values()].map((member) => member.start()));
  await waitUntilHealthy(stage, sources);
}

async function settle(stage: Stage, { sources, restMs }: TakeoverCampaign): Promise<void> {
  stage.commander.rest();
  await stage.services.ask("rest");
  for (const member of stage.members.values()) member.setClock(0);
  await sleep(restMs);
  await waitUntilHealthy(stage, sources);
  const open = async () => {
    const ids = await stage.receivers.ask<readonly string[]>("openCommands");
    return ids.length === 0 ? null : ids.join(", ");
  };
  await until(open, 90_000, "accepted commands have no end");
  const newest = await stage.observer.newest();
  await until(() => isDelivered(stage, newest), 120_000, "not everything is delivered");
}

async function gatherEvidence(
  stage: Stage,
  known: Pick<Evidence, "fromMs" | "soonMs" | "faults" | "takeovers">,
): Promise<Evidence> {
  const { observer, services, receivers, commander } = stage;
  const delivered = await observer.delivered();
  const due = new Map<string, number>();
  for (const [source, , position] of delivered)
    due.set(source, Math.min(position, due.get(source) ?? Number.POSITIVE_INFINITY));
  const told = await receivers.ask<readonly ReceivedEvent[]>("record");
  return {
    ...known,
    told,
    due,
    services: await services.ask<readonly ServiceRecord[]>("record"),
    log: await observer.log(),
    commands: commander.sent,
  };
}

async function stopMembers({ members }: Stage): Promise<readonly string[]> {
  const codes = await Promise.all(
    [...members.values()].map(async (member) => [member.name, await member.stop()] as const),
  );
  return codes
    .filter(([, code]) => code !== 0)
    .map(([name, code]) => `${name} ended with ${code} when it was told to stop`);
}
