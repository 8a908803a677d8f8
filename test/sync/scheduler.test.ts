import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { ConfigError, Malformed, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import type { Source } from "#src/engine/source/source.ts";
import { createCronTicker } from "#src/engine/sync/cron-schedule.ts";
import type { LoopJob, SyncJob } from "#src/engine/sync/job.ts";
import { createJobScheduler } from "#src/engine/sync/job-scheduler.ts";
import { createServiceAvailability } from "#src/engine/sync/service-availability.ts";
import { createServiceOutage } from "#src/engine/sync/service-outage.ts";
import type { StoredJob } from "#src/engine/sync/stored-documents.ts";
import { createSyncState } from "#src/engine/sync/sync-state.ts";
import { createTokenScope } from "#src/engine/sync/token-scope.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";
import { createMemoryStore } from "./memory-store.ts";

const START = Date.UTC(2026, 0, 1);

async function schedule(
  build: (clock: VirtualClock) => readonly SyncJob[],
  spreadMs = 0,
  followers: readonly LoopJob[] = [],
  reconcile: Parameters<typeof createServiceOutage>[0]["alarmReconciler"] = () => null,
) {
  const clock = createVirtualClock(START);
  const store = createMemoryStore();
  const metrics = createMetrics();
  const log = pino({ level: "silent" });
  const holding = await createSyncState(store, ["availability/main", "poll/main"]);
  const availability = createServiceAvailability("main", holding, clock);
  const service = { me: async () => ({ sites: [], abilities: ["read:tags"] }) as unknown };
  const health = async () => ({ status: "unhealthy", time: null });
  const source = { name: "main", me: () => service.me(), health } as unknown as Source;
  const scope = createTokenScope(source, clock);
  scope.learn({ sites: [], abilities: ["read:tags"] });
  const random = () => 0.5;
  const noteHealth = async () => undefined;
  const about = { source, clock, log, random, availability, scope };
  const outage = createServiceOutage({ ...about, noteHealth, alarmReconciler: reconcile, tokenStamp: null });
  const scheduler = createJobScheduler({
    ...{ source: "main", clock, log, metrics, random, spreadMs, outage, availability, scope, loopJobs: followers },
    jobs: build(clock),
    ticker: createCronTicker(clock, createClockCheck({ clock, log })),
    storedState: (job) => holding.get<StoredJob>("poll/main").get(job),
    storeState: (job, state) => void holding.putDeferred("poll/main", job, state),
  });
  await scheduler.start(new AbortController().signal);
  const state = (job: string) => holding.get<StoredJob>("poll/main").get(job);
  return { clock, store, metrics, scheduler, scope, service, state };
}

function job(name: string, run: SyncJob["run"], more: Partial<SyncJob> = {}): SyncJob {
  return { name, schedule: "* * * * *", firstRun: false, run, ...more };
}

const ok = async () => ({ kind: "ok" }) as const;
const HOURLY = { firstRun: true, schedule: "0 * * * *" };
const unreachable = async () => {
  throw new Retryable("unreachable");
};
const ended = (draining: AbortSignal) =>
  new Promise((resolve) => draining.addEventListener("abort", resolve, { once: true }));

const seconds = (clock: { now(): number }) => (clock.now() - START) / 1_000;

/** A job that notes its name and start in `runs` and takes so many milliseconds. */
function timed(time: VirtualClock, runs: string[], name: string, ms: number, more: Partial<SyncJob> = {}, end = ok) {
  const run: SyncJob["run"] = async (signal) => {
    runs.push(`${name} ${seconds(time)}`);
    await time.sleep(ms, signal);
    return end();
  };
  return job(name, run, more);
}

describe("jobs of the scheduler", () => {
  test("executes the first run of each job one after the other, in order, also after a failure", async () => {
    const runs: string[] = [];
    const { clock } = await schedule((time) => {
      const slow = (name: string, end = ok) => timed(time, runs, name, 3_000, HOURLY, end);
      return [slow("token"), slow("sites", unreachable), slow("alarms"), { ...slow("off"), schedule: false }];
    });
    await clock.advance(10_000);
    expect(runs).toEqual(["token 0", "sites 3", "alarms 6"]);
  });

  test("a long first run does not delay other jobs, and a run requested meanwhile follows the long run", async () => {
    const runs: string[] = [];
    const { clock, scope } = await schedule((time) => [
      timed(time, runs, "tags", 20_000, { ...HOURLY, isLong: true }),
      timed(time, runs, "alarms", 3_000, HOURLY),
      timed(time, runs, "gateways", 3_000, HOURLY),
    ]);
    await clock.advance(10_000);
    expect(runs).toEqual(["tags 0", "alarms 0", "gateways 3"]);
    scope.learn({ sites: [{ id: 1, displayName: "House" }], abilities: ["read:tags"] });
    const ofTags = () => runs.filter((run) => run.startsWith("tags"));
    await clock.advance(5_000);
    expect(ofTags()).toEqual(["tags 0"]);
    await clock.advance(10_000);
    expect(ofTags()).toEqual(["tags 0", "tags 20"]);
  });

  test("skips and counts the ticks during a run that takes longer than its interval", async () => {
    let atOnce = 0;
    let most = 0;
    const { clock, metrics } = await schedule((time) => [
      job("slow", async (signal) => {
        atOnce += 1;
        most = Math.max(most, atOnce);
        await time.sleep(150_000, signal);
        atOnce -= 1;
        return ok();
      }),
    ]);
    await clock.advance(3_600_000);
    expect(most).toBe(1);
    expect(await metrics.registry.getSingleMetricAsString("plenum_polls_total")).toMatch(/outcome="overlap"[^\n]* 4\d/);
  });

  test("runs each job with a constant delay after its tick, shorter than the configured spread", async () => {
    const times = new Map<string, number[]>();
    const names = ["a", "b", "c", "d", "e"];
    const { clock } = await schedule(
      (time) =>
        names.map((name) =>
          job(name, async () => {
            times.set(name, [...(times.get(name) ?? []), Math.round((seconds(time) % 60) * 1_000) / 1_000]);
            return ok();
          }),
        ),
      5_000,
    );
    await clock.advance(600_000);
    const offsets = names.map((name) => new Set(times.get(name)));
    for (const own of offsets) expect(own.size).toBe(1);
    expect(new Set(offsets.map(([...own]) => own[0])).size).toBeGreaterThan(3);
    expect(Math.max(...offsets.flatMap((own) => [...own]))).toBeLessThan(5);
  });

  test("retries a temporary failure soon and then less often, in addition to the ticks", async () => {
    const runs: number[] = [];
    const run = (time: VirtualClock) => async () => (runs.push(seconds(time)) < 4 ? unreachable() : ok());
    const { clock, state } = await schedule((time) => [
      job("tags", run(time), { firstRun: true, schedule: "0 0 * * *" }),
    ]);
    await clock.advance(1_000);
    expect(state("tags")).toMatchObject({ lastSuccess: null, problem: "unreachable" });
    await clock.advance(3_600_000);
    expect(runs).toHaveLength(4);
    expect(runs[1]).toBeLessThan(16);
    expect(state("tags")?.problem).toBeNull();
  });

  test.each([
    [25_000, [10, 35, 40, 50, 60, 70]],
    [200_000, [10, 70]],
  ])("runs the job again after the requested wait of %i ms, at the latest after a minute", async (waitMs, times) => {
    const runs: number[] = [];
    const { clock } = await schedule((time) => {
      const run = async () => {
        if (runs.push(seconds(time)) === 1) throw new Throttled("wait", waitMs);
        return ok();
      };
      return [job("live", run, { schedule: "*/10 * * * * *" })];
    });
    await clock.advance(75_000);
    // A tick and the end of the back-off may coincide.
    expect([...new Set(runs)]).toEqual(times);
  });

  test("pauses a refused job for 15 minutes, names the missing permission, and runs the other jobs", async () => {
    const runs: number[] = [];
    let others = 0;
    const { clock, store, state } = await schedule((time) => {
      const refuse = async () => {
        runs.push(seconds(time));
        throw new ConfigError("403.", { reason: "forbidden" });
      };
      const count = async () => {
        others += 1;
        return ok();
      };
      return [job("gateways", refuse, { ability: "read:gateways" }), job("alarms", count)];
    });
    await clock.advance(3_600_000);
    expect(runs).toEqual([60, 960, 1860, 2760]);
    expect(others).toBe(60);
    expect(state("gateways")?.problem).toBe("403. The token lacks read:gateways.");
    expect(store.events.map((event) => `${event.type} ${event.subject}`)).toEqual([
      "source-unavailable feature/gateways",
    ]);
  });

  test("requests the token information at most once a minute while continuous tasks (followers) fail", async () => {
    const follow = async () => {
      throw new Malformed("A page.", "<html>");
    };
    const followers = ["live", "history"].map((name) => ({ name, follow }));
    const { clock, store, service } = await schedule(() => [job("alarms", ok)], 0, followers);
    const requests: number[] = [];
    const { me } = service;
    service.me = () => {
      requests.push(seconds(clock));
      return me();
    };
    await clock.advance(3_600_000);
    const distances = requests.slice(1).map((at, index) => at - (requests[index] ?? 0));
    expect(requests.length).toBeGreaterThan(1);
    expect(Math.min(...distances)).toBeGreaterThanOrEqual(60);
    expect(store.events).toEqual([]);
  });

  test("runs every job once after an outage of 8 hours, not once per missed tick", async () => {
    let down = false;
    const runs: string[] = [];
    const names = ["a", "b", "c", "d"];
    const { clock, store, service } = await schedule((time) =>
      names.map((name) =>
        job(name, async () => {
          if (down) return unreachable();
          runs.push(`${name} ${seconds(time)}`);
          return ok();
        }),
      ),
    );
    await clock.advance(120_000);
    down = true;
    service.me = unreachable;
    await clock.advance(8 * 3_600_000);
    runs.length = 0;
    down = false;
    service.me = async () => ({ sites: [] });
    await clock.advance(29_000);
    expect(runs.map((run) => run.split(" ")[0])).toEqual(names);
    expect(store.events.map((event) => event.type)).toEqual(["source-unavailable", "source-available"]);
  });

  test("resumes the other jobs after an outage during the long first run of one job", async () => {
    let down = false;
    const runs: number[] = [];
    const { clock, store, service } = await schedule((time) => {
      const alarms = async () => {
        if (down) return unreachable();
        runs.push(seconds(time));
        return ok();
      };
      const tags = timed(time, [], "tags", 900_000, { firstRun: true, schedule: "0 0 * * *" });
      return [job("alarms", alarms, { firstRun: true }), tags];
    });
    await clock.advance(90_000);
    down = true;
    service.me = unreachable;
    await clock.advance(150_000);
    down = false;
    service.me = async () => ({ sites: [] });
    runs.length = 0;
    await clock.advance(1_800_000);
    expect(store.events.map((event) => event.type)).toEqual(["source-unavailable", "source-available"]);
    expect(runs[0]).toBeLessThan(330);
    expect(runs.length).toBeGreaterThanOrEqual(29);
  });

  test("a stop cancels waiting jobs, lets a run finish, and aborts a run at the deadline", async () => {
    let finished = 0;
    let aborted = 0;
    const { clock, scheduler } = await schedule((time) => {
      const finish = async () => {
        finished += 1;
        return ok();
      };
      const endless: SyncJob["run"] = (signal) =>
        time.sleep(1e9, signal).then(ok, (error: unknown) => {
          aborted += 1;
          throw error;
        });
      return [timed(time, [], "long", 2_000, { firstRun: true }, finish), job("endless", endless)];
    });
    await clock.advance(60_500);
    const stopped = scheduler.stop(5_000);
    await clock.advance(5_000);
    await stopped;
    await scheduler.stop(0);
    expect(finished).toBe(2);
    expect(aborted).toBe(1);
    expect(clock.sleepers()).toBe(0);
  });
});

describe("continuous tasks (followers) of the scheduler", () => {
  test("emits at most two outages while token requests and reads fail but alarms succeed", async () => {
    const tries: number[] = [];
    const follow = async () => {
      tries.push(seconds(clock));
      throw new Retryable("500");
    };
    const live = [{ name: "live", follow }];
    const { clock, scheduler, service, store } = await schedule(
      () => [job("alarms", ok)],
      0,
      live,
      () => ok,
    );
    service.me = () => Promise.reject(new Retryable("500"));
    await clock.advance(20 * 60_000);
    const emitted = store.events.filter(({ type }) => type === "source-unavailable");
    expect(emitted.length).toBeLessThanOrEqual(2);
    expect(tries.length).toBeLessThan(40);
    await scheduler.stop(0);
  });

  test("sets afterOutage only in the first run of a follower after an outage", async () => {
    const afterOutages: (boolean | undefined)[] = [];
    let fail: (error: Error) => void = () => undefined;
    const follow: LoopJob["follow"] = async ({ draining, afterOutage }) => {
      afterOutages.push(afterOutage);
      const { promise, reject } = Promise.withResolvers<void>();
      fail = reject;
      await Promise.race([promise, ended(draining)]);
    };
    const { clock, scheduler } = await schedule(() => [], 0, [{ name: "live", follow }]);
    await clock.advance(10_000);
    fail(new Retryable("500"));
    await clock.advance(60_000);
    fail(new Throttled("503", 20_000, { scope: "everything" }));
    await clock.advance(60_000);
    fail(new Retryable("500"));
    await clock.advance(60_000);
    expect(afterOutages).toEqual([false, false, true, false]);
    await scheduler.stop(0);
  });

  test("sets afterOutage in the next run of a follower that ended because another job detected an outage", async () => {
    const afterOutages: (boolean | undefined)[] = [];
    const alarms = (time: VirtualClock) => async () => {
      if (seconds(time) < 70) throw new Throttled("503", 20_000, { scope: "everything" });
      return ok();
    };
    const follow: LoopJob["follow"] = async ({ draining, afterOutage }) => {
      afterOutages.push(afterOutage);
      await ended(draining);
    };
    const live = [{ name: "live", follow }];
    const { clock, scheduler } = await schedule((time) => [job("alarms", alarms(time))], 0, live);
    await clock.advance(180_000);
    expect(afterOutages).toEqual([false, true]);
    await scheduler.stop(0);
  });

  test("a follower retries a failing endpoint within two minutes, also after an hour of failures", async () => {
    let isAway = true;
    const tries: number[] = [];
    const follow: LoopJob["follow"] = async ({ draining, reportSuccess }) => {
      tries.push(seconds(clock));
      if (isAway) throw new Retryable("500");
      reportSuccess();
      await ended(draining);
    };
    const { clock, scheduler } = await schedule(() => [], 0, [{ name: "live", follow }]);
    await clock.advance(3_600_000);
    expect(tries.length).toBeGreaterThan(30);
    expect(tries.length).toBeLessThan(60);
    isAway = false;
    const away = tries.length;
    await clock.advance(120_000);
    expect(tries.length).toBe(away + 1);
    await scheduler.stop(0);
  });
});
