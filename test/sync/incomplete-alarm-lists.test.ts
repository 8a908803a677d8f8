import { describe, expect, test } from "vitest";
import { AlarmService, activeQueries, countOf, emitted, harness, jobProblem, MINUTE } from "./alarm-harness.ts";
import type { WireList } from "./sync-harness.ts";

type Alter = (list: WireList, page: number) => unknown;

const FAULTS = {
  "links that lead back": (list) => {
    if (list.links.next !== null) list.links.next = list.links.next.replace(/page=\d+/, "page=1");
  },
  "pages that never advance": (list, page) => {
    if (page > 1) list.meta.current_page = 1;
  },
  "a page size that changes on the way": (list, page) => {
    if (page > 1) list.meta.per_page = 2;
  },
  "a second page that always fails": (_list, page) => {
    if (page > 1) return { errors: [{ status: 500, message: "Try again later." }], data: [] };
  },
  "a second page that is never a list": (_list, page) => {
    if (page > 1) return { data: "none" };
  },
} satisfies Record<string, Alter>;

/** Starts with alarms of these priorities, lists in pages of nine; five minutes later. */
async function started(priorities: Readonly<Record<string, number>>, alter: Alter = FAULTS["links that lead back"]) {
  const service = new AlarmService();
  const raise = (priority: string, count = 1) =>
    service.raise(count, { siteId: 3, priority: priority.slice(0, 1), acknowledged: priority.endsWith("!") });
  for (const [priority, count] of Object.entries(priorities)) raise(priority, count);
  service.alter = alter;
  await service.start({ pageSize: 9, simulator: { sites: [3], alarms: { recorded: false } } });
  await harness.clock.advance(5 * MINUTE);
  const resolve = (id: string | undefined) => {
    for (const alarm of service.alarms) if (alarm.id === id) alarm.endMs = harness.clock.now();
  };
  return { service, raise, resolve };
}

/** 28 alarms; `!` marks acknowledged ones. */
const MIXED = { A: 5, B: 7, C: 8, "C!": 8 };

describe("a list of active alarms with broken pages", () => {
  test.each(Object.entries(FAULTS))(
    "%s: the worker requests the alarms separately by priority, then by acknowledgement",
    async (_name, alter) => {
      const { service, raise, resolve } = await started(MIXED, alter);
      expect(countOf("raised")).toBe(28);
      expect(await jobProblem()).toMatch(/site 3 cannot be walked: they are read by priority and acknowledgement/);
      const last = service.alarms.at(-1)?.id;
      resolve(last);
      const [fresh] = raise("A");
      await harness.clock.advance(2 * MINUTE);
      expect(emitted(last)).toEqual(["raised", "resolved"]);
      expect(emitted(fresh?.id)).toEqual(["raised"]);
    },
  );

  test.each(Object.entries(FAULTS).filter(([name]) => name.startsWith("a second page")))(
    "%s in one poll only: the worker discards that poll and does not request the alarms by priority",
    async (_name, alter) => {
      let broken = false;
      const { raise } = await started({ B: 12 }, (list, page) => (broken ? alter(list, page) : undefined));
      const from = harness.requests.length;
      const [fresh] = raise("A");
      broken = true;
      await harness.clock.advance(MINUTE);
      expect(emitted(fresh?.id)).toEqual([]);
      broken = false;
      await harness.clock.advance(MINUTE);
      expect(emitted(fresh?.id)).toEqual(["raised"]);
      expect(activeQueries(from).some((query) => query.has("priority"))).toBe(false);
    },
  );

  test("is read with six requests per poll after the split by priority, and without the page that failed before", async () => {
    await started(MIXED);
    const from = harness.requests.length;
    await harness.clock.advance(10 * MINUTE);
    expect(activeQueries(from)).toHaveLength(20 * 6);
    expect(activeQueries(from).filter((query) => query.has("page"))).toEqual([]);
  });

  test("causes alarm-vanished for an alarm that no list by priority contains", async () => {
    const { service } = await started({ A: 5, B: 7 });
    const [gone] = service.alarms;
    service.remove(gone);
    await harness.clock.advance(5 * MINUTE);
    expect(emitted(gone?.id)).toEqual(["raised", "vanished"]);
  });

  test("emits the alarms of first pages, and no alarm-vanished, when every list by priority is incomplete", async () => {
    const { service, resolve } = await started({ A: 18 });
    expect(countOf("raised")).toBe(9);
    expect(await jobProblem()).toMatch(/of site 3, A, not acknowledged cannot be read beyond their first page/);
    const [first] = service.alarms;
    service.alarms = [...service.alarms.slice(9), ...service.alarms.slice(0, 9)];
    await harness.clock.advance(5 * MINUTE);
    expect([countOf("raised"), countOf("vanished")]).toEqual([18, 0]);
    resolve(first?.id);
    await harness.clock.advance(MINUTE);
    expect(emitted(first?.id)).toEqual(["raised", "resolved"]);
  });

  test("keeps an alarm of an unknown priority active and reports it in the status, although no list by priority contains it", async () => {
    const { service } = await started({ A: 5, D: 1, B: 7 });
    const strange = service.alarms.find(({ priority }) => priority === "D");
    expect(emitted(strange?.id)).toEqual(["raised"]);
    expect(await jobProblem()).toMatch(/says 13 records and its parts show 12/);
    service.alarms.sort((a, b) => Number(a === strange) - Number(b === strange));
    await harness.clock.advance(10 * MINUTE);
    expect(emitted(strange?.id)).toEqual(["raised"]);
  });

  test("is requested as one list again after an hour", async () => {
    const { service } = await started({ A: 5, B: 7 });
    service.alter = () => undefined;
    await harness.clock.advance(61 * MINUTE);
    expect(await jobProblem()).toBeNull();
    const from = harness.requests.length;
    await harness.clock.advance(5 * MINUTE);
    expect(activeQueries(from).some((query) => query.has("priority"))).toBe(false);
  });
});
