import { writeFileSync } from "node:fs";
import { inspect } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import type { IncidentReference } from "#connectors/shared/receiver/receiver.ts";
import { errorText } from "#src/core/errors/errors.ts";
import { clockAt, contextFor, never } from "../connectors/context.ts";
import { reply, type StubAnswer } from "../connectors/stub-server.ts";
import { ALARM } from "../sample-events.ts";
import { startAlertmanagerEnd } from "./alertmanager-stub.ts";
import { failureOf, secretFile } from "./receiver-helpers.ts";
import { receiverOf } from "./receivers.ts";
import { gatewayOf, resolvedOf, stormOf, toldOf } from "./sent-samples.ts";

const NOW = "2026-11-02T07:00:00.000Z";
const BEGAN = "2026-11-02T06:15:00.000Z";

async function begun(options: object = {}) {
  const clock = clockAt(NOW);
  const end = await startAlertmanagerEnd(() => clock.now());
  onTestFinished(() => end.stop());
  const receiver = receiverOf("alertmanager", end, contextFor("am", clock), options);
  onTestFinished(() => receiver.dispose());
  const posted = () =>
    end.seen.filter(({ method }) => method === "POST").map(({ body }) => JSON.parse(body.toString()));
  return { clock, end, receiver, posted };
}

describe("alertmanager: sent alerts", () => {
  test("posts an alarm as one alert that ends in a week", async () => {
    const { receiver, posted, end } = await begun({ labels: { team: "operations" } });
    const told = toldOf({ link: "https://plenum.example.com/#alarm" });
    const place = await receiver.open(told, never());
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
            key: told.key,
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
    expect(place).toMatchObject({ ticket: null, link: null });
    expect(end.things()).toMatchObject([{ key: told.key, isOpen: true }]);
  });

  test("keeps the labels of an alert until its end despite changes", async () => {
    const { receiver, posted, end } = await begun();
    const first = await receiver.open(toldOf(), never());
    const place = JSON.parse(JSON.stringify(first)) as IncidentReference;
    const renamed = {
      site: { id: 1, displayName: "Kvarnholmen 4b" },
      trigger: { ...ALARM.trigger, displayName: "Cold", description: null, priority: "B" },
    };
    const key = toldOf().key;
    const changed = toldOf({ key, priority: "B", status: "acknowledged", startedAt: "2026-11-02T06:40:00Z" }, renamed);
    expect(await receiver.update(changed, place, never())).toEqual(first);
    expect(end.alerts()).toHaveLength(1);
    const annotations = { summary: "Cold, Kvarnholmen 4b", priority: "B", status: "Acknowledged" };
    expect(end.alerts()[0]?.annotations).toMatchObject(annotations);
    expect(await receiver.close(resolvedOf({ key, priority: "B" }, renamed), place, never())).toEqual(first);
    expect(end.alerts()).toMatchObject([
      { startsAt: "2026-11-02T06:15:00.000Z", endsAt: "2026-11-02T06:20:00.000Z", labels: { priority: "A" } },
    ]);
    expect(end.things()).toMatchObject([{ isOpen: false }]);
    expect(new Set(posted().map(([{ labels }]) => JSON.stringify(labels))).size).toBe(1);
  });

  test("keeps one alert when it is opened again with another priority", async () => {
    const { receiver, end } = await begun();
    const { key } = toldOf();
    const identity: unknown = JSON.parse(JSON.stringify(receiver.identify?.(toldOf())));
    await receiver.open(toldOf(), never(), identity);
    await receiver.open(toldOf({ key, priority: "C" }), never(), identity);
    expect(end.alerts()).toMatchObject([{ labels: { priority: "A" }, annotations: { priority: "C" } }]);
  });

  test("restores an alert after a restart of Alertmanager", async () => {
    const { receiver, end } = await begun({ repeat: "30s" });
    const place = await receiver.open(toldOf(), never());
    end.forget();
    expect(end.things()).toMatchObject([{ isOpen: false }]);
    await receiver.update(toldOf(), place, never());
    expect(end.things()).toMatchObject([{ isOpen: true }]);
    expect(receiver.opensAgain).toBe("same");
    expect(receiver.repeatMs).toBe(30_000);
    expect(receiver.repeatClosedMs).toBe(300_000);
  });

  test("names gateways and storms in labels, so routes can select them", async () => {
    const { receiver, end } = await begun();
    await receiver.open(gatewayOf(12, { key: "g" }), never());
    await receiver.open({ ...stormOf("Fan stopped"), key: "s", site: null }, never());
    const [gatewayAlert, stormAlert] = end.alerts();
    expect(gatewayAlert?.labels).toMatchObject({ alertname: "GatewayOffline", kind: "gateway", key: "g" });
    expect(stormAlert?.labels).toMatchObject({ alertname: "AlarmStorm", kind: "storm" });
    expect(stormAlert?.labels).not.toHaveProperty("site");
  });
});

