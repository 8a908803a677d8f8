import { randomUUID } from "node:crypto";
import type { ConnectorContext, Sink } from "../../src/core/connector.ts";
import { Retryable } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import { lifeOfBroker, uptimeOf } from "./broker-life.ts";
import { clientIdOf } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import { createConnection, tryConnection } from "./connection.ts";
import { deliver } from "./deliver.ts";
import type { Link } from "./link.ts";
import { messagesOf } from "./messages.ts";
import { createTopics } from "./topics.ts";

/** Accepted means: the broker has acknowledged every message of the event (PUBACK, reason below 128). */
export function createMqttSink(config: MqttConfig, context: ConnectorContext): Sink {
  const topics = createTopics(config.prefix, config.topic, context.share?.source);
  const clientId = clientIdOf(config, context);
  const connection = createConnection({
    config,
    context,
    clientId,
    statusTopic: topics.status,
    onSession(present) {
      // Of several links since the last look, one that found its session gone is enough.
      if (present === false) sessionLost = true;
    },
  });
  let sessionLost = false;
  /** Names the monotonic clock of this run, where the machine does not say since when it runs. */
  const run = randomUUID();
  let looked: { readonly link: Link; readonly life: string } | null = null;

  return {
    maxBatch: 100,
    mayRepeat: true,
    lastStepMs: () => connection.link()?.answeredMs() ?? Number.NEGATIVE_INFINITY,
    open: (signal) => connection.open(signal),
    close: () => connection.close(),
    probe: (signal) =>
      tryConnection(config, context, { clientId: `${clientId}-probe`, topic: topics.check }, signal),

    /** A restart ends every connection, so the broker is asked once for each. */
    async look(before, signal) {
      const link = connection.link();
      if (link === null) return null;
      if (link === looked?.link) return { life: looked.life, isNew: false };
      const uptime = await uptimeOf(config, context, `${clientId}-life`, signal);
      // Another member may have asked before, and its clock may be minutes away from ours.
      const atMs = Math.floor((context.share ?? context.clock).now());
      const { clock } = context;
      const measured = clock.sinceBoot?.() ?? { boot: run, ms: clock.monotonic() };
      const said = lifeOfBroker(before, { uptime, atMs, measured, sessionLost });
      // A link that came in the meantime is looked at next, with what it brought.
      if (connection.link() === link) sessionLost = false;
      looked = { link, life: said.life };
      return said;
    },

    async write(batch, signal, _accepted, offer) {
      signal.throwIfAborted();
      const link = connection.link();
      if (link === null) throw new Retryable("There is no connection to the broker.");
      const abandon = () => link.abandon(signal.reason);
      signal.addEventListener("abort", abandon, { once: true });
      const messages = (event: Event, index: number) =>
        messagesOf(event, topics, config.retain, offer?.sequences?.[index]);
      try {
        return await deliver(link, batch, messages, {
          maxInFlight: Math.min(config.max_in_flight, link.limits.receiveMaximum),
          maxBytes: config.max_message_bytes,
          signal,
          onCourtesyRefused: (error) => context.log.warn({ err: error }, "reply not delivered"),
        });
      } finally {
        signal.removeEventListener("abort", abandon);
      }
    },
  };
}
