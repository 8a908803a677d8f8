import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { AlarmFact, Event } from "#src/core/model/event.ts";
import type { StoredPoll } from "#src/engine/sync/snapshot.ts";
import { alarmRecord } from "../source/trial-source.ts";
import { createTrial, START_MS, type TrialSync, type WireList } from "./trial-sync.ts";

/** Lists of active alarms whose pages cannot be walked: read in parts, and told as far as they show. */

const MINUTE = 60_000;
const SIZE = 9;
interface WireAlarm {
  readonly id: string;
  priority: string;
  acknowledged: boolean;
  status: "active" | "resolved";
}
let trial: TrialSync;
let alarms: WireAlarm[];
let nextId: number;

beforeEach(() => {
  alarms = [];
  nextId = 1;
});
afterEach(async () => {
  await trial.stop();
});

function raise(count: number, priority: string, acknowledged = false): readonly WireAlarm[] {
  const raised = Array.from({ length: count }, (): WireAlarm => {
    return { id: String(nextId++), priority, acknowledged, status: "active" };
  });
  alarms.push(...raised);
  return raised;
}

/** The list of alarms as a service of this test answers it, in pages of nine, with every filter of the interface. */
function answer(query: URLSearchParams): WireList {
  const page = Number(query.get("page") ?? "1");
  const found = alarms.filter(
    (alarm) =>
      (query.get("status") === "all" || alarm.status === query.get("status")) &&
      (query.get("priority") ?? alarm.priority) === alarm.priority &&
      (query.get("acknowledged") ?? String(Number(alarm.acknowledged))) === String(Number(alarm.acknowledged)),
  );
  const last = Math.max(1, Math.ceil(found.length / SIZE));
  const data = found.slice((page - 1) * SIZE, page * SIZE).map(({ id, priority, acknowledged, status }) => {
    const { attributes, ...record } = alarmRecord(id);
    const resolved_at = status === "resolved" ? new Date(trial.clock.now()).toISOString() : null;
    const triggered_at = new Date(START_MS).toISOString();
    const trigger = { ...attributes.trigger, priority };
    const site = { id: 3, display_name: "House" };
    const bent = { site, trigger, status, acknowledged, resolved_at, triggered_at, last_active_event: null };
    return { ...record, attributes: { ...attributes, ...bent } };
  });
  return {
    data,
    links: { next: page < last ? `http://localhost/api/v1/alarms?page=${page + 1}` : null },
    meta: { current_page: page, last_page: last, per_page: SIZE, total: found.length },
  };
}

type Trick = (list: WireList, page: number) => unknown;

async function started(trick: Trick): Promise<void> {
  trial = createTrial({ pageSize: SIZE, simulator: { sites: [3], alarms: { recorded: false } } });
  trial.rewriteLists((_list, path, query) => {
    if (!path.endsWith("/alarms")) return;
    const list = answer(query);
    const page = Number(query.get("page") ?? "1");
    return query.get("status") === "active" ? (trick(list, page) ?? list) : list;
  });
  await trial.start();
  await trial.clock.advance(5 * MINUTE);
}

const factOf = (event: Event) => event.data as AlarmFact;
const told = (id: string | undefined) =>
  trial.store.events
    .filter((event) => event.type.startsWith("alarm-") && factOf(event).alarm.id === id)
    .map((event) => event.type);
const count = (type: string) => trial.store.events.filter((event) => event.type === type).length;
const problem = async () => (await trial.store.documents<StoredPoll>("poll/main")).get("alarms")?.problem ?? null;
const activeQueries = (from: number) =>
  trial.requests
    .slice(from)
    .filter(({ path, query }) => path.endsWith("/alarms") && query.get("status") === "active")
    .map(({ query }) => query);

/** Every way in which a pager may lead nowhere, wherever there is more than one page. */
const TRICKS: Readonly<Record<string, Trick>> = {
  "links that lead back": (list) => {
    if (list.links.next !== null) list.links.next = list.links.next.replace(/page=\d+/, "page=1");
  },
  "pages that never advance": (list, page) => {
    if (page > 1) list.meta.current_page = 1;
  },
  "a page size that changes on the way": (list, page) => {
    if (page > 1) list.meta.per_page = 2;
  },
  "more pages than can be read": (list, page) => {
    if (list.meta.last_page === 1) return;
    list.meta.last_page = 100_000;
    list.links.next = `http://localhost/api/v1/alarms?page=${page + 1}`;
    list.data = list.data.map((record) => ({ ...record, id: `${record.id}-${page}` }));
  },
  "a second page that always fails": (_list, page) => {
    if (page > 1) return { errors: [{ status: 500, message: "Try again later." }], data: [] };
  },
  "a second page that is never a list": (_list, page) => {
    if (page > 1) return { data: "none" };
  },
};

