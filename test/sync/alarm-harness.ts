import { onTestFinished } from "vitest";
import type { AlarmFact, Event } from "#src/core/model/event.ts";
import type { StoredAlarm, StoredJob } from "#src/engine/sync/stored-documents.ts";
import { alarmRecord } from "../source/source-harness.ts";
import {
  createHarness,
  type HarnessOptions,
  type ListChange,
  START_MS,
  type SyncHarness,
  type WireList,
} from "./sync-harness.ts";

export const MINUTE = 60_000;
export const TOKEN = "simulator-token";

export let harness: SyncHarness;

/** Creates the harness of the running test, which stops it at its end. */
export function openHarness(options: HarnessOptions = {}): SyncHarness {
  const created = createHarness(options);
  harness = created;
  onTestFinished(() => created.stop());
  return created;
}

export async function startWithAlarms(active: number, options: HarnessOptions = {}): Promise<readonly string[]> {
  const { control, clock } = openHarness(options);
  const ids = Array.from({ length: active }, () => control.raiseAlarm({ siteId: 3 }));
  await harness.start();
  await clock.advance(MINUTE);
  return ids;
}

export const factOf = (event: Event | undefined) => event?.data as AlarmFact & { readonly initial?: boolean };
export const idOf = (event: Event) => factOf(event).alarm.id;
export const alarmEvents = (id?: string) =>
  harness.store.events.filter(
    (event) => event.type.startsWith("alarm-") && (id === undefined || factOf(event).alarm.id === id),
  );
/** Kinds of the emitted events, of one alarm or of all: `["raised", "resolved"]`. */
export const emitted = (id?: string) => alarmEvents(id).map(({ type }) => type.replace("alarm-", ""));
export const countOf = (kind: string) => emitted().filter((one) => one === kind).length;
export const jobProblem = async (job = "alarms") =>
  (await harness.store.documents<StoredJob>("poll/main")).get(job)?.problem ?? null;
export const storedAlarm = (id = "") => harness.store.document<StoredAlarm>("alarm/main", id);
export const warned = (text: string) => harness.warnings.filter((line) => line.includes(text)).length;
export const unverified = async (reason: string) =>
  (await harness.metrics.alarmRecordsUnverified.get()).values.find(
    ({ labels }) => "reason" in labels && labels.reason === reason,
  )?.value;

export const isAlarmList = (path: string) => path.endsWith("/alarms");
export const isActiveList = (path: string, query: URLSearchParams) =>
  isAlarmList(path) && query.get("status") === "active";
export const activeQueries = (from = 0) =>
  harness.requests.flatMap(({ path, query }, n) => (n >= from && isActiveList(path, query) ? [query] : []));

export const listOf = (data: WireList["data"]): WireList => ({
  ...{ data, links: { next: null }, meta: { total: data.length, current_page: 1, last_page: 1 } },
});
export const shiftTime = (time: string, byMs: number) => new Date(Date.parse(time) + byMs).toISOString();

// biome-ignore lint/suspicious/noExplicitAny: attributes of the wire
type Attributes = any;

export function editRecords(change: (attributes: Attributes, status: string | null, id: string) => void): ListChange {
  return (list, path, query) => {
    if (isAlarmList(path)) for (const { id, attributes } of list.data) change(attributes, query.get("status"), id);
  };
}

export async function activeRecords(): Promise<WireList["data"]> {
  let records: WireList["data"] = [];
  harness.rewriteLists((list, path, query) => {
    if (isActiveList(path, query)) records = list.data;
  });
  await harness.clock.advance(30_000);
  return structuredClone(records);
}

export interface WireAlarm {
  readonly id: string;
  readonly siteId: number;
  readonly sinceMs: number;
  readonly priority: string;
  readonly acknowledged: boolean;
  endMs: number | null;
}

/** A service that lists its own alarms in pages, with every filter of the interface; a test may reorder or alter pages. */
export class AlarmService {
  alarms: WireAlarm[] = [];
  readonly siteIds: readonly number[];
  arrange: (alarms: readonly WireAlarm[], page: number) => readonly WireAlarm[] = (alarms) => alarms;
  /** Alters a page of the list of active alarms, in place or by what it returns. */
  alter: (list: WireList, page: number) => unknown = () => undefined;
  #nextId = 1;

  constructor(sites = 1) {
    this.siteIds = Array.from({ length: sites }, (_, n) => 2 + n * 1_000_000);
  }

  raise(count: number, more: Partial<WireAlarm> = {}): readonly WireAlarm[] {
    const raised = Array.from({ length: count }, (): WireAlarm => {
      const id = this.#nextId++;
      const siteId = this.siteIds[(id - 1) % this.siteIds.length] ?? 1;
      const own = { id: String(id), siteId, sinceMs: START_MS - MINUTE };
      return { ...own, priority: "A", acknowledged: false, endMs: null, ...more };
    });
    this.alarms.push(...raised);
    return raised;
  }

  /** Raises an alarm now that the list shows at this index. */
  raiseAt(index: number): WireAlarm | undefined {
    const raised = this.raise(1, { sinceMs: harness.clock.now() });
    this.alarms = this.alarms.slice(0, -1).toSpliced(index, 0, ...raised);
    return raised[0];
  }

  remove(alarm: WireAlarm | undefined): void {
    this.alarms = this.alarms.filter((each) => each !== alarm);
  }

  async start(options: HarnessOptions = {}): Promise<void> {
    openHarness(options);
    harness.rewriteLists((_list, path, query) => (isAlarmList(path) ? this.#answer(query) : undefined));
    await harness.start();
  }

  #answer(query: URLSearchParams): unknown {
    const is = (name: string, value: unknown) => (query.get(name) ?? String(value)) === String(value);
    const status = query.get("status");
    const found = this.alarms.filter(
      ({ endMs, siteId, priority, acknowledged }) =>
        (status === "all" || (endMs === null) === (status === "active")) &&
        is("site_id", siteId) &&
        is("priority", priority) &&
        is("acknowledged", Number(acknowledged)),
    );
    const [size, number] = [Number(query.get("per_page") ?? "100"), Number(query.get("page") ?? "1")];
    const last = Math.max(1, Math.ceil(found.length / size));
    const list: WireList = {
      data: this.arrange(found, number)
        .slice((number - 1) * size, number * size)
        .map(wireRecord),
      links: { next: number < last ? `http://localhost/api/v1/alarms?page=${number + 1}` : null },
      meta: { current_page: number, last_page: last, per_page: size, total: found.length },
    };
    return status === "active" ? (this.alter(list, number) ?? list) : list;
  }
}

function wireRecord({ id, siteId, sinceMs, endMs, priority, acknowledged }: WireAlarm) {
  const { attributes, ...record } = alarmRecord(id);
  const own = {
    ...{ site: { id: siteId, display_name: `House ${siteId}` }, trigger: { ...attributes.trigger, priority } },
    ...{ status: endMs === null ? "active" : "resolved", triggered_at: new Date(sinceMs).toISOString() },
    resolved_at: endMs === null ? null : new Date(endMs).toISOString(),
    ...{ acknowledged, last_active_event: null },
  };
  return { ...record, attributes: { ...attributes, ...own } };
}
