import { selects } from "#src/engine/sync/select.ts";
import type { LoggedRequest } from "#src/simulator/request-log.ts";
import type { FarEnd } from "../far-end.ts";
import type { Stage } from "../stage.ts";
import type { Trouble } from "../troubles.ts";

/**
 * Rule 3: what is taken from one site, from the history or from lists makes no other value late. Judged where every
 * sample is told, in the times in which nothing concerned the tag itself. Times are milliseconds.
 */

/** After what concerned a tag itself it may take so long to find back into the rhythm. */
const RECOVERY_MS = 180_000;
/** What a probe and a first read take once a wait is over. */
const LOOK_MS = 60_000;
/** The same where the token was refused for more than five minutes, with or without a break: eight, and a look. */
const LONG_REFUSED_MS = 540_000;
const LONG_MS = 300_000;
/** The same where a listing has to show it first. */
const LISTED_MS = 780_000;
/** A worker that starts waits until nobody can have used its quota, and lists what there is. */
const START_MS = 180_000;
/**
 * Two slots of 3 s for each loss that others met meanwhile. Where a request has tags of more sites, one for each: when
 * the token was asked within the last minute and may not be asked again, they are asked one by one, and nobody can know
 * better whom to ask last.
 */
const SLOTS_LATE = 2;
/** A reply on its way; with a gateway that just went offline it takes 4 s longer. */
const REPLY_MS = 6_000;

/** From 2 requests a minute back to 20. */
const SLOWED_MS = 3 * 3_600_000;

type Span = readonly [fromMs: number, toMs: number];

export function nobodyElseIsLate(stage: Stage, far: FarEnd, untilMs: number): readonly string[] {
  const { world, virtual } = stage;
  const polite = virtual.config.sources.main?.quota.polite ?? 1;
  const slotMs = 3_000 / polite;
  const requests = virtual.simulator.truth
    .requests()
    .filter(({ endpoint }) => endpoint === "read" || endpoint === "history");
  const problems: string[] = [];
  const told = new Set<string>();
  for (const [siteId, ids] of world.tags) {
    for (const id of ids) {
      const tag = { id, displayName: "", description: null, unit: null };
      const own = world.read.find(({ select }) => selects(select)({ tag, siteId, systemIds: [] }));
      if (own === undefined || own.on_change) continue;
      const times = (far.values.get(id) ?? []).map(({ atMs }) => atMs);
      for (const [fromMs, toMs] of undisturbed(stage, siteId, id, untilMs)) {
        const inside = times.filter((atMs) => atMs >= fromMs && atMs <= toMs);
        const marks = [fromMs, ...inside, toMs];
        for (const [place, atMs] of marks.entries()) {
          const sinceMs = marks[place - 1] ?? atMs;
          const losses = Math.max(1, lossesOfOthers(stage, sinceMs, atMs));
          const slotsLate = losses * Math.max(SLOTS_LATE, world.siteIds.length);
          const dueMs = knownRefusedMs(requests, id, sinceMs, sinceMs + own.every + slotMs + REPLY_MS);
          const slowest = slowestSlotMs(requests, sinceMs, atMs, slotMs);
          const lateMs = atMs - Math.max(sinceMs + own.every, dueMs) - slotsLate * slowest - REPLY_MS;
          if (lateMs <= 0) continue;
          const beside = `${besides(stage, sinceMs, atMs)}${after(stage, siteId, sinceMs)}`;
          // One sentence for a cause and a class: a group of twenty is late together.
          const cause = `${own.name} ${beside}`;
          if (told.has(cause)) continue;
          told.add(cause);
          problems.push(
            `late by ${Math.round(lateMs / 1_000)} s beyond two slots: tag ${id} of ${own.name} at ${clockTime(atMs)}, beside ${beside}`,
          );
        }
      }
    }
  }
  return problems;
}

/** When a first request for this tag and others was refused, which took its time: only from there on slots are counted. */
function knownRefusedMs(requests: readonly LoggedRequest[], id: string, fromMs: number, toMs: number): number {
  const refused = requests.find(
    ({ atMs, endpoint, errorStatus, query }) =>
      endpoint === "read" && errorStatus !== null && atMs > fromMs && atMs <= toMs && query.includes(id),
  );
  return refused?.atMs ?? fromMs;
}

/**
 * A slot is 3 s, or longer while a limit that is not ours refuses: then the worker slows down, and comes back by a
 * request a minute every ten minutes.
 */
function slowestSlotMs(requests: readonly LoggedRequest[], fromMs: number, toMs: number, slotMs: number): number {
  const isSlowed = requests.some(
    ({ atMs, errorStatus }) => errorStatus === 429 && atMs <= toMs && atMs > toMs - SLOWED_MS,
  );
  if (!isSlowed) return slotMs;
  const between = requests.filter(({ atMs }) => atMs >= fromMs && atMs <= toMs).map(({ atMs }) => atMs);
  return Math.max(slotMs, ...between.map((atMs, place) => atMs - (between[place - 1] ?? fromMs)));
}

