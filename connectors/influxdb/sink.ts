import { HttpError } from "@influxdata/influxdb-client";
import type { ConnectorContext, Sink } from "../../src/core/connector.ts";
import type { Failure } from "../../src/core/errors/errors.ts";
import { endedUnanswered, speaksTls, wantsTls } from "../../src/core/http/connection-problem.ts";
import { probeThroughProxy, proxyOf } from "../../src/core/http/proxy.ts";
import type { Event } from "../../src/core/model/event.ts";
import { cachedSecret, readCertificates } from "../../src/core/runtime/secret.ts";
import type { InfluxConfig } from "./config.ts";
import { type Body, createExchange, type Exchange } from "./exchange.ts";
import { createNames } from "./names.ts";
import { failureOf, serverAt, verdictOfError, verdictOfResponse } from "./outcome.ts";
import { linesOf, type PointSettings } from "./points.ts";
import { createBucket, serverInstanceOf } from "./server.ts";
import type { TooOld } from "./store-lines.ts";
import { countOf, type Line, storeLines, type Verdict } from "./store-lines.ts";

/** Accepted means: the server responded with success to the request with the event's points. */
export function createInfluxSink(config: InfluxConfig, context: ConnectorContext): Sink {
  const writePath = pathOf(config);
  const names = createNames(config.tags_from, context);
  const settings: PointSettings = {
    prefix: config.measurement_prefix ?? "",
    tags: config.tags,
    ...(config.tags_from.length === 0 ? {} : { namesOf: names.of }),
  };
  const tooOld = countTooOld(context);
  const authorization = authorizationOf(config, context);
  const proxy = proxyOf(config.proxy, context.clock);
  let exchange: Exchange | null = null;

  /** Reads the secrets again at each open, so a replaced token needs no restart. */
  function connect(): Exchange {
    exchange?.close();
    exchange = createExchange({
      url: config.url,
      authorization: authorization(),
      gzip: config.gzip,
      timeoutMs: config.timeout,
      ca: config.ca_file === undefined ? undefined : readCertificates(config.ca_file, "ca_file"),
      proxy,
    });
    return exchange;
  }

  async function send(lines: readonly Line[], through: Exchange, signal: AbortSignal): Promise<Verdict> {
    const count = countOf(lines);
    const verdict = await through.post(writePath, bodyOf(lines), signal).then(
      (answer) => verdictOfResponse(answer, config, count),
      async (error: unknown): Promise<Verdict> => {
        const failureMeaning = await failureWithoutResponse(error, signal);
        // Lines stored before stay settled when the sink stops, and the search for a fault resumes from
        // there.
        if (signal.aborted) return { kind: "failed", error: signal.reason };
        return failureMeaning === null
          ? verdictOfError(error, config, count, context.clock.now())
          : { kind: "failed", error: failureMeaning };
      },
    );
    if (verdict.kind === "stored" && verdict.tooOld !== null) tooOld.add(verdict.tooOld);
    return verdict;
  }

  /** Checks whether a server that closed a plain HTTP connection speaks TLS. */
  async function failureWithoutResponse(error: unknown, signal: AbortSignal): Promise<Failure | null> {
    if (error instanceof HttpError || signal.aborted) return null;
    const url = new URL(config.url);
    if (url.protocol !== "http:" || !endedUnanswered(error)) return null;
    const address = { host: url.hostname, port: Number(url.port || 80) };
    const probe = (limit: AbortSignal) => probeThroughProxy(proxy, address, AbortSignal.any([limit, signal]));
    return (await speaksTls(probe)) ? wantsTls(serverAt(config)) : null;
  }

  async function failureMeaning(error: unknown, signal: AbortSignal): Promise<unknown> {
    if (signal.aborted) return signal.reason;
    if (error instanceof HttpError) {
      const verdict = verdictOfError(error, config, 0, context.clock.now());
      if (verdict.kind === "failed") return verdict.error;
    }
    const known = await failureWithoutResponse(error, signal);
    return signal.aborted ? signal.reason : (known ?? failureOf(error, config, context.clock.now()));
  }

  return {
    maxBatch: 5_000,
    mayRepeat: true,

    async open(signal) {
      signal.throwIfAborted();
      const through = connect();
      if (!config.create_database) return;
      const database = createBucket(config, writePath, through);
      try {
        // Check first: a user that may write to a database may lack the right to create one.
        if (await database.isMissing(signal)) await database.create(signal);
      } catch (error) {
        throw await failureMeaning(error, signal);
      }
    },

    async write(offered, signal, _accepted, offer) {
      signal.throwIfAborted();
      const through = exchange ?? connect();
      const awaited = await names.prepare(offered, offer?.committedAt);
      if (awaited?.from === 0) throw awaited.error;
      const batch = offered.slice(0, awaited?.from);
      const unreadable = new Map<number, string>();
      const stored = await storeLines(allLines(batch, unreadable), (lines) => send(lines, through, signal));
      const { rejected } = stored;
      const kept = stored.kept ?? awaited ?? undefined;
      if (kept?.from === 0) throw kept.error;
      const end = kept?.from ?? batch.length;
      const known = new Set(rejected.map(({ index }) => index));
      const more = [...unreadable]
        .filter(([index]) => index < end && !known.has(index))
        .map(([index, reason]) => ({ index, reason }));
      return { rejected: [...rejected, ...more], ...(kept === undefined ? {} : { kept }) };
    },

    async close() {
      exchange?.close();
      exchange = null;
    },

    /**
     * Sends an empty write to the write endpoint, which reveals a token without the right, a missing bucket or a
     * wrong path. A database that we create ourselves may be missing.
     */
    async probe(signal) {
      const through = exchange ?? connect();
      const bucket = createBucket(config, writePath, through);
      try {
        if (!(await bucket.isMissing(signal))) return;
        if (config.create_database) await bucket.checkMayCreate(signal);
        else await through.post(writePath, "", signal);
      } catch (error) {
        throw await failureMeaning(error, signal);
      }
    },

    look: (before, signal) => serverInstanceOf(exchange ?? connect(), before, signal),

    async keepsMs(signal) {
      try {
        return await createBucket(config, writePath, exchange ?? connect()).keepsMs(signal);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        // A token that may only write gets no response; VictoriaMetrics and InfluxDB 3 lack the endpoint.
        context.log.debug({ err: error }, "the server does not say how long it keeps points");
        return null;
      }
    },
  };

  function* allLines(batch: readonly Event[], unreadable: Map<number, string>): Generator<Line> {
    for (const [owner, event] of batch.entries()) {
      try {
        for (const lines of linesOf(event, settings)) yield { owner, ...lines };
      } catch (error) {
        unreadable.set(owner, error instanceof Error ? error.message : String(error));
      }
    }
  }
}

