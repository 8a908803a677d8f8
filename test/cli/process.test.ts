import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { chooseNodeFlags } from "#src/cli/running/run-command.ts";
import { certificateFor } from "../connectors/certificate.ts";
import { startStub } from "../connectors/stub-server.ts";
import { runProgram } from "../plenum-process.ts";
import { freePort } from "../real-servers.ts";
import { stopAfterTest, testFolder } from "../test-resources.ts";
import { MAIN } from "./hosted.ts";
import { localHook, onlyLine, openHarness, servedHarness, simulatedServer } from "./plenum.ts";

/** Leaves a timer behind as a library does, and removes the timer that ends the process after a second. */
const LEFTOVER = `data:text/javascript,${encodeURIComponent(`
  const { setTimeout: original } = globalThis;
  globalThis.setTimeout = (work, ms, ...rest) =>
    ms === 1_000 ? { unref() {} } : original(work, ms, ...rest);
  original(() => process.exit(99), 30_000);
`)}`;

test("a command prints its complete output and exits even if a library left a timer running", async () => {
  const cli = openHarness("http://127.0.0.1:9", { NODE_OPTIONS: `--import=${LEFTOVER}` });
  const { code, stdout } = await cli.start("schema").ended;
  expect(code).toBe(0);
  expect(stdout.length).toBeGreaterThan(64 * 1_024);
  expect(() => JSON.parse(stdout)).not.toThrow();
});

test("plenum run exits as soon as the services of the worker have stopped", async () => {
  const cli = openHarness("http://127.0.0.1:9", { NODE_OPTIONS: `--import=${LEFTOVER}` });
  const worker = await cli.run();
  const { stderr } = await worker.stop();
  expect(stderr).toContain('"msg":"stopped"');
});

const MODULE = pathToFileURL(join(import.meta.dirname, "../../src/cli/shell/uncaught-errors.ts")).href;

function run(fault: string) {
  const program = `import { exitOnUncaughtErrors } from ${JSON.stringify(MODULE)}; exitOnUncaughtErrors(); ${fault}; setInterval(() => {}, 1000);`;
  return spawnSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8", timeout: 60_000 });
}

describe("uncaught errors", () => {
  test.each([
    ["an exception", 'setTimeout(() => { throw new Error("mqtt://u:pw@broker fell over"); }, 1)'],
    ["a rejection", 'void Promise.reject(new Error("mqtt://u:pw@broker fell over"))'],
  ])("%s ends the process with a log line and a message, both without credentials", (_what, fault) => {
    const { status, stdout, stderr } = run(fault);
    expect(status).toBe(1);
    expect(stdout).toBe("");
    const [line = "", message] = stderr.trimEnd().split("\n");
    expect(JSON.parse(line)).toMatchObject({
      level: 60,
      err: { message: "mqtt://[redacted]@broker fell over" },
      msg: "an uncaught error ends the process",
    });
    expect(message).toBe(
      "Plenum has a fault of its own and ends: mqtt://[redacted]@broker fell over. Please report it with the line above; what was committed is safe.",
    );
    expect(stderr).not.toContain("pw");
  });

  test("EPIPE exits with 0, because the reader of the output has closed the pipe", () => {
    const { status, stderr } = run('throw Object.assign(new Error("write EPIPE"), { code: "EPIPE" })');
    expect([status, stderr]).toEqual([0, ""]);
  });
});

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

test("a worker under the Node.js permission model delivers alarms, restarts with its state, and cannot write elsewhere", async () => {
  const { url, simulator } = await simulatedServer({ sites: [6], alarms: { recorded: false } });
  simulator.control.raiseAlarm({ siteId: 6, description: "Too cold" });
  const environment: Record<string, string> = {};
  const cli = openHarness(url, environment);
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
  await expect.poll(() => written(events)).toContain("Too hot");
  await restartedWorker.stop();
});

const FEW =
  "--min-semi-space-size=4 --max-semi-space-size=4 --heap-growing-percent=20 --no-parallel-scavenge --no-allocation-site-pretenuring";
const MANY = FEW.replaceAll("size=4", "size=32").replace("percent=20", "percent=60");

test.each([
  ["9 sources keep the flags of the start script", 9, FEW, {}, null],
  ["10 sources get a larger heap", 10, FEW, {}, MANY],
  ["100 sources get semi-spaces of 64 MB", 100, FEW, {}, MANY.replaceAll("size=32", "size=64")],
  ["10 sources with a larger heap keep the flags", 10, MANY, {}, null],
  ["200 sources keep other flags that a user chose", 200, "--max-semi-space-size=1 --optimize-for-size", {}, null],
  ["200 sources keep the same flags when PLENUM_NODE_FLAGS has them", 200, FEW, { PLENUM_NODE_FLAGS: FEW }, null],
] as const)("chooseNodeFlags chooses the Node.js flags: %s", (_name, sources, flags, environment, better) => {
  const givenFlags = flags === "" ? [] : flags.split(" ");
  expect(chooseNodeFlags(sources, givenFlags, environment)?.join(" ") ?? null).toBe(better);
});

