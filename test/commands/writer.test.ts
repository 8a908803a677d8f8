import { pino } from "pino";
import { expect, test } from "vitest";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import type { Command } from "#src/engine/commands/command.ts";
import { CommandsConfig } from "#src/engine/commands/config.ts";
import type { FreshTagValues } from "#src/engine/commands/fresh-tag-values.ts";
import { openCommandJournal, type SentCommand } from "#src/engine/commands/journal.ts";
import { createCommandWriter } from "#src/engine/commands/tag-command-writer.ts";
import { createHarness, SITE, START_MS, tagsOf } from "./command-harness.ts";

test("a timed write is not sent without a fresh value that can be restored", async () => {
  const harness = await createHarness();
  const [tagId = ""] = tagsOf(harness.simulator, 1);
  const { clock, source, store } = harness;
  const entry = CommandsConfig.parse({
    allow: [{ site_id: SITE, tag_id: tagId, type: "number", min: 15, max: 25, restore: true }],
  }).allow[0];
  if (entry === undefined) throw new Error("there is no entry");
  const command: Command = {
    id: "a",
    source: "main",
    siteId: SITE,
    tagId,
    value: 22,
    expect: null,
    forMs: 7_200_000,
    by: "test",
    via: "broker",
    needsSecond: false,
    receivedAt: isoUtc(START_MS),
    expiresAt: isoUtc(START_MS + 30_000),
    replyTo: null,
    correlation: null,
  };
  const journal = await openCommandJournal({
    store,
    clock,
    rehearsal: false,
    estimateCost: () => ({ waitsMs: [], requestCount: 0, totalSeconds: 0 }),
  });
  await journal.accept([{ command, allowedTag: entry }]);

  let looks = 0;
  const values: FreshTagValues = {
    loadLiveValue: async () => undefined,
    async findLatestValue() {
      looks += 1;
      const time = isoUtc(clock.now() - (looks === 3 ? 60_001 : 1_000));
      return { value: 20, quality: "good", time };
    },
    readMissingValues: async () => undefined,
    isValueMissing: async () => false,
    recordReadings: () => undefined,
  };
  const sent: SentCommand[] = [];
  const writer = createCommandWriter({
    source,
    timeZone: "Europe/Oslo",
    config: () => CommandsConfig.parse({}),
    isStillAllowed: () => true,
    view: {
      tag: async () => undefined,
      tokenInfo: async () => undefined,
      gateways: async () => [],
      value: async () => undefined,
      systemIds: async () => [],
    },
    locks: { findRefusal: async () => null },
    values,
    journal: {
      ...journal,
      async recordSending(leaving) {
        sent.push(...leaving);
        await journal.recordSending(leaving);
      },
    },
    findWritingRefusal: () => null,
    readBack: { add: () => undefined },
    endings: { end: async () => undefined, onEnd: () => undefined },
    clock,
    log: pino({ level: "silent" }),
  });
  const stopping = new AbortController();
  const running = writer.runSending(stopping.signal, stopping.signal);
  writer.add({ command, allowedTag: entry });
  await clock.advance(10_000);
  expect(looks).toBeGreaterThan(3);
  expect(sent.map(({ before }) => before)).toEqual([20]);
  expect(journal.listRestores()).toMatchObject([{ before: 20 }]);
  stopping.abort();
  await running;
  await harness.close();
});
