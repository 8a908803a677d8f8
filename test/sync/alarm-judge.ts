import type { AlarmFact, Event } from "#src/core/model/event.ts";
import { type StoredAlarm, type StoredAlarmSite, syncSet } from "#src/engine/sync/stored-documents.ts";
import type { AlarmTransition } from "#src/simulator/alarms.ts";
import { START_MS, type SyncHarness } from "./sync-harness.ts";

export interface Circumstances {
  readonly deleted: ReadonlySet<string>;
  /** When sites were outside the token's scope. */
  readonly hidden: ReadonlyMap<number, readonly (readonly [number, number])[]>;
  readonly disturbed: readonly (readonly [number, number])[];
}

export async function judge(harness: SyncHarness, circumstances: Circumstances): Promise<readonly string[]> {
  const story = storyOf(harness);
  return [
    ...resolvedWithoutStatement(story),
    ...repeated(harness, story),
    ...(await missingEvents(harness, story, circumstances)),
    ...late(harness, story, circumstances),
    ...vanishedButListed(story, circumstances),
    ...outOfScopeButVisible(story, circumstances),
    ...beginsWithoutRaise(story),
    ...emittedInAnOutage(harness),
    ...differsFromReplay(harness, story),
    ...(await differsFromStore(harness, story)),
    ...wrongGatewayEvents(harness),
  ];
}

type Story = ReturnType<typeof storyOf>;

const factOf = (event: Event) => event.data as AlarmFact & { initial?: boolean };
const fullSecond = (ms: number) => Math.floor(ms / 1000) * 1000;
const keyOf = (event: Event) => `${factOf(event).alarm.id} ${Date.parse(factOf(event).alarm.triggeredAt)}`;
const keyOfTruth = (one: AlarmTransition) => `${one.alarmId} ${fullSecond(one.triggeredAtMs)}`;

function storyOf({ store, simulator, clock }: SyncHarness) {
  const events = store.events.filter((event) => event.type.startsWith("alarm-"));
  return {
    events,
    transitions: simulator.truth.alarms.transitions(START_MS, clock.now()),
    keys: (type: string) => events.filter((event) => event.type === type).map(keyOf),
  };
}

function resolvedWithoutStatement({ transitions, keys }: Story): string[] {
  const resolved = new Set(transitions.filter((one) => one.kind === "resolved").map(keyOfTruth));
  return keys("alarm-resolved")
    .filter((key) => !resolved.has(key))
    .map((key) => `resolved without a word: ${key}`);
}

function repeated({ store }: SyncHarness, { keys }: Story): string[] {
  const twice = ["alarm-raised", "alarm-resolved"].flatMap((type) =>
    [...Map.groupBy(keys(type), (key) => key)]
      .filter(([, all]) => all.length > 1)
      .map(([key]) => `${type} told twice: ${key}`),
  );
  return [...twice, ...store.repeated.map((id) => `committed twice: ${id}`)];
}

async function missingEvents({ simulator, clock, store }: SyncHarness, { keys }: Story, { hidden }: Circumstances) {
  const sites = await store.documents<StoredAlarmSite>(syncSet("alarm-site", "main"));
  const raised = new Set(keys("alarm-raised"));
  const resolved = new Set(keys("alarm-resolved"));
  return simulator.truth.alarms.list(clock.now()).flatMap((alarm) => {
    const key = `${alarm.id} ${fullSecond(alarm.triggeredAtMs)}`;
    if (alarm.resolvedAtMs === null) {
      if (!raised.has(key)) return [`active and never raised: ${key}`];
      return resolved.has(key) ? [`active and resolved: ${key}`] : [];
    }
    if (raised.has(key) && resolved.has(key)) return [];
    const followed = sites.get(String(alarm.siteId))?.activeSince ?? null;
    const isFromBeforeStart = followed === null || fullSecond(alarm.triggeredAtMs) <= Date.parse(followed);
    const isHalfEmitted = raised.has(key) !== resolved.has(key);
    const { triggeredAtMs, resolvedAtMs } = alarm;
    // An alarm that no poll saw begin and that ended out of scope may be older than the range of the sweep.
    const wasSiteHidden = (hidden.get(alarm.siteId) ?? []).some(
      ([fromMs, toMs]) => triggeredAtMs <= fromMs && fromMs <= resolvedAtMs && resolvedAtMs <= toMs,
    );
    return (isFromBeforeStart || wasSiteHidden) && !isHalfEmitted ? [] : [`listed as resolved and not told: ${key}`];
  });
}

