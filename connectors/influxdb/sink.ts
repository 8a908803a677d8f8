import { HttpError } from "@influxdata/influxdb-client";
import { buildReceipt, type ConnectorContext, type Sink } from "../../src/core/connector.ts";
import { detectTlsPort } from "../../src/core/http/connection-problem.ts";
import { describeReceiver } from "../../src/core/http/outbound/request.ts";
import { hostAndPortOfUrl, openProxy, probeTlsThroughProxy } from "../../src/core/http/proxy.ts";
import type { Event } from "../../src/core/model/event.ts";
import { readCertificateFile, secretReader } from "../../src/core/runtime/secret.ts";
import { createBucketClient, detectInfluxRestart } from "./bucket-client.ts";
import { classifyWriteError, classifyWriteResponse, mapWriteError } from "./classify-write-response.ts";
import type { InfluxConfig } from "./config.ts";
import { encodeEventLines, type InfluxPointSettings } from "./event-points.ts";
import { createInfluxClient, type InfluxClient, type RequestBody } from "./http-client.ts";
import { createNameLookup } from "./names-as-influx-tags.ts";
import {
  countLines,
  type EventLines,
  type PointsBeyondRetention,
  storeLines,
  type WriteOutcome,
} from "./write-lines-to-server.ts";

/** Creates the InfluxDB sink. Accepts an event when the server has stored the request with its points. */
export function createInfluxSink(config: InfluxConfig, context: ConnectorContext): Sink {
  const { clock, log } = context;
  const url = new URL(config.url);
  const writePath = buildInfluxWritePath(config);
  const nameLookup = createNameLookup(config.tags_from, context);
  const { measurement_prefix: prefix = "", tags } = config;
  const pointSettings: InfluxPointSettings = { prefix, tags, nameTagsOf: nameLookup.nameTagsOf };
  const reportDroppedPoints = createDroppedPointsReporter(context);
  const readAuthorization = createAuthorizationReader(config, context);
  const proxy = openProxy(config.proxy, clock);
  let httpClient: InfluxClient | null = null;
  const getClient = () => httpClient ?? connectToInflux();
  const bucketClient = createBucketClient(config, writePath, getClient);

  /** Reads the secrets again at each open, so a replaced token needs no restart. */
  function connectToInflux(): InfluxClient {
    httpClient?.close();
    httpClient = createInfluxClient({
      url: config.url,
      authorization: readAuthorization(),
      gzip: config.gzip,
      timeoutMs: config.timeout,
      ca: config.ca_file === undefined ? undefined : readCertificateFile(config.ca_file, "ca_file"),
      proxy,
    });
    return httpClient;
  }

  async function send(lines: readonly EventLines[], client: InfluxClient, signal: AbortSignal): Promise<WriteOutcome> {
    const count = countLines(lines);
    const outcome = await client.post(writePath, buildRequestBody(lines), signal).then(
      (response) => classifyWriteResponse(response, config, count),
      (error: unknown) => classifySendError(error, count, signal),
    );
    if (outcome.kind === "stored" && outcome.droppedPoints !== null) reportDroppedPoints(outcome.droppedPoints);
    return outcome;
  }

  /** Classifies a send error. Returns an abort as an outcome, so that lines stored before the abort stay accepted. */
  async function classifySendError(error: unknown, lineCount: number, signal: AbortSignal): Promise<WriteOutcome> {
    if (error instanceof HttpError && !signal.aborted) return classifyWriteError(error, config, lineCount, clock.now());
    const probeServerTls = (timeout: AbortSignal) => probeTlsThroughProxy(proxy, hostAndPortOfUrl(url), timeout);
    const tlsMismatchError = await detectTlsPort(error, url, describeReceiver(url.origin), probeServerTls, signal);
    if (signal.aborted) return { kind: "failed", error: signal.reason };
    return { kind: "failed", error: tlsMismatchError ?? mapWriteError(error, config, clock.now()) };
  }

  async function mapInfluxError(error: unknown, signal: AbortSignal): Promise<unknown> {
    const sendErrorOutcome = await classifySendError(error, 0, signal);
    return sendErrorOutcome.kind === "failed" ? sendErrorOutcome.error : mapWriteError(error, config, clock.now());
  }

  function* encodeBatchLines(batch: readonly Event[], rejectReasons: Map<number, string>): Generator<EventLines> {
    for (const [eventIndex, event] of batch.entries()) {
      try {
        for (const eventLines of encodeEventLines(event, pointSettings)) yield { eventIndex, ...eventLines };
      } catch (error) {
        rejectReasons.set(eventIndex, error instanceof Error ? error.message : String(error));
      }
    }
  }

  return {
    maxBatch: 5_000,
    toleratesRepeats: true,

    async open(signal) {
      signal.throwIfAborted();
      connectToInflux();
      if (!config.create_database) return;
      try {
        // Create only a missing database: a user that may write to a database may lack the right to create one.
        if (await bucketClient.isBucketMissing(signal)) await bucketClient.createDatabase(signal);
      } catch (error) {
        throw await mapInfluxError(error, signal);
      }
    },

    async write(offeredEvents, signal, _accepted, batchInfo) {
      signal.throwIfAborted();
      const client = getClient();
      const retryForMissingNames = await nameLookup.loadNames(offeredEvents, batchInfo?.committedAt);
      if (retryForMissingNames?.from === 0) throw retryForMissingNames.error;
      const batch = offeredEvents.slice(0, retryForMissingNames?.from);
      const rejectReasons = new Map<number, string>();
      const receipt = await storeLines(encodeBatchLines(batch, rejectReasons), (lines) => send(lines, client, signal));
      const retry = receipt.retry ?? retryForMissingNames ?? undefined;
      if (retry?.from === 0) throw retry.error;
      for (const { index, reason } of receipt.rejected) rejectReasons.set(index, reason);
      return buildReceipt(rejectReasons, retry);
    },

    async close() {
      httpClient?.close();
      httpClient = null;
    },

    /** Tests the sink with an empty write, which reveals missing permissions, a missing bucket or a wrong path. */
    async probe(signal) {
      try {
        if (!(await bucketClient.isBucketMissing(signal))) return;
        if (config.create_database) await bucketClient.checkCreatePermission(signal);
        else await getClient().post(writePath, "", signal);
      } catch (error) {
        throw await mapInfluxError(error, signal);
      }
    },

    detectRestart: (storedId, signal) => detectInfluxRestart(getClient(), storedId, signal),

    async retentionMs(signal) {
      try {
        return await bucketClient.retentionMs(signal);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        // The token may only write, or the server (VictoriaMetrics, InfluxDB 3) lacks this endpoint.
        log.debug({ err: error }, "the server does not say how long it keeps points");
        return null;
      }
    },
  };
}

