import { expect, test } from "vitest";
import { influxdb } from "#connectors/influxdb/definition.ts";
import { kafka } from "#connectors/kafka/definition.ts";
import { mqtt } from "#connectors/mqtt/definition.ts";
import { postgres } from "#connectors/postgres/definition.ts";
import { sampleEvent } from "../sample-events.ts";

/** Where a person finds there what is told of a tag, ready to be copied. */

const VALUE = sampleEvent("tag-value");
const ALARM = sampleEvent("alarm-raised");

test("of MQTT it is the topic", () => {
  const config = mqtt.Config.parse({ url: "mqtts://broker.example" });
  expect(mqtt.whereIs(config, VALUE)).toBe("plenum/main/1/tag/10042/value");
});

test("of Kafka it is the topic", () => {
  const config = kafka.Config.parse({ brokers: ["kafka.example:9093"], topic: "plenum.{noun}" });
  expect(kafka.whereIs(config, VALUE)).toBe("plenum.tag");
});

test("of InfluxDB it is a question in its language", () => {
  const v2 = { url: "https://influx.example", api: "v2", org: "o", bucket: 'a "b"', token: { env: "T" } };
  expect(influxdb.whereIs(influxdb.Config.parse(v2), VALUE)).toBe(
    'from(bucket: "a \\"b\\"") |> range(start: -24h) |> filter(fn: (r) => r._measurement == "tag_value" and r.source == "main" and r.tag_id == "10042")',
  );
  const v1 = { url: "https://influx.example", api: "v1", database: "d", measurement_prefix: "p_" };
  expect(influxdb.whereIs(influxdb.Config.parse(v1), VALUE)).toBe(
    `SELECT * FROM "p_tag_value" WHERE "source" = 'main' AND "tag_id" = '10042' AND time > now() - 24h`,
  );
  expect(influxdb.whereIs(influxdb.Config.parse(v1), ALARM)).toBeNull();
});

test("of PostgreSQL it is a question to its table, with nothing left to break out of", () => {
  const config = postgres.Config.parse({ url: "postgresql://plenum@db.example/b", password: { env: "P" } });
  const odd = { ...VALUE, data: { ...VALUE.data, tag: { ...VALUE.data.tag, id: "1'; drop" } } };
  expect(postgres.whereIs(config, odd)).toBe(
    "select * from plenum.value where tag_id = '1''; drop' order by time desc limit 100;",
  );
  expect(postgres.whereIs(config, ALARM)).toBeNull();
});
