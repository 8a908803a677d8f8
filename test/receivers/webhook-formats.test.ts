import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createContext, runInContext } from "node:vm";
import type { KnownBlock } from "@slack/types";
import { describe, expect, test } from "vitest";
import type { IncidentChangeKind, IncidentMessage } from "#connectors/shared/receiver/receiver-interface.ts";
import { buildSlackMessage } from "#connectors/webhook/formats/chat.ts";
import type { IncidentOperation, RequestContext } from "#connectors/webhook/formats/format.ts";
import { ALARM_FORMATS, FORMAT_NAMES, type FormatName } from "#connectors/webhook/formats/format-by-name.ts";
import { AWKWARD_TEXTS, GATEWAY } from "../sample-events.ts";
import { alarmMessage, endMessage, namedMessage, stormMessage } from "./sent-samples.ts";
import { findBlockError } from "./slack-rules.ts";
import { pagerdutyErrors } from "./webhook-stubs.ts";

const KEY = "0123456789abcdef0123456789abcdef";
const ADDRESSES: Readonly<Partial<Record<FormatName, string>>> = {
  ntfy: "https://ntfy.example.com/ops/heating",
  googlechat: "https://chat.googleapis.com/v1/spaces/A/messages?key=k&token=t",
  discord: "https://discord.com/api/webhooks/1/token",
  pagerduty: "https://events.pagerduty.com/v2/enqueue",
  jsm: "https://api.atlassian.com/jsm/ops/integration/v2/alerts",
};

function contextFor(name: FormatName): RequestContext {
  return {
    url: new URL(ADDRESSES[name] ?? "https://receiver.example.com/in?tenant=1"),
    key: KEY,
    name: "pager",
    reference: { ref: { id: "4711" }, ticket: null, link: null },
    nowMs: Date.parse("2026-11-02T08:00:00Z"),
  };
}

// biome-ignore lint/suspicious/noExplicitAny: the shapes of twelve vendors
type Any = any;

const countBytes = (json: unknown) => Buffer.byteLength(JSON.stringify(json));

function request(name: FormatName, incident: IncidentMessage, operation: IncidentOperation = "open"): Any {
  return JSON.parse(JSON.stringify(ALARM_FORMATS[name].format.buildRequest(incident, operation, contextFor(name))));
}

const HOSTILE = [
  ...AWKWARD_TEXTS.filter((text) => text.trim() !== ""),
  "<!here> <!channel> <@U024BE7LH> <https://evil.example|click>",
  "*bold* _it_ ~gone~ `code` [link](https://evil.example) ![pic](https://evil.example/x.png)",
  "{{DATE(2026-11-02T06:15:00Z,SHORT)}} <at>Anna</at>",
  "\u202eevil\u2066 \u200fturned",
  "y".repeat(50_000),
  "*".repeat(50_000),
  '"'.repeat(50_000),
];

const HOSTILE_MESSAGES = HOSTILE.map((text) => namedMessage(text));

const LIMITS: Partial<Record<FormatName, (json: Any) => readonly (readonly [size: number, maxSize: number])[]>> = {
  pagerduty: (json) => [[countBytes(json), 512_000]],
  jsm: ({ description, entity, message }) => [
    [message.length, 130],
    [description.length, 15_000],
    [entity.length, 512],
  ],
  "servicenow-event": ({ records: [record] }) => [
    ...["node", "resource", "metric_name"].map((column) => [record[column].length, 100] as const),
    [record.description.length, 4_000],
  ],
  incidentio: (json) => [[countBytes(json), 512_000]],
  "splunk-oncall": ({ state_message }) => [[state_message.length, 20_480]],
  ntfy: (json) => [
    [Buffer.byteLength(json.message), 4_096],
    [countBytes(json), 8_192],
  ],
  teams: (json) => [[countBytes(json), 20_000]],
  googlechat: (json) => [[countBytes(json), 32_000]],
  mattermost: ({ text }) => [[text.length, 16_383]],
  discord: ({ embeds: [{ description = "", fields, title }] }) => [
    [title.length, 256],
    [description.length, 4_096],
    [fields.length, 25],
    ...fields.flatMap(({ name, value }: Any) => [
      [name.length, 256],
      [value.length, value === "" ? -1 : 1_024],
    ]),
    [[title, description, ...fields.flatMap(({ name, value }: Any) => [name, value])].join("").length, 6_000],
  ],
};

