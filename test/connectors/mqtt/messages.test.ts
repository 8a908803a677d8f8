import { describe, expect, test } from "vitest";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { buildMessages } from "#connectors/mqtt/event-messages.ts";
import type { MqttMessage } from "#connectors/mqtt/publish-packets.ts";
import { createTopics } from "#connectors/mqtt/topics.ts";
import type { Event } from "#src/core/model/event.ts";
import { AWKWARD_TEXTS, sampleEvent, sampleOfEveryForm, staleEvent, TAG, valueEvent } from "../../sample-events.ts";
import { findSchemaProblem, SCHEMA_NAMES } from "./message-schema.ts";

const createOptions = (payload: MqttConfig["payload"]) => MqttConfig.parse({ url: "mqtts://broker.example", payload });
const options = createOptions("json");
const topics = createTopics(options.prefix, options.topic);
const messagesOf = (event: Event, payload: MqttConfig["payload"] = "json") =>
  buildMessages(event, topics, createOptions(payload));
const listTopics = (...args: Parameters<typeof sampleEvent<"alarm-resolved">>) =>
  messagesOf(sampleEvent(...args)).map(({ topic }) => topic);

test("publishes a stale value on the topic of the value, as null with the reason and the last good value", () => {
  const [message, ...others] = messagesOf(staleEvent());
  expect(others).toEqual([]);
  expect(message).toMatchObject({ topic: "plenum/main/1/tag/10042/value", retain: true });
  const lastGood = { lastGoodValue: 21.5, lastGoodTime: "2026-11-02T06:20:00.000Z" };
  const staleFields = { value: null, quality: "stale", staleReason: "out-of-scope", ...lastGood };
  expect(JSON.parse(message?.payload ?? "")).toMatchObject(staleFields);
});

test("publishes the status of a site as a retained message, and deletes it with the site", () => {
  const [message] = messagesOf(sampleEvent("site-status-changed"));
  expect(message).toMatchObject({ topic: "plenum/main/1/status", retain: true });
  const { data, id, time } = sampleEvent("site-status-changed");
  expect(JSON.parse(message?.payload ?? "")).toEqual({
    ...{ status: "offline", reason: data.reason, since: data.since, site: "1", name: "Kvarnholmen 4", ts: time, id },
  });
  const removal = messagesOf(sampleEvent("site-removed"));
  expect(removal.filter(({ topic }) => topic === "plenum/main/1/status")).toMatchObject([
    { payload: "", retain: true },
  ]);
});

test("publishes a superseded alarm episode as an event, and not on the state topic of the alarm", () => {
  const { data } = sampleEvent("alarm-resolved");
  expect(listTopics("alarm-resolved")).toEqual([
    "plenum/main/1/alarm/500001/state",
    "plenum/main/1/event/alarm-resolved",
  ]);
  expect(listTopics("alarm-resolved", { data: { ...data, superseded: true } })).toEqual([
    "plenum/main/1/event/alarm-resolved",
  ]);
});

function schemaNameOf({ contentType, topic }: MqttMessage): string {
  if (contentType === "application/cloudevents+json") return "event";
  const [, , , kind = "", , aspect = ""] = topic.split("/");
  if (kind === "status") return "site-status";
  return ["inventory", "state"].includes(aspect) ? `${kind}-${aspect}` : aspect;
}

function renamed(event: Event<"tag-value">, text: string): Event {
  return { ...event, data: { ...event.data, tag: { ...TAG, displayName: text, description: text, unit: text } } };
}

describe("the JSON schema of the published messages", () => {
  const uncertainEvent = valueEvent(3, "10042", true);
  const events: readonly Event[] = [
    ...sampleOfEveryForm(),
    ...[0, -0, 20, 21.5, 1e21, 1e-7, -3, true, null].map((value, n) => valueEvent(n, "10042", value)),
    ...AWKWARD_TEXTS.map((text, n) => renamed(valueEvent(n), text)),
    renamed({ ...uncertainEvent, data: { ...uncertainEvent.data, type: { before: "number", now: "boolean" } } }, "x"),
  ];
  const messages = events.flatMap((event) => messagesOf(event)).filter(({ payload }) => payload !== "");

  test("matches every message about every kind of event", () => {
    const problems = messages.map((message) => findSchemaProblem(message.payload, schemaNameOf(message)));
    expect(problems.filter((problem) => problem !== null)).toEqual([]);
  });

  test("has no schema for a message that is not published", () => {
    const publishedNames = new Set(messages.map(schemaNameOf));
    const ofConnection = ["worker-status", "check"];
    expect(SCHEMA_NAMES.filter((name) => !publishedNames.has(name) && !ofConnection.includes(name))).toEqual([]);
  });

  test.each([
    ["a missing key", /"alias":null,/, ""],
    ["an additional key", /"alias"/, '"x":1,"alias"'],
    ["another type", /"latencyMs":80/, '"latencyMs":"80"'],
    ["an unknown quality", /"good"/, '"fine"'],
  ])("does not match a value message with %s", (_, pattern, text) => {
    const payload = messagesOf(valueEvent(1))[0]?.payload ?? "";
    expect(payload).toMatch(pattern);
    expect(findSchemaProblem(payload.replace(pattern, text), "value")).not.toBeNull();
  });
});

