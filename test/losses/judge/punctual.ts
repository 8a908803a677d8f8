import { createTagFilter } from "#src/engine/sync/tag-selection.ts";
import type { LoggedRequest } from "#src/simulator/request-log.ts";
import type { SourceFault } from "../faults.ts";
import type { Harness } from "../loss-harness.ts";
import type { ReceivedEvents } from "../received-events.ts";

/** Rule 3: a fault of one site, of history or of lists delays no other value. */

/** Recovery time of an affected tag. */
const RECOVERY_MS = 180_000;
const LOOK_MS = 60_000;
/** Recovery time after the token was rejected for more than five minutes. */
const LONG_REFUSED_MS = 540_000;
const LONG_MS = 300_000;
/** Recovery time if a list has to show the tag again. */
const LISTED_MS = 780_000;
const START_MS = 180_000;
/** Slots for each fault of other tags. */
const SLOTS_LATE = 2;
const REPLY_MS = 6_000;

const SLOWED_MS = 3 * 3_600_000;

type Period = readonly [fromMs: number, toMs: number];

export function unaffectedTagsAreOnTime(harness: Harness, far: ReceivedEvents, untilMs: number): readonly string[] {
  const { world, virtual } = harness;
  const polite = virtual.config.sources.main?.quota.polite ?? 1;
  const slotMs = 3_000 / polite;
  const requests = virtual.simulator.truth
    .requests()
    .filter(({ endpoint }) => endpoint === "read" || endpoint === "history");
  const problems: string[] = [];
  const reportedCauses = new Set<string>();
  for (const [siteId, ids] of world.tags) {
    for (const id of ids) {
      const tag = { id, displayName: "", description: null, unit: null };
      const readClass = world.read.find(({ select }) => createTagFilter(select)({ tag, siteId, systemIds: [] }));
      if (readClass === undefined || readClass.on_change) continue;
      const valueTimes = (far.values.get(id) ?? []).map(({ atMs }) => atMs);
      for (const [fromMs, toMs] of undisturbed(harness, siteId, id, untilMs)) {
        const timesInPeriod = valueTimes.filter((atMs) => atMs >= fromMs && atMs <= toMs);
        const checkpoints = [fromMs, ...timesInPeriod, toMs];
        for (const [index, atMs] of checkpoints.entries()) {
          const sinceMs = checkpoints[index - 1] ?? atMs;
          const losses = Math.max(1, lossesOfOthers(harness, sinceMs, atMs));
          const slotsLate = losses * Math.max(SLOTS_LATE, world.siteIds.length);
          const dueMs = knownRefusedMs(requests, id, sinceMs, sinceMs + readClass.every + slotMs + REPLY_MS);
          const slowest = slowestSlotMs(requests, sinceMs, atMs, slotMs);
          const lateMs = atMs - Math.max(sinceMs + readClass.every, dueMs) - slotsLate * slowest - REPLY_MS;
          if (lateMs <= 0) continue;
          const faultsText = `${describeFaults(harness, sinceMs, atMs)}${describeLastFault(harness, siteId, sinceMs)}`;
          const cause = `${readClass.name} ${faultsText}`;
          if (reportedCauses.has(cause)) continue;
          reportedCauses.add(cause);
          problems.push(
            `late by ${Math.round(lateMs / 1_000)} s beyond two slots: tag ${id} of ${readClass.name} at ${clockTime(atMs)}, beside ${faultsText}`,
          );
        }
      }
    }
  }
  return problems;
}

/** Time at which a first request for this tag and others was rejected; slots count from there. */
function knownRefusedMs(requests: readonly LoggedRequest[], id: string, fromMs: number, toMs: number): number {
  const refusedRequest = requests.find(
    ({ atMs, endpoint, errorStatus, query }) =>
      endpoint === "read" && errorStatus !== null && atMs > fromMs && atMs <= toMs && query.includes(id),
  );
  return refusedRequest?.atMs ?? fromMs;
}

