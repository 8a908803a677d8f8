import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { errorStatuses, type Reply, START_MS, simulatedService } from "./simulated-service.ts";

const readValues = (reply: Reply) =>
  Object.fromEntries(reply.body.data.map((tag: { id: string; value: unknown }) => [tag.id, tag.value]));

describe("reading values", () => {
  test("returns the recorded sample at or before the present, shifted by whole weeks", () => {
    const service = simulatedService();
    const site = service.simulator.world.sites.get(6);
    const file = new URL("../../src/simulator/data/series/hhw-105.csv", import.meta.url);
    const lines = readFileSync(file, "utf8").trim().split("\n");
    const header = (lines[0] ?? "").split(",");
    for (let hour = 0; hour < 200; hour += 1) {
      const position = site?.timeline.positionAt(service.nowMs()) ?? 0;
      const recordedMs = (site?.firstSampleMs ?? 0) + position;
      expect((service.nowMs() - recordedMs) % (7 * 86_400_000)).toBe(0);
      const hourStamp = `${new Date(recordedMs).toISOString().slice(0, 13)}:00:00Z`;
      const row = (lines.find((line) => line.startsWith(hourStamp)) ?? "").trim().split(",");
      const values = readValues(service.get("tags/read", { tags: "10168,10174" }));
      for (const [id, value] of Object.entries(values)) {
        const cell = row[header.indexOf(id)] ?? "missing";
        expect(value).toBe(cell === "" ? null : Number(cell));
      }
      service.advance(3600);
    }
  });

  test("returns each tag once, in order of id or as requested", () => {
    const ids = (reply: Reply) => reply.body.data.map((tag: { id: string }) => tag.id);
    const readInOrder = (order: "id" | "asked") =>
      ids(simulatedService({ reads: { order } }).get("tags/read", { tags: "10168,10001,10168" }));
    expect([readInOrder("id"), readInOrder("asked")]).toEqual([
      ["10001", "10168"],
      ["10168", "10001"],
    ]);
  });

  test("requires 1 to 20 tags per request", () => {
    const service = simulatedService();
    const listTagIds = (count: number) => Array.from({ length: count }, (_, index) => 10_001 + index).join(",");
    expect(service.get("tags/read", { tags: listTagIds(20) }).body.data).toHaveLength(20);
    for (const query of [{}, { tags: "," }, { tags: listTagIds(21) }])
      expect(service.get("tags/read", query).body.errors).toMatchObject([{ status: 422, source: "tags" }]);
  });

  test.each([
    ["404", [404]],
    ["422", [422]],
    ["403", [403]],
    ["omit", []],
  ] as const)("responds to an unknown tag as configured: %s", (unknown_tag, statuses) => {
    const reply = simulatedService({ reads: { unknown_tag } }).get("tags/read", { tags: "10001,99" });
    expect(errorStatuses(reply)).toEqual(statuses);
    if (unknown_tag === "omit") expect(reply.body.data).toHaveLength(1);
  });

  test("returns null for a tag behind an offline gateway and delays the response", () => {
    const service = simulatedService({ reads: { offline_delay_ms: 9000, latency_ms: 50 } });
    const valuesBefore = readValues(service.get("tags/read", { tags: "10001,10310" }));
    service.simulator.control.setGateway(109, false);
    const gateway = service.get("gateways", { site_id: 6 }).body.data[0];
    expect(gateway).toMatchObject({ id: "109", attributes: { online: false } });
    const reply = service.get("tags/read", { tags: "10001,10168,10310" });
    expect(readValues(reply)).toEqual({ ...valuesBefore, 10168: null });
    expect(reply.transport?.delayMs).toBe(9050);
    service.advance(10);
    service.simulator.control.setGateway(109, true);
    expect(service.get("tags/read", { tags: "10168" }).transport?.delayMs).toBe(50);
    expect(service.simulator.truth.gatewayChanges()).toEqual([
      { gatewayId: 109, atMs: START_MS, online: false },
      { gatewayId: 109, atMs: START_MS + 10_000, online: true },
    ]);
  });
});

