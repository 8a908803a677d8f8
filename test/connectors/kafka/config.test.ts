import { describe, expect, test } from "vitest";
import { KafkaConfig, parseBrokerAddress } from "#connectors/kafka/config.ts";

const findComplaint = (config: object) =>
  KafkaConfig.safeParse({ brokers: ["kafka.example:9093"], ...config }).error?.issues[0]?.message ?? "";
const sasl = { mechanism: "PLAIN", username: "plenum", password: { env: "PW" } };

describe("the configuration of the Kafka sink", () => {
  test("requires only brokers and uses TLS by default", () => {
    expect(KafkaConfig.parse({ brokers: ["kafka.example:9093"] })).toMatchObject({
      tls: { enabled: true },
      topic: "plenum.{noun}",
      create_topics: false,
      idempotent: true,
      compression: "none",
      max_message_bytes: 1_000_000,
      connect_deadline: 10_000,
      publish_deadline: 30_000,
    });
  });

  test.each([
    [{ brokers: [] }, "expected array to have >=1"],
    [{ brokers: ["kafka://kafka.example:9092"] }, "host:port"],
    [{ brokers: ["kafka.example:70000"] }, "host:port"],
    [{ tls: { enabled: false, ca_file: "x" } }, "tls.enabled: true"],
    [{ tls: { cert_file: "x" } }, "belong together"],
    [{ sasl: { ...sasl, password: "secret" } }, "{file: path}"],
    [{ sasl: { ...sasl, username: "a,b" } }, "commas"],
    [{ topic: "a/{noun}" }, "A topic consists"],
    [{ tls: { reject_unauthorized: false } }, "nrecognized key"],
  ])("refuses the configuration %o", (config, complaint) => expect(findComplaint(config)).toContain(complaint));

  test("allows a password without TLS only to brokers on this machine, or with plain_text", () => {
    const plainConfig = { sasl, tls: { enabled: false } };
    expect(findComplaint(plainConfig)).toContain("plain_text");
    expect(findComplaint({ ...plainConfig, plain_text: true })).toBe("");
    expect(findComplaint({ ...plainConfig, brokers: ["127.0.0.1:9092", "[::1]:9092", "localhost:9092"] })).toBe("");
    expect(findComplaint({ ...plainConfig, brokers: ["127.0.0.1:9092", "10.0.0.1:9092"] })).toContain("plain_text");
    expect(findComplaint({ sasl })).toBe("");
  });

  test.each([
    ["publish_deadline", ["100ms", "2m"], ["99ms", "121s"]],
    ["max_message_bytes", [1_024, "100MB"], [1_023, 100_000_001]],
    ["client_id", ["a", "x".repeat(128)], ["", "x".repeat(129)]],
    ["brokers", [["a:1"], ["a:65535"], Array(50).fill("a:1")], [["a:0"], ["a:65536"], Array(51).fill("a:1")]],
  ])(
    "accepts the limits of %s that the reference documentation names, and refuses values beyond",
    (option, taken, refused) => {
      for (const value of taken) expect(findComplaint({ [option]: value }), String(value)).toBe("");
      for (const value of refused) expect(findComplaint({ [option]: value }), String(value)).not.toBe("");
    },
  );

  test("parses the address of a broker into host and port", () => {
    expect(parseBrokerAddress("kafka.example:9092")).toEqual({ host: "kafka.example", port: 9092 });
    expect(parseBrokerAddress("[fd00::1]:9092")).toEqual({ host: "fd00::1", port: 9092 });
  });
});
