import { RESOLUTIONS } from "../buckets.ts";
import { errorReply, invalidReply, notFoundReply } from "../envelope.ts";
import { jsonReply } from "../exchange.ts";
import type { Range } from "../history.ts";
import { tagRecord, utc } from "../records.ts";
import type { Tag } from "../world.ts";
import { findTags } from "./asked-tags.ts";
import type { Call, Endpoint } from "./endpoint.ts";

const STORE_UNAVAILABLE = "Historical data could not be retrieved.";

export const history: Endpoint = {
  name: "history",
  method: "GET",
  path: "/api/v1/tags/history",
  ability: "read:tags",
  scoped: true,
  limited: true,
  answer(call) {
    const { query, scene } = call;
    // The order of these lines is the order of the errors: interface, Errors.
    const ids = query.tagIds();
    const fromMs = query.utc("from");
    const toMs = query.utc("to");
    const resolution =
      query.required("resolution") === undefined ? undefined : query.oneOf("resolution", RESOLUTIONS);
    const zone = query.zone("tz");
    const isScalar = query.boolean("scalar") ?? false;
    if (fromMs !== undefined && toMs !== undefined && toMs < fromMs) {
      query.refuse("to", "The to field must be a time after or equal to from.");
    }
    const complete =
      fromMs !== undefined && toMs !== undefined && resolution !== undefined && zone !== undefined;
    if (query.problems.length > 0 || !complete) return invalidReply(query.problems);

    const asked = findTags(call, ids);
    if ("refusal" in asked) return asked.refusal;
    if (asked.tags.some((tag) => !scene.history.hasLog(tag))) {
      return notFoundReply("No log was found for one or more tags. Make sure that all tags have logs.");
    }
    const range = { fromMs, toMs, nowMs: call.nowMs };
    const series = isScalar
      ? asked.tags.map((tag) => ({ ...logRecord(call, tag), ...scalarPart(call, tag, range) }))
      : asked.tags.map((tag) => {
          const points = scene.history.points(tag, range, resolution, zone);
          const measurements = points.map(({ startMs, value }) => ({ timestamp: utc(startMs), value }));
          return { ...logRecord(call, tag), measurements };
        });
    return tooLarge(call, series) ?? jsonReply(200, { data: series });
  },
};

function logRecord({ scene }: Call, tag: Tag) {
  return { ...tagRecord(scene, tag), type: "logs" };
}

function scalarPart({ scene }: Call, tag: Tag, range: Range): object {
  const value = scene.history.scalar(tag, range);
  const list = value === null ? [] : [value];
  switch (scene.options.history.scalar_form) {
    case "measurements":
      return { measurements: list };
    case "value":
      return { value };
    case "number":
      return { measurements: value };
    case "object":
      return { measurements: { value } };
    case "point":
      return { measurements: value === null ? [] : [{ timestamp: utc(range.fromMs), value }] };
    case "both":
      return { measurements: list, value };
  }
}

function tooLarge({ scene }: Call, series: readonly object[]) {
  const { max_values, over_max_values: status } = scene.options.history;
  if (max_values === undefined) return undefined;
  const values = series.reduce(
    (sum, log) =>
      sum + ("measurements" in log && Array.isArray(log.measurements) ? log.measurements.length : 1),
    0,
  );
  if (values <= max_values) return undefined;
  if (status === 422) return invalidReply([{ source: "from", message: "The range holds too many values." }]);
  return errorReply(
    status,
    status === 504 ? STORE_UNAVAILABLE : "An unexpected error occurred. Please try again later.",
  );
}
