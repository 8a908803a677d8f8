import { MAX_CLOCK_DIFFERENCE_MS } from "../../core/runtime/clock-check.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { SinkReport } from "./sink-reports.ts";
import type { SourceReport } from "./source-reports.ts";
import { isDiskAlmostFull, isDiskFull, type StateReport } from "./state-disk-space.ts";

const DAY_MS = 86_400_000;
/** The page warns this many days before a token expires. */
const TOKEN_WARNING_DAYS = 14;
const STATE_COPY_WARNING_MS = 7 * DAY_MS;
const MAX_LISTED_NAMES = 5;

type WarningTexts = readonly string[];

function warningIf<T>(value: T | null | undefined | false, formatWarning: (value: T) => string): WarningTexts {
  return value === null || value === undefined || value === false ? [] : [formatWarning(value)];
}

function warningIfAny<T>(items: readonly T[], formatWarning: (items: readonly T[]) => string): WarningTexts {
  return items.length === 0 ? [] : [formatWarning(items)];
}

function joinFirstNames(names: readonly string[], total = names.length): string {
  const unlistedCount = total - Math.min(names.length, MAX_LISTED_NAMES);
  return `${names.slice(0, MAX_LISTED_NAMES).join(", ")}${unlistedCount > 0 ? ` and ${unlistedCount} more` : ""}`;
}

/** Returns all warnings of the status page, the worst first. */
export function statusWarnings(
  report: {
    readonly sources: readonly SourceReport[];
    readonly sinks: readonly SinkReport[];
    readonly commands: { readonly enabled: boolean; readonly stopped: boolean } | null;
    readonly store: Pick<StateReport, "file" | "free" | "diskBytes" | "copy" | "damaged">;
  },
  nowMs: number,
): WarningTexts {
  const { sources, sinks, commands, store } = report;
  return [
    ...diskWarnings(store),
    ...(store.copy === null ? [] : copiedStateWarnings(store.copy, nowMs)),
    ...warningIfAny(store.damaged, damagedRowsWarning),
    ...sources.flatMap((source) => [
      ...availabilityWarnings(source),
      ...tokenExpiryWarnings(source, nowMs),
      ...quotaAndClockWarnings(source, store.copy),
      ...valueWarnings(source),
      ...historyAndQuarantineWarnings(source),
    ]),
    ...sinks.flatMap(({ sink, problem }) => warningIf(problem, () => `Sink ${sink}: ${problem}`)),
    ...sinks.flatMap(({ sink, deadLetters }) =>
      warningIf(
        deadLetters || null,
        (count) => `Sink ${sink} refused ${formatCount(count, "event")}; \`plenum outbox dead ${sink}\` says why.`,
      ),
    ),
    ...sinks.flatMap(({ sink, dropped }) =>
      warningIf(
        dropped || null,
        (droppedCount) =>
          `Sink ${sink} lost ${formatCount(droppedCount, "event")} that it did not take in time; see its delivery-gap events.`,
      ),
    ),
    ...warningIf(
      commands?.stopped === true && commands.enabled,
      () => "Writing is stopped by the kill switch; `plenum writes resume` allows it again.",
    ),
  ];
}

function diskWarnings({ file, free, diskBytes }: Pick<StateReport, "file" | "free" | "diskBytes">): WarningTexts {
  if (isDiskFull(free))
    return [
      `The disk that holds ${file} has only ${(free / 1024 ** 2).toFixed(0)} MiB left. When the disk is full, Plenum stores and sends nothing new. Free some space.`,
    ];
  if (free === null || diskBytes === null || !isDiskAlmostFull(free, diskBytes)) return [];
  return [
    `The disk that holds ${file} has ${(free / 1024 ** 3).toFixed(1)} GiB left, ${Math.floor((100 * free) / diskBytes)} % of it. Free some space before the disk is full.`,
  ];
}

function copiedStateWarnings({ from, isHere, isOriginalThere, at }: NonNullable<StateReport["copy"]>, nowMs: number) {
  if (isHere ? !isOriginalThere : nowMs - Date.parse(at) > STATE_COPY_WARNING_MS) return [];
  const originalStateText = isHere ? `${from.folder}, which still exists,` : `${from.folder} on ${from.host}`;
  return [
    `This state was copied from ${originalStateText} (noticed at ${at}). Run only one of the two: both use the same quota and send the same events, with the same ids. This worker connects to MQTT brokers under another name, and writes nothing before \`plenum writes arm\`.${isHere ? " Remove the original when you no longer need it." : ""}`,
  ];
}

