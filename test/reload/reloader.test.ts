import { utimesSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { ConfigurationError } from "#src/app/config/config-problems.ts";
import { ConfigError, Retryable } from "#src/core/errors/errors.ts";
import { startReloader } from "./reloader-harness.ts";

describe("a reload of the configuration", () => {
  test("prepares all components before any applies the change, and emits applied changes and changes that need a restart", async () => {
    const { reloader, world, notes, told, counts } = await startReloader();
    world.written = { every: "5m", port: 9851 };
    const reloadReport = await reloader.reload("command", false);
    expect(notes).toEqual([
      ...["first prepares 300000", "second prepares 300000"],
      ...["first takes 300000 over", "second takes 300000 over"],
    ]);
    expect(reloadReport).toMatchObject({
      ...{ by: "command", at: "2026-11-02T06:00:00.000Z", isDryRun: false, refused: null, failures: [] },
      changes: [{ path: "sources.main.read.all.every", before: "10m", after: "5m" }],
      pending: [{ path: "status.port" }],
    });
    const { changes, pending } = reloadReport;
    expect(told()).toEqual([{ by: "command", changes, pending }]);
    expect(reloader.state()).toMatchObject({ last: reloadReport, pending, refused: null });
    expect(reloader.notices()).toEqual(["A change of the configuration waits for a restart: status.port."]);
    expect(await counts()).toMatchObject({ pending: 1, isRefused: 0, changed: 1 });
  });

  test("without changes, emits no event, and counts as the last reload only if a person requested the reload", async () => {
    const { reloader, world, told, counts, lines } = await startReloader();
    await reloader.reload("file", false);
    expect([told(), reloader.state().last]).toEqual([[], null]);
    const signalReport = await reloader.reload("signal", false);
    expect([told(), reloader.state().last]).toEqual([[], signalReport]);
    world.written = { port: 9851 };
    await reloader.reload("file", false);
    expect(told()).toMatchObject([{ by: "file", changes: [], pending: [{ path: "status.port" }] }]);
    expect(reloader.state().last?.by).toBe("file");
    await reloader.reload("file", false);
    expect(told()).toHaveLength(1);
    world.written = {};
    await reloader.reload("file", false);
    expect(told().slice(1)).toEqual([{ by: "file", changes: [], pending: [] }]);
    expect(await counts()).toMatchObject({ pending: 0, unchanged: 5 });
    world.written = { every: "5m" };
    await reloader.reload("file", false);
    expect(lines.map(({ msg }) => msg)).toEqual([
      "the configuration file says what is in force",
      "the configuration file was changed, and a restart has to follow",
      "the configuration file says what is in force again",
      "the configuration was changed",
    ]);
  });

  test("compares the file with the configuration that the worker uses, also after a second change", async () => {
    const { reloader, world, told } = await startReloader();
    for (const interval of ["5m", "2m"]) {
      world.written = { every: interval };
      await reloader.reload("file", false);
    }
    expect(told().map(({ changes }) => changes.map(({ before, after }) => [before, after]))).toEqual([
      [["10m", "5m"]],
      [["5m", "2m"]],
    ]);
    world.written = { every: "2m", port: 9851, folder: "elsewhere" };
    await reloader.reload("file", false);
    expect(reloader.notices()).toEqual([
      "2 changes of the configuration wait for a restart: state.folder, status.port.",
    ]);
  });

  test("reports the changes in a dry run and discards what the components prepared", async () => {
    const { reloader, world, notes, told, counts } = await startReloader();
    world.written = { every: "5m", port: 9851 };
    const dryRunReport = await reloader.reload("command", true);
    expect(dryRunReport).toMatchObject({
      isDryRun: true,
      changes: [{ path: "sources.main.read.all.every" }],
      pending: [{ path: "status.port" }],
    });
    expect(notes.slice(2)).toEqual(["first discards 300000", "second discards 300000"]);
    expect([told(), reloader.state().last, reloader.notices()]).toEqual([[], null, []]);
    world.wrong = new ConfigError("wrong");
    expect((await reloader.reload("command", true)).refused).toEqual(["wrong"]);
    expect(reloader.state()).toMatchObject({ last: null, refused: null });
    expect(await counts()).toEqual({ pending: 0, isRefused: 0 });
  });
});

describe("an invalid configuration file", () => {
  test("changes no option, and is logged once until the file is valid again", async () => {
    const { reloader, world, notes, told, counts, lines, file } = await startReloader();
    world.written = { port: 9851 };
    await reloader.reload("file", false);
    world.wrong = new ConfigurationError(
      [1, 2, 3, 4, 5].map((line) => ({ file, line, column: 1, path: "log", message: `mistake ${line}` })),
    );
    const refusedReport = await reloader.reload("file", false);
    const allMistakes = [1, 2, 3, 4, 5].map((line) => `${file}:${line}:1 log: mistake ${line}`);
    expect(refusedReport).toMatchObject({ changes: [], refused: allMistakes, pending: [{ path: "status.port" }] });
    expect(reloader.state()).toMatchObject({ last: refusedReport, refused: allMistakes });
    expect(reloader.notices()[0]).toBe(
      `The configuration file ${file} is wrong and changes nothing; the worker goes on as before. ${allMistakes.slice(0, 3).join(" ")} And 2 more: plenum check says them.`,
    );
    await reloader.reload("file", false);
    const countLogged = (message: string) => lines.filter(({ msg }) => msg === message).length;
    expect(countLogged("the configuration file is wrong and changes nothing")).toBe(1);
    expect(await counts()).toMatchObject({ isRefused: 1, refused: 2, pending: 1 });

    world.wrong = new ConfigError("The only one.");
    await reloader.reload("file", false);
    expect(countLogged("the configuration file is wrong and changes nothing")).toBe(2);
    expect(reloader.notices()[0]).toMatch(/as before\. The only one\.$/);
    world.wrong = null;
    await reloader.reload("file", false);
    await reloader.reload("file", false);
    expect(countLogged("the configuration file is right again")).toBe(1);
    expect(reloader.state().refused).toBeNull();
    expect(await counts()).toMatchObject({ isRefused: 0, refused: 3 });
    expect([notes.filter((note) => note.includes("takes")).length, told().length]).toEqual([6, 1]);
  });

  test("is rejected when one component cannot prepare the change, and other components discard their preparation", async () => {
    const { reloader, world, notes, second } = await startReloader();
    world.written = { every: "5m" };
    second.prepare = () => Promise.reject(new ConfigError("The secret cannot be opened."));
    const refusedReport = await reloader.reload("signal", false);
    expect(refusedReport).toMatchObject({ refused: ["The secret cannot be opened."], changes: [] });
    expect(notes).toEqual(["first prepares 300000", "first discards 300000"]);
    second.prepare = async () => undefined;
    expect((await reloader.reload("signal", false)).changes).toHaveLength(1);
  });
});

describe("a component that fails to apply a configuration change", () => {
  test("is reported until all components have applied a later change", async () => {
    const { reloader, world, notes, first } = await startReloader();
    world.written = { every: "5m" };
    first.takeOver = () => Promise.reject(new Error("no room"));
    const failedReport = await reloader.reload("signal", false);
    expect(failedReport.failures).toEqual(["first: no room"]);
    expect(notes).toContain("second takes 300000 over");
    const notice = "A part of the new configuration is not in force, and a restart puts it there. first: no room";
    expect(reloader.notices()).toEqual([notice]);
    first.takeOver = async () => undefined;
    await reloader.reload("signal", false);
    expect(reloader.notices()).toEqual([notice]);
    world.written = { every: "2m" };
    await reloader.reload("signal", false);
    expect(reloader.notices()).toEqual([]);
    world.written = { every: "2m", port: 9851 };
    first.takeOver = () => Promise.reject(new Error("no room"));
    expect(await reloader.reload("signal", false)).toMatchObject({ changes: [], failures: ["first: no room"] });
    expect(reloader.notices()[0]).toBe(notice);
  });
});

describe("recording a configuration change in the store", () => {
  test("delays the reload by at most 5 s, and is retried until the record is stored", async () => {
    const { reloader, world, clock, store, told } = await startReloader();
    world.commit = () => Promise.reject(new Retryable("away"));
    world.written = { every: "5m" };
    let isDone = false;
    void reloader.reload("signal", false).then(() => {
      isDone = true;
    });
    await clock.advance(4_990);
    expect(isDone).toBe(false);
    await clock.advance(20);
    expect(isDone).toBe(true);
    world.commit = store.commit;
    await clock.advance(600_000);
    expect(told()).toHaveLength(1);
  });

  test("is completed before a stop", async () => {
    const { reloader, world, clock, store, told } = await startReloader();
    const slow = Promise.withResolvers<void>();
    world.commit = async (change) => {
      await slow.promise;
      return store.commit(change);
    };
    world.written = { every: "5m" };
    const slowReload = reloader.reload("signal", false);
    await clock.advance(6_000);
    await slowReload;
    const stopEnd = reloader.stop(10_000);
    await clock.advance(1_000);
    slow.resolve();
    await stopEnd;
    expect(told()).toHaveLength(1);
  });
});

describe("start and stop of the reloader", () => {
  test("a stop completes the current reload and rejects the waiting reloads", async () => {
    const { reloader, world, notes, clock, first } = await startReloader();
    const slow = Promise.withResolvers<void>();
    first.takeOver = () => slow.promise;
    world.written = { every: "5m" };
    const currentReload = reloader.reload("signal", false);
    const waitingReload = reloader.reload("command", false);
    await clock.advance(0);
    expect(notes).toHaveLength(2);
    let isStopped = false;
    const stopEnd = reloader.stop(60_000).then(() => {
      isStopped = true;
    });
    await clock.advance(1_000);
    expect(isStopped).toBe(false);
    slow.resolve();
    expect((await currentReload).changes).toHaveLength(1);
    expect((await waitingReload).refused).toEqual(["The worker is stopping."]);
    await stopEnd;
    expect(notes).toHaveLength(4);
  });

  test("a reload that is requested before the start waits for the start, and is rejected if the start aborts", async () => {
    const { reloader, world, clock, notes } = await startReloader({ isStarted: false });
    world.written = { every: "5m" };
    const earlyReload = reloader.reload("signal", false);
    await clock.advance(10_000);
    expect(notes).toEqual([]);
    await reloader.start(new AbortController().signal);
    expect((await earlyReload).changes).toHaveLength(1);

    const { reloader: aborted } = await startReloader({ isStarted: false });
    const rejectedReload = aborted.reload("signal", false);
    await aborted.start(AbortSignal.abort());
    await aborted.stop(1_000);
    expect((await rejectedReload).refused).toEqual(["The worker is stopping."]);
  });

  test.each([true, false])("the reloader watches the file only if configured (%s)", async (isWatched) => {
    const { reloader, world, clock, file, told } = await startReloader({ isWatched });
    await clock.advance(5_000);
    world.written = { every: "5m" };
    writeFileSync(file, "second");
    await clock.advance(5_000);
    expect(told().map(({ by }) => by)).toEqual(isWatched ? ["file"] : []);
    // An invalid file is read again without a change, because the cause may be another file.
    world.wrong = new ConfigError("The secret is away.");
    utimesSync(file, new Date(), new Date("2027-01-01T00:00:00Z"));
    await clock.advance(5_000);
    world.wrong = null;
    await clock.advance(30_000);
    expect(reloader.state().refused).toBeNull();
    await reloader.stop(1_000);
    world.written = { every: "2m" };
    writeFileSync(file, "third");
    await clock.advance(60_000);
    expect([told().length, clock.sleepers()]).toEqual([isWatched ? 1 : 0, 0]);
  });
});
