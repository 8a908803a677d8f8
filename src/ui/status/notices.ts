import { DIFFERENCE_BOUND_MS } from "../../core/runtime/clock-check.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { counted } from "../../core/values/plural.ts";
import type { DamagedRows, SeenCopy } from "../../engine/store/store.ts";
import { becomesFull, hasLittleSpace } from "./disk.ts";
import type { SinkReport } from "./sink-report.ts";
import type { SourceReport } from "./source-report.ts";

interface Shown {
  readonly sources: readonly SourceReport[];
  readonly sinks: readonly SinkReport[];
  readonly commands: { readonly enabled: boolean; readonly stopped: boolean } | null;
  readonly store: {
    readonly file: string;
    readonly free: number | null;
    readonly diskBytes: number | null;
    readonly copy: SeenCopy | null;
    readonly damaged: readonly DamagedRows[];
  };
  readonly nowMs: number;
}

const DAY_MS = 86_400_000;
/** Days before the token's expiry from which the page warns; the event `token-expiring` comes at 30, 14, 7 and 1. */
const TOKEN_DAYS = 14;
const MEBIBYTE = 1024 ** 2;
/** Tags that a notice names; `plenum status --json` has them all. */
const NAMED = 5;

/** Warnings, worst first. An empty page must never look like "no alarms" while something fails. */
export function noticesOf({ sources, sinks, commands, store, nowMs }: Shown): readonly string[] {
  return [
    ...diskNotices(store),
    ...copyNotices(store.copy, nowMs),
    ...(store.damaged.length === 0 ? [] : [damagedNotice(store.damaged)]),
    ...sources.flatMap((source) => [...sourceNotices(source, nowMs), ...workNotices(source, store.copy)]),
    ...sinks.filter((sink) => sink.problem !== null).map((sink) => `Sink ${sink.sink}: ${sink.problem}`),
    ...sinks.flatMap(({ sink, deadLetters }) =>
      deadLetters === null || deadLetters === 0
        ? []
        : [`Sink ${sink} refused ${counted(deadLetters, "event")}; \`plenum outbox dead ${sink}\` says why.`],
    ),
    ...sinks.flatMap(({ sink, dropped }) =>
      dropped === null || dropped === 0
        ? []
        : [`Sink ${sink} lost ${counted(dropped, "event")} that it did not take in time; see its delivery-gap events.`],
    ),
    ...(commands?.stopped === true && commands.enabled
      ? ["Writing is stopped by the kill switch; `plenum writes resume` allows it again."]
      : []),
  ];
}

function diskNotices({ file, free, diskBytes }: Shown["store"]): readonly string[] {
  if (hasLittleSpace(free)) {
    return [
      `The disk that holds ${file} has only ${(free / MEBIBYTE).toFixed(0)} MiB left. When it is full nothing new is remembered or told; free some space.`,
    ];
  }
  if (free === null || diskBytes === null || !becomesFull({ free, size: diskBytes })) return [];
  return [
    `The disk that holds ${file} has ${(free / 1024 ** 3).toFixed(1)} GiB left, ${Math.floor((100 * free) / diskBytes)} % of it. All is well so far; free some space before it is full.`,
  ];
}

/** How long the warning about a copied state is shown, in milliseconds; the original may still run elsewhere. */
const COPY_TOLD_MS = 7 * DAY_MS;

function copyNotices(copy: SeenCopy | null, nowMs: number): readonly string[] {
  if (copy === null) return [];
  const { from, isHere, isOriginalThere, at } = copy;
  if (isHere ? !isOriginalThere : nowMs - Date.parse(at) > COPY_TOLD_MS) return [];
  const where = isHere ? `${from.folder}, where it still lies` : `${from.folder} on ${from.host}`;
  return [
    `This state was copied from ${where} (noticed at ${at}). Run only one of the two: both spend the same quota and tell everything, with the same ids. This one introduces itself to MQTT brokers under another name, and writes nothing before \`plenum writes arm\`.${isHere ? " When the original is not needed any more, remove it." : ""}`,
  ];
}