function damagedRowsWarning(damaged: StateReport["damaged"]): string {
  const damagedRowTexts = damaged.map(({ table, part, rows: count }) => `${count} of ${table} ${part}`.trimEnd());
  const [lastFoundAt] = damaged.map(({ lastFound }) => lastFound).toSorted((a, b) => (a < b ? 1 : -1));
  const damageKindsSuffix = damaged.length > MAX_LISTED_NAMES ? " kinds" : "";
  return `Damaged rows of the state were found and set aside, the last at ${lastFoundAt}: ${joinFirstNames(damagedRowTexts)}${damageKindsSuffix}. Check the disk and the memory of this machine; \`plenum state check\` says more.`;
}

/** Warns about an unavailable service, otherwise about its unavailable lists and sites. */
function availabilityWarnings({ name, health, jobs, lostSites, unavailable }: SourceReport): WarningTexts {
  const serviceOutage = unavailable.find(({ job }) => job === null);
  if (serviceOutage !== undefined) {
    const healthCheckText =
      health === null
        ? ""
        : ` Its own health check says: ${health.status}${health.time === null ? "" : `, at ${health.time}`} (requested at ${health.askedAt}).`;
    return [
      `${name} is unavailable since ${serviceOutage.since}: ${serviceOutage.reason} The data below is from before the failure.${healthCheckText}`,
    ];
  }
  const otherJobs = jobs.filter((job) => !unavailable.some((unavailability) => unavailability.job === job.name));
  return [
    ...unavailable.map(({ job, since, reason }) => `${name}, ${job}: unavailable since ${since}: ${reason}`),
    ...lostSites.map(({ siteId, since, reason }) => `${name}, site ${siteId}, since ${since}: ${reason}`),
    ...otherJobs.flatMap((job) => warningIf(job.problem, () => `${name}, ${job.name}: ${job.problem}`)),
    ...otherJobs
      .filter(({ late, problem }) => late && problem === null)
      .map((job) => {
        const lastPollText =
          job.lastSuccess === null ? "no poll has succeeded yet" : `the last successful poll was at ${job.lastSuccess}`;
        return `${name}, ${job.name}: ${lastPollText}, and the next was due by ${job.dueBy} at the latest.`;
      }),
  ];
}

function tokenExpiryWarnings({ name, token }: SourceReport, nowMs: number): WarningTexts {
  const tokenExpiry = token?.expiresAt ?? null;
  if (tokenExpiry === null) return [];
  const daysLeft = (Date.parse(tokenExpiry) - nowMs) / DAY_MS;
  if (daysLeft > TOKEN_WARNING_DAYS) return [];
  if (daysLeft < 0) return [`The token of ${name} expired at ${tokenExpiry}; replace it with a new one.`];
  const timeLeftText = daysLeft < 1 ? "in less than a day" : `in ${formatCount(Math.floor(daysLeft), "day")}`;
  return [`The token of ${name} expires at ${tokenExpiry}, ${timeLeftText}.`];
}

