import { encodeEventLines } from "#connectors/influxdb/event-points.ts";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { buildMessages } from "#connectors/mqtt/event-messages.ts";
import { createTopics } from "#connectors/mqtt/topics.ts";
import { emitEventRows } from "#connectors/shared/lake/event-rows.ts";
import type { Event } from "#src/core/model/event.ts";
import { parseLines } from "../line-protocol.ts";

/** Where one field of an event's data arrives: names of InfluxDB tags and fields, lake columns and MQTT keys. */
export interface FieldDestinations {
  readonly influxdb: readonly string[];
  readonly lake: readonly string[];
  readonly mqtt: readonly string[];
}

export function findFieldDestinations(event: Event, field: string): FieldDestinations {
  const data = event.data as unknown as Readonly<Record<string, unknown>>;
  const [name = "", inner] = field.split(".");
  const values = inner === undefined ? listChangedValues(data[name], name) : [{ ...Object(data[name]), [inner]: "x" }];
  const variants = values.map((value) => ({ ...event, data: { ...data, [name]: value } }) as unknown as Event);
  const differing = (write: (one: Event) => ReadonlyMap<string, string>) => {
    const valuesBefore = write(event);
    const names = variants.flatMap((variant) => {
      const changed = attempt(() => write(variant));
      if (changed === null) return [];
      return [...new Set([...valuesBefore.keys(), ...changed.keys()])].filter(
        (name) => valuesBefore.get(name) !== changed.get(name),
      );
    });
    return [...new Set(names)].toSorted();
  };
  return { influxdb: differing(influxNames), lake: differing(lakeColumns), mqtt: differing(mqttKeys) };
}

function influxNames(event: Event): ReadonlyMap<string, string> {
  const pointLines = [...encodeEventLines(event, { prefix: "", tags: {} })].map(({ text }) => text).join("\n");
  return collect(
    parseLines(pointLines).flatMap(({ tags, fields, timeMs }) => [
      ...Object.entries({ ...tags, ...fields }),
      ["time", timeMs] as const,
    ]),
  );
}

function lakeColumns(event: Event): ReadonlyMap<string, string> {
  const cells: (readonly [string, unknown])[] = [];
  emitEventRows({ event, position: 1, committedAt: event.time }, (table, row) => {
    table.columns.forEach(({ name }, index) => void cells.push([`${table.name}.${name}`, row[index]]));
  });
  return collect(cells);
}

function mqttKeys(event: Event): ReadonlyMap<string, string> {
  const topics = createTopics("plenum", "{prefix}/{source}/{site}/{kind}/{id}");
  const messages = buildMessages(event, topics, MqttConfig.parse({ url: "mqtts://broker.example" }));
  return collect(
    messages.flatMap(({ topic, payload }) => {
      const body: unknown = typeof payload === "string" && payload !== "" ? JSON.parse(payload) : {};
      return [["topic", topic] as const, ...listBodyKeys(body)];
    }),
  );
}

function listBodyKeys(body: unknown): readonly (readonly [string, unknown])[] {
  if (typeof body !== "object" || body === null) return [];
  const all = body as Readonly<Record<string, unknown>>;
  if ("specversion" in all) return Object.entries((all.data ?? {}) as object).map(([k, v]) => [`data.${k}`, v]);
  return Object.entries(all);
}

function collect(entries: readonly (readonly [string, unknown])[]): ReadonlyMap<string, string> {
  const all = new Map<string, string>();
  for (const [name, value] of entries) all.set(name, `${all.get(name) ?? ""}|${JSON.stringify(value)}`);
  return all;
}

function listChangedValues(value: unknown, name: string): readonly unknown[] {
  if (typeof value === "number") return [value + 1];
  if (typeof value === "boolean") return [!value];
  if (typeof value === "string") {
    if (/^\d{4}-\d\d-\d\dT/.test(value)) return [new Date(Date.parse(value) + 1_000).toISOString()];
    if (/^\d{4}-\d\d-\d\d$/.test(value)) return ["2026-01-01"];
    return [`${value}x`];
  }
  if (value === null || value === undefined) return ["2026-11-02T06:20:01.000Z", 1, true];
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value;
    return [[], ...items.flatMap((item, index) => listChangedValues(item, name).map((one) => items.with(index, one)))];
  }
  return Object.entries(value as object).flatMap(([key, inner]) =>
    listChangedValues(inner, key).map((one) => ({ ...(value as object), [key]: one })),
  );
}

function attempt<T>(write: () => T): T | null {
  try {
    return write();
  } catch {
    return null;
  }
}
