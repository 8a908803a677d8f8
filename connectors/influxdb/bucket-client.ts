import { escape as escaped, HttpError } from "@influxdata/influxdb-client";
import type { ServerInstance } from "../../src/core/connector.ts";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { findErrorInSuccessResponse, isWrongPathError, parseErrorText } from "./classify-write-response.ts";
import type { InfluxConfig } from "./config.ts";
import type { InfluxClient } from "./http-client.ts";

export function createBucketClient(config: InfluxConfig, writePath: string, getClient: () => InfluxClient) {
  const database = config.database ?? "";

  async function runQuery(statement: string, signal: AbortSignal): Promise<string> {
    const { body } = await getClient().post(`/query?q=${encodeURIComponent(statement)}`, "", signal);
    // InfluxDB 1.x responds 200 to a failed statement.
    if (!/"error"/.test(body)) return body;
    throw new ConfigError(`The server refused ${statement}: ${body.slice(0, 300)}`, { field: "database" });
  }

  return {
    createDatabase: (signal: AbortSignal) => runQuery(`CREATE DATABASE ${escaped.quoted(database)}`, signal),

    async checkCreatePermission(signal: AbortSignal): Promise<void> {
      try {
        // This statement needs the same right (all privileges) as CREATE DATABASE.
        await runQuery("SHOW USERS", signal);
      } catch (error) {
        const isAccessRefused = error instanceof HttpError && (error.statusCode === 401 || error.statusCode === 403);
        if (!isAccessRefused && !(error instanceof ConfigError)) throw error;
        const serverErrorText = error instanceof HttpError ? parseErrorText(error.body ?? "") : null;
        const message = `There is no database "${database}", and we may not create it: ${serverErrorText ?? error.message}`;
        const hint = `Let a person with all privileges do CREATE DATABASE "${database}".`;
        throw new ConfigError(message, { reason: "forbidden", field: "create_database", hint });
      }
    },

    /** Returns true if the bucket is missing. Rejects for every other error. */
    async isBucketMissing(signal: AbortSignal): Promise<boolean> {
      try {
        const failure = findErrorInSuccessResponse(await getClient().post(writePath, "", signal), config);
        if (failure !== null) throw failure;
        return false;
      } catch (error) {
        if (!(error instanceof HttpError) || isWrongPathError(error)) throw error;
        // Some servers respond 400 to a write with an empty body if the database exists.
        if (error.statusCode === 400 || error.statusCode === 422) return false;
        if (error.statusCode === 404) return true;
        throw error;
      }
    },

    retentionMs: (signal: AbortSignal) =>
      config.api === "v1" ? readPolicyRetentionMs(signal) : readBucketRetentionMs(signal),
  };

  async function readPolicyRetentionMs(signal: AbortSignal): Promise<number | null> {
    const rows = parseFirstRows(await runQuery(`SHOW RETENTION POLICIES ON ${escaped.quoted(database)}`, signal));
    const policyName = config.retention_policy;
    const policy = rows.find((row) => (policyName === undefined ? row.default === true : row.name === policyName));
    return typeof policy?.duration === "string" ? parseGoDurationMs(policy.duration) : null;
  }

  async function readBucketRetentionMs(signal: AbortSignal): Promise<number | null> {
    const bucketQuery = new URLSearchParams({ name: config.bucket ?? "", ...(config.org ? { org: config.org } : {}) });
    const { body } = await getClient().get(`/api/v2/buckets?${bucketQuery.toString()}`, signal);
    const { buckets } = JSON.parse(body) as { buckets?: { name?: unknown; retentionRules?: unknown }[] };
    const bucket = buckets?.find(({ name }) => name === config.bucket);
    if (!Array.isArray(bucket?.retentionRules)) return null;
    const retentionSeconds = bucket.retentionRules.map((rule: { everySeconds?: unknown }) => Number(rule.everySeconds));
    return Math.min(...retentionSeconds.filter((seconds) => seconds > 0)) * 1_000;
  }
}

function parseFirstRows(body: string): readonly Record<string, unknown>[] {
  const { results = [] } = JSON.parse(body) as {
    results?: { series?: { columns: string[]; values?: unknown[][] }[] }[];
  };
  return (results[0]?.series ?? []).flatMap(({ columns, values = [] }) =>
    values.map((row) => Object.fromEntries(columns.map((name, columnIndex) => [name, row[columnIndex]]))),
  );
}

/** Parses a Go duration such as `720h0m0s`; 0 means forever. */
function parseGoDurationMs(text: string): number | null {
  const goDurationMatch = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?$/.exec(text);
  if (goDurationMatch === null || text === "") return null;
  const [, hours = "0", minutes = "0", seconds = "0"] = goDurationMatch;
  const durationMs = Number(hours) * 3_600_000 + Number(minutes) * 60_000 + Number(seconds) * 1_000;
  return durationMs === 0 ? Number.POSITIVE_INFINITY : durationMs;
}

const MAX_METRICS_RESPONSE_BYTES = 4 * 1024 ** 2;

/** Detects a restart by the start time in the metrics of the server. Returns null if the metrics are not available. */
export async function detectInfluxRestart(
  httpClient: Pick<InfluxClient, "get">,
  storedInstance: string | null,
  signal: AbortSignal,
): Promise<ServerInstance | null> {
  let body: string;
  try {
    body = (await httpClient.get("/metrics", signal, MAX_METRICS_RESPONSE_BYTES)).body;
  } catch (error) {
    if (error instanceof HttpError) return null;
    throw error;
  }
  const serverStartSeconds = parseProcessStartSeconds(body);
  if (serverStartSeconds === null) return null;
  const storedStartSeconds = storedInstance === null ? Number.NaN : Number(storedInstance);
  // Keep the latest start time. Otherwise two servers behind one address would look restarted at each check.
  if (serverStartSeconds <= storedStartSeconds) return { instanceId: String(storedStartSeconds), isNew: false };
  return { instanceId: String(serverStartSeconds), isNew: storedInstance !== null };
}

export function parseProcessStartSeconds(metricsText: string): number | null {
  const [, secondsText] = /^process_start_time_seconds(?:\{[^}]*\})? ([0-9.eE+]+)/m.exec(metricsText) ?? [];
  const startSeconds = Number(secondsText);
  return secondsText === undefined || !Number.isFinite(startSeconds) || startSeconds <= 0 ? null : startSeconds;
}
