import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { testFolder } from "../test-folder.ts";
import { simulatedServer, workplace } from "./plenum.ts";

const ROOT = join(import.meta.dirname, "../..");

function documentedOptions(folders: Readonly<Record<string, string>>): string {
  const text = readFileSync(join(ROOT, "docs/operations.md"), "utf8");
  const [, options] = /^export NODE_OPTIONS="(.*?)"$/ms.exec(text) ?? [];
  if (options === undefined) throw new Error("docs/operations.md tells no NODE_OPTIONS.");
  const here = Object.entries(folders).reduce((all, [from, to]) => all.replaceAll(`=${from}`, `="${to}"`), options);
  const net = process.allowedNodeEnvironmentFlags.has("--allow-net") ? " --allow-net" : "";
  return here.replaceAll("\\\n", " ") + net;
}

function written(folder: string): string {
  if (!existsSync(folder)) return "";
  return readdirSync(folder)
    .map((name) => readFileSync(join(folder, name), "utf8"))
    .join("");
}

test("a worker under the Node.js permission model delivers alarms, restarts on its state, and cannot write to other folders", async () => {
  const { url, simulator } = await simulatedServer({ sites: [6], alarms: { recorded: false } });
  simulator.control.raiseAlarm({ siteId: 6, description: "Too cold" });
  const environment: Record<string, string> = {};
  const place = workplace(url, environment);
  const outside = testFolder("outside");
  const [state, events] = [place.path("state"), place.path("events")];
  for (const folder of [state, events]) mkdirSync(folder, { mode: 0o700 });
  const fileSink = (folder: string) => ({ file: { folder }, from: "beginning" });
  place.configure({ sinks: { files: fileSink(events), elsewhere: fileSink(outside) } });
  environment.NODE_OPTIONS = documentedOptions({
    "/opt/plenum": ROOT,
    "/etc/plenum": place.folder,
    "/var/lib/plenum": state,
    "/srv/plenum/events": events,
  });

  const worker = place.start("run");
  const said = await worker.says("Plenum is running");
  await expect.poll(() => written(events)).toContain('"type":"alarm-raised"');
  await worker.says("ERR_ACCESS_DENIED");
  expect(readdirSync(outside)).toEqual([]);
  expect((await place.plenum("status")).stdout).toContain("1 active alarm");
  if (process.platform === "linux") {
    const page = /"status":"(http[^"]+)"/.exec(said)?.[1] ?? "";
    const metrics = await (await fetch(new URL("/metrics", page))).text();
    expect(metrics).toMatch(/^plenum_process_open_fds [1-9]/m);
  }
  await worker.kill();

  const again = await place.run();
  simulator.control.raiseAlarm({ siteId: 6, description: "Too hot" });
  await expect.poll(() => written(events), { timeout: 60_000 }).toContain("Too hot");
  await again.stop();
}, 180_000);
