import { type StoredBackfill, syncSet } from "#src/engine/sync/stored-documents.ts";
import type { Harness } from "../loss-harness.ts";
import { type ReceivedEvents, seriesKey } from "../received-events.ts";
import { availableBuckets, bucketAt, hasLog, type PromisedRange, promisedRanges } from "./expected.ts";
import type { ReportedGaps } from "./reported-gaps.ts";

const iso = (ms: number) => new Date(ms).toISOString().slice(0, 16);

/** One problem that names the points; none without points. */
function pointProblem(what: string, key: string, times: readonly number[]): readonly string[] {
  if (times.length === 0) return [];
  return [`${what}: ${key}, ${times.length} points from ${iso(Math.min(...times))} to ${iso(Math.max(...times))}`];
}

/** Rule 1: every available point was emitted. */
export function everyPointIsEmitted(harness: Harness, far: ReceivedEvents): readonly string[] {
  return promisedRanges(harness, far).flatMap((promise) => {
    if (!hasLog(harness, promise.tagId)) return [];
    const key = seriesKey(promise.tagId, promise.resolution);
    const by = promise.order === null ? "never had" : `never had of order ${promise.order}`;
    return pointProblem(by, key, missingTimes(harness, far, promise));
  });
}

/** Starts of the available buckets that were not emitted. */
function missingTimes(harness: Harness, far: ReceivedEvents, promise: PromisedRange): readonly number[] {
  const emittedPoints = far.points.get(seriesKey(promise.tagId, promise.resolution));
  return availableBuckets(harness, promise)
    .map(({ startMs }) => startMs)
    .filter((atMs) => emittedPoints?.has(atMs) !== true && !mayStillCome(harness, promise.resolution, atMs));
}

/** Rule 1: no point was emitted as new twice. */
export function noPointIsRepeated(far: ReceivedEvents): readonly string[] {
  return [...far.points].flatMap(([key, points]) => {
    const twice = [...points].filter(([, { times }]) => times > 1).map(([atMs]) => atMs);
    return pointProblem("told twice", key, twice);
  });
}

/** Rule 1: every emitted point exists at the service, and the last emitted value is the service's. */
export function nothingIsInvented(harness: Harness, far: ReceivedEvents): readonly string[] {
  const followedResolutions = new Set(harness.world.history.map(({ resolution }) => resolution as string));
  return [...far.points].flatMap(([key, points]) => {
    const [tagId = "", resolution = ""] = key.split(" ");
    const emittedTimes = [...points.keys()];
    const res = resolution as Parameters<typeof bucketAt>[0];
    const fromMs = Math.min(...emittedTimes);
    const toMs = bucketAt(res, harness.world.timeZone, Math.max(...emittedTimes)).endMs;
    const available = availableBuckets(harness, { tagId, resolution: res, fromMs, toMs, order: null });
    const trueValues = new Map(available.map(({ startMs, value }) => [startMs, value]));
    const invented = emittedTimes.filter((atMs) => !trueValues.has(atMs));
    // Late samples change a bucket; followed series are read again once a day.
    const mayDiffer = (atMs: number) =>
      harness.world.lateMs > 0 && (!followedResolutions.has(resolution) || mayStillCome(harness, res, atMs));
    const wrongTimes = emittedTimes.filter(
      (atMs) => trueValues.has(atMs) && trueValues.get(atMs) !== points.get(atMs)?.value && !mayDiffer(atMs),
    );
    return [
      ...pointProblem("told and not there", key, invented),
      ...pointProblem("told with another value", key, wrongTimes),
    ];
  });
}

function mayStillCome(harness: Harness, resolution: Parameters<typeof bucketAt>[0], atMs: number): boolean {
  if (harness.world.lateMs === 0) return false;
  const { endMs } = bucketAt(resolution, harness.world.timeZone, atMs);
  return endMs + harness.world.lateMs > harness.now() - 27 * 3_600_000;
}

/** Rule 1: every backfill is complete and reported as complete. */
export async function everyBackfillIsComplete(harness: Harness): Promise<readonly string[]> {
  const { store } = harness.virtual.worker;
  const backfills = await store.documents<StoredBackfill>(syncSet("backfill", "main"));
  return harness.backfills.flatMap(({ id }) => (backfills.get(id)?.doneAt == null ? [`order ${id} is not done`] : []));
}