/** Joins lines into a request body. Keeps bytes as bytes, because converting them to text is expensive. */
function buildRequestBody(lines: readonly EventLines[]): RequestBody {
  if (lines.every(({ text }) => typeof text === "string")) return lines.map(({ text }) => text).join("\n");
  return lines.flatMap(({ text }, n) => {
    const bytes = typeof text === "string" ? Buffer.from(text) : text;
    return n === 0 ? [bytes] : [LINE_BREAK_BYTES, bytes];
  });
}

const LINE_BREAK_BYTES = Buffer.from("\n");

function buildInfluxWritePath({ api, org, bucket = "", database = "", retention_policy: rp }: InfluxConfig): string {
  const precision = "ns";
  if (api === "v2") return `/api/v2/write?${new URLSearchParams({ org, bucket, precision }).toString()}`;
  const query = { db: database, precision, ...(rp === undefined ? {} : { rp }) };
  return `/write?${new URLSearchParams(query).toString()}`;
}

function createAuthorizationReader({ password, token, username }: InfluxConfig, { clock }: ConnectorContext) {
  const secretReference = token ?? password;
  if (secretReference === undefined) return () => null;
  const readSecret = secretReader(secretReference, clock);
  return () => {
    const secretText = readSecret().reveal();
    if (token !== undefined) return `Token ${secretText}`;
    return `Basic ${Buffer.from(`${username}:${secretText}`).toString("base64")}`;
  };
}

const DROPPED_POINTS_LOG_INTERVAL_MS = 3_600_000;

/** Logs dropped points at once, then their count once an hour, so that a backfill does not fill the log. */
function createDroppedPointsReporter({ clock, log }: ConnectorContext): (dropped: PointsBeyondRetention) => void {
  let unreportedPoints = 0;
  let totalPoints = 0;
  let lastReportMs = Number.NEGATIVE_INFINITY;
  return ({ points, reason }) => {
    unreportedPoints += points;
    totalPoints += points;
    const nowMs = clock.monotonic();
    if (nowMs - lastReportMs < DROPPED_POINTS_LOG_INTERVAL_MS) return;
    log.warn(
      { points: unreportedPoints, total: totalPoints, answer: reason },
      "the server keeps nothing as old as these points, and leaves them out; shorten backfill or keep longer there",
    );
    unreportedPoints = 0;
    lastReportMs = nowMs;
  };
}