describe("measured numbers in messages", () => {
  test.each([
    [20, "20.0"],
    [-3, "-3.0"],
    [0, "0.0"],
    [21.5, "21.5"],
    [1e21, "1.0e+21"],
    [1e-7, "1.0e-7"],
    [true, "true"],
    [null, "null"],
  ])("the value %j is written as %s", (value, text) => {
    const payload = messagesOf(valueEvent(1, "10042", value))[0]?.payload;
    expect(payload).toContain(`{"value":${text},`);
    expect(payload).toContain(`"lastGoodValue":${text},`);
  });

  test("history, totals and results of commands are written with decimals", () => {
    const payloads = (["tag-history", "tag-total", "command-result"] as const).map((kind) =>
      messagesOf(sampleEvent(kind)).map(({ payload }) => payload),
    );
    expect(payloads[0]?.[0]).toContain('"value":21.0}');
    expect(payloads[1]?.[0]).toContain('"total":412.5,');
    expect(payloads[2]?.[0]).toContain('"before":20.0,');
    const cloudEvents = messagesOf(sampleEvent("command-result")).filter(({ topic }) => topic.includes("/event/"));
    expect(cloudEvents.map(({ payload }) => payload)).toEqual([expect.stringContaining('"before":20.0,')]);
  });
});

const TOPIC = "plenum/main/1/tag/10042";
const listPayloads = (event: Event, payload: MqttConfig["payload"]) =>
  messagesOf(event, payload).map((message) => [
    message.topic,
    message.payload.startsWith("{") ? "JSON" : message.payload,
    message.retain,
    message.contentType,
  ]);

describe("the option payload", () => {
  test("with the value plain publishes the bare tag value instead of JSON, and the quality on a separate topic", () => {
    expect(listPayloads(valueEvent(1, "10042", 20), "plain")).toEqual([
      [`${TOPIC}/value`, "20.0", true, "text/plain"],
      [`${TOPIC}/quality`, "good", true, "text/plain"],
    ]);
  });

  test("with the value plain publishes only the quality of a tag value that is null", () => {
    expect(listPayloads(valueEvent(1, "10042", null), "plain")).toEqual([
      [`${TOPIC}/quality`, "bad", true, "text/plain"],
    ]);
  });

  test("with the value both publishes JSON, and the bare value and the quality on separate topics", () => {
    expect(listPayloads(valueEvent(1, "10042", true), "both")).toEqual([
      [`${TOPIC}/value`, "JSON", true, "application/json"],
      [`${TOPIC}/value/plain`, "true", true, "text/plain"],
      [`${TOPIC}/quality`, "good", true, "text/plain"],
    ]);
  });

  test("with the value both clears each retained topic of a removed tag", () => {
    expect(
      messagesOf(sampleEvent("tag-removed"), "both")
        .filter(({ retain }) => retain)
        .map(({ payload, topic }) => [topic.slice(TOPIC.length), payload]),
    ).toEqual(["/inventory", "/systems", "/value", "/value/plain", "/quality"].map((aspect) => [aspect, ""]));
  });
});

/** Go's `strconv.ParseFloat` and `strconv.ParseBool`, as Telegraf's `data_format = "value"` uses them. */
const TELEGRAF_FORMATS = {
  float: /^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$/,
  boolean: /^(1|t|T|TRUE|true|True|0|f|F|FALSE|false|False)$/,
};

test("Telegraf's data format `value` parses every plain payload as a float or a boolean", () => {
  const values = [0, -0, 20, 21.5, -273.15, 1e21, 5e-324, 1.7976931348623157e308, Number.MAX_SAFE_INTEGER, true, false];
  for (const value of values) {
    const [message] = messagesOf(valueEvent(1, "10042", value), "plain");
    const text = message?.payload ?? "";
    expect(text).toMatch(TELEGRAF_FORMATS[typeof value === "number" ? "float" : "boolean"]);
    // A whole number without a decimal point would become an integer field where the type is detected.
    if (typeof value === "number") expect([text, Number(text)]).toEqual([expect.stringContaining("."), value + 0]);
  }
});
