import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createTopics, encodeSegment, findPrefixError, findTemplateError } from "#connectors/mqtt/topics.ts";
import { seed } from "../../seed.ts";
import { hostileTexts } from "./hostile-texts.ts";

const LAYOUT = "{prefix}/{source}/{site}/{kind}/{id}/{aspect}";
const topics = createTopics("plenum", LAYOUT);

describe("the encoding of a text as one level of an MQTT topic", () => {
  test.each([
    ["VS1-GT11_a.b", "VS1-GT11_a.b"],
    ["", "~"],
    ["~", "%7E"],
    ["a/b+c#d", "a%2Fb%2Bc%23d"],
    ["$SYS", "%24SYS"],
    ["å", "%C3%A5"],
    ["cmd", "%63md"],
    ["_", "%5F"],
  ])("encodes %j as %j", (text, level) => {
    expect(encodeSegment(text)).toBe(level);
  });

  test("uses only safe characters for any text", () => {
    for (const text of hostileTexts())
      expect(encodeSegment(text), JSON.stringify(text.slice(0, 40))).toMatch(/^[\w.%~-]{1,128}$/);
  });

  test("encodes two different texts differently", () => {
    const texts = new Set(hostileTexts());
    expect(new Set([...texts].map(encodeSegment)).size).toBe(texts.size);
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), (a, b) => {
        expect(encodeSegment(a) === encodeSegment(b)).toBe(a === b);
      }),
      {
        seed,
        numRuns: 2_000,
        examples: [
          ["cmd", "%63md"],
          ["", "~"],
          ["\ud800", "\ud801"],
        ],
      },
    );
  });
});

