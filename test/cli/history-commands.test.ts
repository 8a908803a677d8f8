import { DateTime } from "luxon";
import { describe, expect, test } from "vitest";
import type { listBackfills } from "#src/cli/past/backfill-command.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import type { HistoryGap } from "#src/engine/sync/history/history-progress.ts";
import { valueEvent } from "../sample-events.ts";
import { type Harness, onlyLine, QUIET_SITE, type Running, readEvents, servedHarness } from "./plenum.ts";

async function createSetup(parts: object = {}) {
  const { service, cli } = await servedHarness(QUIET_SITE);
  cli.configure({ state: { folder: "state", max_bytes: 1024 ** 2 }, source: { spread: "0s", ...parts } });
  return { service, cli };
}

async function running(where: Harness): Promise<Running> {
  const worker = await where.run();
  await expect.poll(async () => (await where.plenum("status")).stdout).toContain(" 8 tags");
  return worker;
}

type Order = Awaited<ReturnType<typeof listBackfills>>[number];

const list = (where: Harness) => where.json<readonly Order[]>("backfill");

describe("a backfill request", () => {
  test("is accepted, paused, resumed, listed and cancelled, with and without a worker", async () => {
    const { cli: here } = await createSetup({ history: [] });
    const worker = await running(here);
    expect((await here.plenum("backfill", "--pause")).stdout).toContain("until `plenum backfill --resume`");
    const requestOutput = await here.plenum("backfill", "10169", "--from", "2d", "--detach", "--json");
    const { id } = JSON.parse(requestOutput.stdout) as Order;
    expect(requestOutput).toMatchObject({ code: 0, stderr: "" });
    expect(await list(here)).toMatchObject([{ id, paused: true, done: 0, tags: 1, expectedAt: null }]);
    expect((await here.plenum("gaps", "10169")).stdout).toMatch(/^ *1 +10169 .*(requested by|not known yet)/m);
    await worker.stop();
    const resumed = await here.plenum("backfill", "--resume");
    expect([resumed.stdout, onlyLine(resumed.stderr)]).toEqual([
      "The past is fetched again; the worker follows within seconds.\n",
      "No worker is running on this state folder; it is done once one runs (`plenum run`).",
    ]);
    const listOutput = await here.plenum("backfill");
    expect(listOutput.stdout).toMatch(
      new RegExp(
        `^order ${id}, 20\\S+ \\S+ [+-]\\d\\d:\\d\\d( \\([^)]+\\))? to 20\\S+ \\S+ [+-]\\d\\d:\\d\\d( \\([^)]+\\))?, 5m, 1 tags: ░+ 0 %, \\d+ requests left, done about 20\\S+ \\S+ [+-]\\d\\d:\\d\\d( \\([^)]+\\))?\n$`,
      ),
    );
    const stateStore = await openStore({ folder: here.path("state"), clock: systemClock });
    await stateStore.commit({ events: Array.from({ length: 500 }, (_, n) => valueEvent(n)) });
    await stateStore.close();
    expect((await here.plenum("backfill")).stdout).toMatch(/requests left, waiting for the sinks \(plenum outbox\)$/m);
    expect(await here.refusal("backfill", "--from", "1d", "--to", "2d")).toBe("2 --from has to be before --to.");
    expect(await list(here)).toHaveLength(1);
    const cancelled = await here.plenum("backfill", "--cancel", id ?? "");
    expect(cancelled.stdout).toBe(`Order ${id} is cancelled; events that were emitted stay.\n`);
    expect((await here.plenum("backfill")).stdout).toBe("No history is left to fetch.\n");
  });

  test("survives a worker restart, finishes during live reads, and emits its history once, as backfill", async () => {
    const { service, cli: here } = await createSetup({ read: [{ name: "all", every: "1m" }] });
    const firstWorker = await running(here);
    await here.plenum("backfill", "--pause");
    // Ages would name another range half a minute later.
    const today = DateTime.utc().startOf("day");
    const rangeOptions = ["--from", today.minus({ days: 3 }).toISO(), "--to", today.minus({ days: 1 }).toISO()];
    const requestOutput = await here.plenum("backfill", "10169", "10170", ...rangeOptions, "--detach", "--json");
    expect(requestOutput.code).toBe(0);
    await firstWorker.stop();
    await here.plenum("backfill", "--resume");
    const secondWorker = await running(here);
    const areDone = async () => (await list(here)).map(({ doneAt, done }) => doneAt !== null && done === 1);
    await expect.poll(areDone).toEqual([true]);
    expect((await here.plenum("backfill")).stdout).toMatch(
      /^order \S+, .*, 5m: done at 20\S+ \S+ [+-]\d\d:\d\d( \([^)]+\))?\n$/,
    );
    expect((await here.plenum("gaps")).stdout).not.toContain("requested by");
    const waitOutput = await here.plenum("backfill", "10169", ...rangeOptions);
    expect(waitOutput.code).toBe(0);
    expect(waitOutput.stderr).toMatch(
      /^Order \S+\. Ctrl-C ends the waiting, not the backfill\.\n[\s\S]*^Order \S+ is done\.$/m,
    );
    await secondWorker.stop();
    const historyEvents = readEvents(here.path("events")).filter((event) => event.type === "tag-history");
    expect(new Set(historyEvents.map(({ data }) => data.tag.id))).toEqual(new Set(["10169", "10170"]));
    expect(new Set(historyEvents.map(({ data }) => data.origin))).toEqual(new Set(["backfill"]));
    const points = historyEvents.flatMap(({ data }) => data.points.map(({ time }) => `${data.tag.id} ${time}`));
    expect(points.length).toBe(96);
    expect(new Set(points).size).toBe(points.length);
    expect(service.simulator.truth.requests().filter(({ errorStatus }) => errorStatus !== null)).toEqual([]);
  });
});

