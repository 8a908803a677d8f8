import { readFileSync } from "node:fs";
import { escape as escaped } from "@influxdata/influxdb-client";
import type { ConnectorContext, Sink } from "../../src/connector.ts";
import { ConfigError } from "../../src/errors.ts";
import type { Event } from "../../src/event.ts";
import { readSecret } from "../../src/secret.ts";
import type { InfluxConfig } from "./config.ts";
import { createExchange, type Exchange } from "./exchange.ts";
import { failureOf, verdictOfAnswer, verdictOfError } from "./outcome.ts";
import { linesOf } from "./points.ts";
import { type Line, storeLines, type Verdict } from "./store-lines.ts";

/** Accepted means: the server answered success to the request that carried the event's points. */
export function createInfluxSink(config: InfluxConfig, context: ConnectorContext): Sink {
  const writePath = pathOf(config);
  const settings = { prefix: config.measurement_prefix ?? "", tags: config.tags };
  let exchange: Exchange | null = null;

  /** Secrets are read again whenever the sink is opened, so an exchanged token needs no restart. */
  function connect(): Exchange {
    exchange?.close();
    exchange = createExchange({
      url: config.url,
      authorization: authorizationOf(config),
      gzip: config.gzip,
      timeoutMs: config.timeout,
      ca: config.ca_file === undefined ? undefined : certificates(config.ca_file),
    });
    return exchange;
  }

  async function createDatabase(through: Exchange, signal: AbortSignal): Promise<void> {
    const query = `CREATE DATABASE ${escaped.quoted(config.database ?? "")}`;
    const { body } = await through.post(`/query?q=${encodeURIComponent(query)}`, "", signal);
    // InfluxDB 1.x answers 200 to a statement that failed.
    if (/"error"/.test(body))
      throw new ConfigError(`The database could not be created: ${body.slice(0, 300)}`);
  }

  async function send(lines: readonly Line[], through: Exchange, signal: AbortSignal): Promise<Verdict> {
    const body = lines.map(({ text }) => text).join("\n");
    try {
      return verdictOfAnswer(await through.post(writePath, body, signal), lines.length);
    } catch (error) {
      // What was stored before is settled even when we are stopping, so the search for a fault goes on from there.
      if (signal.aborted) return { kind: "failed", error: signal.reason };
      return verdictOfError(error, config, lines.length, context.clock.now());
    }
  }

  return {
    maxBatch: 5_000,

    async open(signal) {
      signal.throwIfAborted();
      const through = connect();
      if (!config.create_database) return;
      try {
        await createDatabase(through, signal);
      } catch (error) {
        throw signal.aborted ? signal.reason : failureOf(error, config, context.clock.now());
      }
    },

    async write(batch, signal) {
      signal.throwIfAborted();
      const through = exchange ?? connect();
      const unreadable = new Map<number, string>();
      const { rejected, kept } = await storeLines(allLines(batch, unreadable), (lines) =>
        send(lines, through, signal),
      );
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
     * Writes nothing through the very endpoint that writes: a token without the right, a missing bucket or a wrong
     * path answer as they would later. Some servers call an empty body a bad request, and that is an answer too.
     */
    async probe(signal) {
      const through = exchange ?? connect();
      try {
        await through.post(writePath, "", signal);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        if (verdictOfError(error, config, 0, 0).kind === "poison") return;
        throw failureOf(error, config, context.clock.now());
      }
    },
  };

  function* allLines(batch: readonly Event[], unreadable: Map<number, string>): Generator<Line> {
    for (const [owner, event] of batch.entries()) {
      try {
        for (const text of linesOf(event, settings)) yield { owner, text };
      } catch (error) {
        unreadable.set(owner, error instanceof Error ? error.message : String(error));
      }
    }
  }
}

function pathOf(config: InfluxConfig): string {
  if (config.api === "v2") {
    const query = new URLSearchParams({ org: config.org, bucket: config.bucket ?? "", precision: "ms" });
    return `/api/v2/write?${query.toString()}`;
  }
  const query = new URLSearchParams({ db: config.database ?? "", precision: "ms" });
  if (config.retention_policy !== undefined) query.set("rp", config.retention_policy);
  return `/write?${query.toString()}`;
}

function authorizationOf(config: InfluxConfig): string | null {
  if (config.token !== undefined) return `Token ${readSecret(config.token).reveal()}`;
  if (config.username === undefined || config.password === undefined) return null;
  const pair = `${config.username}:${readSecret(config.password).reveal()}`;
  return `Basic ${Buffer.from(pair).toString("base64")}`;
}

function certificates(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new ConfigError(`The certificate file ${path} cannot be read.`, { field: "ca_file", cause: error });
  }
}
