import { asRaw, asValue, type Value } from "../devices.ts";
import { invalidReply } from "../envelope.ts";
import { jsonReply } from "../exchange.ts";
import { MAX_TAGS, type Problem, requiredMessage } from "../query.ts";
import { tagRecord } from "../records.ts";
import type { WrittenValue } from "../truth.ts";
import type { Tag } from "../world.ts";
import { deviceRefusal, findTags } from "./asked-tags.ts";
import type { Call, Endpoint } from "./endpoint.ts";

type Wish = { readonly tagId: string; readonly value: number | boolean };
type Outcome = WrittenValue["outcome"] | "refused";

export const write: Endpoint = {
  name: "write",
  method: "POST",
  path: "/api/v1/tags/write",
  ability: "write:tags",
  scoped: true,
  limited: true,
  answer(call) {
    const { wishes, problems } = readBody(call.request.body);
    if (problems.length > 0) return invalidReply(problems);
    const asked = findTags(call, [...new Set(wishes.map((wish) => wish.tagId))]);
    if ("refusal" in asked) return asked.refusal;

    const plans = asked.tags.map((tag) => {
      const value = wishes.findLast((wish) => wish.tagId === tag.id)?.value ?? 0;
      return { tag, value, outcome: outcomeOf(call, tag) };
    });
    const someRefused = plans.some((plan) => plan.outcome === "refused");
    if (someRefused && call.scene.options.writes.partial === "none") return deviceRefusal();
    for (const { tag, value, outcome } of plans) {
      if (outcome !== "refused") apply(call, tag, value, outcome);
    }
    if (someRefused) return deviceRefusal();

    const { answer } = call.scene.options.writes;
    const accepted = plans.filter(({ outcome }) => answer !== "accepted_only" || outcome === "held");
    const data = accepted.map(({ tag, value, outcome }) => ({
      ...tagRecord(call.scene, tag),
      value: answer === "held" ? heldValue(call, tag, value, outcome) : value,
    }));
    return jsonReply(200, { data });
  },
};

function outcomeOf({ scene, nowMs }: Call, tag: Tag): Outcome {
  const { rejected_tags, ignored_tags, when_offline } = scene.options.writes;
  if (rejected_tags.includes(tag.id)) return "refused";
  if (!scene.devices.online(tag.gatewayId, nowMs)) {
    return when_offline === "refuse" ? "refused" : when_offline === "drop" ? "dropped" : "waiting";
  }
  return ignored_tags.includes(tag.id) ? "ignored" : "held";
}

function apply(
  { scene, nowMs, number }: Call,
  tag: Tag,
  value: number | boolean,
  outcome: WrittenValue["outcome"],
) {
  // A value that waits for its gateway is held from now on: behind the gateway nobody can tell the difference.
  if (outcome === "held" || outcome === "waiting") {
    scene.devices.hold(
      tag,
      nowMs + scene.options.writes.settle_ms,
      asRaw(tag, clamped(scene.options.writes.clamp, tag, value)),
    );
  }
  scene.wrote({ atMs: nowMs, requestNumber: number, tagId: tag.id, value, outcome });
}

function clamped(
  limits: Readonly<Record<string, readonly [number, number]>>,
  tag: Tag,
  value: number | boolean,
) {
  const limit = limits[tag.id];
  return limit === undefined || typeof value === "boolean"
    ? value
    : Math.min(limit[1], Math.max(limit[0], value));
}

function heldValue({ scene, nowMs }: Call, tag: Tag, value: number | boolean, outcome: Outcome): Value {
  const held = asValue(tag, scene.devices.valueAt(tag, nowMs + scene.options.writes.settle_ms));
  return outcome === "held" ? held : (held ?? value);
}

function readBody(body: string | undefined): { readonly wishes: Wish[]; readonly problems: Problem[] } {
  const entries = entriesOf(body);
  if (entries === undefined || entries.length === 0) {
    return { wishes: [], problems: [{ source: "tags", message: requiredMessage("tags") }] };
  }
  if (entries.length > MAX_TAGS) {
    return {
      wishes: [],
      problems: [{ source: "tags", message: `The tags field must not have more than ${MAX_TAGS} items.` }],
    };
  }
  const wishes: Wish[] = [];
  const problems: Problem[] = [];
  entries.forEach((entry, index) => {
    const { tag_id, value } = isObject(entry) ? entry : {};
    const where = `tags.${index}`;
    if (typeof tag_id !== "string" || tag_id === "") {
      const missing = tag_id === undefined || tag_id === null || tag_id === "";
      const source = `${where}.tag_id`;
      problems.push({
        source,
        message: missing ? requiredMessage(source) : `The ${source} field must be a string.`,
      });
    }
    if (typeof value !== "number" && typeof value !== "boolean") {
      const missing = value === undefined || value === null;
      const source = `${where}.value`;
      problems.push({
        source,
        message: missing ? requiredMessage(source) : `The ${source} field must be a number or a boolean.`,
      });
    }
    if (typeof tag_id === "string" && (typeof value === "number" || typeof value === "boolean")) {
      wishes.push({ tagId: tag_id, value });
    }
  });
  return { wishes, problems };
}

function entriesOf(body: string | undefined): readonly unknown[] | undefined {
  try {
    const parsed: unknown = JSON.parse(body ?? "");
    return isObject(parsed) && Array.isArray(parsed.tags) ? parsed.tags : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
