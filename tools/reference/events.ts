import { encodeEventLines } from "../../connectors/influxdb/event-points.ts";
import { KafkaConfig } from "../../connectors/kafka/config.ts";
import { buildKafkaRecord } from "../../connectors/kafka/event-records.ts";
import { createTopicTemplate as createKafkaTopics } from "../../connectors/kafka/topic-template.ts";
import { MqttConfig } from "../../connectors/mqtt/config.ts";
import { buildMessages } from "../../connectors/mqtt/event-messages.ts";
import type { MqttMessage } from "../../connectors/mqtt/publish-packets.ts";
import { createTopics } from "../../connectors/mqtt/topics.ts";
import { emitEventRows } from "../../connectors/shared/lake/event-rows.ts";
import { buildWebhookHeaders, buildWebhookPayload, parseSigningKey } from "../../connectors/webhook/sink.ts";
import { type Event, toCloudEvent } from "../../src/core/model/event.ts";
import { Secret } from "../../src/core/runtime/log.ts";
import type { EventTypes, Field, KindType, Shape } from "./event-types.ts";
import { anchor, code, fenced, json, page, table } from "./markdown.ts";

/** Generates the page of all event kinds: fields, an example, and the form of the example at each connector. */

export const EVENTS_FILE = "docs/reference/events.md";

export function eventsText(types: EventTypes, samples: readonly Event[]): string {
  return page(
    INTRODUCTION,
    kindList(types.kinds),
    "## The envelope",
    "The attributes of CloudEvents 1.0 that an event has besides `specversion` and `datacontenttype`.",
    fieldsTable(types.envelope),
    ...types.kinds.map((kind) => kindSection(kind, samples)),
    "## Shapes",
    "What the data of several kinds have in common.",
    ...[...types.shapes.values()]
      .toSorted((a, b) => a.name.localeCompare(b.name))
      .map((shape) => page(`### ${shape.name}`, shape.about, fieldsTable(shape)).trimEnd()),
  );
}

function kindList(kinds: readonly KindType[]): string {
  return table(
    ["Kind", "Emitted when"],
    kinds.map(({ kind, about }) => [`[\`${kind}\`](#${anchor(kind)})`, about]),
  );
}

function fieldsTable({ fields }: Shape): string {
  return table(
    ["Field", "Type", "Meaning"],
    fields.map((field) => [code(field.name), typeText(field), field.about]),
  );
}

function typeText({ type, shapes, optional }: Field): string {
  const linked = shapes.reduce(
    (text, name) => text.replace(new RegExp(`\\b${name}\\b`), `[${name}](#${anchor(name)})`),
    type,
  );
  return optional ? `${linked}; may be left out` : linked;
}

function kindSection({ kind, about, forms }: KindType, samples: readonly Event[]): string {
  const events = samples.filter(({ type }) => type === kind);
  if (events.length === 0) throw new Error(`There is no example of ${kind}.`);
  const fields =
    forms.length === 1
      ? forms.map(fieldsTable)
      : forms.flatMap((form) => [`**${form.name}.** ${form.about}`, fieldsTable(form)]);
  const examples = events.flatMap((event) => [fenced("json", json(toCloudEvent(event))), ...deliveries(event)]);
  return page(`## ${kind}`, about, ...fields, ...examples).trimEnd();
}

const mqttOptions = MqttConfig.parse({ url: "mqtts://broker.example" });
const topics = createTopics(mqttOptions.prefix, mqttOptions.topic);
const kafkaTopics = createKafkaTopics(KafkaConfig.shape.topic.parse(undefined));
const EXAMPLE_KEY = parseSigningKey(new Secret(`whsec_${Buffer.alloc(24, "example").toString("base64")}`));

function deliveries(event: Event): readonly string[] {
  const record = buildKafkaRecord(event, kafkaTopics.buildTopic(event));
  const payload = buildWebhookPayload(event, "cloudevents");
  const seconds = Math.floor(Date.parse(event.time) / 1_000);
  const headers = buildWebhookHeaders(event, payload, { seconds, keys: [EXAMPLE_KEY], sequence: null });
  const lines = [...encodeEventLines(event, { prefix: "", tags: {} })].map(({ text }) => String(text));
  const rows = new Set<string>();
  emitEventRows({ event, position: 1, committedAt: event.time }, ({ name }) => rows.add(name));
  const messages = buildMessages(event, topics, mqttOptions);
  const isSentAsEvent = messages.some(({ contentType }) => contentType === "application/cloudevents+json");
  const deliveryRows = [
    ...messages.map((message) => ["MQTT", messageText(message)]),
    ["Kafka", `topic ${code(record.topic)}, key ${code(record.key.toString())}`],
    ["Lake", rowsText(rows)],
  ];
  return [
    table(["At", "It is"], deliveryRows),
    ...(isSentAsEvent
      ? []
      : messages.flatMap(({ payload }) => ["In MQTT:", fenced("json", json(JSON.parse(payload)))])),
    "Line protocol:",
    fenced("text", lines.join("\n")),
    "Headers of the request, and of Kafka's record:",
    fenced("http", [headerLines(Object.entries(headers)), headerLines([...record.headers])].join("\n\n")),
  ];
}

function headerLines(headers: readonly (readonly [string | Buffer, string | Buffer])[]): string {
  return headers.map(([name, value]) => `${name}: ${value}`).join("\n");
}

function rowsText(names: ReadonlySet<string>): string {
  if (names.size === 0) return "no row";
  return `rows of ${[...names].map((name) => `[\`${name}\`](../lake/tables.md#${name})`).join(", ")}`;
}

function messageText({ topic, payload, retain, contentType }: MqttMessage): string {
  if (payload === "") return `topic ${code(topic)}, empty and retained: deletes the retained message`;
  return `topic ${code(topic)}, ${contentType}${retain ? ", retained" : ""}`;
}

const INTRODUCTION = `# Events

All kinds of events, generated by \`npm run reference\` from the types and the connectors. [promise.md](../promise.md) says what
you can rely on: delivery at least once, order, and the same id after every retry.

Each section has the fields of \`data\` and an example as a CloudEvent, as in a \`file\`, a \`webhook\` and MQTT's \`event\` topics.
Measurements have a different message in MQTT, which is shown too. Then it shows the example at each connector with its
default topics: line protocol (\`influxdb\`, timestamps in milliseconds), and the headers of the request (\`webhook\`, signed with
an example key) and of the record (\`kafka\`). The \`filter\` of a sink selects kinds.

Texts are as the service writes them. A time ends with \`Z\`; a time that the service states without an offset is unchanged.`;
