import { lstatSync } from "node:fs";
import { createInterface } from "node:readline/promises";
import { Writable } from "node:stream";
import { type Command, InvalidArgumentError, Option } from "commander";
import { ConfigError, errorText, Rejected, Retryable } from "../../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { parseDuration } from "../../core/values/duration.ts";
import { printableLine } from "../../core/values/printable-text.ts";
import { describeTimeZoneProblem } from "../../core/values/time-zone.ts";
import { type BuildingSummary, suggestSourceName } from "../../ui/setup/building-inspection.ts";
import { buildingSummaryLines, guessTimeZone, tagUnitsText } from "../../ui/setup/building-summary-texts.ts";
import { pathInConfig, pathNextToConfig, refuseExistingFile, writeNewFiles } from "../../ui/setup/new-config-files.ts";
import { parseServiceAddress, type ServiceAddress } from "../../ui/setup/service-address.ts";
import { planLines, proposeChoices, quotaUseText, type SetupChoices } from "../../ui/setup/setup-choices.ts";
import type { CliContext } from "../shell/command-context.ts";
import { omitMissingLines, type Terminal } from "../shell/terminal-output.ts";
import {
  buildConfigurationValues,
  type DraftedConfiguration,
  draftConfiguration,
  findFreeStatusPort,
  type ServiceAccess,
  suggestNextCommands,
  summarizeBuilding,
} from "./write-first-configuration.ts";

interface InitCommandOptions {
  readonly tokenFile?: string;
  readonly timeZone?: string;
  readonly mqtt?: string;
  readonly history: number | false;
  readonly name?: string;
  readonly caFile?: string;
  readonly allowPlainHttp?: boolean;
}

const DAY_MS = 86_400_000;
const MAX_ANSWER_ATTEMPTS = 3;

export function defineCommand(command: Command, context: CliContext): void {
  command
    .argument("[address]", "address of the monitoring service, such as https://monitoring.example.com")
    .option("--token-file <path>", "file that holds the access token; asked for at a terminal")
    .option("--time-zone <zone>", "IANA zone of the buildings, such as Europe/Oslo; asked for at a terminal")
    .option("--mqtt <url>", "MQTT broker that gets the events; otherwise they go to files")
    .addOption(
      new Option("--history <how far back>", "logged history that is fetched").argParser(parseDays).default(7, "7d"),
    )
    .option("--no-history", "fetch no logged history")
    .option("--name <name>", "name of the service in topics and metrics; made from the site's by default", parseName)
    .option("--ca-file <path>", "certificates (PEM) of a private authority")
    .option("--allow-plain-http", "let the token travel readable, over http:// to another machine")
    .addHelpText(
      "after",
      "\nWrites the file that --config names (plenum.yaml) and overwrites none. Asks the service for lists only, which cost nothing of the quota." +
        "\n\nExamples:\n  plenum init https://monitoring.example.com\n  plenum init https://monitoring.example.com --token-file secrets/token --time-zone Europe/Oslo",
    )
    .action(async (address: string | undefined, options: InitCommandOptions) => {
      refuseUnverifiedTls();
      const terminal = context.terminal();
      const file = context.configFile();
      refuseExistingFile(file, "--config");
      const prompt = createTerminalPrompt(context.signal);
      try {
        if (prompt === null) refuseMissingOptions(address, options);
        await writeConfiguration({ context, terminal, prompt, file, options }, address);
      } finally {
        prompt?.close();
      }
    });
}

interface InitContext {
  readonly context: CliContext;
  readonly terminal: Terminal;
  /** Asks questions at the terminal; null without a terminal, which requires all values as options. */
  readonly prompt: TerminalPrompt | null;
  readonly file: string;
  readonly options: InitCommandOptions;
}

async function writeConfiguration(initContext: InitContext, addressArgument: string | undefined): Promise<void> {
  const { terminal, file, options } = initContext;
  const { address, building, token } = await askAddressAndToken(initContext, addressArgument);
  terminal.info(...buildingSummaryLines(building, systemClock.now()));
  const timeZone = await askTimeZone(initContext, building);
  const mqttUrl = options.mqtt ?? (await askMqttBroker(initContext));
  const newSourceName = options.name ?? suggestSourceName(building);
  const tokenFile = "file" in token ? token.file : await chooseNewTokenFile(initContext, newSourceName);
  const configValues = buildConfigurationValues(file, await findFreeStatusPort(), {
    ...{ name: newSourceName, timeZone, mqttUrl, baseUrl: address.baseUrl },
    allowPlainHttp: options.allowPlainHttp ?? false,
    caFile: options.caFile === undefined ? null : pathInConfig(file, options.caFile),
    tokenFile: pathInConfig(file, tokenFile),
  });
  const history: SetupChoices["history"] =
    options.history === false ? null : { resolution: "1h", backfillDays: options.history };
  const choices = proposeChoices(
    building,
    history,
    (triedChoices) => draftConfiguration(configValues, triedChoices, building).plan,
  );
  const draftedConfig = draftConfiguration(configValues, choices, building);
  const newTokenFile = "text" in token ? { file: tokenFile, text: `${token.text}\n`, option: "--token-file" } : null;
  writeNewFiles({ file, text: draftedConfig.text, option: "--config" }, newTokenFile);
  printInitResult(initContext, building, draftedConfig, newTokenFile?.file ?? null);
}

