import { GenericError } from "@platformatic/kafka";
import { describe, expect, test } from "vitest";
import { explainRefusal, getErrorName, mapConnectionError } from "#connectors/kafka/broker-failures.ts";
import { buildKafkaRecord } from "#connectors/kafka/event-records.ts";
import { valueEvent } from "../../sample-events.ts";

describe("an error code of a Kafka broker", () => {
  test("an unknown error code is named by its number", () => {
    expect(getErrorName(10)).toBe("MESSAGE_TOO_LARGE");
    expect(getErrorName(9_999)).toBe("error 9999");
  });

  test.each([
    ["no key", "The broker says INVALID_RECORD: no key."],
    ["", "The broker says INVALID_RECORD."],
    [null, "The broker says INVALID_RECORD."],
  ])("the error for a rejected record contains the broker's message if there is one: %j", (said, end) => {
    expect(explainRefusal(87, "plenum.tag", said)).toBe(
      `Topic plenum.tag: the topic does not take such a record. ${end}`,
    );
  });

  test("an error code that does not concern the record does not reject the record", () => {
    for (const code of [-1, 3, 6, 19, 29, 44, 76, 9_999]) expect(explainRefusal(code, "t", null)).toBeNull();
  });
});

test("an error of the Kafka client library is retryable, and its message contains the error code", () => {
  const failure = mapConnectionError(new GenericError("PLT_KFK_USER", "strange"), { host: "a", port: 1 });
  expect(failure).toMatchObject({
    kind: "retryable",
    message: "The Kafka broker at a:1 could not do it at the moment (PLT_KFK_USER).",
  });
});

test("the size of a record counts 36 bytes per record, 10 per header, and the texts", () => {
  const { bytes, headers, key, value } = buildKafkaRecord(valueEvent(1), "plenum.tag");
  const texts = [key, value, ...[...headers].flat()].reduce((sum, { length }) => sum + length, 0);
  expect(bytes).toBe(36 + 10 * headers.size + texts);
});
