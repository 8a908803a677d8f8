import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import type { SeenRequest, StubResponse } from "../connectors/stub-server.ts";
import { type ReceiverIncident, type ReceiverServer, startReceiverStub } from "./receiver-server.ts";
import { findBlockError } from "./slack-rules.ts";

interface WebhookStubRules {
  readonly config: (url: string, secret: (text: string) => { readonly file: string }) => object;
  readonly carryOut: (seen: SeenRequest) => StubResponse;
  readonly incidents: () => readonly ReceiverIncident[];
}

async function startWebhookStub({ carryOut, config, incidents }: WebhookStubRules): Promise<ReceiverServer> {
  const busy = { status: 429, headers: { "retry-after": "1" }, body: "slow down" };
  const { common, interrupt, secret } = await startReceiverStub(busy);
  const { stub } = common;
  stub.respond = (seen, response) => interrupt(() => carryOut(seen), response);
  return { ...common, config: { allow_networks: ["127.0.0.0/8"], ...config(stub.url, secret) }, incidents };
}

const schema = JSON.parse(readFileSync(join(import.meta.dirname, "pagerduty-events-v2.json"), "utf8")) as object;
const ajv = new Ajv({ allErrors: true });
addFormats.default(ajv);

export function pagerdutyErrors(event: unknown): readonly string[] {
  const validate = ajv.compile(schema);
  return validate(event)
    ? []
    : (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

interface Event {
  readonly routing_key: string;
  readonly event_action: "trigger" | "acknowledge" | "resolve";
  readonly dedup_key: string;
  readonly payload?: { readonly summary: string; readonly custom_details?: Readonly<Record<string, string>> };
}

export function startPagerdutyStub(): Promise<ReceiverServer> {
  const routingKey = randomBytes(16).toString("hex");
  const alerts: { key: string; isOpen: boolean; texts: string[] }[] = [];

  function applyAlertEvent(event: Event): void {
    const openAlert = alerts.find(({ key, isOpen }) => isOpen && key === event.dedup_key);
    const texts = [event.payload?.summary ?? "", ...Object.values(event.payload?.custom_details ?? {})].map(String);
    if (event.event_action === "resolve" && openAlert !== undefined) openAlert.isOpen = false;
    if (event.event_action !== "trigger") return;
    if (openAlert === undefined) alerts.push({ key: event.dedup_key, isOpen: true, texts });
    else openAlert.texts.push(...texts);
  }

  return startWebhookStub({
    config: (url, secret) => ({ format: "pagerduty", url: `${url}/v2/enqueue`, key: secret(routingKey) }),
    incidents: (): readonly ReceiverIncident[] => alerts,
    carryOut({ url, body }) {
      if (url !== "/v2/enqueue") return { status: 404, body: "not found" };
      const event = JSON.parse(body.toString()) as Event;
      const errors = pagerdutyErrors(event);
      if (errors.length > 0 || event.routing_key !== routingKey) {
        const messages = errors.length > 0 ? errors : ["Invalid routing key"];
        return {
          status: 400,
          body: JSON.stringify({ status: "invalid event", message: "Event object is invalid", errors: messages }),
        };
      }
      applyAlertEvent(event);
      const reply = { status: "success", message: "Event processed", dedup_key: event.dedup_key };
      return { status: 202, body: JSON.stringify(reply) };
    },
  });
}

interface Block {
  readonly type: string;
  readonly text?: { readonly text: string };
  readonly fields?: readonly { readonly text: string }[];
}

export function startSlackWebhookStub(): Promise<ReceiverServer> {
  const path = `/services/T000/B000/${randomBytes(12).toString("hex")}`;
  const messages: ReceiverIncident[] = [];
  return startWebhookStub({
    config: (url, secret) => ({ format: "slack", url: secret(`${url}${path}`) }),
    incidents: (): readonly ReceiverIncident[] => messages,
    carryOut({ url, body }) {
      if (url !== path) return { status: 404, body: "no_service" };
      const { text, blocks } = JSON.parse(body.toString()) as { text: string; blocks: readonly Block[] };
      if (text === "") return { status: 400, body: "no_text" };
      if (findBlockError(blocks, false) !== null) return { status: 400, body: "invalid_blocks" };
      const texts = blocks.flatMap((block) => [
        ...(block.text === undefined ? [] : [block.text.text]),
        ...(block.fields ?? []).map((field) => field.text),
      ]);
      messages.push({ key: null, isOpen: !text.startsWith("Resolved"), texts: [text, ...texts] });
      return { status: 200, body: "ok" };
    },
  });
}