describe.each(FORMAT_NAMES)("the format %s with hostile and long names", (name) => {
  test.each(HOSTILE.map((text) => [text.slice(0, 20), text]))("keeps the vendor's size limits: %j", (_, text) => {
    for (const message of [namedMessage(text), stormMessage(text)]) {
      const { json } = request(name, message);
      for (const [size, most] of LIMITS[name]?.(json) ?? []) expect(size).toBeLessThanOrEqual(most);
      expect(JSON.stringify(json)).not.toMatch(/[\u202a-\u202e\u2066-\u2069]|\\u(000[0-8]|202e|d800)/);
    }
  });
});

const CHANGES: readonly IncidentChangeKind[] = [
  "retriggered",
  "acknowledged",
  "unacknowledged",
  "recovering",
  "changed",
  "vanished",
  "out-of-scope",
  "members",
];

describe("changes that each format sends", () => {
  const noChanges = Object.fromEntries(CHANGES.map((change) => [change, false]));
  const messages = { ...noChanges, vanished: true, "out-of-scope": true };
  const EXPECTED_CHANGES: Readonly<Record<FormatName, Readonly<Record<string, boolean>>>> = {
    alertmanager: { ...noChanges, retriggered: true },
    pagerduty: { ...noChanges, retriggered: true, acknowledged: true },
    jsm: { ...messages, retriggered: true, acknowledged: true, members: true },
    "servicenow-event": { ...noChanges, retriggered: true },
    incidentio: { ...noChanges, retriggered: true },
    "splunk-oncall": { ...messages, retriggered: true, acknowledged: true },
    ntfy: { ...messages, retriggered: true },
    slack: messages,
    teams: messages,
    googlechat: messages,
    mattermost: messages,
    discord: Object.fromEntries(CHANGES.map((change) => [change, true])),
  };

  test.each(FORMAT_NAMES)("%s sends the beginning, the end and only its supported changes of an alarm", (name) => {
    const incident = Object.fromEntries(
      CHANGES.map((change) => [change, request(name, alarmMessage({ change }), "update") !== null]),
    );
    expect(incident).toEqual(EXPECTED_CHANGES[name]);
    expect(request(name, alarmMessage())).not.toBeNull();
    expect(request(name, endMessage(), "close")).not.toBeNull();
  });

  test.each(FORMAT_NAMES)("%s keeps the configured address and its query", (name) => {
    const { path } = request(name, alarmMessage()) as { path: string };
    if (name === "ntfy") expect(path).toBe("/ops/");
    else if (name === "googlechat")
      expect(path).toBe("/v1/spaces/A/messages?key=k&token=t&messageReplyOption=REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD");
    else if (name === "discord") expect(path).toBe("/api/webhooks/1/token?wait=true");
    else expect(path).toBe(contextFor(name).url.pathname + contextFor(name).url.search);
  });
});

describe("the format pagerduty", () => {
  test("matches the vendor's schema for any names", () => {
    for (const incident of [stormMessage("z".repeat(5_000)), ...HOSTILE_MESSAGES])
      expect(pagerdutyErrors(request("pagerduty", incident).json)).toEqual([]);
  });

  test("sends all details of an alarm with action trigger, and only the key with an acknowledgement or an end", () => {
    expect(request("pagerduty", alarmMessage()).json).toEqual({
      routing_key: KEY,
      event_action: "trigger",
      dedup_key: alarmMessage().key,
      payload: {
        summary: "Supply temperature low, Kvarnholmen 4",
        source: "Kvarnholmen 4",
        severity: "critical",
        timestamp: "2026-11-02T06:15:00.000Z",
        class: "alarm",
        group: "main",
        custom_details: {
          Site: "Kvarnholmen 4",
          Priority: "A",
          Since: "2026-11-02 07:15:00 +01:00",
          Description: "Supply temperature below 20 °C for 10 minutes",
          Value: "value: 18.4",
        },
      },
      client: "Plenum",
      client_url: "https://plenum.example.com/#alarm/main/500001",
      links: [{ href: "https://plenum.example.com/#alarm/main/500001", text: "Open in Plenum" }],
    });
    const acknowledgement = request("pagerduty", alarmMessage({ change: "acknowledged" }), "update").json;
    expect(acknowledgement).toEqual({ routing_key: KEY, event_action: "acknowledge", dedup_key: alarmMessage().key });
    expect(pagerdutyErrors(acknowledgement)).toEqual([]);
    expect(request("pagerduty", endMessage(), "close").json).toMatchObject({ event_action: "resolve" });
  });

  test("sends an unknown priority as a warning, and omits a time without an offset and a link with http", () => {
    const incident = alarmMessage({ priority: "Q", startedAt: "2026-11-02 07:15:00", link: "http://10.0.0.1/" });
    const { json } = request("pagerduty", incident);
    expect(json.payload.severity).toBe("warning");
    expect(json.payload).not.toHaveProperty("timestamp");
    expect(json).not.toHaveProperty("links");
    expect(json.payload.custom_details.Since).toBe("2026-11-02 07:15:00");
  });
});

