import { Points } from "../../core/codec/points.ts";
import { Malformed } from "../../core/errors/errors.ts";
import type { Tag, TagLog, TagReading, TagTotal } from "../../core/model/building.ts";
import { LoggedSeries } from "./logged-series.ts";
import { type CountUnusualField, describeValue, listIn, numberIn, type RecordParser, tagValueIn } from "./records.ts";
import { type DecodedReply, isRecord } from "./reply.ts";
import type { LeftOut, ReadReply } from "./source.ts";

type WireRecord = Readonly<Record<string, unknown>>;

interface RecordsOfTag {
  readonly tag: Tag;
  readonly records: [WireRecord, ...WireRecord[]];
}

const REPORTED_TEXTS_MAX = 100_000;

/** A value that is no number, boolean or null is unreadable, and so is a tag with two different values. */
export function valueReader(
  tagIn: RecordParser<Tag>,
  note: CountUnusualField,
  onTexts: (tagIds: readonly string[]) => void,
) {
  const withTexts = new Set<string>();

  function recordsByTag(answer: DecodedReply, requestedIds: readonly string[]): readonly RecordsOfTag[] {
    const data = listIn(answer.envelope.data);
    if (data === null) throw new Malformed("The data of a tag reply are no list.", answer.sample);
    const requested = new Set(requestedIds);
    const byId = new Map<string, RecordsOfTag>();
    for (const record of data) {
      const tag = tagIn(record);
      if (tag === null || !isRecord(record))
        throw new Malformed("A tag reply has a record without a usable id.", answer.sample);
      const before = byId.get(tag.id);
      if (before !== undefined || !requested.has(tag.id)) note("tag.id");
      if (before !== undefined) before.records.push(record);
      else if (requested.has(tag.id)) byId.set(tag.id, { tag, records: [record] });
    }
    for (const id of requested) if (!byId.has(id)) note("tag.unanswered");
    return [...byId.values()];
  }

  function reportTexts(tagIds: readonly string[]): void {
    const fresh = tagIds.filter((id) => !withTexts.has(id));
    if (fresh.length === 0) return;
    if (withTexts.size >= REPORTED_TEXTS_MAX) withTexts.clear();
    for (const id of fresh) withTexts.add(id);
    note("value.text", fresh.length);
    onTexts(fresh);
  }

  return {
    readings(answer: DecodedReply, requestedIds: readonly string[]): Pick<ReadReply, "readings" | "leftOut"> {
      const readings: TagReading[] = [];
      const texts: string[] = [];
      const unreadable = new Map<string, string>();
      for (const { tag, records } of recordsByTag(answer, requestedIds)) {
        const { id, displayName, description, unit } = tag;
        const raw = records.map((record) => record.value);
        const [value, ...others] = raw.map(tagValueIn);
        if (others.some((other) => other !== value)) unreadable.set(id, listedTwice("values", raw));
        else if (value === undefined)
          unreadable.set(id, `Its value is ${describeValue(raw[0])}, and no number, boolean or null.`);
        else {
          readings.push({ id, displayName, description, unit, value });
          if (raw.some(hasText)) texts.push(id);
        }
      }
      if (unreadable.size > 0) note("tag.value", unreadable.size);
      reportTexts(texts);
      if (readings.length === requestedIds.length) return { readings };
      const read = new Set(readings.map(({ id }) => id));
      const leftOut = (id: string): LeftOut => {
        const reason = unreadable.get(id);
        if (reason !== undefined) return { id, kind: "unreadable", reason };
        return { id, kind: "unanswered", reason: "The reply does not list it." };
      };
      return { readings, leftOut: requestedIds.filter((id) => !read.has(id)).map(leftOut) };
    },

    logs(answer: DecodedReply, requestedIds: readonly string[]): TagLog[] {
      const texts: string[] = [];
      const logs = recordsByTag(answer, requestedIds).map(({ tag, records: [first, ...others] }): TagLog => {
        const series = seriesIn(first.measurements);
        if (series === null || series.isBroken || !others.every((other) => hasSameMeasurements(series, other))) {
          note("log.measurements");
          const said = brokenBecause(series, first.measurements);
          return { ...tag, measurements: new Points(), unreadable: { timesMs: null, said } };
        }
        if (series.textCount > 0) texts.push(tag.id);
        if (series.firstFault === null) return { ...tag, measurements: series.points };
        note("measurement.value", series.unreadableMs.length);
        const { points, unreadableMs, firstFault: said } = series;
        return { ...tag, measurements: points, unreadable: { timesMs: unreadableMs, said } };
      });
      reportTexts(texts);
      return logs;
    },

    totals(answer: DecodedReply, requestedIds: readonly string[]): TagTotal[] {
      const texts: string[] = [];
      const totals = recordsByTag(answer, requestedIds).map(({ tag, records }): TagTotal => {
        const [total, ...others] = records.map(totalIn);
        const raw = records.map(({ value, measurements }) => value ?? measurements);
        if (total !== undefined && others.every((other) => other === total)) {
          if (raw.some(hasText)) texts.push(tag.id);
          return { ...tag, total };
        }
        note("total.value");
        const isOne = others.every((other) => other === total);
        const unreadable = isOne
          ? `The total is ${describeValue(raw[0])}, and not one number.`
          : listedTwice("totals", raw);
        return { ...tag, total: null, unreadable };
      });
      reportTexts(texts);
      return totals;
    },
  };
}

function listedTwice(what: string, raw: readonly unknown[]): string {
  const words = [...new Set(raw.map(describeValue))].slice(0, 3).join(" and ");
  return `The reply lists it ${raw.length} times with different ${what}: ${words}.`;
}

function hasText(raw: unknown): boolean {
  if (Array.isArray(raw)) return raw.some(hasText);
  return isRecord(raw) ? hasText(raw.value) : typeof raw === "string";
}

function seriesIn(measurements: unknown): LoggedSeries | null {
  if (measurements instanceof LoggedSeries) return measurements;
  return Array.isArray(measurements) ? LoggedSeries.of(measurements) : null;
}

function hasSameMeasurements(series: LoggedSeries, { measurements }: WireRecord): boolean {
  return seriesIn(measurements)?.isSameAs(series) === true;
}

/** Only an empty list means that a log has no values. */
function brokenBecause(series: LoggedSeries | null, measurements: unknown): string {
  if (series === null) return `The measurements of the log are ${describeValue(measurements)}, and no list.`;
  return series.isBroken && series.firstFault !== null
    ? series.firstFault
    : "The reply lists the log more than once with different measurements.";
}

/** Accepts a number, an object with `value`, or a list of one of these. Undefined for a complete series. */
function totalIn(record: WireRecord): number | null | undefined {
  const totals = [record.value, record.measurements].filter((raw) => raw !== undefined).map(oneNumberIn);
  if (totals.length === 0 || totals.includes(undefined)) return undefined;
  return totals.find((total) => total !== null) ?? null;
}

function oneNumberIn(raw: unknown): number | null | undefined {
  if (raw === null) return null;
  if (Array.isArray(raw)) {
    if (raw.length === 0) return null;
    return raw.length === 1 && !Array.isArray(raw[0]) ? oneNumberIn(raw[0]) : undefined;
  }
  if (!isRecord(raw)) return numberIn(raw);
  return isRecord(raw.value) || Array.isArray(raw.value) ? undefined : oneNumberIn(raw.value);
}
