import { describe, expect, onTestFinished, test, vi } from "vitest";
import { buildSinks, listConfiguredSinks } from "#src/app/build-sinks.ts";
import { Config } from "#src/app/config/config.ts";
import type { Event } from "#src/core/model/event.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { configured, scriptedSink, waitingSink } from "./dispatcher-harness.ts";
import { harness, ids, started, stop, useHarness, values, written } from "./dispatcher-steps.ts";

useHarness();

async function commit(events: readonly Event[]): Promise<void> {
  await harness.store.commit({ events });
  await harness.clock.advance(1_000);
}

async function endedOf(name: string) {
  return (await harness.store.outbox.lag()).find(({ sink }) => sink === name)?.ended;
}

test("a change of the configured sinks starts an added sink, keeps an unchanged sink open, and ends a removed sink", async () => {
  const [stays, goes, comes] = [scriptedSink(), scriptedSink(), scriptedSink()];
  const dispatcher = await started({});
  const staying = configured("stays", stays);
  await dispatcher.changeSinks([staying, configured("goes", goes)]);
  await commit(values(0, 2));
  await dispatcher.changeSinks([staying, configured("comes", comes)]);
  await commit(values(2, 1));
  expect([stays, goes, comes].map(({ opens, closes }) => [opens, closes])).toEqual([
    [1, 0],
    [1, 1],
    [1, 0],
  ]);
  expect([stays, goes, comes].map(written)).toEqual([ids(values(0, 3)), ids(values(0, 2)), ids(values(0, 3))]);
  expect(dispatcher.status().map(({ name }) => name)).toEqual(["stays", "comes"]);
  expect([await endedOf("stays"), await endedOf("goes"), await endedOf("comes")]).toEqual([
    null,
    "not in the configuration",
    null,
  ]);
  const { values: gauges } = await harness.metrics.sinkUp.get();
  expect(gauges.map(({ labels }) => labels.sink).toSorted()).toEqual(["comes", "stays"]);
});

test("a replacement sink starts with the next event after the previous sink has finished its batch", async () => {
  const before = waitingSink();
  const after = scriptedSink();
  const dispatcher = await started({ a: before });
  await commit(values(0, 2));
  await dispatcher.changeSinks([configured("a", after)]);
  await commit(values(2, 2));
  expect([before.closes, after.opens]).toEqual([0, 0]);
  before.finish();
  await harness.clock.advance(1_000);
  expect([before.closes, after.opens]).toEqual([1, 1]);
  expect([written(before), written(after)]).toEqual([ids(values(0, 2)), ids(values(2, 2))]);
});

test("a renamed sink with the same files starts after the old sink has closed, and other sinks start at once", async () => {
  const before = waitingSink();
  const [after, elsewhere] = [scriptedSink(), scriptedSink()];
  const dispatcher = await started({ before });
  await commit(values(0, 2));
  const conflictsWith = ({ name }: { readonly name: string }) => name === "before";
  await dispatcher.changeSinks([{ ...configured("after", after), conflictsWith }, configured("elsewhere", elsewhere)]);
  await commit(values(2, 2));
  expect([before.closes, after.opens, elsewhere.opens]).toEqual([0, 0, 1]);
  before.finish();
  await harness.clock.advance(1_000);
  expect([before.closes, after.opens]).toEqual([1, 1]);
  expect(written(after)).toEqual(ids(values(0, 4)));
});

test("two file sinks with the same folder are reported as conflicting", async () => {
  const { clock, metrics, store } = harness;
  const sinks = Config.shape.sinks.parse({
    days: { file: { folder: "/x" } },
    renamed: { file: { folder: "/x/" } },
    elsewhere: { file: { folder: "/y" } },
    lake: { parquet: { folder: "/x" } },
    screen: { stdout: {} },
  });
  const building = createBuildingView(store, new Map());
  const log = createLog({ level: "silent" });
  const all = listConfiguredSinks(await buildSinks(sinks, { clock, log, metrics, store, building }));
  const met = all.map((a) => all.filter((b) => b !== a && a.conflictsWith?.(b)).map(({ name }) => name));
  expect(met).toEqual([["renamed"], ["days"], [], [], []]);
});

