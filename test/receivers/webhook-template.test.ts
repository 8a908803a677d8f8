import { describe, expect, onTestFinished, test } from "vitest";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { TEMPLATE_FIELDS } from "#connectors/webhook/formats/template.ts";
import { contextFor, never } from "../connectors/context.ts";
import { reply, type StubResponse } from "../connectors/stub-server.ts";
import { AWKWARD_TEXTS, SITE } from "../sample-events.ts";
import { disposeAfterTest } from "../test-resources.ts";
import { expectFailure, startStubInTest } from "./receiver-helpers.ts";
import { createReceiver } from "./receivers.ts";
import { alarmMessage, endMessage, namedMessage } from "./sent-samples.ts";

const EVIL = [
  ...AWKWARD_TEXTS.map((text) => text.slice(0, 1_000)),
  '","admin":true,"x":"',
  "{{key}} {{alarm.id}}",
  "/../../secret?x=1#y",
  "a&b=c\r\nX-Evil: 1",
  "%2e%2e%2f",
];

async function withTemplate(template: object) {
  const stub = await startStubInTest(() => reply(200, '{"ok":true,"data":{"id":7}}'));
  const options = { format: "template", url: `${stub.url}/api?tenant=1`, allow_networks: ["127.0.0.0/8"], template };
  const receiver = disposeAfterTest(createReceiver("webhook", { config: options }, contextFor("own")));
  const bodies = () => stub.seen.map(({ body }) => JSON.parse(body.toString()) as unknown);
  return { stub, receiver, bodies };
}

function listErrors(template: object): readonly string[] {
  const { error } = WebhookConfig.safeParse({ format: "template", url: "https://x.example/", template });
  return (error?.issues ?? []).map(({ path, message }) => `${path.join(".")}: ${message}`);
}

