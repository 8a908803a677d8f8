import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { type AnyEvent, type Event, sourceName } from "../../src/core/model/event.ts";
import { InfluxConfig } from "./config.ts";

export const influxdb = {
  name: "influxdb",
  summary: "Points in InfluxDB 1.x, 2, 3 or VictoriaMetrics.",
  Config: InfluxConfig,
  whereIs: exampleQuery,
  sink: async (config, context) => (await import("./sink.ts")).createInfluxSink(config, context),
} satisfies ConnectorDefinition<InfluxConfig>;

/** Returns a query for the last day of a tag in the server's language; null for other events than values. */
function exampleQuery(
  { api, bucket = "", measurement_prefix: prefix = "" }: InfluxConfig,
  event: Event,
): string | null {
  const { type, data } = event as AnyEvent;
  if (type !== "tag-value") return null;
  const source = sourceName(event) ?? "";
  if (api === "v2") {
    const text = JSON.stringify;
    const where = `r._measurement == ${text(`${prefix}tag_value`)} and r.source == ${text(source)} and r.tag_id == ${text(data.tag.id)}`;
    return `from(bucket: ${text(bucket)}) |> range(start: -24h) |> filter(fn: (r) => ${where})`;
  }
  const quoted = (word: string) => `'${word.replaceAll(/[\\']/g, "\\$&")}'`;
  return `SELECT * FROM "${prefix}tag_value" WHERE "source" = ${quoted(source)} AND "tag_id" = ${quoted(data.tag.id)} AND time > now() - 24h`;
}
