import { addAbortListener } from "node:events";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import { rejectOnAbort, runLoop, sleepFor } from "../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { type BrokerLink, type LinkOptions, openBrokerLink } from "./broker-link.ts";
import { configureBroker } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import type { MessageOf } from "./message-schemas.ts";
import type { MqttMessage } from "./publish-packets.ts";

interface ConnectionOptions extends Pick<LinkOptions, "clientId" | "onMessage"> {
  readonly statusTopic: string;
  readonly prepare?: (link: BrokerLink) => Promise<void>;
  /** Receives true if the broker still had Plenum's session. If this callback is absent, no session is requested. */
  readonly onSession?: (isSessionPresent: boolean | null) => void;
}

/** Interval of the status message `online`. Repeating it corrects a late `offline` of an earlier connection. */
const STATUS_INTERVAL_MS = 60_000;
const RECONNECT_BACKOFF = { firstMs: 1_000, maxMs: 60_000 };
const RECONNECT_AFTER_CONFIG_ERROR_MS = 300_000;

/** Keeps one link to the broker and a retained status topic; reopens a lost link in the background. */
export function createConnection(
  config: MqttConfig,
  { clock, log }: ConnectorContext,
  { clientId, onMessage, onSession, prepare, statusTopic }: ConnectionOptions,
) {
  const broker = configureBroker(config, clock);
  const closeController = new AbortController();
  let session: { readonly link: BrokerLink; readonly since: string } | null = null;
  let connectAttempt: Promise<void> | null = null;
  let reconnectLoop: Promise<void> | null = null;

  const getUtcTime = () => isoUtc(clock.now());
  const getUsableLink = () => (session === null || session.link.lossSignal.aborted ? null : session.link);
  const buildStatus = (body: MessageOf<"worker-status">) => buildStatusMessage(statusTopic, body);

  async function connect(): Promise<void> {
    const connectedAt = getUtcTime();
    const willMessage = buildStatus({ status: "offline", reason: "connection lost", since: connectedAt, time: null });
    const link = await openBrokerLink(
      broker,
      { clientId, will: willMessage, keepsSession: onSession !== undefined, onMessage },
      closeController.signal,
    );
    onSession?.(link.sessionPresent);
    try {
      await prepare?.(link);
      await publishOnlineStatus(link, connectedAt);
    } catch (error) {
      await link.disconnect();
      throw error;
    }
    session = { link, since: connectedAt };
    reconnectInBackground();
  }

  function connectIfNotConnected(): Promise<void> {
    if (getUsableLink() !== null) return Promise.resolve();
    connectAttempt ??= connect().finally(() => {
      connectAttempt = null;
    });
    return connectAttempt;
  }

  function reconnectInBackground(): void {
    const logConnectionLoss = (error: unknown) => log.warn({ err: error }, "the connection to the broker is away");
    reconnectLoop ??= runLoop({
      clock,
      signal: closeController.signal,
      backoff: RECONNECT_BACKOFF,
      onFault: logConnectionLoss,
      async step() {
        try {
          await reconnectOrPublishStatus();
          return 0;
        } catch (error) {
          if (!(error instanceof ConfigError) || closeController.signal.aborted) throw error;
          logConnectionLoss(error);
          return RECONNECT_AFTER_CONFIG_ERROR_MS;
        }
      },
    });
  }

  /** Opens a link to the broker, or waits until the next status message is due or the link is lost. */
  async function reconnectOrPublishStatus(): Promise<void> {
    if (session === null || session.link.lossSignal.aborted) return connectIfNotConnected();
    const { link, since } = session;
    const isStatusDue = await sleepFor(clock, STATUS_INTERVAL_MS, closeController.signal, link.lossSignal);
    if (closeController.signal.aborted) return;
    if (!isStatusDue) throw link.lossSignal.reason;
    await publishOnlineStatus(link, since);
  }

  async function publishOnlineStatus(link: BrokerLink, since: string): Promise<void> {
    await publishStatus(link, buildStatus({ status: "online", reason: null, since, time: getUtcTime() }));
  }

  return {
    /** Returns at once if a link is open; otherwise makes one attempt to connect, shared by concurrent callers. */
    async open(signal: AbortSignal): Promise<void> {
      signal.throwIfAborted();
      closeController.signal.throwIfAborted();
      await rejectOnAbort(connectIfNotConnected(), signal);
    },
    reconnectInBackground,
    getLink: getUsableLink,
    async close(): Promise<void> {
      closeController.abort(new Retryable("The connection is closed."));
      await Promise.allSettled([connectAttempt, reconnectLoop]);
      const stoppedMessage = buildStatus({ status: "offline", reason: "stopped", since: null, time: getUtcTime() });
      await getUsableLink()?.disconnect(stoppedMessage);
    },
  };
}

/** Tests the connection with one message, another client id and no will. Logs the broker's limits. */
export async function testConnection(
  config: MqttConfig,
  { clock, log }: ConnectorContext,
  { clientId, topic }: { readonly clientId: string; readonly topic: string },
  signal: AbortSignal,
): Promise<void> {
  const link = await openBrokerLink(configureBroker(config, clock), { clientId }, signal);
  log.info({ limits: link.limits }, "the broker lets us in");
  try {
    using _abortListener = rejectPendingOnAbort(link, signal);
    const body = { check: "plenum check", time: isoUtc(clock.now()) };
    await publishStatus(link, { ...buildStatusMessage(topic, body), retain: false });
  } finally {
    await link.disconnect();
  }
}

/** Rejects the unacknowledged messages when the signal aborts, until the returned object is disposed. */
export function rejectPendingOnAbort(link: BrokerLink, signal: AbortSignal): Disposable {
  return addAbortListener(signal, () => link.rejectPending(signal.reason));
}

async function publishStatus(link: BrokerLink, message: MqttMessage): Promise<void> {
  try {
    await link.publish(message);
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    const hint = "Allow it in the broker's access list (see connectors/mqtt/acl.example), or choose another prefix.";
    throw new ConfigError(error.message, { reason: "forbidden", hint, cause: error });
  }
}

function buildStatusMessage(topic: string, body: MessageOf<"check" | "worker-status">): MqttMessage {
  return { topic, payload: JSON.stringify(body), retain: true, contentType: "application/json", properties: {} };
}