/** The times in which nothing that was done concerned this tag. */
function undisturbed(stage: Stage, siteId: number, id: string, untilMs: number): readonly Span[] {
  const disturbed: Span[] = [
    ...stage.troubles
      .filter(({ trouble }) => doesConcern(stage, trouble, siteId))
      .map(({ trouble, fromMs, toMs }): Span => {
        // A tag that was refused by itself is set aside for 10 minutes, an hour and longer, and that is right.
        const isRested = trouble.refusesTags?.has(id) === true;
        // What lists did not show comes back with the next listing, every 10 minutes here.
        const isListed = trouble.concerns.kind !== "site" && trouble.hidesTags?.has(id) === true;
        const isLongRefused = trouble.refusesToken === true && lastedMs(stage, "refusesToken", toMs) > LONG_MS;
        // Where nobody says how long, the wait doubles: it is at most as long as all that went before.
        const waitMs = trouble.isMaintenance === true ? lastedMs(stage, "isMaintenance", toMs) + LOOK_MS : 0;
        const recoveryMs = isListed ? LISTED_MS : isLongRefused ? LONG_REFUSED_MS : RECOVERY_MS;
        return [fromMs, isRested ? untilMs : Math.min(toMs, untilMs) + Math.max(recoveryMs, waitMs)];
      }),
    // A stop takes two seconds of it before.
    ...stage.starts.map((atMs): Span => [atMs - 3_000, atMs + START_MS]),
  ];
  const spans: Span[] = [];
  let fromMs = stage.starts[0] ?? 0;
  for (const [beginMs, endMs] of disturbed.toSorted((a, b) => a[0] - b[0])) {
    if (beginMs > fromMs) spans.push([fromMs, Math.min(beginMs, untilMs)]);
    fromMs = Math.max(fromMs, endMs);
  }
  if (fromMs < untilMs) spans.push([fromMs, untilMs]);
  return spans.filter(([beginMs, endMs]) => endMs > beginMs);
}

/** For how long in the last quarter of an hour before the token was refused, or all was 503, in milliseconds. */
function lastedMs({ troubles }: Stage, what: "refusesToken" | "isMaintenance", untilMs: number): number {
  const sinceMs = untilMs - 900_000;
  return troubles
    .filter(({ trouble, toMs }) => trouble[what] === true && toMs > sinceMs && toMs <= untilMs)
    .reduce((sum, { fromMs, toMs }) => sum + toMs - Math.max(sinceMs, fromMs), 0);
}

/** Also of the site of a tag that fails by itself: its neighbours are served while it is searched, in slots that nobody needs. */
function doesConcern({ world }: Stage, { concerns }: Trouble, siteId: number): boolean {
  switch (concerns.kind) {
    case "all":
      return true;
    case "site":
      return concerns.siteId === siteId;
    case "tags":
      return (world.tags.get(siteId) ?? []).some((id) => concerns.ids.has(id));
    case "history":
    case "lists":
      return false;
  }
}

/** Losses of live reads that were there at any time between; the tag itself is undisturbed. */
function lossesOfOthers({ troubles }: Stage, fromMs: number, toMs: number): number {
  return troubles.filter(
    ({ trouble: { concerns }, ...each }) =>
      (concerns.kind === "site" || concerns.kind === "tags") && each.fromMs < toMs && each.toMs > fromMs,
  ).length;
}

function besides({ troubles }: Stage, fromMs: number, toMs: number): string {
  const names = troubles
    .filter((each) => each.fromMs < toMs && each.toMs + RECOVERY_MS > fromMs)
    .map(({ trouble }) => trouble.name);
  return names.length === 0 ? "nothing" : [...new Set(names)].join(", ");
}

/** What concerned the tag itself last, should it not have found back. */
function after(stage: Stage, siteId: number, atMs: number): string {
  const last = stage.troubles.findLast(
    ({ trouble, toMs }) => toMs <= atMs && doesConcern(stage, trouble, siteId),
  )?.trouble;
  return last === undefined ? "" : `; it was concerned last by: ${last.name}`;
}

export function clockTime(ms: number): string {
  return new Date(ms).toISOString().slice(11, 19);
}

/** The token is asked once a minute at most, so that is how long a return may go unnoticed. */
const NOTICED_MS = 65_000;

/** A site that is back in the scope is due at once, when nothing else is going on. */
export function whatReturnsIsReadAgain(stage: Stage, far: FarEnd, untilMs: number): readonly string[] {
  const { world, troubles } = stage;
  return troubles.flatMap((each, place) => {
    const { trouble, fromMs, toMs } = each;
    const { concerns } = trouble;
    if (concerns.kind !== "site" || trouble.hidesTags === undefined) return [];
    const dueMs = toMs + NOTICED_MS + 30_000;
    const isAlone = troubles.every(
      (other, n) => n === place || other.toMs + RECOVERY_MS < fromMs || other.fromMs > dueMs,
    );
    const isRestarted = stage.starts.some((atMs) => atMs + START_MS > fromMs && atMs < dueMs);
    if (!isAlone || isRestarted || dueMs > untilMs || toMs - fromMs < 5_000) return [];
    // Who was refused by itself before is set aside for 10 minutes and longer, also while its site comes and goes.
    const isRested = (id: string) =>
      troubles.some((other) => other.fromMs < toMs && other.trouble.refusesTags?.has(id) === true);
    const silent = [...(world.tags.get(concerns.siteId) ?? [])].filter((id) => {
      const times = (far.values.get(id) ?? []).map(({ atMs }) => atMs);
      const wasLost = !times.some((atMs) => atMs > fromMs && atMs <= toMs);
      const isTold = world.read.every(({ on_change }) => !on_change) || isOften(stage, id);
      const before = times.some((atMs) => atMs <= fromMs);
      return (
        isTold &&
        !isRested(id) &&
        wasLost &&
        before &&
        !times.some((atMs) => atMs > toMs && atMs <= dueMs + everyMs(stage, id))
      );
    });
    return silent.length === 0
      ? []
      : [`${silent.length} tags of site ${concerns.siteId} are not read again, back since ${clockTime(toMs)}`];
  });
}

function isOften({ world }: Stage, id: string): boolean {
  return world.read[0]?.select.ids?.includes(id) ?? false;
}

function everyMs({ world }: Stage, id: string): number {
  return (isOften({ world } as Stage, id) ? world.read[0] : world.read[1])?.every ?? 0;
}
