import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createWebhookReceiver } from "#connectors/webhook/receiver.ts";
import { Config } from "#src/app/config/config.ts";
import { loadYamlConfig } from "#src/app/config/load.ts";
import { type MessageInbox, startMessageInbox } from "#src/cli/demo/alarm-message-inbox.ts";
import { acknowledgeNewAlarms } from "#src/cli/demo/broker-and-simulator.ts";
import { startDemo } from "#src/cli/demo/start-demo.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { contextFor, never } from "../connectors/context.ts";
import { absent } from "../real-servers.ts";
import { alarmMessage, endMessage, namedMessage } from "../receivers/sent-samples.ts";
import { ALARM, AWKWARD_TEXTS } from "../sample-events.ts";
import { browserOfTests } from "../status/page-in-browser.ts";
import { closeAfterTest, disposeAfterTest, stopAfterTest, testFolder } from "../test-resources.ts";
import { createVirtualClock } from "../virtual-clock.ts";

async function inboxWithReceiver() {
  const inbox = closeAfterTest(await startMessageInbox());
  const { sinks } = loadYamlConfig({
    schema: Config,
    file: join(import.meta.dirname, "../../config/demo.yaml"),
    environment: {
      PLENUM_DEMO_FOLDER: tmpdir(),
      PLENUM_DEMO_SERVICE: "http://127.0.0.1:1",
      PLENUM_DEMO_BROKER: "mqtt://127.0.0.1:1",
      PLENUM_DEMO_INBOX: inbox.url,
      PLENUM_DEMO_STATUS_PORT: "0",
    },
  });
  const config = sinks.inbox?.webhook;
  if (config === undefined) throw new Error("the demo has no inbox");
  const receiver = disposeAfterTest(createWebhookReceiver(config, contextFor("inbox")));
  return { inbox, receiver };
}

const acknowledgedAlarm = alarmMessage({
  status: "acknowledged",
  change: "acknowledged",
  changeId: "alarm-acknowledged.Zm9v",
  alarm: { ...ALARM, acknowledged: true, acknowledgedBy: "Kari" },
});

const states = (inbox: MessageInbox) =>
  inbox.messages().map(({ status, edits, isClosed }) => [status, edits, isClosed]);

describe("the alarm receiver of the demo", () => {
  test("shows an alarm as one message that is edited until the alarm is resolved", async () => {
    const { inbox, receiver } = await inboxWithReceiver();
    const place = await receiver.open(alarmMessage(), never());
    expect(inbox.messages()).toEqual([
      {
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        key: alarmMessage().key,
        title: "Supply temperature low, Kvarnholmen 4",
        status: "active",
        statusText: "Active",
        priority: "A",
        text: expect.stringMatching(/^Site: Kvarnholmen 4\nPriority: A\nSince: 2026-11-02 07:15:00 \+01:00\n/),
        edits: 0,
        isClosed: false,
      },
    ]);
    expect(await receiver.update(acknowledgedAlarm, place, never())).toEqual(place);
    expect(states(inbox)).toEqual([["acknowledged", 1, false]]);
    expect(await receiver.close(endMessage(), place, never())).toEqual(place);
    expect(states(inbox)).toEqual([["resolved", 2, true]]);
  });

  test("shows one message when it receives the same new alarm twice", async () => {
    const { inbox, receiver } = await inboxWithReceiver();
    const firstReference = await receiver.open(alarmMessage(), never());
    expect(await receiver.open(alarmMessage(), never())).toEqual(firstReference);
    expect(inbox.messages()).toHaveLength(1);
  });

  test('returns "gone" for a message of an earlier demo', async () => {
    const { receiver } = await inboxWithReceiver();
    const place = { ref: { id: "of-the-last-demo" }, ticket: null, link: null };
    expect(await receiver.update(alarmMessage(), place, never())).toBe("gone");
    expect(await receiver.close(endMessage(), place, never())).toBe("gone");
  });
});

