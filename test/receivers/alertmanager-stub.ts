import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { SeenRequest, StubResponse } from "../connectors/stub-server.ts";
import { jsonReply, type ReceiverIncident, startReceiverStub } from "./receiver-server.ts";

export interface StoredAlert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly startsAt: string;
  readonly endsAt: string;
  readonly fingerprint: string;
}

interface AlertEntry {
  alert: StoredAlert;
  isTimeout: boolean;
  readonly texts: string[];
}

const RESOLVE_TIMEOUT_MS = 5 * 60_000;
/** RFC 3339, as the schema of its interface wants it. */
const DATE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/** Alertmanager in process, with the rules of 0.25 as they were measured at Debian's. */
export async function startAlertmanagerStub(now: () => number = Date.now) {
  const { common, interrupt } = await startReceiverStub({ status: 429, headers: { "retry-after": "1" } });
  const { stub } = common;
  let entries = new Map<string, AlertEntry>();
  const sentByFingerprint = new Map<string, { key: string | null; texts: string[] }>();
  let requests = 0;

  function storeAlert(posted: Partial<StoredAlert>): string | null {
    const labels = Object.fromEntries(Object.entries(posted.labels ?? {}).filter(([, value]) => value !== ""));
    const names = Object.keys(labels);
    if (names.length === 0) return "at least one label pair required";
    const invalidName = names.find((name) => !/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(name));
    if (invalidName !== undefined) return `invalid label name "${invalidName}"`;
    for (const time of [posted.startsAt, posted.endsAt]) {
      if (time !== undefined && !DATE_TIME.test(time)) return `parsing datetime "${time}": invalid`;
    }
    const isTimeout = posted.endsAt === undefined;
    const endsAt = posted.endsAt ?? new Date(now() + RESOLVE_TIMEOUT_MS).toISOString();
    // Measured: a start that is left out becomes the end where that is in the future.
    const startsAt = posted.startsAt ?? endsAt;
    if (Date.parse(endsAt) < Date.parse(startsAt)) return "start time must be before end time";
    const fingerprint = createHash("md5").update(JSON.stringify(labels, names.toSorted())).digest("hex");
    const annotations = posted.annotations ?? {};
    const alert = { labels, annotations, startsAt, endsAt, fingerprint };
    const incident = sentByFingerprint.get(fingerprint) ?? { key: labels.key ?? null, texts: [] };
    incident.texts.push(Object.values(annotations).join("\n"));
    sentByFingerprint.set(fingerprint, incident);
    const old = entries.get(fingerprint);
    entries.set(fingerprint, { alert: mergeAlerts(old, alert, now()), isTimeout, texts: incident.texts });
    return null;
  }

  function post(seen: SeenRequest): StubResponse {
    const posted = JSON.parse(seen.body.toString()) as Partial<StoredAlert>[];
    // Measured: the good ones of a refused request are taken.
    const errors = posted.map(storeAlert).filter((complaint) => complaint !== null);
    if (errors.length === 0) return { status: 200 };
    const body = JSON.stringify(errors.join("; "));
    return { status: 400, headers: { "content-type": "application/json" }, body };
  }

  function handleRequest(seen: SeenRequest, response: ServerResponse): StubResponse | null {
    const path = seen.url.split("?")[0];
    if (seen.method === "GET" && path === "/api/v2/status") return jsonReply(200, STATUS_RESPONSE);
    if (seen.method === "GET" && path === "/api/v2/alerts") {
      return jsonReply(
        200,
        end.alerts().filter(({ endsAt }) => Date.parse(endsAt) > now()),
      );
    }
    if (seen.method !== "POST" || path !== "/api/v2/alerts") return { status: 404, body: "404 page not found" };
    requests += 1;
    return interrupt(() => post(seen), response);
  }

  const end = {
    ...common,
    url: stub.url,
    seen: stub.seen,
    config: { url: stub.url, allow_networks: ["127.0.0.0/8"] },
    alerts: () => [...entries.values()].map(({ alert }) => alert),
    incidents: (): readonly ReceiverIncident[] =>
      [...sentByFingerprint].map(([fingerprint, { key, texts }]) => {
        const storedEntry = entries.get(fingerprint);
        return { key, texts, isOpen: storedEntry !== undefined && Date.parse(storedEntry.alert.endsAt) > now() };
      }),
    forget() {
      entries = new Map();
    },
    requests: () => requests,
  };
  stub.respond = handleRequest;
  return end;
}

function mergeAlerts(old: AlertEntry | undefined, alert: StoredAlert, now: number): StoredAlert {
  if (old === undefined) return alert;
  const [start, end] = [Date.parse(alert.startsAt), Date.parse(alert.endsAt)];
  const [oldStart, oldEnd] = [Date.parse(old.alert.startsAt), Date.parse(old.alert.endsAt)];
  const overlaps = (end > oldStart && end < oldEnd) || (start > oldStart && start < oldEnd);
  if (!overlaps) return alert;
  const staysLonger = end > now ? oldEnd > end && !old.isTimeout : oldEnd <= now && oldEnd > end;
  return {
    ...alert,
    startsAt: oldStart < start ? old.alert.startsAt : alert.startsAt,
    endsAt: staysLonger ? old.alert.endsAt : alert.endsAt,
  };
}

const STATUS_RESPONSE = {
  cluster: { peers: [], status: "disabled" },
  config: { original: "route:\n  receiver: default\n" },
  uptime: "2026-11-22T10:00:00.000Z",
  versionInfo: { branch: "debian/sid", version: "0.25.0" },
};
