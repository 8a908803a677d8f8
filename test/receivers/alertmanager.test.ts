import { writeFileSync } from "node:fs";
import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import type { IncidentReference } from "#connectors/shared/receiver/receiver-interface.ts";
import { clockAt, contextFor, never } from "../connectors/context.ts";
import { reply, type StubResponse } from "../connectors/stub-server.ts";
import { ALARM } from "../sample-events.ts";
import { disposeAfterTest, stopAfterTest } from "../test-resources.ts";
import { startAlertmanagerStub } from "./alertmanager-stub.ts";
import { catchFailure, expectFailure, secretFile } from "./receiver-helpers.ts";
import { createReceiver } from "./receivers.ts";
import { alarmMessage, endMessage, gatewayMessage, stormMessage } from "./sent-samples.ts";

const NOW = "2026-11-02T07:00:00.000Z";
const BEGIN_TIME = "2026-11-02T06:15:00.000Z";

async function startReceiver(options: object = {}) {
  const clock = clockAt(NOW);
  const server = stopAfterTest(await startAlertmanagerStub(() => clock.now()));
  const receiver = disposeAfterTest(createReceiver("alertmanager", server, contextFor("am", clock), options));
  const posted = () =>
    server.seen.filter(({ method }) => method === "POST").map(({ body }) => JSON.parse(body.toString()));
  return { clock, server, receiver, posted };
}

describe("alertmanager: sent alerts", () => {
  test("posts an alarm as one alert with an end time a week ahead", async () => {
    const { receiver, posted, server } = await startReceiver({ labels: { team: "operations" } });
    const message = alarmMessage({ link: "https://plenum.example.com/#alarm" });
    const reference = await receiver.open(message, never());
    expect(posted()).toEqual([
      [
        {
          labels: {
            alertname: "Supply temperature low",
            source: "main",
            site: "Kvarnholmen 4",
            site_id: "1",
            priority: "A",
            kind: "alarm",
            key: message.key,
            team: "operations",
          },
          annotations: {
            summary: "Supply temperature low, Kvarnholmen 4",
            status: "Active",
            description: [
              "Site: Kvarnholmen 4",
              "Priority: A",
              "Since: 2026-11-02 07:15:00 +01:00",
              "Description: Supply temperature below 20 °C for 10 minutes",
              "Value: value: 18.4",
            ].join("\n"),
            priority: "A",
            started_at: "2026-11-02T06:15:00.000Z",
            alarm_id: "500001",
          },
          startsAt: "2026-11-02T06:15:00.000Z",
          endsAt: "2026-11-09T07:00:00.000Z",
          generatorURL: "https://plenum.example.com/#alarm",
        },
      ],
    ]);
    expect(reference).toMatchObject({ ticket: null, link: null });
    expect(server.incidents()).toMatchObject([{ key: message.key, isOpen: true }]);
  });

  test("keeps the labels of an alert until its end despite changes", async () => {
    const { receiver, posted, server } = await startReceiver();
    const firstReference = await receiver.open(alarmMessage(), never());
    const reference = JSON.parse(JSON.stringify(firstReference)) as IncidentReference;
    const renamed = {
      site: { id: 1, displayName: "Kvarnholmen 4b" },
      trigger: { ...ALARM.trigger, displayName: "Cold", description: null, priority: "B" },
    };
    const key = alarmMessage().key;
    const changes = { key, priority: "B", status: "acknowledged", startedAt: "2026-11-02T06:40:00Z" } as const;
    const changedMessage = alarmMessage(changes, renamed);
    expect(await receiver.update(changedMessage, reference, never())).toEqual(firstReference);
    expect(server.alerts()).toHaveLength(1);
    const annotations = { summary: "Cold, Kvarnholmen 4b", priority: "B", status: "Acknowledged" };
    expect(server.alerts()[0]?.annotations).toMatchObject(annotations);
    await receiver.close(endMessage({ key, priority: "B" }, renamed), reference, never());
    expect(server.alerts()).toMatchObject([
      { startsAt: "2026-11-02T06:15:00.000Z", endsAt: "2026-11-02T06:20:00.000Z", labels: { priority: "A" } },
    ]);
    expect(server.incidents()).toMatchObject([{ isOpen: false }]);
    expect(new Set(posted().map(([{ labels }]) => JSON.stringify(labels))).size).toBe(1);
  });

  test("keeps one alert when an alarm is sent again with another priority", async () => {
    const { receiver, server } = await startReceiver();
    const { key } = alarmMessage();
    const identity: unknown = JSON.parse(JSON.stringify(receiver.identify?.(alarmMessage())));
    await receiver.open(alarmMessage(), never(), identity);
    await receiver.open(alarmMessage({ key, priority: "C" }), never(), identity);
    expect(server.alerts()).toMatchObject([{ labels: { priority: "A" }, annotations: { priority: "C" } }]);
  });

  test("restores an alert after a restart of Alertmanager", async () => {
    const { receiver, server } = await startReceiver({ repeat: "30s" });
    const reference = await receiver.open(alarmMessage(), never());
    server.forget();
    expect(server.incidents()).toMatchObject([{ isOpen: false }]);
    await receiver.update(alarmMessage(), reference, never());
    expect(server.incidents()).toMatchObject([{ isOpen: true }]);
    expect(receiver.repeatedOpenEffect).toBe("same");
    expect(receiver.resendIntervalMs).toBe(30_000);
    expect(receiver.resendAfterCloseMs).toBe(300_000);
  });

  test("names gateways and storms in labels, so routes can select them", async () => {
    const { receiver, server } = await startReceiver();
    await receiver.open(gatewayMessage(12, { key: "g" }), never());
    await receiver.open({ ...stormMessage("Fan stopped"), key: "s", site: null }, never());
    const [gatewayAlert, stormAlert] = server.alerts();
    expect(gatewayAlert?.labels).toMatchObject({ alertname: "GatewayOffline", kind: "gateway", key: "g" });
    expect(stormAlert?.labels).toMatchObject({ alertname: "AlarmStorm", kind: "storm" });
    expect(stormAlert?.labels).not.toHaveProperty("site");
  });
});