/** Rows that were not what had been written: what they were is asked for again, or is a dead letter. */
function damagedNotice(damaged: readonly DamagedRows[]): string {
  const named = damaged.slice(0, NAMED).map(({ table, part, rows }) => `${rows} of ${table} ${part}`.trimEnd());
  const more = damaged.length - named.length;
  const last = damaged
    .map(({ lastFound }) => lastFound)
    .toSorted()
    .at(-1);
  return `Damaged rows of the state were found and set aside, the last at ${last}: ${named.join(", ")}${more > 0 ? ` and ${more} more kinds` : ""}. Check the disk and the memory of this machine; \`plenum state check\` says more.`;
}

function sourceNotices(source: SourceReport, nowMs: number): readonly string[] {
  const service = source.unavailable.find(({ job }) => job === null);
  const expiry = source.token?.expiresAt ?? null;
  const days = expiry === null ? Number.POSITIVE_INFINITY : (Date.parse(expiry) - nowMs) / DAY_MS;
  const token =
    days > TOKEN_DAYS
      ? []
      : [
          days < 0
            ? `The token of ${source.name} expired at ${expiry}; put a new one in its place.`
            : `The token of ${source.name} expires at ${expiry}, ${days < 1 ? "in less than a day" : `in ${counted(Math.floor(days), "day")}`}.`,
        ];
  if (service !== undefined) {
    return [
      `${source.name} is unavailable since ${service.since}: ${service.reason} Its data below is from before.${healthWords(source)}`,
      ...token,
    ];
  }
  const refused = source.unavailable.map(({ job, since, reason }) => ({
    job,
    text: `${source.name}, ${job}: unavailable since ${since}: ${reason}`,
  }));
  const problems = source.jobs
    .filter(({ name, problem }) => problem !== null && !refused.some(({ job }) => job === name))
    .map(({ name, problem }) => `${source.name}, ${name}: ${problem}`);
  const late = source.jobs
    .filter((job) => job.late && job.problem === null && !refused.some((each) => each.job === job.name))
    .map(
      ({ name, lastSuccess, dueBy }) =>
        `${source.name}, ${name}: ${lastSuccess === null ? "there was no good poll yet" : `the last good poll was at ${lastSuccess}`}, and one was due by ${dueBy} at the latest.`,
    );
  const lost = source.lostSites.map(
    ({ siteId, since, reason }) => `${source.name}, site ${siteId}, since ${since}: ${reason}`,
  );
  return [...refused.map(({ text }) => text), ...lost, ...problems, ...late, ...token];
}

function healthWords({ health }: SourceReport): string {
  if (health === null) return "";
  return ` Its own health check says: ${health.status}${health.time === null ? "" : `, at ${health.time}`} (asked at ${health.askedAt}).`;
}

/** Warnings about values that are older than their target interval or unverified. */
function workNotices(source: SourceReport, copy: SeenCopy | null): readonly string[] {
  const { name, quota, clockSkewMs, setAside, history, plan, historyStarvesSince } = source;
  const foreign = quota?.buckets.find((allowance) => allowance.foreign !== null)?.foreign ?? null;
  return [
    ...(clockSkewMs !== null && Math.abs(clockSkewMs) > DIFFERENCE_BOUND_MS
      ? [
          `The clock of this machine is ${(Math.abs(clockSkewMs) / 1_000).toFixed(0)} s ${clockSkewMs > 0 ? "ahead of" : "behind"} the clock of ${name}. Times are in doubt, and commands are refused, until it is set right.`,
        ]
      : []),
    ...(foreign === null
      ? []
      : [
          `Another program seems to spend the quota of ${name}${foreign.perWindow === null ? "" : `, up to ${counted(foreign.perWindow, "request")} a minute`}, since ${isoUtc(foreign.sinceMs)}.${copy === null ? "" : ` It may be the worker whose state this one was copied from (${copy.from.folder} on ${copy.from.host}).`} Give it a token of another user, or leave it a share with quota.polite.`,
        ]),
    ...(plan === null || plan.fits ? [] : [stretchNotice(name, plan)]),
    ...(historyStarvesSince === null
      ? []
      : [
          `History of ${name} has been due since ${historyStarvesSince} and got no request: live reads and writes take the quota. \`plenum plan\` names the cheapest change.`,
        ]),
    ...valueNotices(source),
    ...(history === null || history.unreadableCount === 0 ? [] : [unreadableNotice(name, history)]),
    ...(setAside.length === 0 ? [] : [setAsideNotice(name, setAside)]),
  ];
}

