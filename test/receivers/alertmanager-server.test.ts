import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { AlertmanagerConfig } from "#connectors/alertmanager/config.ts";
import { createAlertmanagerReceiver } from "#connectors/alertmanager/receiver.ts";
import { contextFor, never } from "../connectors/context.ts";
import { type StubServer, startStub } from "../connectors/stub-server.ts";
import { absent, type RealServer, startAlertmanager } from "../real-servers.ts";
import { AWKWARD_TEXTS } from "../sample-events.ts";
import { disposeAfterTest } from "../test-resources.ts";
import type { StoredAlert } from "./alertmanager-stub.ts";
import { alarmMessage, endMessage } from "./sent-samples.ts";

describe.skipIf(absent("prometheus-alertmanager"))("alertmanager: Debian's Alertmanager", () => {
  let server: RealServer;
  let webhook: StubServer;
  beforeAll(async () => {
    webhook = await startStub();
    server = await startAlertmanager(`${webhook.url}/told`);
  });
  beforeEach(isReady);
  afterAll(async () => {
    await server.stop();
    await webhook.stop();
  });

  function receiver() {
    const config = AlertmanagerConfig.parse({ url: server.url, allow_networks: ["127.0.0.0/8"] });
    return disposeAfterTest(createAlertmanagerReceiver(config, contextFor("am")));
  }

  async function isReady() {
    await expect
      .poll(() =>
        receiver()
          .probe(never())
          .then(String, () => "not ready"),
      )
      .toBe("undefined");
  }

  async function firing(): Promise<readonly StoredAlert[]> {
    const reply = await fetch(`${server.url}/api/v2/alerts`);
    return (await reply.json()) as StoredAlert[];
  }

  function listStatuses(key: string): readonly string[] {
    return webhook.seen
      .flatMap(({ body }) => (JSON.parse(body.toString()) as { alerts: Notified[] }).alerts)
      .filter(({ labels }) => labels.key === key)
      .map(({ status }) => status);
  }

  test("shows an alarm as one alert and notifies its webhook of the beginning and the end", async () => {
    const alarm = { triggeredAt: new Date(Date.now() - 60_000).toISOString() };
    const raisedMessage = alarmMessage({ link: "https://plenum.example.com/" }, alarm);
    const reference = await receiver().open(raisedMessage, never());
    await receiver().open(raisedMessage, never());
    await receiver().update(alarmMessage({ key: raisedMessage.key, status: "recovering" }, alarm), reference, never());
    const ownAlerts = (await firing()).filter(({ labels }) => labels.key === raisedMessage.key);
    expect(ownAlerts).toMatchObject([{ startsAt: alarm.triggeredAt, annotations: { status: "Recovering" } }]);
    await expect.poll(() => listStatuses(raisedMessage.key)).toEqual(["firing"]);
    const endedAt = new Date().toISOString();
    await receiver().close(endMessage({ key: raisedMessage.key, endedAt }, alarm), reference, never());
    await expect.poll(() => listStatuses(raisedMessage.key)).toEqual(["firing", "resolved"]);
    expect((await firing()).filter(({ labels }) => labels.key === raisedMessage.key)).toEqual([]);
  });

  test("has no alerts after kill -9 and shows an active alert again after the sink's next update", async () => {
    const raisedMessage = alarmMessage({ key: "kill" });
    const reference = await receiver().open(raisedMessage, never());
    await expect.poll(() => listStatuses("kill")).toEqual(["firing"]);
    await server.kill();
    await server.startAgain();
    await isReady();
    expect(await firing()).toEqual([]);
    await receiver().update(raisedMessage, reference, never());
    await expect.poll(() => listStatuses("kill")).toEqual(["firing", "firing"]);
    expect(await firing()).toHaveLength(1);
  });

  test("opens and closes an alert for every name with unusual characters", async () => {
    for (const [index, text] of AWKWARD_TEXTS.entries()) {
      const trigger = { id: index, displayName: text, description: text, priority: text, enabled: true };
      const alarm = { trigger, site: { id: index, displayName: text }, description: text };
      const key = `awkward-${index}`;
      const reference = await receiver().open(alarmMessage({ key }, alarm), never());
      expect((await firing()).filter(({ labels }) => labels.key === key)).toHaveLength(1);
      await receiver().close(endMessage({ key }, alarm), reference, never());
      expect((await firing()).filter(({ labels }) => labels.key === key)).toEqual([]);
    }
  });
});

interface Notified {
  readonly status: "firing" | "resolved";
  readonly labels: Readonly<Record<string, string>>;
}
