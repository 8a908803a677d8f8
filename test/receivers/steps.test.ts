import { expect, onTestFinished, test } from "vitest";
import { CATALOG } from "#connectors/catalog.ts";
import type { ConnectorDefinition } from "#src/core/connector.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { contextFor, never } from "../connectors/context.ts";
import { alarm, START } from "../receiver/trial.ts";
import { CONTESTANTS } from "./contestants.ts";

test.each(CONTESTANTS.map((contestant) => [contestant.name, contestant] as const))(
  "%s says when its last request began, so that none is cut off by the deadline of the whole write",
  async (_, { connector, options, start }) => {
    let monotonicMs = 1_000;
    const clock = { ...systemClock, now: () => START, monotonic: () => monotonicMs };
    const end = await start(clock.now);
    onTestFinished(() => end.stop());
    const definition = (CATALOG as Readonly<Record<string, ConnectorDefinition>>)[connector];
    const sink = await definition?.sink?.(definition.Config.parse(options(end)), contextFor("people", clock));
    if (sink === undefined) throw new Error("It makes no sink.");
    onTestFinished(() => sink.close());
    expect(sink.lastStepMs?.()).toBe(Number.NEGATIVE_INFINITY);
    for (const n of [1, 2]) {
      monotonicMs += 20_000;
      await sink.write([alarm(n).raised()], never());
      expect(sink.lastStepMs?.()).toBe(monotonicMs);
    }
  },
);
