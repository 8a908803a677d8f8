import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { parse, stringify } from "yaml";
import type { AnyEvent } from "#src/core/model/event.ts";
import type { ReloadReport } from "#src/core/model/reload-facts.ts";
import type { StatusReport } from "#src/ui/status/report.ts";
import { observe } from "../connectors/mqtt/observer.ts";
import { absent, startMosquitto } from "../real-servers.ts";
import { simulatedServer, type Workplace, workplace } from "./plenum.ts";

const READ = [{ name: "all", every: "1m" }];

// biome-ignore lint/suspicious/noExplicitAny: as deep as the file
type Written = Record<string, any>;

function written(place: Workplace): Written {
  return parse(readFileSync(place.path("plenum.yaml"), "utf8")) as Written;
}

function edited(place: Workplace, edit: (file: Written) => void): string {
  const file = written(place);
  edit(file);
  return stringify(file);
}

function replace(place: Workplace, edit: (file: Written) => void): void {
  writeFileSync(place.path(".plenum.yaml.swp"), edited(place, edit));
  renameSync(place.path(".plenum.yaml.swp"), place.path("plenum.yaml"));
}

const statusOf = (place: Workplace) => place.json<StatusReport>("status");

function toldTo(folder: string): readonly AnyEvent[] {
  return readdirSync(folder)
    .toSorted()
    .flatMap((name) => readFileSync(join(folder, name), "utf8").trim().split("\n"))
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as AnyEvent);
}

