import { spawn } from "node:child_process";
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { type Harness, openHarness, simulatedServer, tagRequests } from "./plenum.ts";

function emptyFolder(url: string): Harness {
  const cli = openHarness(url);
  rmSync(cli.path("plenum.yaml"));
  return cli;
}

/** Another test may use the port by now. */
function useAnyPort(cli: Harness): void {
  const text = readFileSync(cli.path("plenum.yaml"), "utf8");
  const textWithoutStatus = text.replace(/^status: .*\n/m, "");
  writeFileSync(cli.path("plenum.yaml"), `${textWithoutStatus}\nstatus: { port: 0 }\n`);
}

const ZONE_OPTION = ["--time-zone", "Europe/Oslo"];
const TOKEN = ["--token-file", "token"];

describe("plenum init without a terminal", () => {
  test("writes a configuration that plenum check accepts, and prints its cost and the next commands", async () => {
    const service = await simulatedServer();
    const cli = emptyFolder(service.url);
    const { code, stdout, stderr } = await cli.plenum("init", `${service.url}/api/v1`, ...TOKEN, ...ZONE_OPTION);
    expect(stderr).toContain("/api/v1 at the end of the address is left out; it is added by itself.\n");
    expect(stderr).toMatch(/^ {2}6 {2}Bygg 105 Office, 8 tags$/m);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^plenum\.yaml is written \(\d\d lines\): 141 tags \(kWh \d+, /m);
    expect(stdout).toMatch(/^These intervals take \d+ % of the quota \(20 requests a minute\)\.$/m);
    const text = readFileSync(cli.path("plenum.yaml"), "utf8");
    expect(text).not.toContain(SERVICE_TOKEN);
    expect(text.split("\n").length).toBeLessThan(35);
    useAnyPort(cli);
    for (const [, command = ""] of stdout.matchAll(/^ {2}plenum (check|plan|tags) /gm)) {
      const followUp = await cli.plenum(command);
      expect(followUp.code, `${command}: ${followUp.stderr}`).toBe(0);
    }
    expect((await cli.plenum("plan")).stdout).toContain("It fits");
    expect(tagRequests(service)).toEqual([]);
    writeFileSync(cli.path("plenum.yaml"), text);
    expect(await cli.refusal("init", service.url, ...TOKEN, ...ZONE_OPTION)).toBe(
      "78 plenum.yaml exists already, and nothing is overwritten. Name another file with --config, or move that one away.",
    );
    expect(readFileSync(cli.path("plenum.yaml"), "utf8")).toBe(text);
  });

  test("reports missing or wrong options in one message and writes no file", async () => {
    const service = await simulatedServer();
    const cli = emptyFolder(service.url);
    writeFileSync(cli.path("wrong"), "not-a-token\n", { mode: 0o600 });
    writeFileSync(cli.path("open"), SERVICE_TOKEN, { mode: 0o644 });
    const { url: other } = await startStubInTest(() => ({ status: 200, body: "<html>hello</html>" }));
    const cases: readonly (readonly [readonly string[], number, RegExp])[] = [
      [[], 2, /^Without a terminal no question can be asked: add the address of the service, --token-file and --t/],
      [[service.url, ...TOKEN], 2, /^Without a terminal no question can be asked: add --time-zone\.$/],
      [[service.url, ...ZONE_OPTION, "--token-file", "nope"], 78, /^There is no token file nope\. Write the access/],
      [[service.url, ...ZONE_OPTION, "--token-file", "wrong"], 78, /does not accept this token\. Make a new one/],
      [[service.url, ...ZONE_OPTION, "--token-file", "open"], 78, /chmod 600/],
      [[service.url, ...TOKEN, "--time-zone", "Oslo"], 78, /`Oslo` is not a time zone; write an IANA/],
      [["http://192.0.2.1", ...TOKEN, ...ZONE_OPTION], 78, /^With http:\/\/ everybody on the way to 192\.0\.2\.1/],
      [[other, ...TOKEN, ...ZONE_OPTION], 78, /^Something answers at http:\S+, but it is not the monitoring service/],
      [["http://127.0.0.1:9", ...TOKEN, ...ZONE_OPTION], 75, /refuses the connection.*the port in the address\.$/],
      [[service.url, ...TOKEN, ...ZONE_OPTION, "--mqtt", "localhost"], 78, /sinks\.broker\.mqtt\.url/],
      [[service.url, ...TOKEN, ...ZONE_OPTION, "--history", "3h"], 2, /Write it in days, such as 7d/],
    ];
    for (const [args, code, words] of cases) {
      const initResult = await cli.plenum("init", ...args);
      const lastLine = initResult.stderr
        .replace(/^\(plenum --help.*\n/m, "")
        .trimEnd()
        .split("\n")
        .at(-1);
      expect([args, initResult.code, lastLine]).toEqual([args, code, expect.stringMatching(words)]);
      expect(existsSync(cli.path("plenum.yaml"))).toBe(false);
    }
  });
});

test("plenum init at a terminal asks for missing values and does not print the token", async () => {
  const service = await simulatedServer();
  const cli = emptyFolder(service.url);
  const terminal = atTerminal(cli, "init");
  await terminal.answer("Address of the monitoring service: ", "http://192.0.2.1");
  await terminal.answer("add --allow-plain-http in a test network.", "", false);
  await terminal.answer("Address of the monitoring service: ", `${service.url}/api/v1/`);
  await terminal.answer("Access token (not shown): ", "wrong-token");
  await terminal.answer("does not accept this token.", "", false);
  await terminal.answer("Access token (not shown): ", SERVICE_TOKEN);
  await terminal.answer("Time zone of the buildings", "Oslo");
  await terminal.answer("is not a time zone", "", false);
  await terminal.answer("Time zone of the buildings", "Europe/Oslo");
  await terminal.answer("MQTT broker for the events", "");
  await terminal.answer("File for the token, readable by you only", "");
  expect(await terminal.ended).toBe(0);
  const file = cli.path("secrets/buildings_token");
  expect([readFileSync(file, "utf8"), statSync(file).mode & 0o777]).toEqual([`${SERVICE_TOKEN}\n`, 0o600]);
  expect(terminal.shown()).not.toContain(SERVICE_TOKEN);
  expect(terminal.shown()).not.toContain("wrong-token");
  expect(terminal.shown()).toContain("secrets/buildings_token holds the token, readable by you only.");
  useAnyPort(cli);
  expect((await cli.plenum("check")).code).toBe(0);
});

test.each([
  ["Ctrl-C", "\u0003", "Stopped before the command was done."],
  ["Ctrl-D", "\u0004", "The terminal was closed before all was answered."],
])("%s at a question ends plenum init without writing a file", async (_, key, words) => {
  const cli = emptyFolder("http://127.0.0.1:9");
  const terminal = atTerminal(cli, "init");
  await terminal.answer("Address of the monitoring service: ", "", false);
  terminal.press(key);
  expect(await terminal.ended).toBe(1);
  expect(terminal.shown().split(words)).toHaveLength(2);
  expect(existsSync(cli.path("plenum.yaml"))).toBe(false);
});

function atTerminal(cli: Harness, ...args: readonly string[]) {
  const main = join(import.meta.dirname, "../../src/cli/main.ts");
  const line = [process.execPath, main, ...args].map((word) => `'${word}'`).join(" ");
  const childProcess = spawn("script", ["-qefc", line, "/dev/null"], {
    cwd: cli.folder,
    env: { PATH: process.env.PATH, HOME: cli.folder, TERM: "xterm" },
  });
  onTestFinished(() => void childProcess.kill("SIGKILL"));
  let displayedText = "";
  let searchStart = 0;
  childProcess.stdout.on("data", (piece: Buffer) => {
    displayedText += piece.toString();
  });
  return {
    shown: () => displayedText,
    press: (key: string) => void childProcess.stdin.write(key),
    ended: new Promise<number | null>((resolve) => childProcess.once("close", resolve)),
    async answer(question: string, answer: string, isRequested = true) {
      await expect.poll(() => displayedText.indexOf(question, searchStart)).toBeGreaterThanOrEqual(0);
      searchStart = displayedText.indexOf(question, searchStart) + question.length;
      if (isRequested) childProcess.stdin.write(`${answer}\r`);
    },
  };
}
