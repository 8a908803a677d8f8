import type { Sink } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Outbox, Store } from "../store/store.ts";
import type { DeliveryConfig } from "./config.ts";
import { buildSnapshotRequest } from "./send-state-snapshot.ts";

export const SINK_NOT_CONFIGURED = "not in the configuration";

const ENDED_SINK_SERVER_SET = "sink-ended-at";

type ServerOfEndedSink = { readonly farEnd: string | null };

interface SinkToRegister {
  readonly name: string;
  readonly sink: Pick<Sink, "serverId">;
  readonly delivery: Pick<DeliveryConfig, "from">;
}

export type SinkRegistration = ReturnType<typeof createSinkRegistration>;

export function createSinkRegistration(options: {
  readonly outbox: Outbox;
  readonly store: Pick<Store, "document" | "commit">;
  readonly log: Log;
  readonly clock: Pick<Clock, "now">;
}) {
  const { clock, outbox, store, log } = options;

  /** Stores the snapshot request before the sink's name: after a crash in between, the sink still counts as new. */
  async function registerSinkName(name: string, from: DeliveryConfig["from"]) {
    if (from !== "state") return outbox.register(name, from);
    const isSinkNew = !(await outbox.lag()).some(({ sink }) => sink === name);
    if (isSinkNew) await store.commit({ documents: [buildSnapshotRequest(name, isoUtc(clock.now()))] });
    return outbox.register(name, "now");
  }

  async function hasSinkServerChanged({ name, sink }: SinkToRegister): Promise<boolean> {
    const serverOfEndedSink = await store.document<ServerOfEndedSink>(ENDED_SINK_SERVER_SET, name);
    return serverOfEndedSink !== undefined && serverOfEndedSink.farEnd !== (sink.serverId ?? null);
  }

  return {
    /** Registers a sink. Returns why the sink has ended; null when it is in use. */
    async register(sinkToRegister: SinkToRegister): Promise<string | null> {
      const { name, delivery } = sinkToRegister;
      const { ended } = await registerSinkName(name, delivery.from);
      if (ended === null) return null;
      if (ended !== SINK_NOT_CONFIGURED) {
        if (!(await hasSinkServerChanged(sinkToRegister))) return ended;
        log.info({ sink: name }, "The sink had ended and has another server now; it continues.");
      }
      await outbox.setEnded(name, null);
      return null;
    },
    async endForGood({ name, sink }: SinkToRegister, reason: string): Promise<void> {
      const serverOfEndedSink: ServerOfEndedSink = { farEnd: sink.serverId ?? null };
      await store.commit({ documents: [{ set: ENDED_SINK_SERVER_SET, put: [[name, serverOfEndedSink]] }] });
      await outbox.setEnded(name, reason);
    },
    async endUnconfiguredSinks(configured: { has(name: string): boolean }): Promise<void> {
      for (const { sink, ended } of await outbox.lag()) {
        if (ended === SINK_NOT_CONFIGURED || configured.has(sink)) continue;
        await outbox.setEnded(sink, SINK_NOT_CONFIGURED);
        log.info({ sink }, "The sink is no longer configured; the log keeps no events for it.");
      }
    },
  };
}