function refuseMissingOptions(address: string | undefined, { tokenFile, timeZone }: InitCommandOptions): void {
  const missingOptions = omitMissingLines(
    address === undefined && "the address of the service",
    tokenFile === undefined && "--token-file",
    timeZone === undefined && "--time-zone",
  );
  if (missingOptions.length === 0) return;
  const missingOptionsText = new Intl.ListFormat("en-GB").format(missingOptions);
  throw new InvalidArgumentError(`Without a terminal no question can be asked: add ${missingOptionsText}.`);
}

/** Repeats a question until the answer is accepted; without a terminal the first error is final. */
async function repeatQuestionUntilAccepted<T>(
  { prompt, terminal }: InitContext,
  askOnce: (attempt: number) => Promise<T>,
  isRefusal: (error: unknown) => boolean = (error) => error instanceof ConfigError,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await askOnce(attempt);
    } catch (error) {
      if (!isRefusal(error) || prompt === null || attempt >= MAX_ANSWER_ATTEMPTS) throw error;
      terminal.info(errorText(error));
    }
  }
}

const isTokenRejected = (error: unknown) => error instanceof ConfigError && error.reason === "unauthenticated";
const isAddressRejected = (error: unknown) => error instanceof ConfigError || error instanceof Retryable;

/** Asks again for an address that does not respond, and for a token that the service rejects. */
function askAddressAndToken(initContext: InitContext, addressArgument: string | undefined) {
  const { prompt, options, terminal } = initContext;
  let token: ServiceAccess["token"] | null = null;
  const tryAddress = async (attempt: number) => {
    const givenAddress = attempt === 1 ? addressArgument : undefined;
    const addressText = givenAddress ?? (await prompt?.ask("Address of the monitoring service")) ?? "";
    const address = parseServiceAddress(addressText, options.allowPlainHttp ?? false);
    terminal.info(...address.notes);
    const tryToken = async (tokenAttempt: number) => {
      token = tokenAttempt === 1 && token !== null ? token : await askAccessToken(initContext, tokenAttempt);
      return { address, token, building: await inspectServiceBuilding(initContext, address, token) };
    };
    return repeatQuestionUntilAccepted(initContext, tryToken, isTokenRejected);
  };
  return repeatQuestionUntilAccepted(initContext, tryAddress, isAddressRejected);
}

async function askAccessToken({ prompt, options }: InitContext, attempt: number): Promise<ServiceAccess["token"]> {
  const { tokenFile } = options;
  if (tokenFile !== undefined && lstatSync(tokenFile, { throwIfNoEntry: false }) !== undefined) {
    if (attempt > 1) await prompt?.ask(`Put a valid token into ${tokenFile}, then press Enter`);
    return { file: tokenFile };
  }
  if (prompt !== null) return { text: await prompt.askSecret("Access token (not shown)") };
  throw new ConfigError(`There is no token file ${tokenFile}.`, {
    hint: "Write the access token into it, one line, readable by you only (chmod 600).",
  });
}

function inspectServiceBuilding(
  { context, options, terminal }: InitContext,
  { baseUrl }: ServiceAddress,
  token: ServiceAccess["token"],
) {
  const { allowPlainHttp = false, caFile = null } = options;
  return terminal.progress("Looking at the building", (showProgress) =>
    summarizeBuilding({ baseUrl, token, allowPlainHttp, caFile }, context.signal, showProgress),
  );
}

async function askTimeZone(initContext: InitContext, building: BuildingSummary): Promise<string> {
  const { prompt, options, terminal } = initContext;
  const { proposed, note } = guessTimeZone(building, Intl.DateTimeFormat().resolvedOptions().timeZone);
  return repeatQuestionUntilAccepted(initContext, async (attempt) => {
    const givenTimeZone = attempt === 1 ? options.timeZone : undefined;
    if (givenTimeZone === undefined && attempt === 1 && note !== null) terminal.info(note);
    const timeZone = givenTimeZone ?? (await prompt?.ask("Time zone of the buildings", proposed ?? undefined)) ?? "";
    const timeZoneProblem = describeTimeZoneProblem(timeZone);
    if (timeZoneProblem !== null) throw new ConfigError(timeZoneProblem);
    return timeZone;
  });
}