describe("MQTT topics", () => {
  const topicParts = { source: "main", site: "1", kind: "tag", id: "10001", aspect: "value" };

  test("follow the configured layout", () => {
    expect(topics.buildTopic(topicParts)).toBe("plenum/main/1/tag/10001/value");
    expect(topics.buildTopic({ ...topicParts, source: null, site: null })).toBe("plenum/worker/_/tag/10001/value");
    const uns = createTopics("plenum", "acme/stockholm/{kind}/{id}/{aspect}/{source}");
    expect(uns.buildTopic(topicParts)).toBe("acme/stockholm/tag/10001/value/main");
    expect(uns.status).toBe("plenum/status");
  });

  test("in a fleet, the status topic contains the source, and the worker subscribes only to commands of the source", () => {
    const fleet = createTopics("plenum", LAYOUT, "cmd");
    expect(fleet.status).toBe("plenum/status/source/%63md");
    expect(fleet.commandStatus).toBe("plenum/status/source/%63md/commands");
    expect(fleet.commandFilters).toEqual(["plenum/cmd/%63md/+/set", "plenum/cmd/%63md/set", "plenum/cmd/%63md/second"]);
    expect(fleet.buildTopic(topicParts)).toBe(topics.buildTopic(topicParts));
    expect(fleet.buildTopic(topicParts, { path: "b1/432" })).toBe("plenum/%63md/b1/432/value");
  });

  test.each([
    ["VS1-GT11_a.b", "VS1-GT11_a.b"],
    ["a/b+c#d", "a_b_c_d"],
    ["tab\tand\u0000", "tab_and_"],
    ["Källare 2", "Källare_2"],
    ["Ka\u0308llare", "Källare"],
    ["  ", "_"],
    ["$SYS", "_SYS"],
    ["lone \ud800", "lone__"],
    ["x".repeat(300), "x".repeat(128)],
  ])("contain the name %j as the level %j", (tagName, level) => {
    const named = createTopics("plenum", "{prefix}/{tag_name}/{aspect}");
    expect(named.buildTopic(topicParts, { tagName })).toBe(`plenum/${level}/value`);
  });

  test("contain only legal levels for any name, and are never command or status topics", () => {
    const named = createTopics("plenum", "{prefix}/{site_name}/{tag_name}/{aspect}");
    for (const text of ["cmd", "status", "reply", "plenum", ...hostileTexts()]) {
      const topic = named.buildTopic(topicParts, { siteName: text, tagName: text });
      expect(topic).toMatch(/^plenum(\/[\p{L}\p{M}\p{N}_.-]+){2}\/value$/u);
      expect(topic).not.toMatch(/^plenum\/(cmd|status|reply|worker)\//);
      expect(named.buildTopic(topicParts, { path: `${text}/x` })).not.toMatch(/^plenum\/(cmd|status|reply|worker)\//);
    }
  });

  test("follow a layout without {kind} for tags only; topics of other objects follow the default layout", () => {
    const named = createTopics("plenum", "{prefix}/{site_name}/{tag}/{aspect}");
    expect(named.buildTopic(topicParts)).toBe("plenum/1/10001/value");
    expect(named.buildTopic({ ...topicParts, kind: "gateway" })).toBe("plenum/main/1/gateway/10001/value");
  });

  test("omit the level {aspect} for a message without an aspect", () => {
    const { aspect: _, ...event } = { ...topicParts, kind: "event", id: "alarm-raised" };
    expect(topics.buildTopic(event)).toBe("plenum/main/1/event/alarm-raised");
  });

  test("topics of events never equal command or status topics", () => {
    const layouts = [
      LAYOUT,
      "{prefix}/{id}/{kind}/{aspect}",
      "{id}/{kind}/{aspect}",
      "plenum/{source}/{id}/{kind}/{aspect}",
    ];
    for (const layout of layouts) {
      const layoutTopics = createTopics("plenum", layout);
      for (const text of ["cmd", "status", "reply", "plenum", "plenum/cmd", ...hostileTexts()]) {
        const topic = layoutTopics.buildTopic({ ...topicParts, source: text, site: text, id: text });
        expect(topic).not.toMatch(/^plenum\/(cmd|status|reply)(\/|$)/);
      }
    }
  });

  test("a command topic is decoded to its source and tag", () => {
    expect(topics.parseCommand("plenum/cmd/main/10001/set")).toEqual({ source: "main", tagId: "10001" });
    expect(topics.parseCommand("plenum/cmd/main/set")).toEqual({ source: "main", tagId: null });
    for (const text of ["å/ä", "cmd", "", "%", "a b"])
      expect(topics.parseCommand(`plenum/cmd/main/${encodeSegment(text)}/set`)?.tagId).toBe(text);
    for (const topic of ["plenum/cmd/set", "plenum/cmd/a/b/c/set", "plenum/cmd/main/10001/get", "x/cmd/main/1/set"])
      expect(topics.parseCommand(topic), topic).toBeNull();
  });

  test.each(["answers/42", "plenum/reply/operator/1", "plenumx/1"])("may be used as a response topic: %s", (topic) => {
    expect(topics.mayReply(topic)).toBe(true);
  });

  test.each([
    "plenum/cmd/main/10001/set",
    "plenum/status",
    "plenum",
    "$SYS/broker",
    "a/#",
    "a\u0000b",
    "",
    "x".repeat(2_000),
  ])("may not be used as a response topic if reserved, invalid or too long: %j", (topic) => {
    expect(topics.mayReply(topic)).toBe(false);
  });

  test("may not be used as response topics if they match the event topics of a layout without a prefix", () => {
    const uns = createTopics("plenum", "acme/{site}/{kind}/{id}/{aspect}");
    expect(uns.mayReply("acme/1/tag/10001/value")).toBe(false);
    expect(uns.mayReply("acme/1/tag/10001/history/5m")).toBe(false);
    expect(uns.mayReply("other/1/tag/10001/value")).toBe(true);
  });
});

describe("the configured MQTT prefix and topic layout", () => {
  test.each(["plenum", "acme/plenum", "a.b/c_d/e-f"])("the prefix %s is accepted", (prefix) => {
    expect(findPrefixError(prefix)).toBeNull();
  });
  test.each(["", "/a", "a/", "a//b", "a+b", "#", "$SYS", "a b", "å", "a\u0000"])(
    "the prefix %j is refused",
    (prefix) => {
      expect(findPrefixError(prefix)).not.toBeNull();
    },
  );
  test.each([
    ["{prefix}/{kind}/{id}", "{aspect}"],
    ["{prefix}/{kind}/{id}/{aspect}/{id}", "twice"],
    ["{prefix}/cmd/{kind}/{id}/{aspect}", "taken"],
    ["{prefix}/{name}/{kind}/{id}/{aspect}", "neither"],
    ["{prefix}/+/{kind}/{id}/{aspect}", "neither"],
    ["$x/{kind}/{id}/{aspect}", "neither"],
    ["{prefix}/{site_name}/{aspect}", "{kind}"],
    ["{prefix}/{tag_name}", "{aspect}"],
  ])("the layout %s is refused", (layout, because) => {
    expect(findTemplateError(layout)).toContain(because);
  });
});