describe("the inbox of the demo", () => {
  const post = (key: string) => ({ key, title: "t", status: "active", statusText: "A", priority: "A", text: "" });

  async function inboxWithRequests() {
    const inbox = closeAfterTest(await startMessageInbox());
    const request = (path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}) =>
      fetch(`${inbox.url}${path}`, {
        method: body === undefined ? "GET" : "POST",
        ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
        headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      });
    return { inbox, request };
  }

  test("keeps the latest 200 messages", async () => {
    const { inbox, request } = await inboxWithRequests();
    for (let n = 1; n <= 205; n += 1) await request("/messages", post(`k${n}`));
    const keys = inbox.messages().map(({ key }) => key);
    expect([keys.length, keys[0], keys.at(-1)]).toEqual([200, "k205", "k6"]);
    expect(await (await request("/messages")).json()).toEqual(inbox.messages());
  });

  test.each<[string, number, string, unknown, Record<string, string>]>([
    ["the content type of a form", 415, "/messages", post("k"), { "content-type": "text/plain" }],
    ["invalid JSON", 400, "/messages", "{", {}],
    ["an unknown property", 400, "/messages", { ...post("k"), admin: true }, {}],
    ["a text above the limit", 413, "/messages", { ...post("k"), text: "x".repeat(300_000) }, {}],
    ["an unknown message", 404, "/messages/x/close", post("k"), {}],
    ["another path", 404, "/elsewhere", post("k"), {}],
  ])("rejects %s", async (_, status, path, body, headers) => {
    const { inbox, request } = await inboxWithRequests();
    const response = await request(path, body, headers);
    expect([response.status, inbox.messages()]).toEqual([status, []]);
    expect(((await response.json()) as { message: string }).message).toMatch(/^[A-Z].*\.$/);
  });

  test("serves its page with a strict content security policy", async () => {
    const { request } = await inboxWithRequests();
    for (const path of ["/", "/inbox.mjs", "/inbox.css", "/messages", "/nothing"]) {
      const { headers, status } = await request(path);
      expect(status, path).toBe(path === "/nothing" ? 404 : 200);
      expect(headers.get("content-security-policy"), path).toMatch(/^default-src 'none'; script-src 'self'; /);
      expect(headers.get("content-security-policy")).not.toMatch(/unsafe|\*|https?:/);
    }
  });
});

describe("the simulated caretaker of the demo", () => {
  test("acknowledges an alarm after 10 to 15 s, and no alarm from before its own start", async () => {
    const clock = createVirtualClock(Date.parse("2026-11-02T12:00:00Z"));
    const simulator = createSimulator(
      { epoch: "2026-11-02T11:00:00Z", sites: [1], alarms: { recorded: false } },
      { now: () => clock.now() },
    );
    const raise = () => simulator.control.raiseAlarm({ siteId: 1 });
    const earlierAlarm = raise();
    await clock.advance(1_000);
    const stopController = new AbortController();
    const acknowledging = acknowledgeNewAlarms(simulator, clock, stopController.signal);
    const laterAlarm = raise();
    const acknowledgedBy = (id: string) => simulator.truth.alarms.find(id, clock.now())?.acknowledged?.by ?? null;
    await clock.advance(10_000);
    expect([acknowledgedBy(earlierAlarm), acknowledgedBy(laterAlarm)]).toEqual([null, null]);
    await clock.advance(5_000);
    expect([acknowledgedBy(earlierAlarm), acknowledgedBy(laterAlarm)]).toEqual([null, "Caretaker of the demo"]);
    stopController.abort();
    await acknowledging;
  });
});

