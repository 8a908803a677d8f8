import { seededRandom } from "../commands/seeded-random.ts";
import { ALARMS_ONLY, createTrial, type TrialSync } from "./trial-sync.ts";

const SITES = [2, 3, 4];
const ACTIVE_ALARMS = 2_000;
const CHANGES_PER_MINUTE = 200;
const MINUTES = 4;
const SWEEP_MINUTES = 2;
const KINDS: Readonly<Record<string, string>> = {
  raised: "alarm-raised",
  resolved: "alarm-resolved",
  acknowledged: "alarm-acknowledged",
};

export async function runAlarmStorm() {
  const random = seededRandom(7);
  const trial = createTrial({
    random,
    latencyMs: () => 100 + random() * 400,
    simulator: { sites: SITES, alarms: { recorded: false } },
    sync: { ...ALARMS_ONLY, schedules: { ...ALARMS_ONLY.schedules, resolved_sweep: `5 */${SWEEP_MINUTES} * * * *` } },
  });
  const { clock, simulator } = trial;
  const active: string[] = [];
  const raise = () => {
    const siteId = SITES[Math.floor(random() * SITES.length)] ?? 0;
    active.push(simulator.control.raiseAlarm({ siteId }));
  };
  for (let i = 0; i < ACTIVE_ALARMS; i += 1) raise();
  await trial.start();
  await clock.advance(120_000);

  const fromMs = clock.now();
  for (let i = 0; i < CHANGES_PER_MINUTE * MINUTES; i += 1) {
    await clock.advance(60_000 / CHANGES_PER_MINUTE);
    const dice = random();
    const index = Math.floor(random() * active.length);
    const id = active[index];
    if (dice < 0.4 || id === undefined) raise();
    else if (dice < 0.8) {
      simulator.control.resolveAlarm(id);
      active.splice(index, 1);
    } else if (simulator.truth.alarms.find(id, clock.now())?.acknowledged === null) {
      simulator.control.acknowledgeAlarm(id, "Kari");
    }
  }
  const toMs = clock.now();
  await clock.advance(2 * SWEEP_MINUTES * 60_000);
  const figures = compareWithEvents(trial, fromMs, toMs);
  await trial.stop();
  return figures;
}

function compareWithEvents(trial: TrialSync, fromMs: number, toMs: number) {
  const emittedAtMs = new Map<string, number>();
  for (const event of trial.store.events) {
    const key = `${event.type} ${event.subject.split("/").at(-1)}`;
    if (!emittedAtMs.has(key)) emittedAtMs.set(key, trial.store.toldAtMs(event.id));
  }
  // An incomplete poll emits events as well; a skipped one does not.
  const pollEnds = trial.polls
    .filter(({ job, outcome }) => job === "alarms" && (outcome === "ok" || outcome === "incomplete"))
    .map(({ atMs }) => atMs);
  /** End of the second poll that began after this time: the third that ended after it. */
  const secondPollMs = (atMs: number) => pollEnds.filter((endMs) => endMs > atMs)[2] ?? Number.POSITIVE_INFINITY;
  const changes = trial.simulator.truth.alarms.transitions(fromMs, toMs);
  const changesOfAlarm = Map.groupBy(changes, ({ alarmId }) => alarmId);

  const figures = { changes: changes.length, withoutEvent: 0, laterThanTwoPolls: 0, longestBriefMs: 0 };
  for (const { kind, alarmId, atMs } of changes) {
    const eventMs = emittedAtMs.get(`${KINDS[kind]} ${alarmId}`);
    if (eventMs === undefined) {
      figures.withoutEvent += 1;
      continue;
    }
    const timeOf = (wanted: string) => changesOfAlarm.get(alarmId)?.find((change) => change.kind === wanted)?.atMs;
    const [raisedMs, resolvedMs] = [timeOf("raised"), timeOf("resolved")];
    // Only the sweep can find an alarm that was raised and resolved between two polls.
    const isBrief = raisedMs !== undefined && resolvedMs !== undefined && secondPollMs(raisedMs) >= resolvedMs;
    if (isBrief) figures.longestBriefMs = Math.max(figures.longestBriefMs, eventMs - atMs);
    else if (eventMs > secondPollMs(atMs)) figures.laterThanTwoPolls += 1;
  }
  return figures;
}