test("plenum complete prints for each day of a site whether its history is complete, and exits with code 3 while a day is incomplete", async () => {
  const { cli: here } = await createSetup({
    history: [{ name: "log", resolution: "1h", every: "1h", backfill: "3d", look_back: "1h" }],
  });
  const worker = await running(here);
  const today = new Date().toISOString().slice(0, 10);
  const openDay = await here.plenum("complete", "--date", today, "--site", "6");
  expect(openDay.code).toBe(3);
  expect(openDay.stdout).toMatch(
    /^site +day \(UTC\) +state +expected +had +null +absent +no log +refused +pending +worst\n/,
  );
  expect(openDay.stdout).toMatch(new RegExp(`^6 +${today} +incomplete .*(not closed yet|not known yet)`, "m"));
  const yesterday = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
  const of = async () => {
    const { code, stdout } = await here.plenum("complete", "--date", yesterday, "--json");
    return { code, row: (JSON.parse(stdout) as { had: number; null: number; absent: number }[])[0] };
  };
  await expect.poll(async () => (await of()).code, { interval: 1_000 }).toBe(0);
  const { row } = await of();
  expect(row).toMatchObject({ date: yesterday, complete: true, expected: 192, pending: 0, refused: 0, worst: [] });
  // The recordings have hours without a value; which day depends on today's date.
  expect((row?.had ?? 0) + (row?.null ?? 0) + (row?.absent ?? 0)).toBe(192);
  for (const [line, message] of [
    [["--date", "2026-02-30"], "Write a UTC day as 2026-11-02."],
    [["--date", today, "--to", today], "Say either --date, or --from and --to."],
    [["--from", "2026-03-02", "--to", "2026-03-01"], "The first day is after the last one."],
  ] as const) {
    const slip = await here.plenum("complete", ...line);
    expect([slip.code, slip.stderr]).toEqual([2, expect.stringContaining(message)]);
  }

  await worker.stop();
});

test("plenum gaps groups history gaps by reason, prints one line for each named tag, and lists all gaps as JSON", async () => {
  const { cli: here } = await createSetup({
    history: [{ name: "log", resolution: "5m", every: "1h", backfill: "30d" }],
  });
  const worker = await running(here);
  const gapsOutput = await here.plenum("gaps");
  expect(gapsOutput.stdout).toMatch(/^tags +for one +resolution +from +to +why\n/);
  expect(gapsOutput.stdout).toMatch(/^ *\d +101\d\d .* 5m /m);
  const holes = await here.json<HistoryGap[]>("gaps");
  expect(new Set(holes.map(({ tagId }) => tagId)).size).toBeGreaterThan(1);
  const one = await here.json<HistoryGap[]>("gaps", "10169");
  expect(one.every(({ tagId, resolution }) => tagId === "10169" && resolution === "5m")).toBe(true);
  await worker.stop();
  expect((await here.plenum("gaps")).code).toBe(0);
});
