import { asValue } from "../devices.ts";
import { invalidReply } from "../envelope.ts";
import { jsonReply } from "../exchange.ts";
import { tagRecord } from "../records.ts";
import type { Tag } from "../world.ts";
import { findTags } from "./asked-tags.ts";
import type { Call, Endpoint } from "./endpoint.ts";

export const read: Endpoint = {
  name: "read",
  method: "GET",
  path: "/api/v1/tags/read",
  ability: "read:tags",
  scoped: true,
  limited: true,
  answer(call) {
    const ids = call.query.tagIds();
    if (call.query.problems.length > 0) return invalidReply(call.query.problems);
    const asked = findTags(call, ids);
    if ("refusal" in asked) return asked.refusal;
    const { devices } = call.scene;
    const data = asked.tags.map((tag) => ({
      ...tagRecord(call.scene, tag),
      value: asValue(tag, devices.valueAt(tag, call.nowMs)),
    }));
    const delayMs = readingTimeMs(call, asked.tags);
    const reply = jsonReply(200, { data });
    return delayMs > 0 ? { ...reply, transport: { delayMs } } : reply;
  },
};

/** The slowest gateway that has to be asked decides: one slow device holds up the other nineteen. */
function readingTimeMs({ scene, nowMs }: Call, tags: readonly Tag[]): number {
  const { latency_ms, jitter_ms, offline_delay_ms, gateway_delay_ms } = scene.options.reads;
  let slowestMs = 0;
  for (const gatewayId of new Set(tags.map((tag) => tag.gatewayId))) {
    slowestMs = Math.max(slowestMs, gateway_delay_ms[String(gatewayId)] ?? 0);
    if (offline_delay_ms > 0 && !scene.devices.online(gatewayId, nowMs))
      slowestMs = Math.max(slowestMs, offline_delay_ms);
  }
  const jitterMs = jitter_ms === 0 ? 0 : scene.random.next() * jitter_ms;
  return Math.round(latency_ms + jitterMs + slowestMs);
}