describe("requests of a webhook template", () => {
  test("replace a text that is exactly one {{field}} by its typed value, and fields within longer texts by text", async () => {
    const { receiver, bodies } = await withTemplate({
      open: {
        body: {
          title: "{{title}}",
          trigger: "{{ alarm.trigger.displayName }}",
          number: "{{site.id}}",
          nothing: "{{endedAt}}",
          value: "{{alarm.lastActiveEvent.value}}",
          flag: "{{alarm.acknowledged}}",
          whole: "{{site}}",
          mixed: "{{statusText}}: {{title}} at {{site.id}}{{endedAt}} {{site}}",
          fixed: [1, true, null, "text", { deep: "{{key}}" }],
        },
      },
    });
    await receiver.open(alarmMessage(), never());
    expect(bodies()).toEqual([
      {
        title: "Supply temperature low, Kvarnholmen 4",
        trigger: "Supply temperature low",
        number: 1,
        nothing: null,
        value: 18.4,
        flag: false,
        whole: SITE,
        mixed: 'Active: Supply temperature low, Kvarnholmen 4 at 1 {"id":1,"displayName":"Kvarnholmen 4"}',
        fixed: [1, true, null, "text", { deep: alarmMessage().key }],
      },
    ]);
  });

  test.each(EVIL)("insert the name %j into body and path without changing their structure", async (text) => {
    const { receiver, stub, bodies } = await withTemplate({
      open: {
        path: "/things/{{site.displayName}}/x?name={{site.displayName}}",
        body: { name: "{{site.displayName}}", said: "<{{site.displayName}}>", fixed: 1 },
      },
    });
    const message = alarmMessage({ site: { id: 1, displayName: text } });
    await receiver.open(message, never());
    expect(bodies()).toEqual([{ name: text, said: `<${text}>`, fixed: 1 }]);
    const url = new URL(stub.seen[0]?.url ?? "", "http://x");
    expect([...url.searchParams.keys()]).toEqual(["tenant", "name"]);
    expect(url.searchParams.get("name")).toBe(text.toWellFormed());
    expect(url.pathname.split("/")).toHaveLength(5);
    expect(stub.seen[0]?.headers["x-evil"]).toBeUndefined();
  });

  test("are rejected for a name that would change the path or add a header", async () => {
    const { receiver, stub } = await withTemplate({
      open: { path: "/{{site.displayName}}", headers: { "X-Title": "{{site.displayName}}" } },
    });
    const open = (displayName: string) => receiver.open(alarmMessage({ site: { id: 1, displayName } }), never());
    for (const name of ["..", ".", "a\r\nX-Evil: 1", "nul\u0000"])
      await expectFailure(open(name), { kind: "rejected" });
    expect(stub.seen).toHaveLength(0);
    await open("Søndre gate 温度");
    expect(Buffer.from(stub.seen[0]?.headers["x-title"] ?? "", "latin1").toString()).toBe("Søndre gate 温度");
  });

  test("are sent once for each of open, update and close, and not for an operation without a template", async () => {
    const { receiver, stub } = await withTemplate({
      open: { method: "PUT", path: "/things/{{key}}", headers: { "Idempotency-Key": "{{changeId}}" }, body: {} },
      update: { method: "PATCH", path: "/things/{{place.id}}?by=plenum", body: { state: "{{status}}" } },
      id: "$.data.id",
    });
    const reference = await receiver.open(alarmMessage(), never());
    expect(reference).toEqual({ ref: { id: 7 }, ticket: null, link: null });
    expect(await receiver.update(alarmMessage({ change: "changed" }), reference, never())).toEqual(reference);
    expect(await receiver.close(endMessage(), reference, never())).toEqual(reference);
    expect(stub.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
      `PUT /api/things/${alarmMessage().key}?tenant=1`,
      "PATCH /api/things/7?tenant=1&by=plenum",
    ]);
    expect(stub.seen[0]?.headers["idempotency-key"]).toBe(alarmMessage().changeId);
  });

  test("contain a header from a secret unchanged, even if the secret contains {{title}}", async () => {
    process.env.PLENUM_TEST_TEMPLATE_KEY = "{{title}} key";
    onTestFinished(() => {
      delete process.env.PLENUM_TEST_TEMPLATE_KEY;
    });
    const secret = { env: "PLENUM_TEST_TEMPLATE_KEY" };
    const { receiver, stub } = await withTemplate({ open: { headers: { "X-Key": secret } } });
    await receiver.open(alarmMessage(), never());
    expect(stub.seen[0]?.headers["x-key"]).toBe("{{title}} key");
    expect(stub.seen[0]?.body.length).toBe(0);
  });

  test("contain every template field for an alarm and for a storm, with null for a field without a value", async () => {
    const names = TEMPLATE_FIELDS.filter((name) => !name.startsWith("place."));
    const body = Object.fromEntries(names.map((name) => [name.replaceAll(".", "_"), `{{${name}}}`]));
    expect(listErrors({ open: { body } })).toEqual([]);
    const { receiver, bodies } = await withTemplate({ open: { body } });
    await receiver.open(namedMessage("x"), never());
    await receiver.open(alarmMessage({ kind: "storm", alarm: null, site: null, gateway: null, link: null }), never());
    const [full, bare] = bodies() as Record<string, unknown>[];
    const empty = Object.entries(full ?? {}).filter(([, value]) => value === null);
    expect(empty.map(([name]) => name)).toEqual(expect.arrayContaining(["alarm_resolvedAt", "endedAt", "gateway_id"]));
    expect(empty).toHaveLength(8);
    expect(bare).toMatchObject({ alarm_id: null, site_displayName: null, kind: "storm", link: null });
  });
});

