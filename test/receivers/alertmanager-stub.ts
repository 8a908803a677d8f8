import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { SeenRequest, StubAnswer } from "../connectors/stub-server.ts";
import { json, startReceiverStub, type Thing } from "./receiver-server.ts";

export interface KeptAlert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly startsAt: string;
  readonly endsAt: string;
  readonly fingerprint: string;
}

interface Entry {
  alert: KeptAlert;
  isTimeout: boolean;
  readonly texts: string[];
}

const RESOLVE_TIMEOUT_MS = 5 * 60_000;
/** RFC 3339, as the schema of its interface wants it. */
const DATE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/** Alertmanager in process, with the rules of 0.25 as they were measured at Debian's. */
export async function startAlertmanagerEnd(now: () => number = Date.now) {
  const { common, interrupt } = await startReceiverStub({ status: 429, headers: { "retry-after": "1" } });
  const { stub } = common;
  let kept = new Map<string, Entry>();
  const told = new Map<string, { key: string | null; texts: string[] }>();
  let requests = 0;

  function take(posted: Partial<KeptAlert>): string | null {
    const labels = Object.fromEntries(Object.entries(posted.labels ?? {}).filter(([, value]) => value !== ""));
    const names = Object.keys(labels);
    if (names.length === 0) return "at least one label pair required";
    const wrong = names.find((name) => !/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(name));
    if (wrong !== undefined) return `invalid label name "${wrong}"`;
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
    const thing = told.get(fingerprint) ?? { key: labels.key ?? null, texts: [] };
    thing.texts.push(Object.values(annotations).join("\n"));
    told.set(fingerprint, thing);
    const old = kept.get(fingerprint);
    kept.set(fingerprint, { alert: merged(old, alert, now()), isTimeout, texts: thing.texts });
    return null;
  }

  function post(seen: SeenRequest): StubAnswer {
    const posted = JSON.parse(seen.body.toString()) as Partial<KeptAlert>[];
    // Measured: the good ones of a refused request are taken.
    const complaints = posted.map(take).filter((complaint) => complaint !== null);
    if (complaints.length === 0) return { status: 200 };
    const body = JSON.stringify(complaints.join("; "));
    return { status: 400, headers: { "content-type": "application/json" }, body };
  }

  function answer(seen: SeenRequest, response: ServerResponse): StubAnswer | null {
    const path = seen.url.split("?")[0];
    if (seen.method === "GET" && path === "/api/v2/status") return json(200, STATUS);
    if (seen.method === "GET" && path === "/api/v2/alerts") {
      return json(
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
    alerts: () => [...kept.values()].map(({ alert }) => alert),
    things: (): readonly Thing[] =>
      [...told].map(([fingerprint, { key, texts }]) => {
        const there = kept.get(fingerprint);
        return { key, texts, isOpen: there !== undefined && Date.parse(there.alert.endsAt) > now() };
      }),
    forget() {
      kept = new Map();
    },
    requests: () => requests,
  };
  stub.answer = answer;
  return end;
}

function merged(old: Entry | undefined, alert: KeptAlert, now: number): KeptAlert {
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

const STATUS = {
  cluster: { peers: [], status: "disabled" },
  config: { original: "route:\n  receiver: default\n" },
  uptime: "2026-11-22T10:00:00.000Z",
  versionInfo: { branch: "debian/sid", version: "0.25.0" },
};