/** Rule 2, at any time: missing history is named. `ignore`: tags whose existence is unknown at the moment. */
export async function everyGapIsReported(
  harness: Harness,
  far: ReceivedEvents,
  named: ReportedGaps,
  ignore: ReadonlySet<string>,
): Promise<readonly string[]> {
  const { store } = harness.virtual.worker;
  const backfills = await store.documents<StoredBackfill>(syncSet("backfill", "main"));
  return promisedRanges(harness, far).flatMap((promise) => {
    if (ignore.has(promise.tagId) || !hasLog(harness, promise.tagId)) return [];
    const key = seriesKey(promise.tagId, promise.resolution);
    const gaps = named.get(key) ?? [];
    const missing = missingTimes(harness, far, promise);
    if (promise.order !== null && backfills.get(promise.order)?.doneAt != null)
      return pointProblem(`order ${promise.order} is said to be done and is not`, key, missing);
    const coveringGaps = (atMs: number) => gaps.filter(({ fromMs, toMs }) => fromMs <= atMs && atMs < toMs);
    const unnamedTimes = missing.filter((atMs) => coveringGaps(atMs).length === 0);
    const asNoLog = missing.filter((atMs) => {
      const covers = coveringGaps(atMs);
      return covers.length > 0 && covers.every(({ kind }) => kind === "no log");
    });
    return [
      ...pointProblem("missing and not named", key, unnamedTimes),
      ...pointProblem("missing and said to have no log", key, asNoLog),
    ];
  });
}

/** Rule 2: a tag without a log is reported as such. */
export function missingLogsAreReported(harness: Harness, far: ReceivedEvents, named: ReportedGaps): readonly string[] {
  const followedResolutions = new Set(harness.world.history.map(({ resolution }) => resolution));
  return promisedRanges(harness, far).flatMap(({ tagId, resolution, order }) => {
    if (order !== null || !followedResolutions.has(resolution) || hasLog(harness, tagId)) return [];
    const gaps = named.get(seriesKey(tagId, resolution)) ?? [];
    return gaps.some(({ kind }) => kind === "no log") ? [] : [`has no log, and nobody says so: ${tagId}`];
  });
}

/** Rule 2: history that no response covered does not count as fetched. */
export function unansweredHistoryIsNotFetched(
  harness: Harness,
  far: ReceivedEvents,
  named: ReportedGaps,
): readonly string[] {
  const repliesByTag = Map.groupBy(
    harness.replies.flatMap(({ tagIds, ...answer }) => tagIds.map((tagId) => ({ tagId, ...answer }))),
    ({ tagId }) => tagId,
  );
  return promisedRanges(harness, far).flatMap(({ tagId, resolution, fromMs, toMs, order }) => {
    if (order !== null && !hasLog(harness, tagId)) return [];
    const gaps = named.get(seriesKey(tagId, resolution)) ?? [];
    const tagReplies = repliesByTag.get(tagId) ?? [];
    let atMs = fromMs;
    while (atMs < toMs) {
      const bucket = bucketAt(resolution, harness.world.timeZone, atMs);
      const covers = (each: { readonly fromMs: number; readonly toMs: number }) =>
        each.fromMs <= bucket.startMs && each.toMs >= bucket.endMs;
      const direct = tagReplies.find((each) => each.resolution === resolution && covers(each));
      const gap = gaps.find(covers);
      // A month without an entry has no sample; a month with null may have samples.
      const month = tagReplies.find(
        (each) => each.months !== null && covers(each) && !hasMonth(harness, each.months.get(tagId), atMs),
      );
      if (direct === undefined && gap === undefined && month === undefined)
        return [`never answered and not named: ${tagId} ${resolution} at ${iso(atMs)}`];
      atMs = Math.max(bucket.endMs, Math.min(direct?.toMs ?? 0, toMs));
    }
    return [];
  });
}

function hasMonth(harness: Harness, months: readonly number[] | undefined, atMs: number): boolean {
  const { startMs } = bucketAt("1mo", harness.world.timeZone, atMs);
  return months === undefined || months.includes(startMs);
}