/** One overload warning per source; the plan shows which change helps. */
function stretchNotice(name: string, { load, classes }: NonNullable<SourceReport["plan"]>): string {
  const stretched = classes.filter(({ stretch }) => stretch > 1);
  const worst = Math.max(1, ...stretched.map(({ stretch }) => stretch));
  return `Values of ${name} (${stretched.map((each) => each.name).join(", ")}) become up to ${worst.toFixed(1)} times older than wished, because the wishes need ${(load * 100).toFixed(0)} % of what the quota leaves for them. \`plenum plan\` names the cheapest change.`;
}

function unreadableNotice(name: string, { unreadable, unreadableCount }: NonNullable<SourceReport["history"]>): string {
  const shown = unreadable.slice(0, NAMED);
  const named = shown.map(({ series, since, said }) => `${series} (since ${since}: ${said})`);
  const more = unreadableCount - named.length;
  return `History of ${name} was answered and cannot be read, and is requested again: ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}. \`plenum gaps\` names every bucket.`;
}

function setAsideNotice(name: string, setAside: SourceReport["setAside"]): string {
  const [first, ...others] = setAside;
  const named = setAside.slice(0, NAMED).map(({ id, displayName }) => `${id} ${displayName}`);
  const more = setAside.length - named.length;
  return (
    `${counted(setAside.length, "tag")} of ${name} ${others.length === 0 ? "was" : "were"} refused alone twice and ${others.length === 0 ? "is" : "are"} set aside, to be asked alone again after 10 minutes, then 1, 6 and 24 hours: ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}.` +
    ` \`plenum explain ${first?.id ?? ""}\` says why.`
  );
}

/** Live values of a source that are missing from the replies, or that are not believed. */
function valueNotices({ name, suddenChanges, leftOut, typeDoubts }: SourceReport): readonly string[] {
  const unreadable = leftOut.filter(({ kind }) => kind === "unreadable");
  const unanswered = leftOut.filter(({ kind }) => kind !== "unreadable");
  const ruledOut = typeDoubts.filter(({ doubt }) => doubt === "unit");
  return [
    ...suddenChanges.map((change) => suddenNotice(name, change)),
    ...(unreadable.length === 0
      ? []
      : [
          `${counted(unreadable.length, "tag")} of ${name} ${unreadable.length === 1 ? "has an unreadable value" : "have unreadable values"} in the replies; what was read before stays: ${listed(unreadable.map(leftOutWords))}.`,
        ]),
    ...(unanswered.length === 0
      ? []
      : [
          `${counted(unanswered.length, "tag")} of ${name} ${unanswered.length === 1 ? "has" : "have"} no value in the replies: ${listed(unanswered.map(leftOutWords))}.`,
        ]),
    ...(ruledOut.length === 0
      ? []
      : [
          `${counted(ruledOut.length, "tag")} of ${name} ${ruledOut.length === 1 ? "has a boolean" : "have booleans"} as value although the unit is one of numbers, so the quality is uncertain: ${listed(ruledOut.map(({ id, displayName, unit }) => `${id} ${displayName} (${unit})`))}. Correct the unit or the value at the service.`,
        ]),
  ];
}

function leftOutWords({ id, since, reason }: SourceReport["leftOut"][number]): string {
  return `${id} (since ${since}: ${reason})`;
}

function suddenNotice(name: string, change: SourceReport["suddenChanges"][number]): string {
  const { what, siteIds, since, tags } = change;
  const where = `${name}, site ${siteIds.join(", ")}`;
  return what === "nulls"
    ? `${where}: ${counted(tags, "value")} turned null at once at ${since} and ${tags === 1 ? "is" : "are"} published as bad. A gateway may be offline.`
    : `${where}: more than a third of the values of a reply changed between number and boolean at ${since}. ${counted(tags, "tag")} ${tags === 1 ? "is" : "are"} uncertain until a further reading confirms the type.`;
}

function listed(words: readonly string[]): string {
  const more = words.length - NAMED;
  return `${words.slice(0, NAMED).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}