function quotaAndClockWarnings(source: SourceReport, stateCopy: StateReport["copy"]): WarningTexts {
  const { name, quota, clockSkewMs, plan, historyStarvesSince } = source;
  const otherProgramUse = quota?.buckets.find((bucket) => bucket.foreign !== null)?.foreign;
  return [
    ...warningIf(
      clockSkewMs !== null && Math.abs(clockSkewMs) > MAX_CLOCK_DIFFERENCE_MS && clockSkewMs,
      (skewMs) =>
        `The clock of this machine is ${(Math.abs(skewMs) / 1_000).toFixed(0)} s ${skewMs > 0 ? "ahead of" : "behind"} the clock of ${name}. Until you correct it, times are uncertain and Plenum rejects commands.`,
    ),
    ...warningIf(otherProgramUse, ({ perWindow, sinceMs }) => {
      const requestsText = perWindow === null ? "" : `, up to ${formatCount(perWindow, "request")} a minute`;
      const originalText =
        stateCopy === null
          ? ""
          : ` It may be the worker whose state this one was copied from (${stateCopy.from.folder} on ${stateCopy.from.host}).`;
      return `Another program seems to spend the quota of ${name}${requestsText}, since ${isoUtc(sinceMs)}.${originalText} Give it a token of another user, or leave it a share with quota.polite.`;
    }),
    ...warningIf(plan !== null && !plan.fits && plan, ({ classes, load }) => {
      const stretchedReadClasses = classes.filter(({ stretch }) => stretch > 1);
      const longestStretch = Math.max(1, ...stretchedReadClasses.map(({ stretch }) => stretch));
      return `Values of ${name} (${stretchedReadClasses.map((readClass) => readClass.name).join(", ")}) become up to ${longestStretch.toFixed(1)} times older than configured, because the intervals need ${(load * 100).toFixed(0)} % of what the quota leaves for them. \`plenum plan\` names the cheapest change.`;
    }),
    ...warningIf(
      historyStarvesSince,
      (starvedSince) =>
        `History of ${name} has been due since ${starvedSince} and got no request: live reads and writes take the quota. \`plenum plan\` names the cheapest change.`,
    ),
  ];
}

function valueWarnings({ name, suddenChanges, leftOut, typeDoubts }: SourceReport): WarningTexts {
  const tagReasonList = (tags: readonly SourceReport["leftOut"][number][]) =>
    joinFirstNames(tags.map(({ id, since, reason }) => `${id} (since ${since}: ${reason})`));
  return [
    ...suddenChanges.map(({ what, siteIds, since, tags }) => {
      const siteText = `${name}, site ${siteIds.join(", ")}`;
      const verb = tags === 1 ? "is" : "are";
      return what === "nulls"
        ? `${siteText}: ${formatCount(tags, "value")} turned null at once at ${since} and ${verb} published as bad. A gateway may be offline.`
        : `${siteText}: more than a third of the values of a reply changed between number and boolean at ${since}. ${formatCount(tags, "tag")} ${verb} uncertain until a further reading confirms the type.`;
    }),
    ...warningIfAny(
      leftOut.filter(({ kind }) => kind === "unreadable"),
      (tags) =>
        `${formatCount(tags.length, "tag")} of ${name} ${tags.length === 1 ? "has an unreadable value" : "have unreadable values"} in the replies; what was read before stays: ${tagReasonList(tags)}.`,
    ),
    ...warningIfAny(
      leftOut.filter(({ kind }) => kind !== "unreadable"),
      (tags) =>
        `${formatCount(tags.length, "tag")} of ${name} ${tags.length === 1 ? "has" : "have"} no value in the replies: ${tagReasonList(tags)}.`,
    ),
    ...warningIfAny(
      typeDoubts.filter(({ doubt }) => doubt === "unit"),
      (tags) =>
        `${formatCount(tags.length, "tag")} of ${name} ${tags.length === 1 ? "has a boolean" : "have booleans"} as value although the unit is one of numbers, so the quality is uncertain: ${joinFirstNames(tags.map(({ id, displayName, unit }) => `${id} ${displayName} (${unit})`))}. Correct the unit or the value at the service.`,
    ),
  ];
}

function historyAndQuarantineWarnings({ name, history, setAside }: SourceReport): WarningTexts {
  return [
    ...warningIf(history !== null && history.unreadableCount > 0 && history, ({ unreadable, unreadableCount }) => {
      const seriesTexts = unreadable.map(
        (unreadableSeries) => `${unreadableSeries.series} (since ${unreadableSeries.since}: ${unreadableSeries.said})`,
      );
      return `History of ${name} was answered and cannot be read, and is requested again: ${joinFirstNames(seriesTexts, unreadableCount)}. \`plenum gaps\` names every bucket.`;
    }),
    ...warningIfAny(setAside, (tags) => {
      const [was, is] = tags.length === 1 ? ["was", "is"] : ["were", "are"];
      const tagNames = joinFirstNames(tags.map(({ id, displayName }) => `${id} ${displayName}`));
      return `${formatCount(tags.length, "tag")} of ${name} ${was} rejected singly twice and ${is} in quarantine; the next single requests follow after 10 minutes, then 1, 6 and 24 hours: ${tagNames}. \`plenum explain ${tags[0]?.id ?? ""}\` says why.`;
    }),
  ];
}