describe("a list of active alarms whose pages cannot be followed", () => {
  test.each(Object.entries(TRICKS).filter(([name]) => !name.startsWith("more")))(
    "%s: it is read by priority, then by acknowledgement, and followed as any other",
    async (_name, trick) => {
      raise(5, "A");
      raise(7, "B");
      raise(8, "C");
      const late = raise(8, "C", true);
      await started(trick);
      expect(count("alarm-raised")).toBe(28);
      expect(await problem()).toMatch(/site 3 cannot be walked: they are read by priority and acknowledgement/);
      const [gone] = late;
      if (gone !== undefined) gone.status = "resolved";
      const [fresh] = raise(1, "A");
      await trial.clock.advance(2 * MINUTE);
      expect(told(gone?.id)).toEqual(["alarm-raised", "alarm-resolved"]);
      expect(told(fresh?.id)).toEqual(["alarm-raised"]);
    },
  );

  test.each(Object.entries(TRICKS).filter(([name]) => name.startsWith("a second page")))(
    "%s but in one poll: nothing of it counts then, and the list stays whole",
    async (_name, trick) => {
      raise(12, "B");
      let broken = false;
      await started((list, page) => (broken ? trick(list, page) : undefined));
      const from = trial.requests.length;
      const [fresh] = raise(1, "A");
      broken = true;
      await trial.clock.advance(MINUTE);
      expect(told(fresh?.id)).toEqual([]);
      broken = false;
      await trial.clock.advance(MINUTE);
      expect(told(fresh?.id)).toEqual(["alarm-raised"]);
      expect(activeQueries(from).some((query) => query.has("priority"))).toBe(false);
    },
  );

  test("keeps the working cut: six requests a poll, none for a page that failed before", async () => {
    raise(5, "A");
    raise(7, "B");
    raise(8, "C");
    raise(8, "C", true);
    await started(TRICKS["links that lead back"] ?? (() => {}));
    const from = trial.requests.length;
    await trial.clock.advance(10 * MINUTE);
    const queries = activeQueries(from);
    expect(queries).toHaveLength(20 * 6);
    expect(queries.filter((query) => query.has("page"))).toEqual([]);
  });

  test("emits alarm-vanished for an alarm that no list shows", async () => {
    const [gone] = raise(5, "A");
    raise(7, "B");
    await started(TRICKS["links that lead back"] ?? (() => {}));
    alarms = alarms.filter((alarm) => alarm !== gone);
    await trial.clock.advance(5 * MINUTE);
    // The list of all alarms, whatever their status, can be walked here.
    expect(told(gone?.id)).toEqual(["alarm-raised", "alarm-vanished"]);
  });

  test("emits only the first pages, and no absence, if no part can be read", async () => {
    const shown = raise(9, "A");
    const hidden = raise(9, "A");
    await started(TRICKS["links that lead back"] ?? (() => {}));
    expect(count("alarm-raised")).toBe(9);
    expect(await problem()).toMatch(/of site 3, A, not acknowledged cannot be read beyond their first page/);
    alarms = [...hidden, ...shown];
    await trial.clock.advance(5 * MINUTE);
    expect(count("alarm-raised")).toBe(18);
    expect(count("alarm-vanished")).toBe(0);
    const [gone] = shown;
    if (gone !== undefined) gone.status = "resolved";
    await trial.clock.advance(MINUTE);
    expect(told(gone?.id)).toEqual(["alarm-raised", "alarm-resolved"]);
  });

  test("an alarm of an unknown priority keeps the parts incomplete", async () => {
    raise(5, "A");
    const [strange] = raise(1, "D");
    raise(7, "B");
    await started(TRICKS["links that lead back"] ?? (() => {}));
    expect(told(strange?.id)).toEqual(["alarm-raised"]);
    expect(await problem()).toMatch(/says 13 records and its parts show 12/);
    alarms = [...alarms.filter((alarm) => alarm !== strange), ...alarms.filter((alarm) => alarm === strange)];
    await trial.clock.advance(10 * MINUTE);
    expect(told(strange?.id)).toEqual(["alarm-raised"]);
  });

  test("emits the first twenty pages of a longer list", async () => {
    raise(20, "B");
    await started(TRICKS["more pages than can be read"] ?? (() => {}));
    expect(count("alarm-raised")).toBeGreaterThanOrEqual(9);
    expect(count("alarm-vanished")).toBe(0);
  });

  test("is read uncut again after an hour", async () => {
    raise(5, "A");
    raise(7, "B");
    let broken = true;
    await started((list, page) => (broken ? TRICKS["links that lead back"]?.(list, page) : undefined));
    broken = false;
    await trial.clock.advance(61 * MINUTE);
    expect(await problem()).toBeNull();
    const from = trial.requests.length;
    await trial.clock.advance(5 * MINUTE);
    expect(activeQueries(from).some((query) => query.has("priority"))).toBe(false);
  });
});
