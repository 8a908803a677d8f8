import { describe, expect, test } from "vitest";
import { seededRandom } from "../commands/seeded-random.ts";
import { AlarmService, activeQueries, emitted, harness, idOf, jobProblem, MINUTE } from "./alarm-harness.ts";
import { ALARMS_ONLY } from "./sync-harness.ts";

async function started(
  sites: number,
  alarms: number,
  prepare: (service: AlarmService) => void = () => {},
  latencyMs = 50,
) {
  const service = new AlarmService(sites);
  service.raise(alarms);
  prepare(service);
  await service.start({
    latencyMs: () => latencyMs,
    simulator: { sites: [2], replicate: sites, alarms: { recorded: false } },
    sync: { ...ALARMS_ONLY, schedules: { ...ALARMS_ONLY.schedules, resolved_sweep: "15 */10 * * * *" } },
  });
  return service;
}

const PAGE_FAILURE = { errors: [{ status: 500, message: "Try again later." }], data: [] };
const raised = () => harness.events("alarm-raised").map(idOf);

async function expectEndAndVanish(service: AlarmService, afterMs: number) {
  const [ends, goes] = service.alarms;
  if (ends !== undefined) ends.endMs = harness.clock.now();
  service.remove(goes);
  await harness.clock.advance(afterMs);
  expect(emitted(ends?.id)).toEqual(["raised", "resolved"]);
  expect(emitted(goes?.id)).toEqual(["raised", "vanished"]);
  expect(harness.events("alarm-vanished")).toHaveLength(1);
}

test("emits 700 alarms of 300 sites within one poll interval, then their ends, with two requests per poll", async () => {
  const service = await started(300, 700);
  await harness.clock.advance(30_000);
  expect(new Set(raised()).size).toBe(700);
  const [fresh] = service.raise(1, { sinceMs: harness.clock.now() });
  await harness.clock.advance(31_000);
  expect(emitted(fresh?.id)).toEqual(["raised"]);
  const from = harness.requests.length;
  await harness.clock.advance(10 * MINUTE);
  expect(activeQueries(from)).toHaveLength(20 * 2);
  expect(raised()).toHaveLength(701);
  await expectEndAndVanish(service, 3 * MINUTE);
});

test("emits a new alarm on page 2 while page 3 fails, also after the worker splits the list into smaller lists", async () => {
  const service = await started(1, 1_400);
  service.alter = ({ data }) => (data.some(({ id }) => Number(id) > 1_000 && id !== "1401") ? PAGE_FAILURE : undefined);
  await harness.clock.advance(20_000);
  service.raiseAt(700);
  await harness.clock.advance(MINUTE);
  expect(emitted("1401")).toEqual(["raised"]);
  await harness.clock.advance(10 * MINUTE);
  expect(harness.events("alarm-vanished", "alarm-resolved")).toEqual([]);
});

test.each([
  ["one page", 1, 40, 20, 30],
  ["one page of 304 sites", 304, 400, 20, 300],
  ["the second page, directly before it", 304, 1_200, 520, 519],
  ["the second page, after it", 304, 1_200, 520, 900],
])("emits new alarms although one record makes its page fail: %s", async (...[, sites, alarms, bad, fresh]) => {
  const service = await started(sites, alarms);
  service.alter = ({ data }) => (data.some(({ id }) => id === String(bad)) ? PAGE_FAILURE : undefined);
  await harness.clock.advance(10 * MINUTE);
  for (let n = 0; n < 5; n++) {
    const newAlarm = service.raiseAt(fresh);
    // A poll needs up to 23 requests, which take 46 s at 30 lists a minute.
    await harness.clock.advance(2 * 46_000 + n * 7_000);
    expect(emitted(newAlarm?.id)).toEqual(["raised"]);
  }
  expect(harness.events("alarm-vanished", "alarm-resolved")).toEqual([]);
  expect(harness.store.repeated).toEqual([]);
  expect(await jobProblem()).toContain("that cannot be read: 1, such as record");
});

