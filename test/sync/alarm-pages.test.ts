import { afterEach, describe, expect, test } from "vitest";
import type { AlarmFact, Event } from "#src/core/model/event.ts";
import { documentSet } from "#src/engine/store/store.ts";
import type { StoredPoll } from "#src/engine/sync/snapshot.ts";
import { alarmRecord } from "../source/trial-source.ts";
import { ALARMS_ONLY, createTrial, START_MS, type TrialSync, type WireList } from "./trial-sync.ts";

/** Active alarms on more than one page, of many sites: emitted page by page, and ended only by complete lists. */

const MINUTE = 60_000;
let trial: TrialSync;
afterEach(async () => {
  await trial.stop();
});

interface WireAlarm {
  readonly id: string;
  readonly siteId: number;
  readonly sinceMs: number;
  endMs: number | null;
}

/** A service of this test: it lists its alarms in pages of 500, in an order that a test decides. */
class Service {
  readonly alarms: WireAlarm[] = [];
  readonly siteIds: readonly number[];
  arrange: (alarms: readonly WireAlarm[], page: number) => readonly WireAlarm[] = (alarms) => alarms;
  trick: (list: WireList, page: number) => unknown = () => undefined;

  constructor(sites: number) {
    this.siteIds = Array.from({ length: sites }, (_, n) => 2 + n * 1_000_000);
  }

  raise(count: number, sinceMs = START_MS - MINUTE): readonly WireAlarm[] {
    const raised = Array.from({ length: count }, (_, n): WireAlarm => {
      const id = String(this.alarms.length + n + 1);
      const siteId = this.siteIds[(this.alarms.length + n) % this.siteIds.length] ?? 1;
      return { id, siteId, sinceMs, endMs: null };
    });
    this.alarms.push(...raised);
    return raised;
  }

  answer(path: string, query: URLSearchParams): unknown {
    if (!path.endsWith("/alarms")) return;
    const status = query.get("status");
    const siteId = query.get("site_id");
    const found = this.alarms.filter(
      (alarm) =>
        (status === "all" || (alarm.endMs === null) === (status === "active")) &&
        (siteId === null || String(alarm.siteId) === siteId),
    );
    const number = Number(query.get("page") ?? "1");
    const answer = page(this.arrange(found, number).map(wireAlarm), query);
    return status === "active" ? (this.trick(answer, number) ?? answer) : answer;
  }
}

function wireAlarm({ id, siteId, sinceMs, endMs }: WireAlarm) {
  const { attributes, ...record } = alarmRecord(id);
  const bent = {
    site: { id: siteId, display_name: `House ${siteId}` },
    status: endMs === null ? "active" : "resolved",
    triggered_at: new Date(sinceMs).toISOString(),
    resolved_at: endMs === null ? null : new Date(endMs).toISOString(),
    acknowledged: false,
    acknowledged_by: null,
    acknowledged_message: null,
    acknowledged_at: null,
    last_active_event: null,
  };
  return { ...record, attributes: { ...attributes, ...bent } };
}

function page(all: readonly unknown[], query: URLSearchParams): WireList {
  const size = Number(query.get("per_page") ?? "100");
  const number = Number(query.get("page") ?? "1");
  const last = Math.max(1, Math.ceil(all.length / size));
  return {
    data: all.slice((number - 1) * size, number * size),
    links: { next: number < last ? `http://localhost/api/v1/alarms?page=${number + 1}` : null },
    meta: { current_page: number, last_page: last, per_page: size, total: all.length },
  };
}

async function started(service: Service, sync = {}, latencyMs = 50): Promise<void> {
  trial = createTrial({
    latencyMs: () => latencyMs,
    simulator: { sites: [2], replicate: service.siteIds.length, alarms: { recorded: false } },
    sync: {
      ...ALARMS_ONLY,
      schedules: { ...ALARMS_ONLY.schedules, resolved_sweep: "15 */10 * * * *" },
      ...sync,
    },
  });
  trial.rewriteLists((_list, path, query) => service.answer(path, query));
  await trial.start();
}

/** A token of all sites of the service, and alarms that are listed from the start. */
async function startedWith(service: Service, count: number): Promise<void> {
  service.raise(count);
  await started(service);
}

const idOf = (event: Event) => (event.data as AlarmFact).alarm.id;
const raised = () => trial.events("alarm-raised").map(idOf);
const told = (id: string | undefined) =>
  trial.store.events.filter((event) => event.type.startsWith("alarm-") && idOf(event) === id).map(({ type }) => type);
const problem = async () =>
  (await trial.store.documents<StoredPoll>(documentSet("poll", "main"))).get("alarms")?.problem ?? null;
const activeLists = (from = 0) =>
  trial.requests.slice(from).filter(({ path, query }) => path.endsWith("/alarms") && query.get("status") === "active");

