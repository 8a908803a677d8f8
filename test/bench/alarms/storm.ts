import { ALARMS_ONLY, createTrial, type TrialSync } from "../../sync/trial-sync.ts";

/** 2,000 active alarms and 200 changes a minute, against the simulated service with its pace of lists, in virtual time. */
export interface StormFigures {
  readonly changes: number;
  /** Changes that were never told. */
  readonly untold: number;
  /** Changes of alarms that lived through a poll, and that no two polls after them told. */
  readonly beyondTwoPolls: number;
  /** Alarms that were raised and resolved within one poll, which only the sweep can find, and the longest it took. */
  readonly brief: number;
  readonly longestBriefMs: number;
  /** From a change to its event, for the rest. */
  readonly medianMs: number;
  readonly p95Ms: number;
  readonly longestMs: number;
  readonly requestsPerMinute: number;
}

export interface StormOptions {
  readonly sites: readonly number[];
  readonly active: number;
  readonly changesPerMinute: number;
  readonly minutes: number;
  readonly sweepEveryMinutes: number;
}

const KINDS = {
  raised: "alarm-raised",
  resolved: "alarm-resolved",
  acknowledged: "alarm-acknowledged",
} as const;
type StormKind = keyof typeof KINDS;

export async function storm(options: StormOptions): Promise<StormFigures> {
  const random = seeded();
  const trial = createTrial({
    random,
    latencyMs: () => 100 + random() * 400,
    simulator: { sites: [...options.sites], alarms: { recorded: false } },
    sync: {
      ...ALARMS_ONLY,
      schedules: { ...ALARMS_ONLY.schedules, resolved_sweep: `5 */${options.sweepEveryMinutes} * * * *` },
    },
  });
  const { clock, simulator } = trial;
  const { control } = simulator;
  const active: string[] = [];
  const raise = () => {
    const siteId = options.sites[Math.floor(random() * options.sites.length)] ?? 0;
    active.push(control.raiseAlarm({ siteId }));
  };
  for (let i = 0; i < options.active; i += 1) raise();
  await trial.start();
  await clock.advance(120_000);

  const fromMs = clock.now();
  for (let i = 0; i < options.changesPerMinute * options.minutes; i += 1) {
    await clock.advance(60_000 / options.changesPerMinute);
    const dice = random();
    const index = Math.floor(random() * active.length);
    const id = active[index];
    if (dice < 0.4 || id === undefined) raise();
    else if (dice < 0.8) {
      control.resolveAlarm(id);
      active.splice(index, 1);
    } else if (simulator.truth.alarms.find(id, clock.now())?.acknowledged === null) {
      control.acknowledgeAlarm(id, "Kari");
    }
  }
  const toMs = clock.now();
  await clock.advance(2 * options.sweepEveryMinutes * 60_000);
  const figures = figuresOf(trial, fromMs, toMs);
  await trial.stop();
  return figures;
}

function figuresOf(trial: TrialSync, fromMs: number, toMs: number): StormFigures {
  const told = new Map<string, number>();
  for (const event of trial.store.events) {
    const id = event.subject.split("/").at(-1);
    const key = `${event.type} ${id}`;
    if (!told.has(key)) told.set(key, trial.store.toldAtMs(event.id));
  }
  // A poll that told what it saw counts, whether its list was complete or moved; one that was skipped does not.
  const ends = trial.polls
    .filter((poll) => poll.job === "alarms" && (poll.outcome === "ok" || poll.outcome === "incomplete"))
    .map((poll) => poll.atMs);
  const transitions = trial.simulator.truth.alarms.transitions(fromMs, toMs);
  const life = Map.groupBy(transitions, (one) => one.alarmId);
  /** The end of the second poll that began after a moment: the third that ended after it. */
  const secondPollMs = (atMs: number) => ends.filter((endMs) => endMs > atMs)[2] ?? Number.POSITIVE_INFINITY;

  const lags: number[] = [];
  const briefLags: number[] = [];
  let untold = 0;
  let beyondTwoPolls = 0;
  for (const one of transitions) {
    const atMs = told.get(`${KINDS[one.kind as StormKind]} ${one.alarmId}`);
    if (atMs === undefined) {
      untold += 1;
      continue;
    }
    const own = life.get(one.alarmId) ?? [];
    const raisedMs = own.find((other) => other.kind === "raised")?.atMs;
    const resolvedMs = own.find((other) => other.kind === "resolved")?.atMs;
    const livedThroughPoll = raisedMs === undefined || resolvedMs === undefined || secondPollMs(raisedMs) < resolvedMs;
    if (livedThroughPoll) {
      lags.push(atMs - one.atMs);
      if (atMs > secondPollMs(one.atMs)) beyondTwoPolls += 1;
    } else briefLags.push(atMs - one.atMs);
  }
  lags.sort((a, b) => a - b);
  const requests = trial.requests.filter(({ atMs }) => atMs >= fromMs && atMs < toMs).length;
  return {
    changes: transitions.length,
    untold,
    beyondTwoPolls,
    brief: briefLags.length,
    longestBriefMs: Math.max(0, ...briefLags),
    medianMs: lags[Math.floor(lags.length / 2)] ?? 0,
    p95Ms: lags[Math.floor(lags.length * 0.95)] ?? 0,
    longestMs: lags.at(-1) ?? 0,
    requestsPerMinute: requests / ((toMs - fromMs) / 60_000),
  };
}

/** The same storm every time (mulberry32). */
function seeded(): () => number {
  let state = 7;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
