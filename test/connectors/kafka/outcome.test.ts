import { describe, expect, test } from "vitest";
import { nameOfCode, refusal } from "#connectors/kafka/outcome.ts";

describe("a broker's code", () => {
  test("that the library does not know is named by its number", () => {
    expect(nameOfCode(10)).toBe("MESSAGE_TOO_LARGE");
    expect(nameOfCode(9_999)).toBe("error 9999");
  });

  test.each([
    ["no key", "The broker says INVALID_RECORD: no key."],
    ["", "The broker says INVALID_RECORD."],
    [null, "The broker says INVALID_RECORD."],
  ])("about a record carries the broker's message: %s", (said, end) => {
    expect(refusal(87, "plenum.tag", said)).toBe(
      `Topic plenum.tag: the topic does not take such a record. ${end}`,
    );
  });

  test("about anything but the record rejects no record", () => {
    for (const code of [-1, 3, 6, 19, 29, 44, 76, 9_999]) expect(refusal(code, "t", null)).toBeNull();
  });
});