describe("the demo", () => {
  test("delivers an alarm to the inbox as one message from raised to resolved", async () => {
    const folder = testFolder("plenum-demo");
    const demo = stopAfterTest(await startDemo({ folder }));

    const control = async (action: string, body: object) => {
      const response = await fetch(`${demo.serviceUrl}/_simulator/alarms/${action}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      expect(response.status).toBe(200);
      return ((await response.json()) as { readonly data: { readonly id: string } }).data;
    };
    const testMessages = async () => {
      const response = await fetch(`${demo.inboxUrl}/messages`);
      const all = (await response.json()) as ReturnType<MessageInbox["messages"]>;
      return all.filter(({ text }) => text.includes("A test by hand"));
    };

    const latestTypes = async () => (await demo.worker.store.outbox.latest(500)).map(({ event }) => event.type);
    await expect.poll(latestTypes).toContain("alarm-raised");
    const { id } = await control("raise", { site_id: 1, description: "A test by hand <b>" });
    await expect.poll(async () => (await testMessages()).map(({ status }) => status)).toEqual(["active"]);
    const [first] = await testMessages();
    await expect.poll(async () => (await testMessages()).map(({ status }) => status)).toEqual(["acknowledged"]);
    await control("resolve", { id });
    const states = async () => (await testMessages()).map(({ status, isClosed }) => [status, isClosed]);
    await expect.poll(states).toEqual([["resolved", true]]);
    expect(await testMessages()).toEqual([expect.objectContaining({ id: first?.id, edits: 2 })]);
  });
});

describe.skipIf(absent("chromium"))("the inbox page of the demo in a browser", () => {
  const openInBrowser = browserOfTests();

  test("shows an alarm, edits its entry, and greys the entry out when the alarm is resolved", async () => {
    const { inbox, receiver } = await inboxWithReceiver();
    const { page, open, complaints, elsewhere } = await openInBrowser(inbox.url);
    await open();
    await expect.poll(() => page.locator(".empty").isVisible()).toBe(true);
    expect(await page.locator("header p").innerText()).toContain("part of the demo");
    const place = await receiver.open(alarmMessage(), never());
    const alarmEntry = page.locator("li", { hasText: "Supply temperature low" });
    await expect.poll(() => alarmEntry.count()).toBe(1);
    expect(await alarmEntry.locator("h2").innerText()).toMatch(/^Active\s+A\s+Supply temperature low, Kvarnholmen 4$/);
    expect(await alarmEntry.locator("p").first().innerText()).toMatch(/^Site\s+Kvarnholmen 4$/);
    await receiver.open(alarmMessage({ key: "b".repeat(32), priority: "B" }), never());
    await expect.poll(() => page.locator("li .priority").allInnerTexts()).toEqual(["B", "A"]);
    const colour = () => page.evaluate("getComputedStyle(document.querySelectorAll('li')[1]).color");
    const colourBefore = await colour();
    await receiver.update(acknowledgedAlarm, place, never());
    await expect.poll(() => page.locator("li .status").allInnerTexts()).toEqual(["Active", "Acknowledged"]);
    expect(await page.locator("li").nth(1).innerText()).toContain("edited once");
    expect(await colour()).toBe(colourBefore);
    await receiver.close(endMessage(), place, never());
    await expect.poll(() => page.locator("li .status").allInnerTexts()).toEqual(["Active", "Resolved"]);
    expect(await page.locator("li").nth(1).getAttribute("class")).toBe("closed");
    expect(await colour()).not.toBe(colourBefore);
    await inbox.close();
    await expect.poll(() => page.locator(".gone").isVisible()).toBe(true);
    expect(await page.locator("li").count()).toBe(2);
    expect([complaints.filter((text) => !text.includes("ERR_CONNECTION_REFUSED")), elsewhere]).toEqual([[], []]);
  });

  test.each([1280, 320])("shows names with markup as plain text at a width of %i pixels", async (width) => {
    const { inbox, receiver } = await inboxWithReceiver();
    const names = [
      ...AWKWARD_TEXTS.map((text) => text.slice(0, 1_000)),
      "<script>window.broken = 1</script>",
      "<img src=x onerror='window.broken = 1'>",
      "<style>body { display: none }</style>",
      "</title></textarea></style><script>window.broken=1</script>",
      "javascript:window.broken=1",
      "@channel <!here> @everyone",
      "Site: not a label: x",
      "563.001-RT601_Temperature_Corridor_West_Wing_".repeat(10),
    ];
    for (const [n, name] of names.entries())
      await receiver.open(namedMessage(name, { key: n.toString(16).padStart(32, "0") }), never());
    const { page, open, complaints, elsewhere } = await openInBrowser(inbox.url, width);
    await open();
    await expect.poll(() => page.locator("li").count()).toBe(names.length);
    const titles = await page.locator("li b").allTextContents();
    expect(titles).toEqual(inbox.messages().map(({ title }) => title));
    expect(titles).toContain("<script>window.broken = 1</script>, <script>window.broken = 1</script>");
    expect(await page.evaluate("window.broken")).toBeUndefined();
    expect(await page.locator("main :is(script, img, svg, iframe, link, base, style, a)").count()).toBe(0);
    expect(await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")).toBeLessThanOrEqual(0);
    expect([complaints, elsewhere]).toEqual([[], []]);
  });
});