describe("alertmanager: times", () => {
  test("treats a time without an offset as UTC and adds a note", async () => {
    const { receiver, end } = await begun();
    const startedAt = "2026-11-02T06:15:00";
    const place = await receiver.open(toldOf({ startedAt }), never());
    const time_note = "The service gave a time without an offset; it is taken as UTC.";
    const annotations = { started_at: startedAt, time_note };
    expect(end.alerts()[0]).toMatchObject({ startsAt: "2026-11-02T06:15:00.000Z", annotations });
    await receiver.close(resolvedOf({ startedAt, endedAt: "2026-11-02T06:30:00" }), place, never());
    expect(end.alerts()[0]?.endsAt).toBe("2026-11-02T06:30:00.000Z");
  });

  test.each([
    ["a local time that lies ahead of UTC", "2026-11-02T07:45:00", "2026-11-02T07:50:00", NOW, NOW],
    ["an end before the beginning", "2026-11-02T06:15:00Z", "2026-11-02T06:00:00Z", BEGAN, BEGAN],
    ["no end", "2026-11-02T06:15:00Z", null, BEGAN, NOW],
    ["invalid times", "yesterday", "today", NOW, NOW],
  ])("opens and ends an alert with %s", async (_what, startedAt, endedAt, startsAt, endsAt) => {
    const { receiver, end } = await begun();
    const place = await receiver.open(toldOf({ startedAt }), never());
    expect(end.things()).toMatchObject([{ isOpen: true }]);
    await receiver.close(resolvedOf({ startedAt, endedAt }), place, never());
    expect(end.alerts()).toMatchObject([{ startsAt, endsAt }]);
    expect(end.things()).toMatchObject([{ isOpen: false }]);
  });
});

describe("alertmanager: hostile and long texts", () => {
  test("disables markup and cuts between characters", async () => {
    const { receiver, posted } = await begun();
    const hostile = "<!channel> @everyone \u202egnp.exe\u0000\u001b[31m\r\n{{ .Labels }} a@example.com";
    const trigger = { ...ALARM.trigger, displayName: hostile, description: "👨‍👩‍👧".repeat(4_000) };
    await receiver.open(toldOf({}, { trigger, description: "" }), never());
    const [[alert]] = posted();
    expect(alert.labels.alertname).toBe("<\u200b!channel> @\u200beveryone gnp.exe [31m {{ .Labels }} a@example.com");
    const { description } = alert.annotations;
    expect(description.length).toBeLessThanOrEqual(4_000);
    expect(description).toMatch(/👨‍👩‍👧…$/u);
    expect(JSON.stringify(alert)).not.toMatch(/\\u0000|\u202e|\\u001b/);
  });

  test("posts an alert for an alarm with a blank name", async () => {
    const { receiver, end } = await begun();
    const trigger = { ...ALARM.trigger, displayName: " \n", description: null, priority: "" };
    await receiver.open(toldOf({}, { trigger, site: { id: 3, displayName: "" } }), never());
    const key = expect.any(String) as string;
    expect(end.alerts()[0]?.labels).toEqual({ alertname: "Alarm", source: "main", site_id: "3", kind: "alarm", key });
  });
});

describe("alertmanager: responses", () => {
  test.each<[StubAnswer, object, string]>([
    [{ status: 400, body: '"start time must be before end time"' }, { kind: "rejected" }, "start time must be"],
    [reply(200, "<!doctype html><title>Log in</title>"), { kind: "config", field: "url" }, "no Alertmanager"],
    [{ status: 200, body: '{"status":"error","error":"bad"}' }, { kind: "rejected" }, '"error":"bad"'],
  ])("reports the error of the response %j", async (answer, expected, words) => {
    const { receiver, end } = await begun();
    end.stub.answer = () => answer;
    const error = await failureOf(receiver.open(toldOf(), never()));
    expect(error).toMatchObject(expected);
    expect(errorText(error)).toContain(words);
  });

  test("probes the status endpoint and posts nothing", async () => {
    const { receiver, end } = await begun();
    await receiver.probe(never());
    expect(end.seen.map(({ method, url }) => `${method} ${url}`)).toEqual(["GET /api/v2/status"]);
    end.stub.answer = () => ({ status: 200, body: "<html>Prometheus</html>" });
    expect(errorText(await failureOf(receiver.probe(never())))).toMatch(/is no Alertmanager\. Check the address/);
  });
});

describe("alertmanager: authentication", () => {
  test.each([
    [{ token: "abcdefghijkl-token" }, "Bearer abcdefghijkl-token"],
    [{ password: "correct horse" }, `Basic ${Buffer.from("plenum:correct horse").toString("base64")}`],
  ])("sends %j, reads the secret again for each request and repeats no secret in errors", async (secret, expected) => {
    const [[name, text] = ["", ""]] = Object.entries(secret);
    const ref = secretFile(text);
    const { receiver, end } = await begun({ [name]: ref, ...(name === "password" ? { user: "plenum" } : {}) });
    await receiver.open(toldOf(), never());
    expect(end.seen[0]?.headers.authorization).toBe(expected);
    end.stub.answer = ({ headers }) => ({ status: 400, body: `I got ${headers.authorization} and ${text}` });
    const error = await failureOf(receiver.open(toldOf(), never()));
    expect(inspect(error, { depth: 9 })).not.toContain(text);
    expect(inspect(error, { depth: 9 })).not.toContain(expected.split(" ")[1]);
    writeFileSync(ref.file, "another-secret-text");
    end.stub.answer = () => ({ status: 200 });
    await receiver.open(toldOf(), never());
    expect(end.seen.at(-1)?.headers.authorization).not.toBe(expected);
  });

  test("uses a path prefix and configured headers", async () => {
    const { end } = await begun();
    const receiver = receiverOf("alertmanager", end, contextFor("am"), {
      url: `${end.url}/alertmanager/`,
      headers: { "X-Scope-OrgID": "north" },
      allow_networks: ["127.0.0.0/8"],
    });
    onTestFinished(() => receiver.dispose());
    end.stub.answer = () => ({ status: 200 });
    await receiver.open(toldOf(), never());
    expect(end.seen[0]).toMatchObject({ url: "/alertmanager/api/v2/alerts", headers: { "x-scope-orgid": "north" } });
    expect(receiver.serverId).toMatch(/^[0-9a-f]{64}$/);
  });
});