/** A slot is 3 s, or longer after a 429: the worker then regains one request a minute every ten minutes. */
function slowestSlotMs(requests: readonly LoggedRequest[], fromMs: number, toMs: number, slotMs: number): number {
  const isSlowed = requests.some(
    ({ atMs, errorStatus }) => errorStatus === 429 && atMs <= toMs && atMs > toMs - SLOWED_MS,
  );
  if (!isSlowed) return slotMs;
  const between = requests.filter(({ atMs }) => atMs >= fromMs && atMs <= toMs).map(({ atMs }) => atMs);
  return Math.max(slotMs, ...between.map((atMs, index) => atMs - (between[index - 1] ?? fromMs)));
}

/** Periods without a fault that affects this tag. */
function undisturbed(harness: Harness, siteId: number, id: string, untilMs: number): readonly Period[] {
  const disturbed: Period[] = [
    ...harness.faults
      .filter(({ fault }) => doesConcern(harness, fault, siteId))
      .map(({ fault, fromMs, toMs }): Period => {
        // A rejected tag rightly stays in quarantine for 10 minutes, an hour and longer.
        const isRested = fault.refusesTags?.has(id) === true;
        const isListed = fault.concerns.kind !== "site" && fault.hidesTags?.has(id) === true;
        const isLongRefused = fault.refusesToken === true && lastedMs(harness, "refusesToken", toMs) > LONG_MS;
        // Without a stated time the wait doubles, up to the sum of all earlier waits.
        const waitMs = fault.isMaintenance === true ? lastedMs(harness, "isMaintenance", toMs) + LOOK_MS : 0;
        const recoveryMs = isListed ? LISTED_MS : isLongRefused ? LONG_REFUSED_MS : RECOVERY_MS;
        return [fromMs, isRested ? untilMs : Math.min(toMs, untilMs) + Math.max(recoveryMs, waitMs)];
      }),
    ...harness.starts.map((atMs): Period => [atMs - 3_000, atMs + START_MS]),
  ];
  const undisturbedPeriods: Period[] = [];
  let fromMs = harness.starts[0] ?? 0;
  for (const [beginMs, endMs] of disturbed.toSorted((a, b) => a[0] - b[0])) {
    if (beginMs > fromMs) undisturbedPeriods.push([fromMs, Math.min(beginMs, untilMs)]);
    fromMs = Math.max(fromMs, endMs);
  }
  if (fromMs < untilMs) undisturbedPeriods.push([fromMs, untilMs]);
  return undisturbedPeriods.filter(([beginMs, endMs]) => endMs > beginMs);
}

function lastedMs({ faults }: Harness, what: "refusesToken" | "isMaintenance", untilMs: number): number {
  const sinceMs = untilMs - 900_000;
  return faults
    .filter(({ fault, toMs }) => fault[what] === true && toMs > sinceMs && toMs <= untilMs)
    .reduce((sum, { fromMs, toMs }) => sum + toMs - Math.max(sinceMs, fromMs), 0);
}

/** Includes the site of a tag that fails alone: its neighbours wait while the tag is searched. */
function doesConcern({ world }: Harness, { concerns }: SourceFault, siteId: number): boolean {
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

function lossesOfOthers({ faults }: Harness, fromMs: number, toMs: number): number {
  return faults.filter(
    ({ fault: { concerns }, ...each }) =>
      (concerns.kind === "site" || concerns.kind === "tags") && each.fromMs < toMs && each.toMs > fromMs,
  ).length;
}

function describeFaults({ faults }: Harness, fromMs: number, toMs: number): string {
  const names = faults
    .filter((each) => each.fromMs < toMs && each.toMs + RECOVERY_MS > fromMs)
    .map(({ fault }) => fault.name);
  return names.length === 0 ? "nothing" : [...new Set(names)].join(", ");
}

function describeLastFault(harness: Harness, siteId: number, atMs: number): string {
  const lastFault = harness.faults.findLast(
    ({ fault, toMs }) => toMs <= atMs && doesConcern(harness, fault, siteId),
  )?.fault;
  return lastFault === undefined ? "" : `; it was concerned last by: ${lastFault.name}`;
}

export function clockTime(ms: number): string {
  return new Date(ms).toISOString().slice(11, 19);
}