describe("responses to a request of a webhook template", () => {
  test("provide ticket and link, except a link without https", async () => {
    const { receiver, stub } = await withTemplate({ open: {}, id: "$[0].id", ticket: "$[0].number", link: "$[0].url" });
    const answer = (body: unknown): StubResponse => ({ status: 201, body: JSON.stringify(body) });
    stub.respond = () => answer([{ id: "a b", number: 12, url: "https://x.example/12" }]);
    expect(await receiver.open(alarmMessage(), never())).toEqual({
      ref: { id: "a b" },
      ticket: "12",
      link: "https://x.example/12",
    });
    stub.respond = () => answer([{ id: 1, url: "javascript:alert(1)" }]);
    expect(await receiver.open(alarmMessage(), never())).toEqual({ ref: { id: 1 }, ticket: null, link: null });
  });

  test.each<[StubResponse, object | null]>([
    [{ status: 200, body: '{"ok":true,"data":{"id":7}}' }, null],
    [{ status: 200, body: '{"ok":false,"error":"full"}' }, { kind: "rejected" }],
    [{ status: 200, body: "<html>" }, { kind: "retryable" }],
    [{ status: 409, body: '{"ok":true,"data":{"id":"exists"}}' }, null],
    [reply(200, '{"ok":true}'), { kind: "config", field: "template.id" }],
    [reply(200, '{"ok":true,"data":{"id":""}}'), { kind: "config", field: "template.id" }],
    [{ status: 404 }, { kind: "config" }],
  ])("that opens an incident are accepted only with the configured status and body: %j", async (answer, expected) => {
    const { receiver, stub } = await withTemplate({
      open: {},
      success: { status: [200, 201, 409], body: { path: "$.ok", equals: true } },
      id: "$.data.id",
    });
    stub.respond = () => answer;
    const opening = receiver.open(alarmMessage(), never());
    await (expected === null ? opening : expectFailure(opening, expected));
    expect(stub.seen).toHaveLength(1);
  });

  test.each([404, 409, 410])(
    "with status %i report the incident as deleted only if the request contains the incident's id",
    async (status) => {
      const { receiver, stub } = await withTemplate({
        open: {},
        update: { path: "/things/{{place.id}}" },
        close: { path: "/closed" },
        id: "$.data.id",
      });
      const reference = await receiver.open(alarmMessage(), never());
      stub.respond = () => ({ status });
      expect(await receiver.update(alarmMessage({ change: "changed" }), reference, never())).toBe("gone");
      const kind = status === 409 ? "rejected" : "config";
      await expectFailure(receiver.close(endMessage(), reference, never()), { kind });
    },
  );
});

describe("the configuration of a webhook template", () => {
  test("names an unknown field, its location and the known fields", () => {
    const [firstError, ...others] = listErrors({ open: { body: { a: ["x", { b: "{{alarm.nmae}}" }] } } });
    expect(others).toEqual([]);
    expect(firstError).toMatch(/^template\.open\.body\.a\.1\.b: There is no field \{\{alarm\.nmae\}\}; there are/);
    const names = TEMPLATE_FIELDS.filter((each) => !each.startsWith("place."));
    expect(names.filter((name) => !firstError?.includes(name))).toEqual([]);
    expect(firstError).not.toContain("place.id");
  });

  test("accepts {{place.…}} fields only in update and close, and only if their response path is configured", () => {
    expect(listErrors({ open: { path: "/{{place.id}}" }, id: "$.id" })).toEqual([
      "template.open.path: {{place.id}} is known only after the opening, so it cannot stand in `open`.",
    ]);
    expect(listErrors({ open: {}, close: { body: "{{place.ticket}}" }, id: "$.id" })).toEqual([
      "template.close.body: {{place.ticket}} is known only where `ticket` says where the answer to `open` holds it.",
    ]);
    expect(listErrors({ open: {}, close: { path: "/{{place.id}}" }, id: "$.id" })).toEqual([]);
  });

  test.each([
    [{ open: { body: "{{title}" } }, /^template\.open\.body: A field is written as/],
    [{ open: { body: "{{constructor}}" } }, /There is no field \{\{constructor\}\}/],
    [{ open: { path: "things" } }, /^template\.open\.path: Begin it with/],
    [{ open: { path: "/a b" } }, /^template\.open\.path: Write it as it stands in an address/],
    [{ open: { headers: { Host: "x" } } }, /^template\.open\.headers\.Host/],
    [{ open: { headers: { "X-A": "{{nothing}}" } } }, /^template\.open\.headers\.X-A: There is no field/],
    [{ open: {}, id: "data.id" }, /^template\.id: Write a path into the answer/],
    [{ open: {}, success: { status: [500] } }, /^template\.success\.status\.0/],
    [{ update: {} }, /^template\.open/],
    [{ open: {}, opened: {} }, /opened/],
  ])("rejects the template %j with an error that names the wrong part", (template, expected) => {
    const firstError = listErrors(template);
    expect(firstError).toHaveLength(1);
    expect(firstError[0]).toMatch(expected);
  });
});
