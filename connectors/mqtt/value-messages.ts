import type { TagValue } from "../../src/core/model/building.ts";
import { type Event, eventSourceName } from "../../src/core/model/event.ts";
import type { MqttConfig } from "./config.ts";
import type { ValueMessage } from "./message-schemas.ts";
import type { MqttMessage } from "./publish-packets.ts";

type ValueMessageOptions = Pick<MqttConfig, "payload" | "retain">;

/** Returns the JSON message of a live value, the bare value and its quality, as the option `payload` selects. */
export function buildValueMessages(
  event: Event<"tag-value">,
  formatTopic: (aspect: string) => string,
  { payload, retain }: ValueMessageOptions,
  properties: MqttMessage["properties"],
): readonly MqttMessage[] {
  const valueMessage: MqttMessage = {
    topic: formatTopic("value"),
    payload: payload === "plain" ? "" : JSON.stringify(buildValueBody(event)),
    retain: retain.values,
    contentType: "application/json",
    properties,
  };
  if (payload === "json") return [valueMessage];
  const { quality, value } = event.data;
  const buildPlainMessage = (aspect: string, text: string): MqttMessage => ({
    ...valueMessage,
    topic: formatTopic(aspect),
    payload: text,
    contentType: "text/plain",
  });
  // The quality follows its value: `good` first would apply to the value before.
  return [
    ...(payload === "both" ? [valueMessage] : []),
    ...(value === null ? [] : [buildPlainMessage(payload === "both" ? "value/plain" : "value", formatPlain(value))]),
    buildPlainMessage("quality", quality),
  ];
}

/** Builds the message of a live value. A value that is `bad` or `stale` is null, never 0. */
function buildValueBody(event: Event<"tag-value">): ValueMessage {
  const { tag, value, quality, time, latencyMs, lastGood, behindGateway, staleReason, type } = event.data;
  return {
    ts: time,
    value: withDecimal(value),
    quality,
    unit: tag.unit,
    name: tag.displayName,
    alias: tag.alias ?? null,
    description: tag.description,
    tag: tag.id,
    source: eventSourceName(event),
    site: event.siteid ?? null,
    lastGoodValue: lastGood === null ? null : withDecimal(lastGood.value),
    lastGoodTime: lastGood === null ? null : lastGood.time,
    staleReason: staleReason ?? null,
    behindGateway,
    typeBefore: type === undefined ? null : type.before,
    typeNow: type === undefined ? null : type.now,
    latencyMs,
    id: event.id,
  };
}

const INTEGER_PART = /^-?\d+(?=e|$)/;

function formatPlain(value: number | boolean): string {
  return typeof value === "number" ? String(value).replace(INTEGER_PART, "$&.0") : String(value);
}

declare global {
  interface JSON {
    /** A value that `JSON.stringify` writes as this text. The library of TypeScript 7.0 does not declare it. */
    rawJSON(text: string): unknown;
  }
}

/** Makes `JSON.stringify` write a measured number with a decimal point, e.g. `20.0`, so that its type never changes. */
export function withDecimal<V extends TagValue>(value: V): V {
  if (typeof value !== "number" || String(value).includes(".")) return value;
  return JSON.rawJSON(formatPlain(value)) as V;
}

/** Writes the integers of a JSON list of points with a decimal point. */
export function withDecimals(pointsJson: string): string {
  return pointsJson.replace(/"value":-?\d+(?=[,}])/g, "$&.0");
}
