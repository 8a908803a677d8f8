import { z } from "zod";
import { RECEIVER_OPTIONS, type ReceiverConfig } from "#connectors/shared/receiver/config.ts";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import type { FailedRequest, Receipt, Sink } from "#src/core/connector.ts";
import { Retryable } from "#src/core/errors/errors.ts";
import type { Alarm } from "#src/core/model/building.ts";
import { type AlarmFact, type Event, type EventKind, makeEvent, sourceUri } from "#src/core/model/event.ts";
import { createSinkState } from "#src/engine/delivery/batches.ts";
import { contextFor, never } from "../connectors/context.ts";
import { ALARM, GATEWAY } from "../sample-events.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { createStub } from "./receiver-stub.ts";

export const START = Date.parse("2026-11-02T12:00:00Z");
export const ReceiverOptions = z.strictObject(RECEIVER_OPTIONS);

export function createHarness(stub = createStub("findable"), options: z.input<typeof ReceiverOptions> = {}) {
  const clock = createVirtualClock(START);
  const store = createMemoryStore(() => clock.now());
  const config: ReceiverConfig = ReceiverOptions.parse(options);
  let position = 0;
  let retryAtMs = 0;
  const make = (): Sink => createReceiverSink(stub, config, contextFor("chat", clock, store));
  let sink = make();

  async function write(
    events: readonly Event[],
    from: number,
    isRedelivery = false,
    committedAt = "",
  ): Promise<Receipt> {
    await clock.advance(Math.max(0, retryAtMs - clock.monotonic()));
    const positions = events.map((_, index) => from + index);
    const { failing, rejected } = await sink.write(events, never(), undefined, {
      positions,
      committedAt: positions.map(() => committedAt),
      isRedelivery,
    });
    throwIfFailing(failing);
    return { rejected };
  }

  function throwIfFailing(failing: FailedRequest | undefined): void {
    if (failing === undefined) return;
    retryAtMs = clock.monotonic() + Math.max(1_000, failing.retryInMs);
    throw failing.error instanceof Error && failing.error.cause !== undefined ? failing.error.cause : failing.error;
  }

  return {
    stub,
    clock,
    store,
    sinkState: createSinkState("chat", store),
    restart() {
      sink = make();
    },
    open: () => sink.open?.(never()),
    async offer(...events: readonly Event[]): Promise<Receipt> {
      const from = position + 1;
      position += events.length;
      return write(events, from);
    },
    /** Offers an event whose call at the receiver succeeds, but fails for the sink. */
    async offerUnanswered(event: Event, error: Error = new Retryable("The response was lost.")): Promise<void> {
      stub.failCall = (isDone) => {
        if (isDone) throw error;
      };
      const failure: unknown = await this.offer(event).catch((cause) => cause);
      if (failure !== error) throw new Error("The offer did not fail as expected.", { cause: failure });
      stub.failCall = () => undefined;
    },
    async offerEach(...events: readonly Event[]): Promise<void> {
      for (const event of events) {
        position += 1;
        await write([event], position);
      }
    },
    async offerLate(event: Event, ms: number): Promise<Receipt> {
      position += 1;
      return write([event], position, false, new Date(clock.now() - ms).toISOString());
    },
    reoffer: (events: readonly Event[]) => write(events, position - events.length + 1),
    replay: (events: readonly Event[]) => write(events, position - events.length + 1, true),
    async tick() {
      const tickResult = await sink.tick?.(never());
      throwIfFailing(tickResult?.failing);
      return tickResult;
    },
    async passTime(ms: number, everyMs = 5_000) {
      for (let remainingMs = ms; remainingMs > 0; remainingMs -= everyMs) {
        await clock.advance(Math.min(everyMs, remainingMs));
        await sink.tick?.(never());
      }
    },
    test: (print: (line: string) => void) => sink.test?.(print, never()),
    /** Stores a pending gateway check of a site since now; null: of no site. */
    async gatewayCheckIsPending(siteId: number | null) {
      const since = new Date(clock.now()).toISOString();
      const change = siteId === null ? { remove: ["1"] } : { put: [[String(siteId), { since }] as const] };
      await store.commit({ documents: [{ set: "gateway-check/main", ...change }] });
    },
    async gatewayIs(online: boolean) {
      const value = { ...GATEWAY, online };
      const storedGateway = { value, siteId: 1, since: "2026-01-01T00:00:00.000Z", missingSince: null };
      await store.commit({ documents: [{ set: "gateway/main", put: [[GATEWAY.id, storedGateway]] }] });
    },
  };
}

export function sampleAlarm(
  n: number,
  { priority = "B", site = 1, at = 0, behind = null as string | null, name = `Alarm ${n}` } = {},
) {
  const id = String(600_000 + n);
  const time = (minutes: number) => new Date(START + minutes * 60_000).toISOString();
  const record: Alarm = {
    ...ALARM,
    id,
    site: { id: site, displayName: `Building ${site}` },
    trigger: { ...ALARM.trigger, id: n, displayName: name, priority },
    triggeredAt: time(at),
    triggeredAtRaw: time(at),
  };
  const episode = `${id} ${time(at)}`;
  const event = (type: EventKind, minutes: number, changes: Partial<Alarm> = {}, data: object = {}): Event => {
    const alarmFact: AlarmFact = { alarm: { ...record, ...changes }, episode, late: false, behindGateway: behind };
    return makeEvent({
      type,
      source: sourceUri("main"),
      subject: `site/${site}/alarm/${id}`,
      time: time(minutes),
      siteId: site,
      priority,
      data: { ...alarmFact, ...data } as never,
      facts: [episode, minutes, type],
    });
  };
  return {
    record,
    episode,
    raised: (initial = false) => event("alarm-raised", at, {}, { initial }),
    acknowledged: (minutes = at + 1) =>
      event("alarm-acknowledged", minutes, { acknowledged: true, acknowledgedBy: "Kim" }),
    recovering: (minutes = at + 1) => event("alarm-recovering", minutes, { recoveringUntil: time(minutes + 5) }),
    changed: (description: string, minutes = at + 1) =>
      event("alarm-changed", minutes, { description }, { before: {} }),
    retriggered: (minutes: number) => event("alarm-retriggered", minutes),
    vanished: (minutes: number) => event("alarm-vanished", minutes),
    resolved: (minutes: number, changes: Partial<Alarm> = {}) =>
      event("alarm-resolved", minutes, { status: "resolved", resolvedAt: time(minutes), ...changes }),
  };
}

export const gatewayOffline = (): Event => ({ ...gatewayOnline(0), type: "gateway-offline", id: "gateway-offline.1" });

export function gatewayOnline(minutes: number, id = GATEWAY.id): Event {
  return makeEvent({
    type: "gateway-online",
    source: sourceUri("main"),
    subject: `site/1/gateway/${id}`,
    time: new Date(START + minutes * 60_000).toISOString(),
    siteId: 1,
    data: { gateway: { ...GATEWAY, id }, hosts: [], wholeSite: true },
    facts: [minutes],
  });
}