describe("a list of active alarms with inconsistent pages", () => {
  function shuffled(seed: number) {
    const random = seededRandom(seed);
    return (service: AlarmService) => {
      service.arrange = (alarms) =>
        alarms
          .map((alarm) => ({ alarm, order: random() }))
          .sort((one, other) => one.order - other.order)
          .map(({ alarm }) => alarm);
    };
  }

  test("with a different order on each page, causes no false end; each site is listed separately, as the status states", async () => {
    const service = await started(30, 700, shuffled(7));
    await harness.clock.advance(10 * MINUTE);
    expect([raised().length, new Set(raised()).size]).toEqual([700, 700]);
    expect(harness.events("alarm-vanished", "alarm-resolved")).toEqual([]);
    expect(await jobProblem()).toMatch(
      /pages of the list of active alarms cannot be trusted, so sites are listed one by one, 10 of 30 at each poll\. Records are on two pages, or on none\./,
    );
    await expectEndAndVanish(service, 10 * MINUTE);
  });

  test("with a different order on each page, is not reported when its pages arrive more than 10 s apart", async () => {
    await started(30, 700, shuffled(7), 11_000);
    await harness.clock.advance(10 * MINUTE);
    expect(new Set(raised()).size).toBe(700);
    expect(await jobProblem()).not.toContain("cannot be trusted");
  });

  test("is requested for all sites together again once its pages are consistent", async () => {
    const service = await started(30, 700, shuffled(11));
    await harness.clock.advance(5 * MINUTE);
    service.arrange = (alarms) => alarms;
    await harness.clock.advance(5 * MINUTE);
    expect(await jobProblem()).toBeNull();
    const from = harness.requests.length;
    await harness.clock.advance(5 * MINUTE);
    expect(activeQueries(from).some((query) => query.has("site_id"))).toBe(false);
  });

  test.each<[string, (service: AlarmService) => void, RegExp]>([
    [
      "the service ignores the page number",
      (service) => {
        service.arrange = (alarms, number) => {
          const first = alarms.slice(0, 500);
          return number > 1 ? [...first, ...first, ...first].slice(0, alarms.length) : alarms;
        };
      },
      /each site is listed by itself\. A later page shows the records of an earlier one\./,
    ],
    [
      "the stated total changes and the records do not",
      (service) => {
        service.alter = ({ meta }, number) => {
          if (meta.last_page > 1) meta.total += number;
        };
      },
      /The number of records changes, and the records do not\./,
    ],
  ])("makes the worker list each site separately when %s", async (_what, prepare, message) => {
    const service = await started(5, 1_100, prepare);
    await harness.clock.advance(5 * MINUTE);
    expect(new Set(raised()).size).toBe(1_100);
    expect(await jobProblem()).toMatch(message);
    expect(harness.events("alarm-vanished")).toEqual([]);
    await expectEndAndVanish(service, 3 * MINUTE);
  });
});

test("with 10,000 alarms of one site, emits the alarms of each page on arrival, and all after reading 20 pages once", async () => {
  await started(1, 10_000);
  await harness.clock.advance(1_000);
  expect(raised().length).toBeGreaterThanOrEqual(500);
  await harness.clock.advance(9_000);
  expect(new Set(raised()).size).toBe(10_000);
  await harness.clock.advance(10 * MINUTE);
  expect(await jobProblem()).toMatch(
    /Alarms are polled every (3[5-9]|4\d|5\d|60) s instead of every 30 s: a poll reads 20 pages, and 30 lists a minute are configured\./,
  );
});

test("emits an alarm that begins after the first request of a poll and ends before the commit of the poll", async () => {
  const service = await started(1, 3_000);
  await harness.clock.advance(200);
  const [brief] = service.raise(1, { sinceMs: harness.clock.now() });
  await harness.clock.advance(20);
  if (brief !== undefined) brief.endMs = harness.clock.now();
  await harness.clock.advance(15 * MINUTE);
  expect(emitted(brief?.id)).toEqual(["raised", "resolved"]);
});

test("the status states the longer poll interval when the service lowered the rate limit of lists", async () => {
  await started(1, 5_000);
  await harness.clock.advance(MINUTE);
  harness.control.setFaults([
    { match: { endpoints: ["alarms"] }, when: { count: 1 }, fault: { kind: "throttled", retry_after_s: 20 } },
  ]);
  await harness.clock.advance(9 * MINUTE);
  expect(await jobProblem()).toMatch(
    /Alarms are polled every \d+ s instead of every 30 s: a poll reads 10 pages, and the service allows 1\d lists a minute\./,
  );
});