describe("writing values", () => {
  const buildWrite = (tag_id: string, value: unknown) => ({ tags: [{ tag_id, value }] });

  test("makes reads and later history return the written value", () => {
    const service = simulatedService();
    const written = service.post("tags/write", buildWrite("10169", 61.25));
    expect(written.body.data).toMatchObject([{ type: "tags", id: "10169", value: 61.25 }]);
    service.advance(7 * 3600);
    expect(readValues(service.get("tags/read", { tags: "10169" }))).toEqual({ 10169: 61.25 });
    const range = { from: "2026-11-21T11:00:00Z", to: "2026-11-21T17:00:00Z", resolution: "1h", tz: "UTC" };
    const { measurements } = service.get("tags/history", { tags: "10169", ...range }).body.data[0];
    expect(measurements.map((point: { value: number }) => point.value)).toEqual(Array(6).fill(61.25));
    service.simulator.control.releaseTag("10169");
    expect(readValues(service.get("tags/read", { tags: "10169" }))[10169]).not.toBe(61.25);
  });

  test("keeps a boolean tag boolean", () => {
    const service = simulatedService();
    service.post("tags/write", buildWrite("10150", 1));
    expect(readValues(service.get("tags/read", { tags: "10150" }))).toEqual({ 10150: true });
  });

  test.each([
    ["no JSON", "{", "tags"],
    ["an empty list", { tags: [] }, "tags"],
    ["21 tags", { tags: Array.from({ length: 21 }, () => ({ tag_id: "10169", value: 1 })) }, "tags"],
    ["an id that is a number", { tags: [{ tag_id: 10169, value: 1 }] }, "tags.0.tag_id"],
    ["a value that is text", { tags: [{ tag_id: "10169", value: "1" }] }, "tags.0.value"],
  ])("rejects a request with %s (422) and writes nothing", (_, body, source) => {
    const service = simulatedService();
    expect(service.post("tags/write", body).body.errors[0]).toMatchObject({ status: 422, source });
    expect(service.simulator.truth.writes()).toEqual([]);
  });

  const TWO_WRITES = {
    tags: [
      { tag_id: "10169", value: 61 },
      { tag_id: "10168", value: 62 },
    ],
  };

  test("fails the request if a device rejects one tag; an option decides whether the other tag is written", () => {
    const valueAfter = (partial: "none" | "apply_good") => {
      const service = simulatedService({ writes: { rejected_tags: ["10168"], partial } });
      expect(errorStatuses(service.post("tags/write", TWO_WRITES))).toEqual([500]);
      return readValues(service.get("tags/read", { tags: "10169" }))[10169];
    };
    expect(valueAfter("apply_good")).toBe(61);
    expect(valueAfter("none")).not.toBe(61);
  });

  test("can ignore, clamp or delay a value although the response confirms it", () => {
    const service = simulatedService({
      writes: { ignored_tags: ["10168"], clamp: { "10169": [10, 40] }, settle_ms: 5000 },
    });
    const valuesBefore = readValues(service.get("tags/read", { tags: "10168,10169" }));
    expect(readValues(service.post("tags/write", TWO_WRITES))).toEqual({ 10168: 62, 10169: 61 });
    expect(readValues(service.get("tags/read", { tags: "10168,10169" }))).toEqual(valuesBefore);
    service.advance(5);
    expect(readValues(service.get("tags/read", { tags: "10168,10169" }))).toEqual({ ...valuesBefore, 10169: 40 });
    expect(service.simulator.truth.writes().map(({ tagId, outcome }) => [tagId, outcome])).toEqual([
      ["10168", "ignored"],
      ["10169", "held"],
    ]);
  });

  test.each(["refuse", "drop", "apply_later"] as const)(
    "follows the option when_offline for a tag behind an offline gateway: %s",
    (when_offline) => {
      const service = simulatedService({ writes: { when_offline }, offline_gateways: ["109"] });
      const reply = service.post("tags/write", buildWrite("10169", 61));
      expect(errorStatuses(reply)).toEqual(when_offline === "refuse" ? [500] : []);
      service.advance(60);
      service.simulator.control.setGateway(109, true);
      const value = readValues(service.get("tags/read", { tags: "10169" }))[10169];
      if (when_offline === "apply_later") expect(value).toBe(61);
      else expect(value).not.toBe(61);
    },
  );
});