describe("a configuration file that is edited while the worker runs", () => {
  test("is applied when it is correct, and rejected and reported when it is wrong", async () => {
    const service = await simulatedServer({ sites: [6], alarms: { recorded: false } });
    const place = workplace(service.url);
    place.configure({ source: { read: READ } });
    const worker = await place.run();

    replace(place, (file) => (file.sources.main.read[0].every = "5m"));
    await worker.says("sources.main.read.all.every: 1m → 5m (with the next request)");

    const whole = edited(place, (file) => (file.sinks.more = { file: { folder: "more" }, from: "beginning" }));
    writeFileSync(place.path("plenum.yaml"), `${whole.slice(0, whole.indexOf("time_zone"))}time_zo`);
    await worker.says("the configuration file is wrong and changes nothing");
    const during = await statusOf(place);
    expect(during.notices[0]).toMatch(/^The configuration file plenum\.yaml is rejected: plenum\.yaml:\d+:\d+ /);
    expect(during.notices.join("\n")).not.toContain("is wrong and changes nothing");
    const check = await place.plenum("check");
    expect(check.code).toBe(78);
    expect(check.stderr).toMatch(/plenum\.yaml:\d+:\d+/);
    const [line = ""] = check.stderr.trim().split("\n");
    expect(await worker.says('"problems"')).toContain(line.replace(/^.*plenum\.yaml:/, ""));
    writeFileSync(place.path("plenum.yaml"), whole);
    await worker.says("the configuration file is right again");
    await worker.says("sinks.more: added, file");

    replace(place, (file) => (file.sources.main.read[0].every = "1s"));
    await worker.says("20 requests a minute are one every 3 s");
    replace(place, (file) => (file.sources.main.read[0].every = "2m"));
    worker.signal("SIGHUP");
    await worker.says("5m → 2m");

    replace(place, (file) => {
      file.sources.main.time_zone = "Europe/Stockholm";
      file.log = { level: "debug" };
    });
    const dry = await place.plenum("reload", "--dry-run");
    expect([dry.code, dry.stdout]).toEqual([
      0,
      expect.stringContaining("sources.main.time_zone: Europe/Oslo → Europe/Stockholm (needs a restart:"),
    ]);
    const { code, stdout } = await place.plenum("reload", "--json");
    const report = JSON.parse(stdout) as ReloadReport;
    expect([code, report.by]).toEqual([0, "command"]);
    expect(report.pending.map(({ path }) => path)).toEqual(["sources.main.time_zone"]);
    const { notices, configuration } = await statusOf(place);
    expect(notices.join("\n")).toContain("A change of the configuration waits for a restart: sources.main.time_zone.");
    expect(configuration?.refused).toBeNull();

    worker.signal("SIGTERM");
    const { code: ended } = await worker.ended;
    expect(ended).toBe(0);
    const told = toldTo(place.path("events")).filter(({ type }) => type === "configuration-changed");
    expect(told.map(({ data }) => ("by" in data ? data.by : null)).slice(0, 3)).toEqual(["file", "file", "signal"]);
    const more = toldTo(place.path("more")).map(({ id }) => id);
    expect(new Set(more).size).toBe(more.length);
    expect(toldTo(place.path("events")).map(({ id }) => id)).toEqual(more);
  }, 120_000);

  test("is applied from a ConfigMap, where a link two folders above the file changes", async () => {
    const service = await simulatedServer({ sites: [6], alarms: { recorded: false } });
    const place = workplace(service.url);
    const put = (version: string, text: string) => {
      mkdirSync(place.path(`mount/${version}`), { recursive: true });
      writeFileSync(place.path(`mount/${version}/plenum.yaml`), text);
      symlinkSync(version, place.path("mount/..data_tmp"));
      renameSync(place.path("mount/..data_tmp"), place.path("mount/..data"));
    };
    const first = readFileSync(place.path("plenum.yaml"), "utf8");
    put("..2026_01", first);
    symlinkSync("..data/plenum.yaml", place.path("mount/plenum.yaml"));
    const worker = await place.run("--config", "mount/plenum.yaml");
    const batched = (batch: number) => edited(place, (file) => (file.sinks.files.batch = batch));
    put("..2026_02", batched(7));
    await worker.says("sinks.files.batch: 100 → 7");
    put("..2026_03", batched(8));
    const log = await worker.says("sinks.files.batch: 7 → 8");
    expect(log).not.toContain("is wrong");
    await worker.stop();
  }, 120_000);

  test.skipIf(absent("mosquitto"))(
    "can add a broker and move to another broker without losing a message",
    async () => {
      const [one, two] = await Promise.all([startMosquitto(), startMosquitto()]);
      onTestFinished(async () => {
        await Promise.all([one.stop(), two.stop()]);
      });
      const service = await simulatedServer({ sites: [6], alarms: { recorded: false } });
      const place = workplace(service.url);
      place.configure({ source: { read: [{ name: "all", every: "3s" }] } });
      const [atOne, atTwo] = await Promise.all([observe(one.url), observe(two.url)]);
      const worker = await place.run();
      replace(place, (file) => (file.sinks.broker = { mqtt: { url: one.url }, from: "beginning" }));
      await worker.says("sinks.broker: added, mqtt");
      await atOne.until(({ topic }) => topic === "plenum/worker/_/event/configuration-changed");
      replace(place, (file) => (file.sinks.broker.mqtt.url = two.url));
      await worker.says("sinks.broker.mqtt.url");
      await atTwo.until(({ topic }) => topic === "plenum/worker/_/event/configuration-changed");
      const values = () => atTwo.heard.filter(({ topic }) => topic.endsWith("/value")).length;
      await expect.poll(values, { timeout: 30_000 }).toBeGreaterThan(24);
      await worker.stop();
      const heard = new Set([...atOne.heard, ...atTwo.heard].map(({ json }) => json.id));
      const told = toldTo(place.path("events")).filter(({ type }) => type === "tag-value");
      expect(told.length).toBeGreaterThan(16);
      const missing = told.map(({ id }) => id).filter((id) => !heard.has(id));
      expect(missing).toEqual(told.slice(told.length - missing.length).map(({ id }) => id));
      expect(missing.length).toBeLessThanOrEqual(8);
      await Promise.all([atOne.leave(), atTwo.leave()]);
    },
    120_000,
  );

  test.skipIf(process.platform === "win32")("is not applied while other users may write to the file", async () => {
    const service = await simulatedServer({ sites: [6], alarms: { recorded: false } });
    const place = workplace(service.url);
    const file = place.path("plenum.yaml");
    chmodSync(file, 0o666);
    expect(await place.refusal("run")).toMatch(/^78 .*Run: chmod go-w plenum\.yaml/);
    const checked = await place.plenum("check", "--no-lists", "--json");
    expect(checked.code).toBe(78);
    expect(JSON.parse(checked.stdout)).toContainEqual({
      what: "configuration",
      result: "wrong",
      detail: expect.stringContaining("Run: chmod go-w plenum.yaml"),
    });
    expect((await place.plenum("check", "--no-lists", "--allow-writable-config")).code).toBe(0);

    const worker = await place.run("--allow-writable-config");
    await worker.stop();
    chmodSync(file, 0o644);
    const careful = await place.run();
    writeFileSync(
      file,
      edited(place, ({ sinks }) => (sinks.more = { file: { folder: "more" } })),
    );
    chmodSync(file, 0o666);
    const said = await careful.says("the configuration file is wrong and changes nothing");
    expect(said).toContain("Others than the owner can write to the configuration file");
    expect(said).not.toContain("sinks.more: added");
    expect((await place.plenum("writes", "stop")).code).toBe(0);
    chmodSync(file, 0o644);
    await careful.says("sinks.more: added, file");
  });
});