/** Joins lines; bytes stay bytes, because a conversion to text would cost more than encoding them. */
function bodyOf(lines: readonly Line[]): Body {
  if (lines.every(({ text }) => typeof text === "string")) return lines.map(({ text }) => text).join("\n");
  return lines.flatMap(({ text }, n) => {
    const bytes = typeof text === "string" ? Buffer.from(text) : text;
    return n === 0 ? [bytes] : [LINE_BREAK, bytes];
  });
}

const LINE_BREAK = Buffer.from("\n");

function pathOf(config: InfluxConfig): string {
  if (config.api === "v2") {
    const query = new URLSearchParams({ org: config.org, bucket: config.bucket ?? "", precision: "ns" });
    return `/api/v2/write?${query.toString()}`;
  }
  const query = new URLSearchParams({ db: config.database ?? "", precision: "ns" });
  if (config.retention_policy !== undefined) query.set("rp", config.retention_policy);
  return `/write?${query.toString()}`;
}

/** Returns a function with the current Authorization header; null without one. */
function authorizationOf(config: InfluxConfig, { clock }: ConnectorContext): () => string | null {
  if (config.token !== undefined) {
    const token = cachedSecret(config.token, clock);
    return () => `Token ${token().reveal()}`;
  }
  const { username } = config;
  if (username === undefined || config.password === undefined) return () => null;
  const password = cachedSecret(config.password, clock);
  return () => `Basic ${Buffer.from(`${username}:${password().reveal()}`).toString("base64")}`;
}

/**
 * Counts points that the server dropped because its bucket keeps nothing that old. Logs the first, then once an
 * hour while more come: single reports would fill the log and the dead letters of a backfill, and a retry could
 * not help.
 */
interface TooOldPoints {
  add(answer: TooOld): void;
}

const REPORT_EVERY_MS = 3_600_000;

function countTooOld(context: ConnectorContext): TooOldPoints {
  let unreported = 0;
  let total = 0;
  let reportedAtMs: number | null = null;
  return {
    add({ points, reason }) {
      unreported += points;
      total += points;
      const nowMs = context.clock.monotonic();
      if (reportedAtMs !== null && nowMs - reportedAtMs < REPORT_EVERY_MS) return;
      context.log.warn(
        { points: unreported, total, answer: reason },
        "the server keeps nothing as old as these points, and leaves them out; shorten backfill or keep longer there",
      );
      unreported = 0;
      reportedAtMs = nowMs;
    },
  };
}
