import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  createTopicTemplate,
  encodeTopicValue,
  findSubjectNoun,
  findTopicTemplateError,
} from "#connectors/kafka/topic-template.ts";
import { type Event, sourceUri } from "#src/core/model/event.ts";
import { sampleEvent, sampleOfEveryKind, valueEvent } from "../../sample-events.ts";

const anyText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 200 }).filter((text) => text.isWellFormed()),
  fc.stringMatching(/^[a-c._-]{0,6}$/),
  fc.string({ unit: fc.constantFrom("_", "5", "f", "h", ".", "a"), maxLength: 90 }),
);

describe("the encoding of texts for Kafka topic names", () => {
  test("uses only legal characters, and encodes two different texts differently", () => {
    fc.assert(
      fc.property(anyText, anyText, (one, other) => {
        for (const text of [one, other]) expect(encodeTopicValue(text)).toMatch(/^[A-Za-z0-9_-]{0,64}$/);
        expect(encodeTopicValue(one) === encodeTopicValue(other)).toBe(one === other);
      }),
      { numRuns: 2_000 },
    );
  });

  test.each([
    ["north", "north"],
    ["north-2", "north-2"],
    ["north_2", "north_5f2"],
    ["a.b", "a_2eb"],
    ["Malmö", "Malm_c3_b6"],
    ["_worker", "_5fworker"],
    ["0123456789".repeat(6).concat("0123"), "0123456789".repeat(6).concat("0123")],
    ["0123456789".repeat(7), "0123456789012345678901234567890_h57445fa40b08c60cdcba7ca39c756de"],
  ])("encodes %s as %s", (text, written) => expect(encodeTopicValue(text)).toBe(written));
});

describe("Kafka topics of events", () => {
  const buildTopic = (template: string, event: Event) => createTopicTemplate(template).buildTopic(event);

  test("a topic is built from the template", () => {
    const event = { ...valueEvent(1), source: sourceUri("north_2"), siteid: "7" };
    expect(buildTopic("plenum.{noun}", event)).toBe("plenum.tag");
    expect(buildTopic("plenum.{source}.{site}.{kind}", event)).toBe("plenum.north_5f2.7.tag-value");
    expect(buildTopic("all", event)).toBe("all");
    expect(buildTopic("plenum.{source}.{site}", sampleEvent("delivery-gap"))).toBe("plenum._worker._none");
  });

  test("all events of one object, such as an alarm, have the same value for the placeholder {noun}", () => {
    expect(findSubjectNoun("site/1")).toBe("site");
    expect(findSubjectNoun("site/1/tag/10042/history/1h")).toBe("tag");
    expect(findSubjectNoun("gateway/9")).toBe("gateway");
    expect(findSubjectNoun("audit")).toBe("worker");
    const topics = createTopicTemplate("plenum.{noun}");
    for (const event of sampleOfEveryKind()) expect(topics.possibleTopics).toContain(topics.buildTopic(event));
    expect(topics.buildTopic(sampleEvent("alarm-raised"))).toBe(topics.buildTopic(sampleEvent("alarm-resolved")));
  });

  test("possibleTopics is null if the template contains {site}, but matchesTopic recognizes its topics", () => {
    expect(createTopicTemplate("plenum.{kind}").possibleTopics).toContain("plenum.tag-value");
    expect(createTopicTemplate("one").possibleTopics).toEqual(["one"]);
    const bySite = createTopicTemplate("plenum.{site}.{noun}");
    expect(bySite.possibleTopics).toBeNull();
    expect(bySite.matchesTopic("plenum.7.tag")).toBe(true);
    expect(bySite.matchesTopic("plenum.tag")).toBe(false);
    expect(bySite.matchesTopic("plenumx7.tag")).toBe(false);
  });
});

describe("topic templates for Kafka", () => {
  test.each([
    ["plenum.{site}.{tag}", "There is no {tag}"],
    ["plenum.{site}.{site}", "once"],
    ["{source}{site}", "point between"],
    ["{source}-{site}", "point between"],
    ["plenum/{noun}", '"/"'],
    ["plenum.{noun", '"{"'],
    ["", "needs a name"],
    ["..", "needs a name"],
    ["__consumer_offsets", "Kafka itself"],
    [`${"x".repeat(120)}.{source}.{site}`, "250"],
  ])("the template %s is refused", (template, complaint) =>
    expect(findTopicTemplateError(template)).toContain(complaint),
  );

  test.each(["plenum.{noun}", "plenum.{kind}", "plenum.{source}.{site}.{kind}", "{noun}", "a_b-{noun}.x"])(
    "the template %s is accepted",
    (template) => expect(findTopicTemplateError(template)).toBeNull(),
  );
});
