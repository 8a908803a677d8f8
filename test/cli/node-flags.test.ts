import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { chooseNodeFlags } from "#src/cli/running/run-command.ts";
import { runProgram } from "../plenum-process.ts";
import { MAIN } from "./hosted.ts";
import { workplace } from "./plenum.ts";

const ROOT = join(import.meta.dirname, "../..");
const FEW =
  "--min-semi-space-size=4 --max-semi-space-size=4 --heap-growing-percent=20 --no-parallel-scavenge --no-allocation-site-pretenuring";
const MANY = FEW.replaceAll("size=4", "size=8").replace("percent=20", "percent=60");

test.each([
  ["9 sources keep the flags of the start script", 9, FEW, {}, null],
  ["10 sources get a larger heap", 10, FEW, {}, MANY],
  ["10 sources with a larger heap keep the flags", 10, MANY, {}, null],
  ["200 sources keep other flags that a user chose", 200, "--max-semi-space-size=1 --optimize-for-size", {}, null],
  ["200 sources keep the same flags when PLENUM_NODE_FLAGS has them", 200, FEW, { PLENUM_NODE_FLAGS: FEW }, null],
] as const)("chooseNodeFlags chooses the Node.js flags: %s", (_name, sources, flags, environment, better) => {
  const givenFlags = flags === "" ? [] : flags.split(" ");
  expect(chooseNodeFlags(sources, givenFlags, environment)?.join(" ") ?? null).toBe(better);
});

test.each(["plenum", "plenum.cmd", "tools/start.cjs"])("%s starts a worker with the flags for few sources", (file) => {
  expect(readFileSync(join(ROOT, file), "utf8")).toContain(FEW);
});

test("a worker with ten sources restarts itself with larger memory flags in the same process, without output", async () => {
  const cli = workplace("http://127.0.0.1:9");
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