describe("700 active alarms of 300 sites", () => {
  test("are emitted within one poll interval, and polled with two requests after that", async () => {
    const service = new Service(300);
    await startedWith(service, 700);
    await trial.clock.advance(30_000);
    expect(new Set(raised()).size).toBe(700);
    const [fresh] = service.raise(1, trial.clock.now());
    await trial.clock.advance(31_000);
    expect(told(fresh?.id)).toEqual(["alarm-raised"]);
    const from = trial.requests.length;
    await trial.clock.advance(10 * MINUTE);
    expect(activeLists(from)).toHaveLength(20 * 2);
    expect(raised()).toHaveLength(701);
  });

  test("an end is emitted when the service states it, and an alarm that is deleted vanishes after two polls", async () => {
    const service = new Service(300);
    await startedWith(service, 700);
    await trial.clock.advance(2 * MINUTE);
    const [ends, goes] = service.alarms;
    if (ends !== undefined) ends.endMs = trial.clock.now();
    service.alarms.splice(service.alarms.indexOf(goes as WireAlarm), 1);
    await trial.clock.advance(3 * MINUTE);
    expect(told(ends?.id)).toEqual(["alarm-raised", "alarm-resolved"]);
    expect(told(goes?.id)).toEqual(["alarm-raised", "alarm-vanished"]);
    expect(trial.events("alarm-vanished")).toHaveLength(1);
  });
});

describe("pages that fail", () => {
  test.each([
    ["from the start", 0],
    ["after ten good polls", 5 * MINUTE],
  ])("an alarm on page 2 is emitted although page 3 fails (%s)", async (_when, afterMs) => {
    const service = new Service(1);
    service.raise(1_400);
    await started(service);
    service.trick = (_list, number) =>
      number === 3 && trial.clock.now() >= START_MS + afterMs
        ? { errors: [{ status: 500, message: "Try again later." }], data: [] }
        : undefined;
    await trial.clock.advance(afterMs + 20_000);
    const [fresh] = service.raise(1, trial.clock.now());
    // On page 2, whatever comes after it.
    service.arrange = (alarms) => {
      const rest = alarms.filter(({ id }) => id !== fresh?.id);
      return rest.length === alarms.length ? rest : [...rest.slice(0, 700), fresh as WireAlarm, ...rest.slice(700)];
    };
    await trial.clock.advance(MINUTE);
    expect(told(fresh?.id)).toEqual(["alarm-raised"]);
    await trial.clock.advance(10 * MINUTE);
    expect(trial.events("alarm-vanished", "alarm-resolved")).toEqual([]);
    expect(trial.store.repeated).toEqual([]);
  });

  test("a page whose commit failed is committed later, each alarm once", async () => {
    const service = new Service(3);
    service.raise(1_400);
    await started(service);
    const { commit } = trial.store;
    let commits = 0;
    trial.store.commit = (change) => {
      const news = (change.events ?? []).some(({ type }) => type === "alarm-raised");
      if (news) commits += 1;
      return news && commits === 2 ? Promise.reject(new Error("The disk is full.")) : commit(change);
    };
    await trial.clock.advance(MINUTE);
    expect(raised()).toHaveLength(1_400);
    expect(new Set(raised()).size).toBe(1_400);
  });
});