/**
 * A change that lasts for two complete polls is emitted by the end of the second. The first poll that ends after the
 * change may have begun before it, so the third end counts.
 */
function late(harness: SyncHarness, { events, transitions }: Story, circumstances: Circumstances): string[] {
  const ends = harness.polls.filter((one) => one.job === "alarms" && one.outcome === "ok").map((one) => one.atMs);
  const emittedAtMs = new Map(
    events
      .filter((event) => event.type === "alarm-raised" || event.type === "alarm-resolved")
      .map((event) => [`${event.type} ${keyOf(event)}`, harness.store.emittedAtMs(event.id)]),
  );
  const byAlarm = Map.groupBy(transitions, (one) => one.alarmId);
  const problems: string[] = [];
  for (const one of transitions) {
    const begins = one.kind === "raised" || one.kind === "retriggered";
    if (!begins && one.kind !== "resolved") continue;
    const dueMs = ends.filter((atMs) => atMs > one.atMs)[2];
    if (dueMs === undefined) continue;
    const disturbedPeriods = [
      ...circumstances.disturbed.map(([fromMs, toMs]) => [fromMs, toMs + MINUTE] as const),
      ...(circumstances.hidden.get(one.siteId) ?? []).map(([fromMs, toMs]) => [fromMs, toMs + 6 * MINUTE] as const),
    ];
    if (disturbedPeriods.some(([fromMs, toMs]) => fromMs <= dueMs && toMs >= one.atMs)) continue;
    const wasShort = (byAlarm.get(one.alarmId) ?? []).some(
      (other) => other.atMs > one.atMs && other.atMs <= dueMs && ENDS_OR_BEGINS.has(other.kind),
    );
    if (wasShort) continue;
    const raisedMs = emittedAtMs.get(`alarm-raised ${keyOfTruth(one)}`);
    // Only the sweep finds the end of an alarm that no poll saw begin.
    if (!begins && !(raisedMs !== undefined && raisedMs <= one.atMs)) continue;
    const atMs = begins ? raisedMs : emittedAtMs.get(`alarm-resolved ${keyOfTruth(one)}`);
    if (atMs === undefined || atMs > dueMs) {
      const after = atMs === undefined ? "never" : `after ${Math.round((atMs - one.atMs) / 1000)} s`;
      problems.push(`${one.kind} not told within two polls, but ${after}: ${keyOfTruth(one)}`);
    }
  }
  return problems;
}

const MINUTE = 60_000;
const ENDS_OR_BEGINS = new Set<AlarmTransition["kind"]>(["raised", "resolved", "retriggered", "deleted"]);

function vanishedButListed({ transitions, keys }: Story, { deleted }: Circumstances): string[] {
  const superseded = new Set(transitions.filter((one) => one.kind === "retriggered").map((one) => one.alarmId));
  return keys("alarm-vanished").flatMap((key) => {
    const id = key.split(" ")[0] ?? "";
    return deleted.has(id) || superseded.has(id) ? [] : [`vanished and still there: ${key}`];
  });
}

function outOfScopeButVisible({ events }: Story, { hidden }: Circumstances): string[] {
  return events
    .filter((event) => event.type === "alarm-out-of-scope" && !hidden.has(factOf(event).alarm.site.id))
    .map((event) => `never out of scope: ${keyOf(event)}`);
}

function beginsWithoutRaise({ events }: Story): string[] {
  return [...Map.groupBy(events, keyOf)].flatMap(([key, own]) =>
    own[0]?.type === "alarm-raised" ? [] : [`begins with ${own[0]?.type}: ${key}`],
  );
}

