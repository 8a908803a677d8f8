import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Event, EventKind } from "#src/core/model/event.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { DocumentKeyConflict, type RetentionBounds, type Store } from "#src/engine/store/store.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { drain, ids, idsOf, positionsOf, rejectAll, settle, values } from "../store/store-steps.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const LARGE_BOUNDS: Bounds = { maxBytes: 2 ** 30, maxAgeMs: 7 * DAY_MS, replayMs: DAY_MS };

type Bounds = Omit<RetentionBounds, "ranMs">;

export interface StoreUnderTest {
  readonly store: Store;
  /** Closes and opens again, as a restart does. */
  reopen(): Promise<Store>;
  dispose(): Promise<void>;
}

/** Tests every implementation of the store. */
export function describeStore(name: string, make: (clock: Clock) => Promise<StoreUnderTest>): void {
  let now = 0;
  let prunedMs = 0;
  const clock: Clock = {
    now: () => now,
    monotonic: () => now,
    sleep: (_ms, signal) =>
      new Promise((_, reject) => {
        signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
      }),
  };
  let testedStore: StoreUnderTest;
  let store: Store;

  beforeEach(async () => {
    now = Date.parse("2026-11-02T06:00:00Z");
    prunedMs = now;
    testedStore = await make(clock);
    store = testedStore.store;
  });
  afterEach(() => testedStore.dispose());

  const drainIds = async (sink: string, limit?: number) => ids(await drain(store, sink, limit));

  async function findLag(sink: string) {
    const lag = (await store.outbox.lag()).find((each) => each.sink === sink);
    if (lag === undefined) throw new Error(`${sink} is not registered`);
    return lag;
  }

  function prune(bounds: Bounds) {
    const ranMs = now - prunedMs;
    prunedMs = now;
    return store.outbox.prune({ ...bounds, ranMs });
  }

  const registerSinks = async (...sinks: readonly string[]) => {
    for (const sink of sinks) await store.outbox.register(sink, "beginning");
  };
  const commit = (events: readonly Event[]) => store.commit({ events });

  describe(`${name}: documents and logs`, () => {
    test("a committed change is read back completely, also after a restart", async () => {
      await store.commit({
        documents: [{ set: "tag/main", put: Object.entries({ 1: { unit: "°C" }, 2: { unit: null } }) }],
        records: [
          { log: "audit", body: { step: 1 } },
          { log: "other", body: "x" },
          { log: "audit", body: { step: 2 } },
        ],
      });
      await store.commit({
        documents: [
          { set: "tag/main", put: [["2", { unit: "kWh" }]], remove: ["1", "unknown"] },
          { set: "a", put: [["not JSON", undefined]] },
        ],
        records: [{ log: "other", body: undefined }],
      });
      expect(await store.documents("a")).toEqual(new Map([["not JSON", null]]));
      expect((await store.lastRecord("other"))?.body).toBeNull();
      store = await testedStore.reopen();
      expect(await store.documents("tag/main")).toEqual(new Map([["2", { unit: "kWh" }]]));
      expect(await store.document("tag/main", "2")).toEqual({ unit: "kWh" });
      expect(await store.document("tag/main", "1")).toBeUndefined();
      expect(await store.records("audit", 1, 10)).toEqual([{ sequence: 2, body: { step: 2 } }]);
      expect(await store.lastRecord("audit")).toEqual({ sequence: 2, body: { step: 2 } });
      expect(await store.lastRecord("nothing")).toBeUndefined();
    });

    test("the last value of a deferred document is stored with the next commit and survives a restart", async () => {
      const versionBefore = await store.version("poll/main");
      const puts = [store.putDeferred("poll/main", "live", 1), store.putDeferred("poll/main", "live", 2)];
      puts.push(store.putDeferred("poll/main", "tags", { at: "now" }));
      await store.commit({ documents: [{ set: "tag/main", put: [["1", {}]] }] });
      await Promise.all(puts);
      expect(await store.version("poll/main")).not.toBe(versionBefore);
      store = await testedStore.reopen();
      expect(await store.documents("poll/main")).toEqual(new Map(Object.entries({ live: 2, tags: { at: "now" } })));
      const lastPut = store.putDeferred("poll/main", "live", 3);
      store = await testedStore.reopen();
      await lastPut;
      expect(await store.document("poll/main", "live")).toBe(3);
    });

    test("the version of a document set changes with each commit or settlement that writes to the set", async () => {
      const seenVersions = new Set([await store.version("a")]);
      const hasNewVersion = async () => {
        const version = await store.version("a");
        const isNew = !seenVersions.has(version);
        seenVersions.add(version);
        return isNew;
      };
      for (const documents of [
        [{ set: "a", put: [["k", 1]] }],
        [{ set: "a", put: [["k", 2]] }],
        [{ set: "a", insert: [["l", 1]] }],
        [
          { set: "b", put: [["k", 1]] },
          { set: "a", remove: ["k"] },
        ],
      ] as const) {
        await store.commit({ documents });
        expect(await hasNewVersion()).toBe(true);
      }
      await commit(values(0, 1));
      await registerSinks("sink");
      await store.outbox.next("sink", 1);
      expect(await hasNewVersion()).toBe(false);
      const documents = [{ set: "a", put: [["m", 1]] }] as const;
      await settle(store, "sink", 1, { documents });
      expect(await hasNewVersion()).toBe(true);
    });

    test("inserting an existing key rejects the complete commit", async () => {
      await store.commit({ documents: [{ set: "command", insert: [["c1", 1]] }] });
      const refusedCommit = store.commit({
        documents: [
          { set: "command", put: [["c2", 2]] },
          { set: "command", insert: [["c1", 3]] },
        ],
        events: [valueEvent(1)],
        records: [{ log: "audit", body: 1 }],
      });
      await expect(refusedCommit).rejects.toThrow(DocumentKeyConflict);
      await expect(refusedCommit).rejects.toMatchObject({ set: "command", key: "c1" });
      expect(await store.documents("command")).toEqual(new Map([["c1", 1]]));
      expect(await store.outbox.latest(10)).toEqual([]);
      expect(await store.lastRecord("audit")).toBeUndefined();
    });

    test("quota slots are stored per token bucket until they are deleted", async () => {
      const slot = { id: 1, sentAtMs: 1_000.25, countedByMs: 61_000.75 };
      await store.quotaStore.save("main", slot);
      await store.quotaStore.save("main", { id: 2, sentAtMs: 2_000, countedByMs: 90_000 });
      await store.quotaStore.save("main", { id: 2, sentAtMs: 2_000, countedByMs: 2_300 });
      await store.quotaStore.save("other", slot);
      store = await testedStore.reopen();
      expect(await store.quotaStore.load("main")).toEqual([{ id: 2, sentAtMs: 2_000, countedByMs: 2_300 }, slot]);
      await store.quotaStore.forgetSlots("main", 61_000.75);
      expect(await store.quotaStore.load("main")).toEqual([slot]);
      expect(await store.quotaStore.load("other")).toEqual([slot]);
    });

    test("the last pause, and the wall-clock time paired with the time since boot, are stored per token bucket", async () => {
      expect(await store.quotaStore.loadPause("main")).toBeUndefined();
      await store.quotaStore.savePause("main", { orderedAtMs: 1_000, untilMs: 31_000 });
      await store.quotaStore.savePause("main", { orderedAtMs: 2_000, untilMs: 9_000 });
      store = await testedStore.reopen();
      expect(await store.quotaStore.loadPause("main")).toEqual({ orderedAtMs: 2_000, untilMs: 9_000 });
      expect(await store.quotaStore.loadPause("other")).toBeUndefined();
      const clockMark = { wallMs: 1_767_225_600_000, sinceBootMs: 12_340 };
      await store.quotaStore.saveClock("main", "first", clockMark);
      await store.quotaStore.saveClock("other", "first", { ...clockMark, sinceBootMs: 1 });
      expect(await store.quotaStore.loadClock("main", "first")).toEqual(clockMark);
      expect(await store.quotaStore.loadPause("main")).toEqual({ orderedAtMs: 2_000, untilMs: 9_000 });
      await store.quotaStore.saveClock("main", "second", clockMark);
      expect(await store.quotaStore.loadClock("main", "first")).toBeUndefined();
      expect(await store.quotaStore.loadClock("other", "first")).toEqual({ ...clockMark, sinceBootMs: 1 });
    });
  });

  describe(`${name}: the outbox`, () => {
    test("every sink reads the same event log at its own rate and continues where it stopped", async () => {
      await registerSinks("fast", "slow");
      const events = values(0, 5);
      const { lastPosition } = await commit(events);
      expect(await drainIds("fast", 2)).toEqual(ids(events));
      const slowOffer = await store.outbox.next("slow", 3);
      expect(slowOffer).toMatchObject({ isRepeat: false, events: [{ event: events[0] }, {}, {}] });
      await settle(store, "slow", slowOffer.events[1]?.position ?? 0);
      store = await testedStore.reopen();
      expect(await findLag("fast")).toMatchObject({ depth: 0, oldest: null, position: lastPosition });
      expect(await findLag("slow")).toMatchObject({ depth: 3, oldest: "2026-11-02T06:00:00.000Z" });
      expect(await drainIds("slow")).toEqual(ids(events.slice(2)));
    });

    test("a new sink starts at the beginning or the end of the log, as requested; a known sink keeps its cursor", async () => {
      await commit(values(0, 2));
      expect(await store.outbox.register("old", "beginning")).toMatchObject({ position: 0, ended: null });
      await store.outbox.register("new", "now");
      await commit(values(2, 1));
      await registerSinks("new");
      expect(await drainIds("new")).toEqual(ids(values(2, 1)));
      expect(await drainIds("old")).toEqual(ids(values(0, 3)));
    });

    test("an event whose id is already in the log is not appended again", async () => {
      await registerSinks("a");
      const firstEvent = valueEvent(1);
      await commit([firstEvent]);
      const { repeated } = await commit([{ ...firstEvent, subject: "other" }, valueEvent(2), valueEvent(2)]);
      expect(repeated).toEqual([firstEvent.id, valueEvent(2).id]);
      expect(await drain(store, "a")).toEqual([firstEvent, valueEvent(2)]);
    });

    test("latest returns events of the requested kinds, newest first", async () => {
      await commit([valueEvent(1), sampleEvent("alarm-raised"), valueEvent(2), sampleEvent("site-added")]);
      const kinds = async (...asked: Parameters<typeof store.outbox.latest>) =>
        (await store.outbox.latest(...asked)).map(({ event }) => event.type);
      expect(await kinds(2)).toEqual(["site-added", "tag-value"]);
      expect(await kinds(9, ["alarm-raised"])).toEqual(["alarm-raised"]);
      expect(await kinds(9, ["alarm-raised", "tag-value"])).toEqual(["tag-value", "alarm-raised", "tag-value"]);
      expect(await kinds(9, [])).toEqual([]);
    });

    test("latest finds all events of a subject and its sub-subjects", async () => {
      const changeSubject = (event: Event, subject: string, source = event.source) => ({ ...event, subject, source });
      const tag = "site/1/tag/7";
      await commit([
        changeSubject(valueEvent(1), tag),
        changeSubject(valueEvent(2), `${tag}/history/5m`),
        changeSubject(valueEvent(3), "site/1/tag/77"),
        changeSubject(valueEvent(4), tag, "plenum://other"),
        changeSubject({ ...valueEvent(5), data: { text: `"subject":"${tag}"` } } as unknown as Event, "site/2"),
      ]);
      await commit(Array.from({ length: 3_000 }, (_, n) => valueEvent(10 + n, "another")));
      const { source } = valueEvent(1);
      const listSubjects = async (subjects: readonly string[], ...kinds: EventKind[]) =>
        (await store.outbox.latest(9, kinds[0] && kinds, { source, subjects })).map(({ event }) => event.subject);
      const historyOfTag = `${tag}/history/5m`;
      expect(await listSubjects([tag])).toEqual([historyOfTag, tag]);
      expect(await listSubjects(["site/1/tag/77", tag], "tag-value")).toEqual(["site/1/tag/77", historyOfTag, tag]);
      expect(await listSubjects([tag], "alarm-raised")).toEqual([]);
      expect(await listSubjects([])).toEqual([]);
    });

    test("commit times ascend although the clock is set back by an hour, and follow a clock set back by more than a day", async () => {
      const committed = async () => (await store.outbox.latest(10)).map(({ committedAt }) => Date.parse(committedAt));
      const beginMs = now;
      now += HOUR_MS;
      await commit(values(0, 2));
      now = beginMs;
      await commit(values(2, 1));
      store = await testedStore.reopen();
      await commit(values(3, 1));
      const aheadMs = beginMs + HOUR_MS;
      expect(await committed()).toEqual([aheadMs + 2, aheadMs + 1, aheadMs, aheadMs]);
      await registerSinks("late");
      const { events } = await store.outbox.next("late", 10);
      expect(events.map(({ committedAt }) => Date.parse(committedAt))).toEqual((await committed()).toReversed());
      now = aheadMs + 10;
      await commit(values(4, 1));
      expect((await committed())[0]).toBe(now);
      // The log follows a clock that is set back by more than a day.
      now -= 25 * HOUR_MS;
      await commit(values(5, 1));
      expect((await committed())[0]).toBe(now);
    });

    test("waitForChange resolves after a commit, after a request for a replay, and when the signal aborts", async () => {
      const stop = new AbortController();
      await store.outbox.register("a", "now");
      const commitSignal = store.outbox.waitForChange(stop.signal);
      await commit([valueEvent(1)]);
      await commitSignal;
      await drainIds("a");
      const replaySignal = store.outbox.waitForChange(stop.signal);
      expect(await store.outbox.replay("a", "2026-11-02T00:00:00Z")).toBe(1);
      await replaySignal;
      const { position } = await findLag("a");
      await drainIds("a");
      const rangeSignal = store.outbox.waitForChange(stop.signal);
      expect(await store.outbox.replayBetween("a", position - 1, position)).toBe(1);
      await rangeSignal;
      const abortSignal = store.outbox.waitForChange(stop.signal);
      stop.abort();
      await abortSignal;
      await store.outbox.waitForChange(stop.signal);
    });
  });

  describe(`${name}: dead letters and redelivery`, () => {
    beforeEach(() => registerSinks("a"));

    test("a dead letter has its reason, remains after its event left the log, and can be sent again", async () => {
      const events = values(0, 2);
      await commit(events);
      expect(await rejectAll(store, "a", "too large")).toBe(2);
      now += 3 * DAY_MS;
      await prune(LARGE_BOUNDS);
      now += 3 * DAY_MS;
      await prune(LARGE_BOUNDS);
      expect(await store.outbox.latest(10)).toEqual([]);

      const letters = await store.outbox.deadLetters("a");
      const reason = "too large";
      expect(letters).toMatchObject(events.toReversed().map((event) => ({ reason, event })));
      expect(await findLag("a")).toMatchObject({ deadLetters: 2, again: 0 });
      expect(await store.outbox.resendDeadLetters("a", [letters[1]?.id ?? 0, 999])).toBe(1);
      expect(await findLag("a")).toMatchObject({ deadLetters: 1, again: 1 });
      expect(await drainIds("a")).toEqual([events[0]?.id]);
      expect(await store.outbox.deadLetters()).toHaveLength(1);
      expect(await store.outbox.discardDeadLetters("a", "all")).toBe(1);
      expect(await findLag("a")).toMatchObject({ deadLetters: 0, again: 0 });
    });

    test("dead letters that are sent again are settled singly, also when the log no longer has the event", async () => {
      const events = values(0, 3);
      await commit(events);
      await rejectAll(store, "a", "no");
      await prune({ ...LARGE_BOUNDS, replayMs: 0 });
      now += DAY_MS;
      await prune({ ...LARGE_BOUNDS, replayMs: 0 });
      expect(await store.outbox.latest(10)).toEqual([]);
      await store.outbox.resendDeadLetters("a", "all");
      const letterOffer = await store.outbox.next("a", 2);
      const [first, second] = positionsOf(letterOffer.events);
      if (first === undefined || second === undefined) throw new Error("There are two letters.");
      const rejectedEvents = [{ position: second, reason: "again" }];
      await store.outbox.settle("a", { isRepeat: true, through: second, rejected: rejectedEvents });
      expect(await findLag("a")).toMatchObject({ again: 1, deadLetters: 1 });
      expect(idsOf((await store.outbox.next("a", 9)).events)).toEqual([events[2]?.id]);
      await store.outbox.setEnded("a", "410 Gone");
      const remainingLetters = (await store.outbox.deadLetters("a")).map(({ event, reason }) => [event?.id, reason]);
      expect(remainingLetters).toEqual([
        [events[2]?.id, "no"],
        [events[1]?.id, "again"],
      ]);
    });

    test("the replay of an event is cancelled when the event has left the log and its dead letter is deleted", async () => {
      await commit(values(0, 1));
      await rejectAll(store, "a", "no");
      await store.outbox.replay("a", "2026-11-02T00:00:00Z");
      await prune({ ...LARGE_BOUNDS, maxBytes: 1 });
      expect(await findLag("a")).toMatchObject({ again: 0, deadLetters: 0 });
    });

    test("an ended sink gets no replayed event; dead letters to resend are dead letters again when it is resumed", async () => {
      await commit(values(0, 3));
      await rejectAll(store, "a", "no");
      await store.outbox.replay("a", "2026-11-02T00:00:00Z");
      await store.outbox.resendDeadLetters("a", "all");
      await store.outbox.setEnded("a", null);
      expect(await findLag("a")).toMatchObject({ again: 3, deadLetters: 0 });
      await commit(values(3, 1));
      await store.outbox.setEnded("a", "410 Gone");
      const sequenceBefore = (await store.outbox.next("a", 1)).counted;
      await store.outbox.setEnded("a", null);
      expect(await findLag("a")).toMatchObject({ again: 0, deadLetters: 3 });
      const sequenceAfter = (await store.outbox.next("a", 1)).counted;
      expect(sequenceAfter === undefined).toBe(sequenceBefore === undefined);
      if (sequenceAfter !== undefined) expect(sequenceAfter.epoch).not.toBe(sequenceBefore?.epoch);
      expect(await store.outbox.resendDeadLetters("a", "all")).toBe(3);
    });

    test("a replay between two positions offers the events between them again, also after a restart", async () => {
      await commit(values(0, 4));
      const positions = positionsOf((await store.outbox.next("a", 10)).events);
      await drainIds("a");
      expect(await store.outbox.replayBetween("a", positions[0] ?? 0, positions[2] ?? 0)).toBe(2);
      store = await testedStore.reopen();
      expect(await findLag("a")).toMatchObject({ again: 2 });
      const replayOffer = await store.outbox.next("a", 10);
      expect(replayOffer.isRepeat).toBe(true);
      expect(positionsOf(replayOffer.events)).toEqual(positions.slice(1, 3));
    });

    test("a replay offers only settled events, before new events of the log", async () => {
      await commit([...values(0, 2), sampleEvent("alarm-raised")]);
      await drainIds("a");
      now += HOUR_MS;
      await commit(values(2, 2));
      await drainIds("a");
      await commit(values(4, 1));
      expect(await store.outbox.replay("a", "2026-11-02T07:00:00+00:00", ["tag-value"])).toBe(2);
      expect(await store.outbox.replay("a", "2026-11-02T05:00:00Z", ["alarm-raised"])).toBe(1);
      const replayOffer = await store.outbox.next("a", 10);
      expect(replayOffer.isRepeat).toBe(true);
      expect(await drainIds("a", 2)).toEqual(ids([sampleEvent("alarm-raised"), ...values(2, 3)]));
      await expect(store.outbox.replay("a", "yesterday")).rejects.toThrow("2026-11-02T06:00:00Z");
    });

    test("the settlement of one replayed event does not cancel the replay of other events", async () => {
      await commit(values(0, 3));
      await drainIds("a");
      await store.outbox.replay("a", "2026-11-02T00:00:00Z");
      const replayOffer = await store.outbox.next("a", 1);
      await store.outbox.next("other", 1);
      await store.outbox.settle("a", { isRepeat: true, through: replayOffer.events[0]?.position ?? 0, rejected: [] });
      expect(await drainIds("a")).toEqual(ids(values(1, 2)));
    });
  });

  describe(`${name}: retention`, () => {
    test("settled events are retained for the replay window, counted from the last sink's settlement", async () => {
      await registerSinks("a", "b");
      await commit(values(0, 3));
      await drainIds("a");
      now += 2 * DAY_MS;
      await prune(LARGE_BOUNDS);
      await drainIds("b");
      await prune(LARGE_BOUNDS);
      now += DAY_MS - 1;
      expect(await prune(LARGE_BOUNDS)).toEqual({ removed: 0, gaps: [] });
      expect(await store.outbox.latest(10)).toHaveLength(3);
      now += 2;
      expect(await prune(LARGE_BOUNDS)).toEqual({ removed: 3, gaps: [] });
      expect((await findLag("b")).dropped).toBe(0);
    });

    test("an event older than max_age is lost for a sink that waits; the loss is counted, stored, and emitted as one event", async () => {
      await registerSinks("dead", "alive");
      await commit(values(0, 3));
      await prune(LARGE_BOUNDS);
      now += DAY_MS;
      await commit(values(3, 1));
      await drainIds("alive");
      now += 6 * DAY_MS + 1;
      const { removed, gaps } = await prune(LARGE_BOUNDS);
      expect(removed).toBe(3);
      const [firstTime, lastTime] = [valueEvent(0).time, valueEvent(2).time];
      const gap = { sink: "dead", reason: "age", firstTime, lastTime, count: 3 };
      expect(gaps).toMatchObject([gap]);
      expect(await findLag("dead")).toMatchObject({ dropped: 3, depth: 2 });
      expect(await findLag("alive")).toMatchObject({ dropped: 0 });
      const [emitted] = await store.outbox.latest(1);
      expect(emitted?.event).toMatchObject({
        type: "delivery-gap",
        source: expect.stringMatching(/^\/plenum(\/main)?$/),
        subject: "sink/dead",
        data: gap,
      });
    });

    test("events age only while the worker runs, whatever the wall clock says", async () => {
      await registerSinks("dead");
      await commit(values(0, 3));
      const ran = (ranMs: number) => store.outbox.prune({ ...LARGE_BOUNDS, ranMs });
      await ran(0);
      now += 8 * DAY_MS;
      expect(await ran(20_000)).toEqual({ removed: 0, gaps: [] });
      now -= 8 * DAY_MS;
      store = await testedStore.reopen();
      expect((await ran(7 * DAY_MS - 20_000)).removed).toBe(0);
      expect((await ran(1)).gaps).toMatchObject([{ sink: "dead", reason: "age", count: 3 }]);
    });

    test("events lost within an hour after a published delivery gap are counted in the next delivery gap", async () => {
      await registerSinks("dead");
      const loseEvent = async (n: number) => {
        await commit(values(n, 1));
        await prune(LARGE_BOUNDS);
        now += 2;
        await prune({ ...LARGE_BOUNDS, maxAgeMs: 1, wanted: (_, event) => event.type === "tag-value" });
      };
      for (const n of [0, 1, 2]) await loseEvent(n);
      expect(await store.outbox.latest(10, ["delivery-gap"])).toHaveLength(0);
      now += HOUR_MS;
      await prune(LARGE_BOUNDS);
      expect(await store.outbox.latest(10, ["delivery-gap"])).toMatchObject([{ event: { data: { count: 2 } } }]);
      expect((await findLag("dead")).dropped).toBe(3);
    });

    test("a full log removes settled events first, then telemetry, and alarms last", async () => {
      await registerSinks("dead");
      await commit([sampleEvent("alarm-raised"), ...values(0, 200)]);
      await drainIds("dead");
      await commit([...values(200, 200), sampleEvent("alarm-resolved"), ...values(400, 20)]);
      const withMaxBytes = (maxBytes: number) => ({ ...LARGE_BOUNDS, maxBytes });

      const settledOnly = await prune(withMaxBytes(110_000));
      expect(settledOnly).toMatchObject({ gaps: [] });
      expect(settledOnly.removed).toBeGreaterThan(50);
      const telemetry = await prune(withMaxBytes(60_000));
      expect(telemetry.gaps).toMatchObject([{ sink: "dead", reason: "size", firstTime: valueEvent(200).time }]);
      const remainingEvents = (await store.outbox.next("dead", 1_000)).events.map(({ event }) => event);
      expect(remainingEvents.map(({ type }) => type)).toContain("alarm-resolved");
      expect(remainingEvents.filter(({ type }) => type === "tag-value").at(-1)?.id).toBe(valueEvent(419).id);
      const all = await prune(withMaxBytes(1));
      expect(all.gaps[0]?.count).toBe(remainingEvents.length);
    });

    test("removed events that a sink's filter excludes are not counted as lost", async () => {
      await registerSinks("alarms");
      await commit([...values(0, 5), sampleEvent("alarm-raised")]);
      const wanted: RetentionBounds["wanted"] = (sink, event) => sink === "alarms" && event.type.startsWith("alarm-");
      const pruneReport = await prune({ ...LARGE_BOUNDS, maxBytes: 1, wanted });
      expect(pruneReport).toMatchObject({ removed: 6, gaps: [{ count: 1 }] });
      expect((await findLag("alarms")).dropped).toBe(1);
    });

    test("pendingBytes is the size of the events that the slowest active sink has not received, after any removal", async () => {
      expect(await store.outbox.pressure()).toEqual({ bytes: 0, pendingBytes: 0, oldestTelemetry: null });
      await commit([sampleEvent("alarm-raised")]);
      now += 1_000;
      const valuesSince = new Date(now).toISOString();
      await commit(values(0, 100));
      expect(await store.outbox.pressure()).toMatchObject({ pendingBytes: 0, oldestTelemetry: valuesSince });
      now += 1_000;
      await store.outbox.register("fast", "now");
      await store.outbox.register("slow", "now");
      await commit(values(100, 100));
      const hundred = (await store.outbox.pressure()).pendingBytes;
      expect(hundred).toBeGreaterThan(100 * 300);
      await drainIds("fast");
      expect((await store.outbox.pressure()).pendingBytes).toBe(hundred);
      const slowOffer = await store.outbox.next("slow", 50);
      await settle(store, "slow", slowOffer.events.at(-1)?.position ?? 0);
      const fifty = (await store.outbox.pressure()).pendingBytes;
      expect(fifty / hundred).toBeCloseTo(0.5, 1);
      expect((await prune({ ...LARGE_BOUNDS, maxBytes: 2 * fifty })).removed).toBeGreaterThan(0);
      store = await testedStore.reopen();
      expect((await store.outbox.pressure()).pendingBytes).toBe(fifty);
      await store.outbox.setEnded("slow", "410 Gone");
      expect((await store.outbox.pressure()).pendingBytes).toBe(0);
    });

    test("an ended sink retains no events, loses no events, and can be resumed", async () => {
      await registerSinks("gone");
      await commit(values(0, 3));
      await store.outbox.setEnded("gone", "410 Gone");
      expect(await store.outbox.register("gone", "now")).toMatchObject({ ended: "410 Gone" });
      await prune(LARGE_BOUNDS);
      now += 2 * DAY_MS;
      expect(await prune(LARGE_BOUNDS)).toEqual({ removed: 3, gaps: [] });
      await store.outbox.setEnded("gone", null);
      await commit(values(3, 1));
      expect(await drainIds("gone")).toEqual(ids(values(3, 1)));
      expect((await findLag("gone")).dropped).toBe(0);
    });

    test("an event requested for replay is retained until it was sent again", async () => {
      await registerSinks("a");
      await commit(values(0, 2));
      await drainIds("a");
      await prune(LARGE_BOUNDS);
      await store.outbox.replay("a", "2026-11-02T00:00:00Z");
      now += 2 * DAY_MS;
      expect((await prune(LARGE_BOUNDS)).removed).toBe(0);
      expect(await drainIds("a")).toEqual(ids(values(0, 2)));
      expect((await prune(LARGE_BOUNDS)).removed).toBe(2);
    });

    test("dead letters are bounded: the oldest are removed first and counted", async () => {
      await registerSinks("a");
      await commit(values(0, 100));
      await rejectAll(store, "a", "no");
      const pruneReport = await prune({ ...LARGE_BOUNDS, maxBytes: 140_000 });
      const remainingLetters = await store.outbox.deadLetters("a", 1_000);
      expect(remainingLetters.length).toBeGreaterThan(20);
      expect(remainingLetters.length).toBeLessThan(80);
      expect(remainingLetters[0]?.event?.id).toBe(valueEvent(99).id);
      expect(pruneReport.gaps).toMatchObject([{ reason: "size", count: 100 - remainingLetters.length }]);
    });
  });
}