async function askMqttBroker({ prompt }: InitContext): Promise<string | null> {
  const brokerAnswer = (await prompt?.ask("MQTT broker for the events, such as mqtt://localhost", "none: files")) ?? "";
  return brokerAnswer === "" || brokerAnswer === "none: files" || brokerAnswer === "none" ? null : brokerAnswer;
}

function chooseNewTokenFile(initContext: InitContext, source: string): Promise<string> {
  const { prompt, file, options } = initContext;
  return repeatQuestionUntilAccepted(initContext, async (attempt) => {
    const tokenPath = options.tokenFile ?? pathNextToConfig(file, `secrets/${source}_token`);
    const isGivenByOption = attempt === 1 && options.tokenFile !== undefined;
    const path = isGivenByOption ? tokenPath : await prompt?.ask("File for the token, readable by you only", tokenPath);
    refuseExistingFile(path ?? tokenPath, "--token-file");
    return path ?? tokenPath;
  });
}

function printInitResult(
  { terminal, file }: InitContext,
  building: BuildingSummary,
  { plan, text }: DraftedConfiguration,
  token: string | null,
) {
  const followUpCommands = suggestNextCommands(file);
  const commandWidth = Math.max(...followUpCommands.map(([command]) => command.length));
  const { load, fits } = plan;
  terminal.print({ file, source: plan.source, sites: building.sites.length, tags: building.tags, fits, load }, [
    "",
    ...(token === null ? [] : [`${token} holds the token, readable by you only.`]),
    `${file} is written (${text.trimEnd().split("\n").length} lines): ${tagUnitsText(building)}.`,
    quotaUseText(plan),
    ...planLines(plan).map((line) => `  ${line}`),
    "",
    "What comes next:",
    ...followUpCommands.map(
      ([command, commandDescription]) => `  ${command.padEnd(commandWidth)}  ${commandDescription}`,
    ),
  ]);
}

function parseDays(text: string): number {
  const durationMs = parseDuration(text);
  if (durationMs === null || durationMs < DAY_MS)
    throw new InvalidArgumentError("Write it in days, such as 7d or 365d.");
  return Math.round(durationMs / DAY_MS);
}

function parseName(text: string): string {
  if (/^[a-z0-9][a-z0-9_-]{0,63}$/.test(text)) return text;
  throw new InvalidArgumentError("Use up to 64 of a-z, 0-9, _ and -, a letter or digit first.");
}

type TerminalPrompt = NonNullable<ReturnType<typeof createTerminalPrompt>>;

function createTerminalPrompt(signal: AbortSignal) {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return null;
  let isInputHidden = false;
  const output = new Writable({
    write(chunk, _encoding, onWritten) {
      if (!isInputHidden) process.stderr.write(chunk);
      onWritten();
    },
  });
  const lineReader = createInterface({ input: process.stdin, output, terminal: true });
  // In raw mode, Ctrl-C does not raise SIGINT by itself.
  lineReader.on("SIGINT", () => process.kill(process.pid, "SIGINT"));
  const terminalClose = new AbortController();
  lineReader.once("close", () => terminalClose.abort(new Rejected("The terminal was closed before all was answered.")));
  const abortOrCloseSignal = AbortSignal.any([signal, terminalClose.signal]);

  async function askQuestion(question: string): Promise<string> {
    try {
      return (await lineReader.question(question, { signal: abortOrCloseSignal })).trim();
    } catch (error) {
      signal.throwIfAborted();
      terminalClose.signal.throwIfAborted();
      throw error;
    }
  }

  return {
    /** Asks a question; Enter alone accepts the proposed answer. Rejects when the terminal closes. */
    async ask(question: string, proposedAnswer?: string) {
      const answer = await askQuestion(
        printableLine(`${question}${proposedAnswer === undefined ? "" : ` [${proposedAnswer}]`}: `),
      );
      return answer === "" ? (proposedAnswer ?? "") : answer;
    },
    async askSecret(question: string) {
      process.stderr.write(printableLine(`${question}: `));
      isInputHidden = true;
      try {
        return await askQuestion("");
      } finally {
        isInputHidden = false;
        process.stderr.write("\n");
      }
    },
    close: () => lineReader.close(),
  };
}