describe("a list whose order changes with each page", () => {
  function shuffled(seed: number) {
    let state = seed;
    return (alarms: readonly WireAlarm[]) => {
      const mixed = [...alarms];
      for (let i = mixed.length - 1; i > 0; i -= 1) {
        state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
        const j = state % (i + 1);
        [mixed[i], mixed[j]] = [mixed[j] as WireAlarm, mixed[i] as WireAlarm];
      }
      return mixed;
    };
  }

  test("causes no false end; sites are listed singly, and the status says why", async () => {
    const service = new Service(30);
    service.raise(700);
    service.arrange = shuffled(7);
    await started(service);
    await trial.clock.advance(10 * MINUTE);
    expect(new Set(raised()).size).toBe(700);
    expect(raised()).toHaveLength(700);
    expect(trial.events("alarm-vanished", "alarm-resolved")).toEqual([]);
    expect(await problem()).toMatch(
      /pages of the list of active alarms cannot be trusted, so sites are listed one by one, 10 of 30 at each poll\. Records are on two pages, or on none\./,
    );
    const [ends, goes] = service.alarms;
    if (ends !== undefined) ends.endMs = trial.clock.now();
    service.alarms.splice(service.alarms.indexOf(goes as WireAlarm), 1);
    await trial.clock.advance(10 * MINUTE);
    expect(told(ends?.id)).toEqual(["alarm-raised", "alarm-resolved"]);
    expect(told(goes?.id)).toEqual(["alarm-raised", "alarm-vanished"]);
    expect(trial.events("alarm-vanished")).toHaveLength(1);
  });

  test("stays trusted when its pages arrive more than 10 s apart", async () => {
    const service = new Service(30);
    service.raise(700);
    service.arrange = shuffled(7);
    await started(service, {}, 11_000);
    await trial.clock.advance(10 * MINUTE);
    expect(new Set(raised()).size).toBe(700);
    expect(await problem()).not.toContain("cannot be trusted");
  });

  test("is trusted again when its pages are steady", async () => {
    const service = new Service(30);
    service.raise(700);
    service.arrange = shuffled(11);
    await started(service);
    await trial.clock.advance(5 * MINUTE);
    service.arrange = (alarms) => alarms;
    await trial.clock.advance(5 * MINUTE);
    expect(await problem()).toBeNull();
    const from = trial.requests.length;
    await trial.clock.advance(5 * MINUTE);
    expect(activeLists(from).some(({ query }) => query.has("site_id"))).toBe(false);
  });

  test("lists sites singly when the service ignores the page number", async () => {
    const service = new Service(5);
    service.raise(1_100);
    service.arrange = (alarms, number) => {
      const first = alarms.slice(0, 500);
      return number > 1 ? [...first, ...first, ...first].slice(0, alarms.length) : alarms;
    };
    await started(service);
    await trial.clock.advance(5 * MINUTE);
    expect(new Set(raised()).size).toBe(1_100);
    expect(await problem()).toMatch(
      /each site is listed by itself\. A later page shows the records of an earlier one\./,
    );
    expect(trial.events("alarm-vanished")).toEqual([]);
  });

  test("lists sites singly when the stated total changes and the records do not", async () => {
    const service = new Service(5);
    service.raise(700);
    service.trick = (list, number) => {
      // A list of one page states the right number.
      if (list.meta.last_page > 1) list.meta.total += number;
    };
    await started(service);
    await trial.clock.advance(5 * MINUTE);
    expect(await problem()).toMatch(/The number of records changes, and the records do not\./);
    const [goes] = service.alarms.splice(0, 1);
    await trial.clock.advance(3 * MINUTE);
    expect(told(goes?.id)).toEqual(["alarm-raised", "alarm-vanished"]);
  });
});

describe("10,000 active alarms of one site", () => {
  test("the first are emitted when the first page arrives, all of them with one reading of 20 pages", async () => {
    const service = new Service(1);
    service.raise(10_000);
    await started(service);
    await trial.clock.advance(1_000);
    expect(raised().length).toBeGreaterThanOrEqual(500);
    await trial.clock.advance(9_000);
    expect(new Set(raised()).size).toBe(10_000);
  });

  test("states in the status how often alarms are polled when pages exceed the rate", async () => {
    const service = new Service(1);
    service.raise(10_000);
    await started(service);
    await trial.clock.advance(10 * MINUTE);
    expect(await problem()).toMatch(
      /Alarms are polled every (3[5-9]|4\d|5\d|60) s instead of every 30 s: a poll reads 20 pages, and 30 lists a minute are configured\./,
    );
  });
});

describe("the first poll", () => {
  test("an alarm that begins after its request and ends before its commit is emitted, by the service's clock", async () => {
    const service = new Service(1);
    service.raise(3_000);
    await started(service);
    // Page 1 is read, and the complete list is not committed yet.
    await trial.clock.advance(200);
    const [brief] = service.raise(1, trial.clock.now());
    const last = service.alarms.pop();
    await trial.clock.advance(20);
    if (last !== undefined) {
      last.endMs = trial.clock.now();
      service.alarms.push(last);
    }
    await trial.clock.advance(15 * MINUTE);
    expect(told(brief?.id)).toEqual(["alarm-raised", "alarm-resolved"]);
  });
});

test("rejections with `Retry-After: 0` do not delay polls", async () => {
  trial = createTrial({ sync: ALARMS_ONLY });
  await trial.start();
  await trial.clock.advance(2 * MINUTE);
  const { control } = trial.simulator;
  for (let n = 0; n < 3; n += 1) {
    control.setFaults([
      {
        match: { endpoints: ["alarms"] },
        when: { count: 1 },
        fault: { kind: "throttled", retry_after_s: 0 },
      },
    ]);
    await trial.clock.advance(20_000);
  }
  await trial.clock.advance(5_000);
  expect(trial.source().listRate()).toEqual({ perMinute: 30, configured: 30 });
  const from = trial.requests.length;
  await trial.clock.advance(10 * MINUTE);
  expect(activeLists(from)).toHaveLength(20);
  expect(await problem()).toBeNull();
});

test("the status says how often alarms are polled when the service lowered the rate", async () => {
  const service = new Service(1);
  service.raise(5_000);
  await started(service);
  await trial.clock.advance(MINUTE);
  trial.simulator.control.setFaults([
    { match: { endpoints: ["alarms"] }, when: { count: 1 }, fault: { kind: "throttled", retry_after_s: 20 } },
  ]);
  await trial.clock.advance(9 * MINUTE);
  expect(await problem()).toMatch(
    /Alarms are polled every \d+ s instead of every 30 s: a poll reads 10 pages, and the service allows 1\d lists a minute\./,
  );
});