test("a worker with ten sources restarts itself with larger memory flags in the same process, without output", async () => {
  const cli = openHarness("http://127.0.0.1:9");
  const source = { base_url: "http://127.0.0.1:9", token: { file: "token" }, time_zone: "Europe/Oslo" };
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a program that the worker loads
  const tell = "process.stderr.write(`flags ${process.pid} ${process.execArgv.join(' ')}\\n`)";
  const flagPrinter = `data:text/javascript,${encodeURIComponent(tell)}`;
  const startWorkerWith = async (count: number) => {
    cli.configure({
      sources: Object.fromEntries(
        Array.from({ length: count }, (_, n) => [`s${n}`, { ...source, token: cli.token(`token${n}`) }]),
      ),
      commands: undefined,
    });
    const { PLENUM_NODE_FLAGS: _, ...own } = process.env as Readonly<Record<string, string>>;
    const worker = runProgram(process.execPath, [...FEW.split(" "), MAIN, "run"], {
      cwd: cli.folder,
      environment: { ...own, NODE_OPTIONS: `--import=${flagPrinter}` },
    });
    await worker.waitForOutput("Plenum is running");
    expect(await worker.end("SIGTERM")).toBe(0);
    const outputLines = worker
      .output()
      .split("\n")
      .filter((line) => line !== "");
    expect(outputLines.filter((line) => !/^(flags|\{)/.test(line))).toEqual([]);
    return { pid: worker.pid, flags: outputLines.filter((line) => line.startsWith("flags")) };
  };
  const one = await startWorkerWith(1);
  expect(one.flags).toEqual([`flags ${one.pid} ${FEW}`]);
  const ten = await startWorkerWith(10);
  expect(ten.flags).toEqual([`flags ${ten.pid} ${FEW}`, `flags ${ten.pid} ${MANY}`]);
});

const TELLS = `--import data:text/javascript,${encodeURIComponent(
  `import { writeFileSync } from "node:fs";
   process.on("exit", () => writeFileSync(process.argv[2] + ".loaded", process.moduleLoadList.join("\\n")));`,
)}`;

/** Node.js's own copy: 760 kB of source that is compiled at each start. */
const NODES_OWN = /internal\/deps\/undici\/undici/;

test("a process loads one copy of undici while its page, control socket and sinks are in use", async () => {
  const { cli } = await servedHarness({}, { NODE_OPTIONS: TELLS });
  const port = await freePort();
  const closedAddress = `http://127.0.0.1:${await freePort()}`;
  const from = "beginning";
  cli.configure({
    status: { port },
    sinks: {
      lake: { influxdb: { url: closedAddress, bucket: "b" }, from },
      hook: { webhook: localHook(closedAddress), from },
    },
  });
  const worker = await cli.run();
  for (const sink of ["lake", "hook"]) await worker.waitForOutput(`"sink":"${sink}"`);
  const page = await fetch(`http://127.0.0.1:${port}/`);
  expect(page.status).toBe(200);
  expect((await page.text()).length).toBeGreaterThan(100);
  expect((await cli.plenum("sites")).code).toBe(0);
  await worker.stop();
  for (const command of ["run", "sites"]) {
    const loadedModules = readFileSync(cli.path(`${command}.loaded`), "utf8");
    expect(loadedModules).toMatch(/^NativeModule http$/m);
    expect(loadedModules).not.toMatch(NODES_OWN);
  }
});

const SELF_SIGNED = certificateFor("localhost");

async function strangers() {
  const stub = stopAfterTest(await startStub({ host: "127.0.0.1", tls: SELF_SIGNED }));
  const url = stub.url.replace("127.0.0.1", "localhost");
  const sections = {
    sources: { main: { base_url: url, token: { file: "token" }, time_zone: "Europe/Oslo" } },
    sinks: {
      lake: { influxdb: { url, bucket: "b", token: { file: "lake-token" } } },
      hook: { webhook: { url, unsigned: true, allow_networks: ["127.0.0.0/8", "::1/128"] } },
    },
  };
  return { stub, sections };
}

describe("an environment that disables certificate checks or logs TLS keys", () => {
  test.each([{ NODE_TLS_REJECT_UNAUTHORIZED: "0" }, { NODE_OPTIONS: "--tls-keylog=keys.txt" }])(
    "makes every command that sends requests exit with code 78 before a connection: %j",
    async (environment) => {
      const { stub, sections } = await strangers();
      const cli = openHarness(stub.url, environment);
      cli.token("lake-token");
      cli.configure(sections);
      for (const command of [["run"], ["check"], ["sites"], ["alarms"], ["read", "10001"], ["plan"]]) {
        const { code, stderr } = await cli.plenum(...command);
        expect([command, code]).toEqual([command, 78]);
        expect(stderr).toMatch(/NODE_TLS_REJECT_UNAUTHORIZED is 0|--tls-keylog of Node\.js/);
        onlyLine(stderr.replace(/^\(node:.*\n|^\(Use .*\n|^Warning: .*\n/gm, ""));
      }
      expect(stub.connections).toBe(0);
    },
  );

  test("does not prevent plenum writes stop", async () => {
    const cli = openHarness("https://service.example", { NODE_TLS_REJECT_UNAUTHORIZED: "0" });
    expect((await cli.plenum("writes", "stop")).code).toBe(0);
  });
});