describe("alertmanager: times", () => {
  test("treats a time without an offset as UTC and adds a note", async () => {
    const { receiver, server } = await startReceiver();
    const startedAt = "2026-11-02T06:15:00";
    const reference = await receiver.open(alarmMessage({ startedAt }), never());
    const time_note = "The service gave a time without an offset; it is taken as UTC.";
    const annotations = { started_at: startedAt, time_note };
    expect(server.alerts()[0]).toMatchObject({ startsAt: "2026-11-02T06:15:00.000Z", annotations });
    await receiver.close(endMessage({ startedAt, endedAt: "2026-11-02T06:30:00" }), reference, never());
    expect(server.alerts()[0]?.endsAt).toBe("2026-11-02T06:30:00.000Z");
  });

  test.each([
    ["a local time that lies ahead of UTC", "2026-11-02T07:45:00", "2026-11-02T07:50:00", NOW, NOW],
    ["an end time before its beginning", "2026-11-02T06:15:00Z", "2026-11-02T06:00:00Z", BEGIN_TIME, BEGIN_TIME],
    ["no end time", "2026-11-02T06:15:00Z", null, BEGIN_TIME, NOW],
    ["invalid times", "yesterday", "today", NOW, NOW],
  ])("opens and ends an alert for an alarm with %s", async (_what, startedAt, endedAt, startsAt, endsAt) => {
    const { receiver, server } = await startReceiver();
    const reference = await receiver.open(alarmMessage({ startedAt }), never());
    expect(server.incidents()).toMatchObject([{ isOpen: true }]);
    await receiver.close(endMessage({ startedAt, endedAt }), reference, never());
    expect(server.alerts()).toMatchObject([{ startsAt, endsAt }]);
    expect(server.incidents()).toMatchObject([{ isOpen: false }]);
  });
});