test("jsm opens, closes and acknowledges an alert by alias, and updates the text of the same alert", () => {
  const { json, headers, path } = request("jsm", alarmMessage());
  const { key } = alarmMessage();
  expect(headers).toEqual({ authorization: `GenieKey ${KEY}` });
  expect(path).toBe("/jsm/ops/integration/v2/alerts");
  expect(json).toMatchObject({
    message: "Supply temperature low, Kvarnholmen 4",
    alias: key,
    priority: "P1",
    entity: "Kvarnholmen 4",
    tags: ["priority-A", "source-main"],
  });
  expect(json.description).toContain("Priority: A\nSince: 2026-11-02 07:15:00 +01:00");
  expect(Object.values(json.details).every((value) => typeof value === "string")).toBe(true);
  const describeRequest = (incident: IncidentMessage, operation: IncidentOperation) => {
    const { method, path } = request("jsm", incident, operation);
    return `${method} ${path}`;
  };
  const alertPath = `/jsm/ops/integration/v2/alerts/${key}`;
  const vanished = alarmMessage({ change: "vanished", status: "unknown" });
  const acknowledged = alarmMessage({ change: "acknowledged" });
  expect(describeRequest(endMessage(), "close")).toBe(`POST ${alertPath}/close?identifierType=alias`);
  expect(describeRequest(acknowledged, "update")).toBe(`POST ${alertPath}/acknowledge?identifierType=alias`);
  expect(describeRequest(vanished, "update")).toBe(`PUT ${alertPath}/description?identifierType=alias`);
  expect(request("jsm", vanished, "update").json.description).toMatch(/^State unknown: .*that it is over\.$/s);
});

test("servicenow-event sends text fields, times in GMT, and severity 0 at the end", () => {
  const [raised] = request("servicenow-event", alarmMessage()).json.records;
  expect(raised).toMatchObject({
    source: "Plenum",
    message_key: alarmMessage().key,
    node: "Kvarnholmen 4",
    resource: "VS1-GT11",
    metric_name: "Supply temperature low",
    severity: "1",
    resolution_state: "New",
    time_of_event: "2026-11-02 06:15:00",
  });
  const [resolved] = request("servicenow-event", endMessage(), "close").json.records;
  expect(resolved).toMatchObject({
    message_key: alarmMessage().key,
    severity: "0",
    resolution_state: "Closing",
    time_of_event: "2026-11-02 06:20:00",
  });
  expect(JSON.parse(raised.additional_info)).toMatchObject({ priority: "A", alarm_id: "500001" });
  for (const value of Object.values(raised)) expect(typeof value).toBe("string");
});

