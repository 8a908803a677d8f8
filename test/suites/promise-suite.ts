import fc from "fast-check";
import { expect, test } from "vitest";
import type { Receipt } from "#src/core/connector.ts";
import { ConfigError, Malformed, NoTagLog, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import type { EventNumber } from "#src/core/model/delivery-sequence.ts";
import { type Event, eventOrderingKey } from "#src/core/model/event.ts";
import { type Location, openDispatcher, type ScriptedSink, scriptedSink } from "../delivery/dispatcher-harness.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { seed } from "../seed.ts";

/**
 * Checks the delivery guarantees under random loads and faults:
 *
 *   I1 delivered ⊆ committed
 *   I2 committed ∖ (expired ∪ dead letters) ⊆ delivered, once all faults have ended
 *   I3 same id ⇒ same bytes
 *   I4 the first deliveries of one key are in the order of commits
 *   I5 with `sequence`: numbers 1, 2, 3 … within an epoch, one event each, and no missing event between two of them
 *
 * PROMISE_RUNS sets the number of schedules; PLENUM_SEED replays a failed schedule.
 */
export function describePromise(runs: number, location: () => Location): void {
  const schedules = Number(process.env.PROMISE_RUNS ?? runs);
  test(
    `delivers every committed event and no other event under random faults (seed ${seed}, ${schedules} schedules)`,
    async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(randomStep, { minLength: 3, maxLength: 25 }),
          fc.array(randomBehaviour, { minLength: 1, maxLength: 40 }),
          fc.boolean(),
          fc.boolean(),
          (...schedule) => checkGuarantees(location(), ...schedule),
        ),
        { numRuns: schedules, seed, endOnFailure: true },
      );
    },
    20_000 + schedules * 10_000,
  );
}

const randomBehaviour = fc.oneof(
  { weight: 4, arbitrary: fc.constant("accept" as const) },
  fc.constantFrom("reject", "keep", "reject and keep", "hang", "ignore", "nonsense", "nothing", "slow"),
  fc.constantFrom("retryable", "throttled", "config", "rejected", "no-log", "malformed", "unknown", "undefined"),
);
type SinkBehaviour = typeof randomBehaviour extends fc.Arbitrary<infer T> ? T : never;

const randomStep = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("commit" as const), count: fc.integer({ min: 1, max: 30 }) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 400_000 }) }),
  },
  fc.record({ do: fc.constant("restart" as const) }),
  fc.record({ do: fc.constant("prune" as const), maxBytes: fc.integer({ min: 5_000, max: 200_000 }) }),
  fc.record({ do: fc.constant("replay" as const) }),
  fc.record({ do: fc.constant("resend" as const) }),
);

type ScheduleStep = typeof randomStep extends fc.Arbitrary<infer T> ? T : never;