describe("a removed sink while the state cannot be written", () => {
  /** Rejects every `setEnded` until `heal`. */
  function refuseEnds(): { readonly tries: () => number; readonly heal: () => void } {
    const { outbox } = harness.store;
    const refused = vi.spyOn(outbox, "setEnded").mockRejectedValue(new Error("The disk is full."));
    onTestFinished(() => refused.mockRestore());
    return { tries: () => refused.mock.calls.length, heal: () => refused.mockRestore() };
  }

  const said = () => harness.lines.filter(({ msg }) => msg.startsWith("Sinks that are no longer configured")).length;

  test("is marked as ended once the state is writable, without further attempts", async () => {
    const state = refuseEnds();
    const dispatcher = await started({ goes: scriptedSink() });
    await dispatcher.changeSinks([]);
    await harness.clock.advance(60_000);
    expect(await endedOf("goes")).toBeNull();
    expect(state.tries()).toBeGreaterThan(3);
    expect(said()).toBe(state.tries());
    state.heal();
    await harness.clock.advance(60_000);
    expect(await endedOf("goes")).toBe("not in the configuration");
    const lag = vi.spyOn(harness.store.outbox, "lag");
    onTestFinished(() => lag.mockRestore());
    await harness.clock.advance(3_600_000);
    expect(lag).not.toHaveBeenCalled();
  });

  test("is marked as ended when it was removed while no worker ran, without delaying the start", async () => {
    const before = await started({ goes: scriptedSink() });
    await stop(before);
    const state = refuseEnds();
    await started({});
    expect(await endedOf("goes")).toBeNull();
    state.heal();
    await harness.clock.advance(60_000);
    expect(await endedOf("goes")).toBe("not in the configuration");
  });

  test("stays in use when it is added again, while another removed sink is ended", async () => {
    const state = refuseEnds();
    const dispatcher = await started({ back: scriptedSink(), gone: scriptedSink() });
    await dispatcher.changeSinks([]);
    await harness.clock.advance(10_000);
    const back = scriptedSink();
    await dispatcher.changeSinks([configured("back", back)]);
    state.heal();
    await harness.clock.advance(60_000);
    expect([await endedOf("back"), await endedOf("gone")]).toEqual([null, "not in the configuration"]);
    await commit(values(0, 1));
    expect(written(back)).toEqual(ids(values(0, 1)));
  });

  test("is ended by a single retry loop, however many other sinks are removed", async () => {
    const state = refuseEnds();
    const dispatcher = await started({ goes: scriptedSink() });
    for (let n = 0; n < 20; n += 1) {
      await dispatcher.changeSinks([configured(`sink-${n}`, scriptedSink())]);
      await dispatcher.changeSinks([]);
      await harness.clock.advance(100);
    }
    await harness.clock.advance(60_000);
    const before = state.tries();
    await harness.clock.advance(600_000);
    // One attempt per 30 to 60 s.
    expect(state.tries() - before).toBeLessThanOrEqual(20);
  });

  test("is not ended by a further attempt after the dispatcher has stopped", async () => {
    const state = refuseEnds();
    const dispatcher = await started({ goes: scriptedSink() });
    await dispatcher.changeSinks([]);
    await harness.clock.advance(10_000);
    await stop(dispatcher);
    const before = state.tries();
    await harness.clock.advance(600_000);
    expect(state.tries()).toBe(before);
  });
});

test("a removed sink stays in use when it is added again while the dispatcher is ending that sink", async () => {
  const dispatcher = await started({ first: scriptedSink(), second: scriptedSink() });
  const { outbox } = harness.store;
  const { setEnded } = outbox;
  let hasComeBack = false;
  const ends = vi.spyOn(outbox, "setEnded").mockImplementation(async (name, reason) => {
    if (!hasComeBack) {
      hasComeBack = true;
      await dispatcher.changeSinks([configured("second", scriptedSink())]);
    }
    return setEnded.call(outbox, name, reason);
  });
  onTestFinished(() => ends.mockRestore());
  await dispatcher.changeSinks([]);
  await harness.clock.advance(1_000);
  expect([await endedOf("first"), await endedOf("second")]).toEqual(["not in the configuration", null]);
});

test("an added sink is not opened before the dispatcher's start or after its stop", async () => {
  const [early, late] = [scriptedSink(), scriptedSink()];
  const dispatcher = harness.dispatcher({});
  await dispatcher.changeSinks([configured("a", early)]);
  await dispatcher.start(new AbortController().signal);
  await commit(values(0, 1));
  await dispatcher.stop(1_000);
  await dispatcher.changeSinks([configured("a", late)]);
  await commit(values(1, 1));
  expect([early.opens, late.opens]).toEqual([0, 0]);
});
