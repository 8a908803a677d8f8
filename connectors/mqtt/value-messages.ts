import type { TagValue } from "../../src/core/model/building.ts";
import { type Event, eventSourceName } from "../../src/core/model/event.ts";
import type { MqttConfig } from "./config.ts";
import type { MessageOf } from "./message-schemas.ts";
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
    payload: payload === "plain" ? "" : formatValueMessage(event),
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
  // Send the value before its quality. A subscriber would apply an earlier quality to the previous value.
  return [
    ...(payload === "both" ? [valueMessage] : []),
    ...(value === null ? [] : [buildPlainMessage(payload === "both" ? "value/plain" : "value", formatPlain(value))]),
    buildPlainMessage("quality", quality),
  ];
}

/** Formats the message of a live value. A value that is `bad` or `stale` is null, never 0. */
function formatValueMessage(event: Event<"tag-value">): string {
  const { tag, value, quality, time, latencyMs, lastGood, behindGateway, staleReason, type } = event.data;
  const fields: Omit<MessageOf<"value">, "value" | "lastGoodValue"> = {
    ts: time,
    quality,
    unit: tag.unit,
    name: tag.displayName,
    alias: tag.alias ?? null,
    description: tag.description,
    tag: tag.id,
    source: eventSourceName(event),
    site: event.siteid ?? null,
    lastGoodTime: lastGood === null ? null : lastGood.time,
    staleReason: staleReason ?? null,
    behindGateway,
    typeBefore: type === undefined ? null : type.before,
    typeNow: type === undefined ? null : type.now,
    latencyMs,
    id: event.id,
  };
  const lastGoodText = formatPlain(lastGood === null ? null : lastGood.value);
  // Format the two values directly: `formatMeasurements`, which searches the JSON, would take a third longer.
  return `{"value":${formatPlain(value)},"lastGoodValue":${lastGoodText},${JSON.stringify(fields).slice(1)}`;
}

function formatPlain(value: TagValue): string {
  if (Number.isSafeInteger(value)) return `${value}.0`;
  const text = String(value);
  return typeof value !== "number" || text.includes(".") ? text : text.replace(/^-?\d+(?=e|$)/, "$&.0");
}

/** A measured number without a decimal point. Texts cannot match, because their quotes are escaped. */
const INTEGER_MEASUREMENT = /"(?:value|lastGoodValue|total|requested|before|readBack|inForce|wanted)":-?\d+(?=[,}e])/g;

/** Formats a message so that measured numbers always have a decimal point, e.g. `20.0`: their type never changes. */
export const formatMeasurements = (body: object): string => addDecimalPoints(JSON.stringify(body));

export const addDecimalPoints = (json: string): string => json.replace(INTEGER_MEASUREMENT, "$&.0");
