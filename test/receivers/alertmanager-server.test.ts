import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { AlertmanagerConfig } from "#connectors/alertmanager/config.ts";
import { createAlertmanagerReceiver } from "#connectors/alertmanager/receiver.ts";
import { contextFor, never } from "../connectors/context.ts";
import { type StubServer, startStub } from "../connectors/stub-server.ts";
import { absent, type RealServer, startAlertmanager } from "../real-servers.ts";
import { AWKWARD_TEXTS } from "../sample-events.ts";
import type { KeptAlert } from "./alertmanager-stub.ts";
import { resolvedOf, toldOf } from "./sent-samples.ts";

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
    const made = createAlertmanagerReceiver(config, contextFor("am"));
    onTestFinished(() => made.dispose());
    return made;
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

  async function firing(): Promise<readonly KeptAlert[]> {
    const reply = await fetch(`${server.url}/api/v2/alerts`);
    return (await reply.json()) as KeptAlert[];
  }

  function told(key: string): readonly string[] {
    return webhook.seen
      .flatMap(({ body }) => (JSON.parse(body.toString()) as { alerts: Notified[] }).alerts)
      .filter(({ labels }) => labels.key === key)
      .map(({ status }) => status);
  }

  test("shows an alarm as one alert and notifies its webhook of the beginning and the end", async () => {
    const alarm = { triggeredAt: new Date(Date.now() - 60_000).toISOString() };
    const raised = toldOf({ link: "https://plenum.example.com/" }, alarm);
    const place = await receiver().open(raised, never());
    await receiver().open(raised, never());
    await receiver().update(toldOf({ key: raised.key, status: "recovering" }, alarm), place, never());
    const mine = (await firing()).filter(({ labels }) => labels.key === raised.key);
    expect(mine).toMatchObject([{ startsAt: alarm.triggeredAt, annotations: { status: "Recovering" } }]);
    await expect.poll(() => told(raised.key)).toEqual(["firing"]);
    const endedAt = new Date().toISOString();
    await receiver().close(resolvedOf({ key: raised.key, endedAt }, alarm), place, never());
    await expect.poll(() => told(raised.key)).toEqual(["firing", "resolved"]);
    expect((await firing()).filter(({ labels }) => labels.key === raised.key)).toEqual([]);
  });

  test("has no alerts after kill -9 and gets the active alerts again with the next repetition", async () => {
    const raised = toldOf({ key: "kill" });
    const place = await receiver().open(raised, never());
    await expect.poll(() => told("kill")).toEqual(["firing"]);
    await server.kill();
    await server.again();
    await isReady();
    expect(await firing()).toEqual([]);
    await receiver().update(raised, place, never());
    await expect.poll(() => told("kill")).toEqual(["firing", "firing"]);
    expect(await firing()).toHaveLength(1);
  });

  test("accepts every awkward name", async () => {
    for (const [index, text] of AWKWARD_TEXTS.entries()) {
      const trigger = { id: index, displayName: text, description: text, priority: text, enabled: true };
      const alarm = { trigger, site: { id: index, displayName: text }, description: text };
      const key = `awkward-${index}`;
      const place = await receiver().open(toldOf({ key }, alarm), never());
      expect((await firing()).filter(({ labels }) => labels.key === key)).toHaveLength(1);
      await receiver().close(resolvedOf({ key }, alarm), place, never());
      expect((await firing()).filter(({ labels }) => labels.key === key)).toEqual([]);
    }
  });
});

interface Notified {
  readonly status: "firing" | "resolved";
  readonly labels: Readonly<Record<string, string>>;
}
