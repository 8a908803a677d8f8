import type { Sink } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Outbox, Store } from "../store/store.ts";
import type { DeliveryConfig } from "./config.ts";
import { snapshotRequest } from "./snapshot.ts";

/** The reason with which a sink is ended that the configuration does not name any more; it may come back. */
export const NOT_CONFIGURED = "not in the configuration";

/** State of a sink that ended for good: the server that was gone. */
const ENDS = "sink-ended-at";

interface EndedAt {
  readonly farEnd: string | null;
}

/** A configured sink. */
interface Registrant {
  readonly name: string;
  readonly sink: Pick<Sink, "farEnd">;
  readonly delivery: Pick<DeliveryConfig, "from">;
}

/** Who gets the log, and who has ended for good (410 Gone); all of it is in the state and outlives a restart. */
export interface Registration {
  /** Makes a sink known; answers why it has ended, null when it is in use. */
  register(configured: Registrant): Promise<string | null>;
  endForGood(configured: Registrant, reason: string): Promise<void>;
  /**
   * Ends the sinks that are not configured any more, so that they hold nothing back; also those that had ended. Asked of
   * each at the moment at which it would be ended, for it may have come back.
   */
  endOthers(configured: Pick<ReadonlySet<string>, "has">): Promise<void>;
}

export function createRegistration(options: {
  readonly outbox: Outbox;
  readonly store: Pick<Store, "document" | "commit">;
  readonly log: Log;
  readonly clock: Pick<Clock, "now">;
}): Registration {
  const { clock, outbox, store, log } = options;

  /** Stores the request before the name: after a crash in between the sink is still new. */
  async function known(name: string, from: DeliveryConfig["from"]) {
    if (from !== "state") return outbox.register(name, from);
    const isNew = !(await outbox.lag()).some(({ sink }) => sink === name);
    if (isNew) await store.commit({ documents: [snapshotRequest(name, isoUtc(clock.now()))] });
    return outbox.register(name, "now");
  }

  /** True when the sink now leads to another server than the one that ended it. */
  async function leadsElsewhere({ name, sink }: Registrant): Promise<boolean> {
    const at = await store.document<EndedAt>(ENDS, name);
    return at !== undefined && at.farEnd !== (sink.farEnd ?? null);
  }

  return {
    async register(configured) {
      const { name, delivery } = configured;
      const { ended } = await known(name, delivery.from);
      if (ended === null) return null;
      if (ended !== NOT_CONFIGURED) {
        if (!(await leadsElsewhere(configured))) return ended;
        log.info({ sink: name }, "The sink had ended and leads to another far end now; it goes on.");
      }
      await outbox.setEnded(name, null);
      return null;
    },

    async endForGood({ name, sink }, reason) {
      const at: EndedAt = { farEnd: sink.farEnd ?? null };
      // First: an end without a place would never be taken back by another address.
      await store.commit({ documents: [{ set: ENDS, put: [[name, at]] }] });
      await outbox.setEnded(name, reason);
    },

    async endOthers(configured) {
      for (const { sink, ended } of await outbox.lag()) {
        if (ended === NOT_CONFIGURED || configured.has(sink)) continue;
        await outbox.setEnded(sink, NOT_CONFIGURED);
        log.info({ sink }, "The sink is not configured any more; it holds nothing back.");
      }
    },
  };
}