async function checkGuarantees(
  location: Location,
  steps: readonly ScheduleStep[],
  behaviours: readonly SinkBehaviour[],
  alarmsOnly: boolean,
  sequence: boolean,
): Promise<void> {
  const harness = await openDispatcher(location);
  const { clock } = harness;
  const deliveryOptions = { batch: 7, deadline: "20s", sequence, filter: { kinds: alarmsOnly ? ["alarm-*"] : [] } };
  const passesFilter = (event: Event) => !alarmsOnly || event.type.startsWith("alarm-");
  const committed: Event[] = [];
  const gapEvents = new Map<string, Event>();
  const accepted: Event[] = [];
  const refusedIds = new Set<string>();
  const sinks: ScriptedSink[] = [];
  const idsByEpoch = new Map<string, string[]>();
  let pruned = 0;
  let writeCalls = 0;
  let isHealthy = false;

  function createFaultySink(): ScriptedSink {
    const sink = scriptedSink((batch, signal, _, offer) => {
      for (const [index, { id }] of batch.entries()) recordNumber(idsByEpoch, id, offer?.sequences?.[index] ?? null);
      const behaviour = isHealthy ? "accept" : behaviours[writeCalls % behaviours.length];
      writeCalls += 1;
      const acceptEvents = (events: readonly Event[]) => accepted.push(...events);
      if (behaviour === "reject" || behaviour === "reject and keep") for (const { id } of batch) refusedIds.add(id);
      if (behaviour === "slow")
        return clock.sleep(3_000, signal).then(() => respond("accept", batch, signal, acceptEvents));
      return respond(behaviour ?? "accept", batch, signal, acceptEvents);
    });
    sinks.push(sink);
    return sink;
  }
  const startDispatcher = async () => {
    const dispatcher = harness.dispatcher({ a: createFaultySink() }, deliveryOptions);
    await dispatcher.start(new AbortController().signal);
    return dispatcher;
  };

  const recordGaps = async () => {
    for (const { event } of await harness.store.outbox.latest(100_000, ["delivery-gap"]))
      gapEvents.set(event.id, event);
  };

  try {
    let dispatcher = await startDispatcher();
    for (const scheduleStep of steps) {
      if (scheduleStep.do === "commit") {
        const events = Array.from({ length: scheduleStep.count }, (_, n) => nextEvent(committed.length + n));
        await harness.store.commit({ events });
        committed.push(...events);
      } else if (scheduleStep.do === "wait") await clock.advance(scheduleStep.ms);
      else if (scheduleStep.do === "restart") {
        const stopEnded = dispatcher.stop(1_000);
        await clock.advance(1_000);
        await stopEnded;
        await harness.reopen();
        dispatcher = await startDispatcher();
      } else if (scheduleStep.do === "prune") {
        const { maxBytes } = scheduleStep;
        pruned = committed.length;
        await recordGaps();
        await harness.store.outbox.prune({
          maxBytes,
          ranMs: 0,
          maxAgeMs: 1e12,
          replayMs: 1e12,
          wanted: (_, event) => passesFilter(event),
        });
      } else if (scheduleStep.do === "replay") await harness.store.outbox.replay("a", "2026-11-02T00:00:00Z");
      else await harness.store.outbox.resendDeadLetters("a", "all");
    }
    isHealthy = true;
    await clock.advance(700_000);

    await recordGaps();
    const all = new Map([...committed.map((event) => [event.id, event] as const), ...gapEvents]);
    const delivered = new Set(accepted.map(({ id }) => id));
    for (const event of accepted) {
      expect(all.get(event.id), "I1, I3").toEqual(event);
      expect(passesFilter(event), "the filter").toBe(true);
    }
    const [lag] = await harness.store.outbox.lag();
    expect(lag).toMatchObject({ depth: 0, again: 0 });
    const deadIds = new Set((await harness.store.outbox.deadLetters("a", 100_000)).map(({ event }) => event?.id ?? ""));
    const missingEvents = committed.filter(({ id }) => !delivered.has(id) && !deadIds.has(id)).filter(passesFilter);
    expect(missingEvents.length, "I2").toBeLessThanOrEqual(lag?.dropped ?? 0);

    const commitIndexById = new Map(committed.map(({ id }, location) => [id, location]));
    const latestByKey = new Map<string, number>();
    for (const event of new Map(accepted.map((each) => [each.id, each])).values()) {
      // An event that was sent again by an operator may be late.
      if (refusedIds.has(event.id)) continue;
      const commitIndex = commitIndexById.get(event.id) ?? Number.POSITIVE_INFINITY;
      expect(commitIndex, "I4").toBeGreaterThanOrEqual(latestByKey.get(eventOrderingKey(event)) ?? 0);
      latestByKey.set(eventOrderingKey(event), commitIndex);
    }
    for (const ids of idsByEpoch.values()) {
      const committedIds = ids.filter((id) => commitIndexById.has(id));
      const isOwn = new Set(committedIds);
      const order = committed
        .filter((event, location) => passesFilter(event) && (location >= pruned || isOwn.has(event.id)))
        .map(({ id }) => id);
      const firstIndex = order.indexOf(committedIds[0] ?? "");
      expect(order.slice(firstIndex, firstIndex + committedIds.length), "I5").toEqual(committedIds);
    }
    if (sequence && committed.some(passesFilter)) expect(idsByEpoch.size, "I5").toBeGreaterThan(0);
    for (const sink of sinks) expect(sink.faults).toEqual([]);
  } finally {
    await harness.dispose();
  }
}

function recordNumber(numbered: Map<string, string[]>, id: string, sequence: EventNumber | null): void {
  if (sequence === null) return;
  const ids = numbered.get(sequence.epoch) ?? [];
  numbered.set(sequence.epoch, ids);
  const at = sequence.number - 1;
  expect(at, "I5").toBeLessThanOrEqual(ids.length);
  ids[at] ??= id;
  expect(ids[at], "I5").toBe(id);
}

function nextEvent(n: number): Event {
  if (n % 5 !== 0) return valueEvent(n, `tag-${n % 3}`);
  return sampleEvent("alarm-raised", { subject: `site/1/alarm/${n % 2}` }, n);
}

/** `accept` records the events that the server has received. */
function respond(
  behaviour: SinkBehaviour,
  batch: readonly Event[],
  signal: AbortSignal,
  accept: (events: readonly Event[]) => void,
): Receipt | Promise<Receipt> {
  const middleIndex = Math.floor(batch.length / 2);
  const rejectedEvents = batch.flatMap((_, index) => (index % 3 === 0 ? [{ index, reason: "unwanted" }] : []));
  const dropRejected = (events: readonly Event[]) => events.filter((_, index) => index % 3 !== 0);
  switch (behaviour) {
    case "accept":
      accept(batch);
      return { rejected: [] };
    case "reject":
      accept(dropRejected(batch));
      return { rejected: rejectedEvents };
    case "keep":
      accept(batch.slice(0, middleIndex));
      return { rejected: [], retry: { from: middleIndex, error: new Retryable("half") } };
    case "reject and keep":
      accept(dropRejected(batch.slice(0, middleIndex)));
      return { rejected: rejectedEvents, retry: { from: middleIndex, error: new Throttled("later", 5_000) } };
    case "hang":
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    case "ignore":
      // The server ignores the abort and accepts later.
      return new Promise((resolve) =>
        signal.addEventListener("abort", () =>
          setImmediate(() => {
            accept(batch);
            resolve({ rejected: [] });
          }),
        ),
      );
    case "nonsense":
      accept(batch);
      return { rejected: [{ index: batch.length, reason: "?" }] };
    case "nothing":
      return undefined as never;
    default:
      return Promise.reject(createError(behaviour));
  }
}

function createError(behaviour: string): unknown {
  const errors: Record<string, unknown> = {
    retryable: new Retryable("try again"),
    throttled: new Throttled("wait", null),
    config: new ConfigError("renew the token", { reason: "unauthenticated" }),
    rejected: new Rejected("no"),
    "no-log": new NoTagLog("no log"),
    malformed: new Malformed("odd", "<html>"),
    unknown: new TypeError("x is undefined"),
  };
  return errors[behaviour];
}