function emittedInAnOutage({ store }: SyncHarness): string[] {
  let awaySinceMs: number | null = null;
  const problems: string[] = [];
  for (const { type, subject, id } of store.events) {
    const committedMs = store.emittedAtMs(id) ?? 0;
    if (subject === "service") {
      const isOutageBegin = type === "source-unavailable";
      if ((isOutageBegin || type === "source-available") && isOutageBegin === (awaySinceMs !== null))
        problems.push(`${type} twice in a row`);
      awaySinceMs = isOutageBegin ? committedMs : null;
      // A reply that arrived before the outage may be committed up to a second after its event.
    } else if (awaySinceMs !== null && committedMs - awaySinceMs > 1_000 && !/^(source|site-status)-/.test(type))
      problems.push(`told while the service was away: ${id}`);
  }
  if (awaySinceMs !== null) problems.push("the service is still away");
  return problems;
}

function differsFromReplay({ simulator, clock }: SyncHarness, { events }: Story): string[] {
  const open = new Map<string, string>();
  for (const event of events) {
    const { alarm, episode, superseded } = factOf(event);
    if (superseded === true) continue;
    if (event.type === "alarm-resolved" || event.type === "alarm-vanished") {
      if (open.get(alarm.id) === episode) open.delete(alarm.id);
    } else if (event.type === "alarm-raised" || event.type === "alarm-retriggered") open.set(alarm.id, episode);
  }
  const active = simulator.truth.alarms.list(clock.now(), { status: "active" }).map((alarm) => alarm.id);
  const extra = [...open.keys()].filter((id) => !active.includes(id));
  const lacking = active.filter((id) => !open.has(id));
  return [
    ...extra.map((id) => `open in the log only: ${id}`),
    ...lacking.map((id) => `active and not open in the log: ${id}`),
  ];
}

/** The last event of an active alarm contains the stored alarm; events of earlier episodes do not count. */
async function differsFromStore({ store, simulator, clock }: SyncHarness, { events }: Story) {
  const stored = await store.documents<StoredAlarm>("alarm/main");
  const facts = events.map(factOf).filter(({ superseded }) => superseded !== true);
  const last = new Map(facts.map(({ alarm }) => [alarm.id, alarm]));
  const problems: string[] = [];
  for (const { id, acknowledged } of simulator.truth.alarms.list(clock.now(), { status: "active" })) {
    if (JSON.stringify(last.get(id)) !== JSON.stringify(stored.get(id)?.alarm))
      problems.push(`the log shows another alarm than the snapshot: ${id}`);
    if (last.get(id)?.acknowledged !== (acknowledged !== null))
      problems.push(`the acknowledgement is not as told: ${id}`);
  }
  return problems;
}

function wrongGatewayEvents({ store, simulator }: SyncHarness): string[] {
  const switches = Map.groupBy(
    store.events.filter((event) => event.type === "gateway-online" || event.type === "gateway-offline"),
    (event) => event.subject.split("/").at(-1) ?? "",
  );
  const truth = Map.groupBy(simulator.truth.gatewayChanges(), (change) => String(change.gatewayId));
  const problems: string[] = [];
  for (const id of new Set([...switches.keys(), ...truth.keys()])) {
    const emitted = (switches.get(id) ?? []).map((event) => event.type);
    const changes = truth.get(id) ?? [];
    if (emitted.some((type, index) => type === emitted[index - 1])) problems.push(`gateway ${id} told twice`);
    if (emitted.length > changes.length) problems.push(`gateway ${id}: a switch was invented`);
    const added = store.events.find((event) => event.type === "gateway-added" && event.subject.endsWith(`/${id}`));
    const first = (added?.data as { gateway: { online: boolean } } | undefined)?.gateway.online;
    const online = emitted.length === 0 ? first : emitted.at(-1) === "gateway-online";
    const isOnline = changes.at(-1)?.online ?? true;
    if (added !== undefined && online !== isOnline) problems.push(`gateway ${id} is not as told`);
  }
  return problems;
}
