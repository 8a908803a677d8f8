import type { AlarmFact, Event } from "#src/event.ts";
import type { Transition } from "#src/simulator/alarm-book.ts";
import { type HeldAlarmSite, syncSet } from "#src/sync/snapshot.ts";
import { ALARMS_ONLY, createTrial, START_MS, type TrialSync } from "./trial-sync.ts";

/** One random schedule of about 40 minutes; answers what went wrong, as sentences. */
export async function simulate(seed: number): Promise<readonly string[]> {
  const random = mulberry(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const pageSize = pick([3, 5, 20, 500]);
  const trial = createTrial({
    random,
    pageSize,
    latencyMs: () => 20 + random() * 480,
    simulator: {
      seed,
      alarms: {
        recorded: false,
        // A list that comes in another order with every page can be read in one page only.
        order: pick(["id", "triggered_desc", pageSize === 500 ? "shuffled" : "id"]),
        out_of_scope_site: pick(["empty", "403"]),
      },
    },
    sync: { ...ALARMS_ONLY, alarms: { resolved_overlap: "10m" } },
  });
  const { clock, simulator } = trial;
  const { control } = simulator;
  const active = new Set<string>();
  const ended = new Set<string>();
  const deleted = new Set<string>();
  const hiddenOnce = new Set<number>();

  const actions: readonly (() => void | Promise<void>)[] = [
    () => void active.add(control.raiseAlarm({ siteId: pick(SITES) })),
    () => void active.add(control.raiseAlarm({ siteId: pick(SITES) })),
    () => end(pick([...active])),
    () => end(pick([...active])),
    () => again(pick([...ended])),
    () => {
      const id = pick([...active]);
      if (id !== undefined && random() < 0.2) {
        control.deleteAlarm(id);
        active.delete(id);
        deleted.add(id);
      }
    },
    () => {
      const id = pick([...active]);
      if (id !== undefined) control.acknowledgeAlarm(id, "Kari");
    },
    () => {
      const id = pick([...active]);
      if (id !== undefined) control.recoverAlarm(id, clock.now() + 60_000);
    },
    () => {
      if (random() > 0.3) return;
      const hidden = pick(SITES);
      hiddenOnce.add(hidden);
      control.changeToken("simulator-token", { sites: SITES.filter((id) => id !== hidden) });
    },
    () => control.changeToken("simulator-token", { sites: "all" }),
    () => {
      if (random() > 0.5) return;
      // Not 429: how much the lists slow down after one is a matter of the source's own pace, and has its own tests.
      const status = pick([500, 503, 403]);
      control.setFaults([
        {
          match: {
            endpoints: ["alarms", "me"],
            ...(random() < 0.5 ? { page: 1 + Math.floor(random() * 3) } : {}),
          },
          when: { for_s: 20 + random() * 60, probability: random() },
          fault: { kind: "error", status },
        },
      ]);
    },
    () => control.setFaults([]),
    () => (random() < 0.15 ? trial.restart() : undefined),
    () => {
      if (random() < 0.3) trial.store.failNext();
    },
  ];

  function end(id: string | undefined) {
    if (id === undefined) return;
    control.resolveAlarm(id);
    active.delete(id);
    ended.add(id);
  }
  function again(id: string | undefined) {
    if (id === undefined) return;
    control.retriggerAlarm(id);
    ended.delete(id);
    active.add(id);
  }

  // In the middle of a listing, too: between the answer to one page and the request for the next.
  let moving = true;
  trial.onRequest(() => {
    if (!moving) return;
    if (random() < 0.15) end(pick([...active]));
    if (random() < 0.15) active.add(control.raiseAlarm({ siteId: pick(SITES) }));
  });

  for (let i = 0; i < 12; i += 1) active.add(control.raiseAlarm({ siteId: pick(SITES) }));
  await trial.start();
  const quietMs = clock.now() + 15 * 60_000;
  while (clock.now() < quietMs) {
    await clock.advance(Math.floor(random() * 20_000));
    await pick(actions)();
  }
  control.setFaults([]);
  control.changeToken("simulator-token", { sites: "all" });
  moving = false;
  // Long enough for the longest back-off, a look at the scope, and a sweep.
  await clock.advance(25 * 60_000);
  const problems = await judge(trial, { deleted, hiddenOnce });
  await trial.stop();
  return problems.map((problem) => `seed ${seed}: ${problem}`);
}

const SITES = [2, 3, 4];

interface Circumstances {
  readonly deleted: ReadonlySet<string>;
  readonly hiddenOnce: ReadonlySet<number>;
}

async function judge(trial: TrialSync, { deleted, hiddenOnce }: Circumstances): Promise<readonly string[]> {
  const problems: string[] = [];
  const { simulator, clock, store } = trial;
  const events = store.events.filter((event) => event.type.startsWith("alarm-"));
  const transitions = simulator.truth.alarms.transitions(START_MS, clock.now());
  const resolvedOf = new Set(transitions.filter((one) => one.kind === "resolved").map(episodeKey));
  const factOf = (event: Event) => event.data as AlarmFact & { initial?: boolean };
  const keyOf = (event: Event) => `${factOf(event).alarm.id} ${Date.parse(factOf(event).alarm.triggeredAt)}`;
  const keys = (type: string) => events.filter((event) => event.type === type).map(keyOf);

  for (const key of keys("alarm-resolved"))
    if (!resolvedOf.has(key)) problems.push(`resolved without a word: ${key}`);
  for (const type of ["alarm-raised", "alarm-resolved"]) {
    const seen = new Set<string>();
    for (const key of keys(type)) {
      if (seen.has(key)) problems.push(`${type} told twice: ${key}`);
      seen.add(key);
    }
  }

  const sites = await store.documents<HeldAlarmSite>(syncSet("alarm-site", "main"));
  const raised = new Set(keys("alarm-raised"));
  const resolved = new Set(keys("alarm-resolved"));
  const vanished = new Set(keys("alarm-vanished"));
  const outside = new Set(keys("alarm-out-of-scope"));
  for (const alarm of simulator.truth.alarms.list(clock.now())) {
    const key = `${alarm.id} ${Math.floor(alarm.triggeredAtMs / 1000) * 1000}`;
    const settled = alarm.resolvedAtMs === null;
    if (settled && !raised.has(key)) problems.push(`active and never raised: ${key}`);
    if (settled && resolved.has(key)) problems.push(`active and resolved: ${key}`);
    if (!settled && !(raised.has(key) && resolved.has(key))) {
      const followed = sites.get(String(alarm.siteId))?.activeSince ?? null;
      const ofBefore =
        followed === null || Math.floor(alarm.triggeredAtMs / 1000) * 1000 <= Date.parse(followed);
      if (!ofBefore || raised.has(key) !== resolved.has(key))
        problems.push(`listed as resolved and not told: ${key}`);
    }
  }
  for (const key of vanished) {
    const id = key.split(" ")[0] ?? "";
    const superseded = transitions.some((one) => one.alarmId === id && one.kind === "retriggered");
    if (!deleted.has(id) && !superseded) problems.push(`vanished and still there: ${key}`);
  }
  for (const key of outside) {
    const alarm = events.find((event) => keyOf(event) === key);
    if (alarm !== undefined && !hiddenOnce.has(factOf(alarm).alarm.site.id))
      problems.push(`never out of scope: ${key}`);
  }
  if (store.repeated.length > 0) problems.push(`committed twice: ${store.repeated.join(", ")}`);
  problems.push(...misordered(events, keyOf));
  problems.push(...replayed(trial, events));
  return problems;
}

function episodeKey(transition: Transition): string {
  return `${transition.alarmId} ${Math.floor(transition.triggeredAtMs / 1000) * 1000}`;
}

/** Within an episode: raised first, and nothing of an episode before its raise. */
function misordered(events: readonly Event[], keyOf: (event: Event) => string): string[] {
  return [...Map.groupBy(events, keyOf)].flatMap(([key, own]) =>
    own[0]?.type === "alarm-raised" ? [] : [`begins with ${own[0]?.type}: ${key}`],
  );
}

/** The log, told from its beginning, leaves exactly the alarms open that the service lists as active. */
function replayed({ simulator, clock }: TrialSync, events: readonly Event[]): string[] {
  const open = new Map<string, string>();
  for (const event of events) {
    const { alarm, episode } = event.data as AlarmFact;
    if (event.type === "alarm-resolved" || event.type === "alarm-vanished") {
      if (open.get(alarm.id) === episode) open.delete(alarm.id);
    } else if (event.type === "alarm-raised" || event.type === "alarm-retriggered")
      open.set(alarm.id, episode);
  }
  const active = simulator.truth.alarms.list(clock.now(), { status: "active" }).map((alarm) => alarm.id);
  const extra = [...open.keys()]
    .filter((id) => !active.includes(id))
    .map((id) => `open in the log only: ${id}`);
  const lacking = active.filter((id) => !open.has(id)).map((id) => `active and not open in the log: ${id}`);
  return [...extra, ...lacking];
}

/** A small seeded generator (mulberry32). */
function mulberry(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
