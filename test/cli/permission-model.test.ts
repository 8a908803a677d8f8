import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { testFolder } from "../test-folder.ts";
import { simulatedServer, workplace } from "./plenum.ts";

const ROOT = join(import.meta.dirname, "../..");

function documentedOptions(folders: Readonly<Record<string, string>>): string {
  const operationsPage = readFileSync(join(ROOT, "docs/operations.md"), "utf8");
  const [, options] = /^export NODE_OPTIONS="(.*?)"$/ms.exec(operationsPage) ?? [];
  if (options === undefined) throw new Error("docs/operations.md tells no NODE_OPTIONS.");
  const adapted = Object.entries(folders).reduce((all, [from, to]) => all.replaceAll(`=${from}`, `="${to}"`), options);
  const net = process.allowedNodeEnvironmentFlags.has("--allow-net") ? " --allow-net" : "";
  return adapted.replaceAll("\\\n", " ") + net;
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
  const cli = workplace(url, environment);
  const outside = testFolder("outside");
  const [state, events] = [cli.path("state"), cli.path("events")];
  for (const folder of [state, events]) mkdirSync(folder, { mode: 0o700 });
  const fileSink = (folder: string) => ({ file: { folder }, from: "beginning" });
  cli.configure({ sinks: { files: fileSink(events), elsewhere: fileSink(outside) } });
  environment.NODE_OPTIONS = documentedOptions({
    "/opt/plenum": ROOT,
    "/etc/plenum": cli.folder,
    "/var/lib/plenum": state,
    "/srv/plenum/events": events,
  });

  const worker = cli.start("run");
  const startLog = await worker.waitForOutput("Plenum is running");
  await expect.poll(() => written(events)).toContain('"type":"alarm-raised"');
  await worker.waitForOutput("ERR_ACCESS_DENIED");
  expect(readdirSync(outside)).toEqual([]);
  expect((await cli.plenum("status")).stdout).toContain("1 active alarm");
  if (process.platform === "linux") {
    const page = /"status":"(http[^"]+)"/.exec(startLog)?.[1] ?? "";
    const metrics = await (await fetch(new URL("/metrics", page))).text();
    expect(metrics).toMatch(/^plenum_process_open_fds [1-9]/m);
  }
  await worker.kill();
  const restartedWorker = await cli.run();
  simulator.control.raiseAlarm({ siteId: 6, description: "Too hot" });
  await expect.poll(() => written(events), { timeout: 60_000 }).toContain("Too hot");
  await restartedWorker.stop();
}, 180_000);
