import { hash } from "node:crypto";
import type { Transport } from "#src/engine/source/transport.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";

export const CONTRADICTIONS = [
  /** Numbers arrive as JSON text, `"21.50"`, as PHP prints DECIMAL columns. */
  "text numbers",
  /** Values arrive as text that is no number, or as objects. */
  "unreadable values",
  /** A reply holds a tag twice, with different values. */
  "doubled records",
  /** All times of alarms are printed hours too late or too early. */
  "shifted times",
  /** Active alarms say "resolved", without a time; the resolved list does not contain them. */
  "false resolved",
  /** Tags that are numbers are read as booleans. */
  "changed types",
  "numeric ids",
] as const;
export type Contradiction = (typeof CONTRADICTIONS)[number];

type JsonRecord = Record<string, unknown>;
type Endpoint = "read" | "write" | "history" | "alarms" | "list";

interface Request {
  readonly endpoint: Endpoint;
  readonly query: URLSearchParams;
}

/** Each contradiction affects half or all of the tags and alarms, the same ones until it ends. */
export function createContradictions(random: SeededRandom) {
  const active = new Map<Contradiction, (id: string) => boolean>();
  const counts = Object.fromEntries(CONTRADICTIONS.map((kind) => [kind, 0])) as Record<Contradiction, number>;
  /** Keys of the unreadable points: `<tag> <resolution> <start>`. */
  const unreadable = new Set<string>();
  let shiftMs = 0;

  function rewrite(kind: Contradiction, records: JsonRecord[], request: Request): JsonRecord[] {
    const isChosen = active.get(kind) ?? (() => false);
    const count = () => {
      counts[kind] += 1;
    };
    switch (kind) {
      case "text numbers":
        return eachValue(records, isChosen, (value) => {
          if (typeof value !== "number") return value;
          count();
          return asDecimal(value);
        });
      case "unreadable values":
        return eachValue(records, isChosen, (value, record, at) => {
          if (value === null) return value;
          count();
          if (at !== null) unreadable.add(pointKey(record, request, at));
          return typeof value === "boolean" ? {} : "n/a";
        });
      case "doubled records":
        return records.flatMap((record) => {
          const other = "value" in record || "measurements" in record ? otherValues(record) : null;
          if (other === null || !isChosen(String(record.id))) return [record];
          count();
          for (const { timestamp } of measurementsOf(record)) unreadable.add(pointKey(record, request, timestamp));
          return hashOf(String(record.id)) % 2 === 0 ? [record, other] : [other, record];
        });
      case "shifted times":
        if (request.endpoint !== "alarms") return records;
        return records.map((record) => {
          count();
          return shifted(record, shiftMs) as JsonRecord;
        });
      case "false resolved":
        if (request.endpoint !== "alarms" || (request.query.get("status") ?? "active") !== "active") return records;
        return records.map((record) => {
          if (!isChosen(String(record.id))) return record;
          count();
          return {
            ...record,
            attributes: { ...(record.attributes as JsonRecord), status: "resolved", resolved_at: null },
          };
        });
      case "changed types":
        if (request.endpoint !== "read") return records;
        return eachValue(records, isChosen, (value) => {
          if (typeof value !== "number") return value;
          count();
          return value > 10;
        });
      case "numeric ids":
        return records.map((record) => {
          if (typeof record.id !== "string" || !/^[1-9]\d{0,15}$/.test(record.id)) return record;
          count();
          return { ...record, id: Number(record.id) };
        });
    }
  }

  return {
    counts,
    unreadable,
    begin(kind: Contradiction) {
      const salt = random.below(2 ** 31);
      const all = random.chance(0.3);
      active.set(kind, (id) => all || hashOf(`${salt} ${id}`) % 2 === 0);
      if (kind === "shifted times") shiftMs = random.pick([-2, -1, 1, 1, 2]) * 3_600_000;
    },
    end(kind: Contradiction) {
      active.delete(kind);
    },
    around:
      (transport: Transport): Transport =>
      async (request, signal) => {
        const reply = await transport(request, signal);
        if (active.size === 0 || reply.status !== 200) return reply;
        const parsed = parse(reply.body);
        if (parsed === null) return reply;
        const [path = "", query] = request.path.split("?");
        const asked: Request = { endpoint: endpointOf(path), query: new URLSearchParams(query) };
        // Change ids last, because the other kinds match on text ids.
        const kinds = CONTRADICTIONS.filter((kind) => active.has(kind));
        const data = kinds.reduce((records, kind) => rewrite(kind, records, asked), parsed.data);
        return { ...reply, body: new TextEncoder().encode(JSON.stringify({ ...parsed, data })) };
      },
  };
}

function parse(body: Uint8Array): (JsonRecord & { readonly data: JsonRecord[] }) | null {
  try {
    const parsed = JSON.parse(new TextDecoder().decode(body)) as JsonRecord;
    return Array.isArray(parsed.data) ? (parsed as JsonRecord & { data: JsonRecord[] }) : null;
  } catch {
    return null;
  }
}

function endpointOf(path: string): Endpoint {
  const last = path.split("/").at(-1);
  return last === "read" || last === "write" || last === "history" || last === "alarms" ? last : "list";
}

interface SentMeasurement {
  readonly timestamp: string;
  readonly value: unknown;
}

function measurementsOf(record: JsonRecord): readonly SentMeasurement[] {
  const { measurements } = record;
  if (!Array.isArray(measurements)) return [];
  return measurements.filter((each) => typeof each === "object" && each !== null);
}

function pointKey(record: JsonRecord, { query }: Request, timestamp: string): string {
  return `${String(record.id)} ${query.get("resolution")} ${Date.parse(timestamp)}`;
}

type Change = (value: unknown, record: JsonRecord, timestamp: string | null) => unknown;

/** Changes the values of the chosen tags in reads and logs. */
function eachValue(records: JsonRecord[], isChosen: (id: string) => boolean, change: Change): JsonRecord[] {
  return records.map((record) => {
    if (!isChosen(String(record.id))) return record;
    const changed = { ...record };
    if ("value" in record) changed.value = change(record.value, record, null);
    const logged = measurementsOf(record);
    if (logged.length > 0)
      changed.measurements = logged.map((each) => ({ ...each, value: change(each.value, record, each.timestamp) }));
    return changed;
  });
}

function asDecimal(value: number): string {
  const text = String(value);
  return /^-?\d+\.\d+$/.test(text) ? `${text}0` : text;
}

function otherValues(record: JsonRecord): JsonRecord | null {
  let differs = false;
  const [other] = eachValue(
    [record],
    () => true,
    (value) => {
      if (value === null) return value;
      differs = true;
      return typeof value === "number" ? value + 100_000 : value !== true;
    },
  );
  return differs && other !== undefined ? other : null;
}

const STAMP = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(.*)$/;

/** Shifts the local time of every timestamp and keeps its offset, as a server with a wrong time zone does. */
function shifted(value: unknown, byMs: number): unknown {
  if (typeof value === "string") {
    const [, local, rest] = STAMP.exec(value) ?? [];
    if (local === undefined) return value;
    return `${new Date(Date.parse(`${local}Z`) + byMs).toISOString().slice(0, 19)}${rest}`;
  }
  if (Array.isArray(value)) return value.map((each) => shifted(each, byMs));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, shifted(each, byMs)]));
}

function hashOf(text: string): number {
  return hash("sha256", text, "buffer").readUInt8(0);
}