describe("alertmanager: hostile and long texts", () => {
  test("disables markup in names, and truncates a long text without splitting a character", async () => {
    const { receiver, posted } = await startReceiver();
    const hostile = "<!channel> @everyone \u202egnp.exe\u0000\u001b[31m\r\n{{ .Labels }} a@example.com";
    const trigger = { ...ALARM.trigger, displayName: hostile, description: "👨‍👩‍👧".repeat(4_000) };
    await receiver.open(alarmMessage({}, { trigger, description: "" }), never());
    const [[alert]] = posted();
    expect(alert.labels.alertname).toBe("<\u200b!channel> @\u200beveryone gnp.exe [31m {{ .Labels }} a@example.com");
    const { description } = alert.annotations;
    expect(description.length).toBeLessThanOrEqual(4_000);
    expect(description).toMatch(/👨‍👩‍👧…$/u);
    expect(JSON.stringify(alert)).not.toMatch(/\\u0000|\u202e|\\u001b/);
  });

  test("posts an alert for an alarm with a blank name", async () => {
    const { receiver, server } = await startReceiver();
    const trigger = { ...ALARM.trigger, displayName: " \n", description: null, priority: "" };
    await receiver.open(alarmMessage({}, { trigger, site: { id: 3, displayName: "" } }), never());
    const key = expect.any(String) as string;
    const labels = { alertname: "Alarm", source: "main", site_id: "3", kind: "alarm", key };
    expect(server.alerts()[0]?.labels).toEqual(labels);
  });
});

describe("alertmanager: responses", () => {
  test.each<[StubResponse, object, string]>([
    [{ status: 400, body: '"start time must be before end time"' }, { kind: "rejected" }, "start time must be"],
    [reply(200, "<!doctype html><title>Log in</title>"), { kind: "config", field: "url" }, "no Alertmanager"],
    [{ status: 200, body: '{"status":"error","error":"bad"}' }, { kind: "rejected" }, '"error":"bad"'],
  ])("reports the error of the response %j", async (answer, expected, expectedText) => {
    const { receiver, server } = await startReceiver();
    server.stub.respond = () => answer;
    await expectFailure(receiver.open(alarmMessage(), never()), expected, expectedText);
  });

  test("probes the status endpoint and posts nothing", async () => {
    const { receiver, server } = await startReceiver();
    await receiver.probe(never());
    expect(server.seen.map(({ method, url }) => `${method} ${url}`)).toEqual(["GET /api/v2/status"]);
    server.stub.respond = () => ({ status: 200, body: "<html>Prometheus</html>" });
    await expectFailure(receiver.probe(never()), {}, "is no Alertmanager. Check the address");
  });
});

describe("alertmanager: authentication", () => {
  test.each([
    [{ token: "abcdefghijkl-token" }, "Bearer abcdefghijkl-token"],
    [{ password: "correct horse" }, `Basic ${Buffer.from("plenum:correct horse").toString("base64")}`],
  ])("sends %j, reads the secret again for each request and repeats no secret in errors", async (secret, expected) => {
    const [[name, text] = ["", ""]] = Object.entries(secret);
    const ref = secretFile(text);
    const user = name === "password" ? { user: "plenum" } : {};
    const { receiver, server } = await startReceiver({ [name]: ref, ...user });
    await receiver.open(alarmMessage(), never());
    expect(server.seen[0]?.headers.authorization).toBe(expected);
    server.stub.respond = ({ headers }) => ({ status: 400, body: `I got ${headers.authorization} and ${text}` });
    const error = await catchFailure(receiver.open(alarmMessage(), never()));
    expect(inspect(error, { depth: 9 })).not.toContain(text);
    expect(inspect(error, { depth: 9 })).not.toContain(expected.split(" ")[1]);
    writeFileSync(ref.file, "another-secret-text");
    server.stub.respond = () => ({ status: 200 });
    await receiver.open(alarmMessage(), never());
    expect(server.seen.at(-1)?.headers.authorization).not.toBe(expected);
  });

  test("uses a path prefix and configured headers", async () => {
    const { server } = await startReceiver();
    const options = { url: `${server.url}/alertmanager/`, headers: { "X-Scope-OrgID": "north" } };
    const receiver = disposeAfterTest(createReceiver("alertmanager", server, contextFor("am"), options));
    server.stub.respond = () => ({ status: 200 });
    await receiver.open(alarmMessage(), never());
    expect(server.seen[0]).toMatchObject({ url: "/alertmanager/api/v2/alerts", headers: { "x-scope-orgid": "north" } });
  });
});