test("incidentio sends firing and resolved with one key and escapes Markdown", () => {
  const { json, headers } = request("incidentio", namedMessage("[x](https://evil.example)"));
  expect(headers).toEqual({ authorization: `Bearer ${KEY}` });
  expect(json).toMatchObject({ status: "firing", deduplication_key: alarmMessage().key });
  expect(json.description).not.toMatch(/(?<!\\)\[x/);
  expect(request("incidentio", endMessage(), "close").json).toMatchObject({
    status: "resolved",
    deduplication_key: alarmMessage().key,
  });
});

test("splunk-oncall sends CRITICAL, ACKNOWLEDGEMENT and RECOVERY, and INFO for an unknown state", () => {
  const type = (incident: IncidentMessage, operation: IncidentOperation) =>
    request("splunk-oncall", incident, operation).json.message_type as string;
  expect(type(alarmMessage(), "open")).toBe("CRITICAL");
  expect(type(alarmMessage({ priority: "C" }), "open")).toBe("WARNING");
  expect(type(alarmMessage({ change: "acknowledged" }), "update")).toBe("ACKNOWLEDGEMENT");
  expect(type(alarmMessage({ change: "vanished" }), "update")).toBe("INFO");
  expect(type(endMessage(), "close")).toBe("RECOVERY");
  expect(request("splunk-oncall", alarmMessage()).json).toMatchObject({
    entity_id: alarmMessage().key,
    state_start_time: 1_793_600_100,
  });
});

test("ntfy sends to the topic in the configured address, with the incident key as the sequence id", () => {
  const { json, headers } = request("ntfy", alarmMessage());
  expect(headers).toEqual({ "x-sequence-id": alarmMessage().key, authorization: `Bearer ${KEY}` });
  expect(json).toMatchObject({
    topic: "heating",
    title: "Active: Supply temperature low, Kvarnholmen 4",
    priority: 5,
    tags: ["rotating_light"],
    click: "https://plenum.example.com/#alarm/main/500001",
  });
  expect(request("ntfy", endMessage(), "close").json).toMatchObject({ priority: 3, topic: "heating" });
  expect(request("ntfy", alarmMessage({ change: "vanished" }), "update").json.priority).toBe(2);
  const rootContext = { ...contextFor("ntfy"), url: new URL("https://ntfy.example.com/") };
  const { buildRequest } = ALARM_FORMATS.ntfy.format;
  expect(() => buildRequest(alarmMessage(), "open", rootContext)).toThrow("has to end with the topic");
});

test("alertmanager sends version 4 with one alert, whose labels are the same at its end", () => {
  const firing = request("alertmanager", alarmMessage()).json;
  expect(firing).toMatchObject({
    version: "4",
    groupKey: alarmMessage().key,
    truncatedAlerts: 0,
    status: "firing",
    receiver: "pager",
    groupLabels: { alertname: "Supply temperature low" },
    externalURL: "https://plenum.example.com/#alarm/main/500001",
  });
  expect(firing.alerts).toHaveLength(1);
  expect(firing.alerts[0]).toMatchObject({
    status: "firing",
    startsAt: "2026-11-02T06:15:00.000Z",
    endsAt: "0001-01-01T00:00:00Z",
    fingerprint: alarmMessage().key,
  });
  for (const name of Object.keys(firing.alerts[0].labels)) expect(name).toMatch(/^[a-zA-Z_][a-zA-Z0-9_]*$/);
  const resolved = request("alertmanager", endMessage(), "close").json;
  expect(resolved.alerts[0]).toMatchObject({ status: "resolved", endsAt: "2026-11-02T06:20:00.000Z" });
  expect(resolved.alerts[0].labels).toEqual(firing.alerts[0].labels);
  const gateway = alarmMessage({ kind: "gateway", alarm: null, gateway: GATEWAY, startedAt: "2026-11-02 07:15:00" });
  const [alert] = request("alertmanager", gateway).json.alerts;
  expect(alert.labels).toMatchObject({ alertname: "Gateway offline", gateway: "Basement gateway" });
  expect(alert.startsAt).toBe("2026-11-02T08:00:00.000Z");
});

describe("the format slack", () => {
  test("sends blocks that match Slack's types and length limits", () => {
    for (const incident of [endMessage(), stormMessage("long ".repeat(100)), ...HOSTILE_MESSAGES]) {
      const { blocks } = buildSlackMessage(incident) satisfies { readonly blocks: KnownBlock[] };
      expect(findBlockError(blocks, false)).toBeNull();
    }
  });

  test("begins the text with the status and escapes markup in names", () => {
    const incident = namedMessage("<!here> *x* <https://evil.example|y> & co");
    const message = buildSlackMessage(incident);
    expect(message.text).toBe(
      "Active: &lt;!here&gt; *x* &lt;https://evil.example|y&gt; &amp; co, &lt;!here&gt; *x* &lt;https://evil.example|y&gt; &amp; co",
    );
    expect(message.mrkdwn).toBe(false);
    const markdownTexts = JSON.stringify(message.blocks).match(/"type":"mrkdwn","text":"[^"]*"/g);
    const link = "<https://plenum.example.com/#alarm/main/500001|Open in Plenum>";
    expect(markdownTexts).toEqual([`"type":"mrkdwn","text":"${link}"`]);
    expect(request("slack", endMessage(), "close").json.text).toMatch(/^Resolved: Supply/);
  });
});

describe("the format teams", () => {
  const file = createRequire(import.meta.url)
    .resolve("adaptivecards/package.json")
    .replace("package.json", "dist/adaptivecards.js");
  const scope = createContext({ self: {}, window: {}, document: {}, console, HTMLElement: class {} });
  runInContext(readFileSync(file, "utf8"), scope);
  // biome-ignore lint/suspicious/noExplicitAny: no types reach into another context
  const { AdaptiveCard, SerializationContext } = (scope as any).AdaptiveCards as {
    readonly AdaptiveCard: new () => { parse(card: unknown, context: unknown): void; toJSON(): unknown };
    readonly SerializationContext: new () => { eventCount: number; getEventAt(index: number): { message: string } };
  };

  function listCardErrors(card: unknown): readonly string[] {
    const context = new SerializationContext();
    new AdaptiveCard().parse(card, context);
    return Array.from({ length: context.eventCount }, (_, n) => context.getEventAt(n).message);
  }

  test("sends a card that the Adaptive Cards parser accepts", () => {
    expect(listCardErrors({ type: "AdaptiveCard", version: "1.4", body: [{ type: "Nope" }] })).toHaveLength(1);
    for (const incident of [alarmMessage(), stormMessage("x"), ...HOSTILE_MESSAGES]) {
      const [attachment] = request("teams", incident).json.attachments;
      expect(attachment.contentType).toBe("application/vnd.microsoft.card.adaptive");
      expect(attachment.content.version).toBe("1.4");
      expect(listCardErrors(attachment.content)).toEqual([]);
    }
  });

  test("shows names with Markdown and date functions as plain text", () => {
    const cardText = JSON.stringify(request("teams", namedMessage("{{DATE(2026-11-02T06:15:00Z)}} [x](y)")).json);
    expect(cardText).not.toContain('"TextBlock"');
    expect(cardText).not.toContain('"FactSet"');
    expect(cardText).not.toContain("{{DATE");
    expect(cardText).toContain("[x](y)");
  });
});

test("googlechat sends a card with escaped HTML in the thread of the key", () => {
  const { json } = request("googlechat", namedMessage("<users/all> <b>x</b> &"));
  expect(json.thread).toEqual({ threadKey: alarmMessage().key });
  expect(json).not.toHaveProperty("text");
  expect(json.fallbackText).not.toContain("<users");
  const [{ card }] = json.cardsV2;
  const cardText = JSON.stringify(card.sections);
  expect(cardText).toContain("&lt;users/all&gt; &lt;b&gt;x&lt;/b&gt; &amp;");
  expect(cardText.match(/<[^>]*>/g)).toEqual(["<b>", "</b>"]);
});

test("mattermost escapes mentions, Markdown and emoji in names", () => {
  const hostileName = "@channel <!channel> **x** [y](https://evil.example) :fire:";
  const { json } = request("mattermost", namedMessage(hostileName));
  const { text } = json as { text: string };
  expect(text.split("\n")[0]).toMatch(/^\*\*Active: /);
  expect(text).toContain("\nSince: 2026-11-02 07:15:00 +01:00\n");
  expect(text).not.toMatch(/@(channel|all|here)|<!|(?<!\\)\[y|:fire:|https:\/\/evil/);
  expect(text).toMatch(/\n\[Open in Plenum\]\(https:\/\/plenum\.example\.com\/#alarm\/main\/500001\)$/);
  expect(text.replaceAll(/\\|\u200b/g, "")).toContain(hostileName);
});

test("mattermost starts no list, code block or heading for line breaks in names", () => {
  const { text } = request("mattermost", namedMessage("first\n- list\n    code\n1. one\n===")).json;
  expect(text).not.toMatch(/\n[-\d=\s]/);
});

test("discord sends one embed without mentions and edits only the message with a valid id", () => {
  const openRequest = request("discord", alarmMessage()).json;
  expect(openRequest.allowed_mentions).toEqual({ parse: [] });
  const acknowledged = alarmMessage({ change: "acknowledged", status: "acknowledged" });
  const editRequest = request("discord", acknowledged, "update");
  expect(editRequest).toMatchObject({ method: "PATCH", path: "/api/webhooks/1/token/messages/4711" });
  expect(editRequest.json.embeds[0].title).toMatch(/^Acknowledged: /);
  const { ref: _, ...elsewhere } = contextFor("discord").reference ?? { ref: null, ticket: null, link: null };
  const foreignReference = { ...contextFor("discord"), reference: { ...elsewhere, ref: { id: "../../x" } } };
  expect(ALARM_FORMATS.discord.format.buildRequest(alarmMessage(), "update", foreignReference)).toBeNull();
});
