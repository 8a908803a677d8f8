import { hash } from "node:crypto";
import type { CampaignResult } from "../campaign/campaign.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { type Circumstances, judge } from "./alarm-judge.ts";
import { ALARMS_ONLY, createHarness, START_MS, type SyncHarness } from "./sync-harness.ts";

const SITES = [2, 3, 4];
const TOKEN = "simulator-token";
const MINUTE = 60_000;
const UNREST_MS = 15 * MINUTE;
const REST_MS = 25 * MINUTE;

export async function campaign(seed: number): Promise<CampaignResult> {
  const random = seededRandom(seed);
  const { below, chance, pick } = random;
  const pageSize = pick([3, 5, 20, 500]);
  const harness = createHarness({
    random,
    pageSize,
    latencyMs: () => 20 + random() * 480,
    simulator: {
      seed,
      alarms: {
        recorded: false,
        order: pick(["id", "triggered_desc", pageSize === 500 ? "shuffled" : "id"]),
        out_of_scope_site: pick(["empty", "403"]),
      },
    },
    sync: {
      ...ALARMS_ONLY,
      schedules: { ...ALARMS_ONLY.schedules, gateways: "20 */2 * * * *" },
      alarms: { resolved_overlap: "10m" },
    },
  });
  const { clock, simulator } = harness;
  const { control } = simulator;
  const active = new Set<string>();
  const ended = new Set<string>();
  const gateways = [...simulator.world.gateways.keys()];
  const circumstances = { deleted: new Set<string>(), disturbed: [] as [number, number][] };
  const hidden = new Map<number, number>();
  let refusals = 0;

  const actions: readonly (() => void | Promise<void>)[] = [
    raise,
    raise,
    () => end(pick([...active])),
    () => end(pick([...active])),
    () => retrigger(pick([...ended])),
    flap,
    () => withRandomAlarm((id) => chance(0.2) && drop(id)),
    () => withRandomAlarm((id) => control.acknowledgeAlarm(id, "Kari")),
    () => withRandomAlarm((id) => control.unacknowledgeAlarm(id)),
    () => withRandomAlarm((id) => control.recoverAlarm(id, clock.now() + MINUTE)),
    () => control.setGateway(pick(gateways), chance(0.5)),
    () => chance(0.3) && hide(pick(SITES)),
    () => hide(null),
    () => chance(0.5) && breakLists(pick([500, 503, 403, 422])),
    () => chance(0.15) && rest(),
    () => chance(0.2) && refuse(),
    () => control.setFaults([]),
    () => (chance(0.15) ? harness.restart() : undefined),
    () => chance(0.3) && harness.store.failNext(),
  ].map((action) => async () => void (await action()));

  function raise() {
    active.add(control.raiseAlarm({ siteId: pick(SITES) }));
  }
  function end(id: string | undefined) {
    if (id === undefined) return;
    control.resolveAlarm(id);
    active.delete(id);
    ended.add(id);
  }
  function retrigger(id: string | undefined) {
    if (id === undefined) return;
    control.retriggerAlarm(id);
    ended.delete(id);
    active.add(id);
  }
  async function flap() {
    const id = pick([...active]);
    for (let i = 0; id !== undefined && i < 3; i += 1) {
      end(id);
      await clock.advance(1_000 + below(20_000));
      retrigger(id);
      await clock.advance(1_000 + below(20_000));
    }
  }
  function withRandomAlarm(act: (id: string) => void) {
    const id = pick([...active]);
    if (id !== undefined) act(id);
  }
  function drop(id: string) {
    control.deleteAlarm(id);
    active.delete(id);
    circumstances.deleted.add(id);
  }
  function hide(siteId: number | null) {
    for (const [one, fromMs] of hidden) {
      if (one === siteId) continue;
      note(one, fromMs, clock.now());
      hidden.delete(one);
    }
    if (siteId !== null && !hidden.has(siteId)) hidden.set(siteId, clock.now());
    control.changeToken(TOKEN, { sites: siteId === null ? "all" : SITES.filter((id) => id !== siteId) });
  }
  const hiddenTimes = new Map<number, [number, number][]>();
  function note(siteId: number, fromMs: number, toMs: number) {
    hiddenTimes.set(siteId, [...(hiddenTimes.get(siteId) ?? []), [fromMs, toMs]]);
  }
  function breakLists(status: number) {
    const durationS = 20 + random() * 60;
    const page = chance(0.5) ? { page: 1 + below(3) } : {};
    control.setFaults([
      {
        match: { endpoints: ["alarms", "me"], ...page },
        when: { for_s: durationS, probability: random() },
        fault: { kind: "error", status },
      },
    ]);
    if (status === 403 || status === 422) disturb(durationS * 1_000);
  }
  function disturb(forMs: number) {
    circumstances.disturbed.push([clock.now(), clock.now() + forMs]);
  }
  function rest() {
    const fault = pick([
      { kind: "maintenance", retry_after: 30 + below(60) },
      { kind: "maintenance", body: "html" },
      { kind: "html", status: 200 },
      { kind: "error", status: 401 },
    ]);
    control.setFaults([{ when: { for_s: 20 + random() * 120 }, fault }]);
  }
  /** A 429 halves the list rate for hours. Small pages then need more lists than the rate permits, so alarms may be late. */
  function refuse() {
    refusals += 1;
    if (refusals > 2) return;
    disturb(Number.POSITIVE_INFINITY);
    const fault = { kind: "throttled", retry_after_s: 1 + below(40) };
    control.setFaults([{ match: { endpoints: ["alarms", "me", "gateways"] }, when: { count: 1 }, fault }]);
  }

  let moving = true;
  harness.onRequest(() => {
    if (!moving) return;
    if (chance(0.15)) end(pick([...active]));
    if (chance(0.15)) raise();
  });

  for (let i = 0; i < 12; i += 1) raise();
  await harness.start();
  const quietMs = clock.now() + UNREST_MS;
  while (clock.now() < quietMs) {
    await clock.advance(below(20_000));
    await pick(actions)();
  }
  control.setFaults([]);
  hide(null);
  moving = false;
  await clock.advance(REST_MS + refusals * 10 * MINUTE);
  const problems = await judge(harness, { ...circumstances, hidden: hiddenTimes } satisfies Circumstances);
  await harness.stop();
  return {
    problems: problems.map((problem) => {
      const [rule = "", ...text] = problem.split(": ");
      return { rule, text: text.join(": ") };
    }),
    story: [],
    digest: digestOf(harness),
    requests: harness.requests.length,
    simulatedMs: clock.now() - START_MS,
  };
}

function digestOf({ store, requests }: SyncHarness): string {
  const asked = requests.map(({ path, query, atMs }) => `${atMs} ${path}?${query.toString()}`);
  return hash("sha256", JSON.stringify([store.events, asked])).slice(0, 16);
}
