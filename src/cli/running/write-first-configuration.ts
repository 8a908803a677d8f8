import { buildPlanSettings } from "../../app/build-sync.ts";
import { Config } from "../../app/config/config.ts";
import { parseYaml } from "../../app/config/load.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { describeTimeZoneProblem } from "../../core/values/time-zone.ts";
import {
  type BuildingSummary,
  explainInspectionError,
  inspectBuilding,
  suggestSourceName,
} from "../../ui/setup/building-inspection.ts";
import { pathNextToConfig, refuseExistingFile, writeNewFiles } from "../../ui/setup/new-config-files.ts";
import { buildPlenumYaml, type ConfigurationValues, STATUS_PORT } from "../../ui/setup/plenum-yaml.ts";
import { planForBuilding, quotaUseText, type SetupChoices } from "../../ui/setup/setup-choices.ts";
import { type SetupActions, startSetupServer } from "../../ui/setup/setup-server.ts";
import type { CliContext } from "../shell/command-context.ts";
import { programName, quoteForShell } from "../shell/exit-codes.ts";
import { findFreePort } from "../shell/free-port.ts";
import { useStandaloneSource } from "../shell/source-and-sinks-without-worker.ts";

export interface ServiceAccess {
  readonly baseUrl: string;
  readonly allowPlainHttp: boolean;
  readonly caFile: string | null;
  readonly token: { readonly file: string } | { readonly text: string };
}

/** Passes a typed token to the configuration parser like an environment variable, which does not exist. */
const SETUP_TOKEN_VARIABLE = "PLENUM_SETUP_TOKEN";

export async function summarizeBuilding(
  { baseUrl, allowPlainHttp, caFile, token }: ServiceAccess,
  signal: AbortSignal,
  onProgress?: (text: string) => void,
): Promise<BuildingSummary> {
  const config = Config.parse({
    sources: {
      setup: {
        base_url: baseUrl,
        allow_plain_http: allowPlainHttp,
        ...(caFile === null ? {} : { ca_file: caFile }),
        token: "file" in token ? { file: token.file } : { env: SETUP_TOKEN_VARIABLE },
        time_zone: "UTC",
      },
    },
  });
  const sourceEntry = config.sources.setup;
  if (sourceEntry === undefined) throw new Error("the source of the setup is missing");
  const environment = "text" in token ? { [SETUP_TOKEN_VARIABLE]: token.text } : {};
  try {
    return await useStandaloneSource("setup", sourceEntry, environment, (source) =>
      inspectBuilding(source, signal, onProgress),
    );
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof ConfigError && error.reason === "settings"
      ? hideTokenVariable(error, baseUrl)
      : explainInspectionError(error, baseUrl);
  }
}

function hideTokenVariable(error: ConfigError, baseUrl: string): Error {
  if (!error.message.includes(SETUP_TOKEN_VARIABLE)) return explainInspectionError(error, baseUrl);
  return new ConfigError("This text is not an access token.", {
    reason: "unauthenticated",
    hint: "Copy the token and nothing else: one line, no spaces, no quotes.",
    cause: error,
  });
}

const MAX_TRIED_STATUS_PORTS = 10;

/** Returns a free port, because a demo or another worker may use the default port. */
export async function findFreeStatusPort(): Promise<number> {
  for (let port = STATUS_PORT; port < STATUS_PORT + MAX_TRIED_STATUS_PORTS; port += 1)
    if ((await findFreePort(port)) === port) return port;
  return findFreePort(0);
}

export function buildConfigurationValues(
  configFile: string,
  statusPort: number,
  givenSettings: Pick<
    ConfigurationValues,
    "name" | "baseUrl" | "allowPlainHttp" | "caFile" | "tokenFile" | "timeZone" | "mqttUrl"
  >,
): ConfigurationValues {
  return {
    ...givenSettings,
    statusPort,
    stateFolder: pathNextToConfig(configFile, "state"),
    eventsFolder: pathNextToConfig(configFile, "events"),
    date: isoUtc(systemClock.now()).slice(0, 10),
  };
}

export type DraftedConfiguration = ReturnType<typeof draftConfiguration>;

/** Drafts the text and the quota plan of a configuration. Throws ConfigurationError for wrong values. */
export function draftConfiguration(
  configValues: ConfigurationValues,
  choices: SetupChoices,
  building: BuildingSummary,
) {
  const parseConfigText = (text: string) => parseYaml({ schema: Config, file: "plenum.yaml", text, environment: {} });
  const configWithoutQuota = parseConfigText(buildPlenumYaml(configValues, choices, building, null));
  const plan = planForBuilding(configWithoutQuota, building, systemClock.now(), buildPlanSettings);
  const configText = buildPlenumYaml(configValues, choices, building, quotaUseText(plan));
  parseConfigText(configText);
  return { text: configText, plan };
}

export function suggestNextCommands(
  configFile: string,
  program = programName(),
): readonly (readonly [command: string, what: string])[] {
  const configArgument = configFile === "plenum.yaml" ? "" : ` --config ${quoteForShell(configFile)}`;
  return [
    [`${program} check${configArgument}`, "asks the service and every sink, and writes nothing"],
    [`${program} plan${configArgument}`, "what the intervals cost, after every change of the file"],
    [`${program} run${configArgument}`, "starts the worker; it says where its status page is"],
    [`${program} tags${configArgument}`, "what there is to select"],
  ];
}

/** Shows the setup page; returns true if the user starts the worker there, and false after Ctrl-C. */
export async function runSetupPage(context: CliContext): Promise<boolean> {
  const file = context.configFile();
  refuseExistingFile(file, "--config");
  const terminal = context.terminal();
  const machineZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  // The worker later uses the port of the setup page for its status page.
  const statusPort = await findFreeStatusPort();
  const startDecision = Promise.withResolvers<boolean>();
  const declineStart = () => startDecision.resolve(false);
  context.signal.addEventListener("abort", declineStart, { once: true });
  const onStart = () => startDecision.resolve(true);
  const serverOptions = { actions: createSetupPageActions(file, statusPort), clock: systemClock, machineZone, onStart };
  const server = await startSetupServer(serverOptions, statusPort);
  terminal.info(
    "",
    `  setup page   ${server.url}`,
    `  code         ${server.code}  (asked for there, good for one browser)`,
    "",
    "  Ctrl-C ends it; nothing is written before the page says so.",
    "",
  );
  if (context.signal.aborted) declineStart();
  try {
    return await startDecision.promise;
  } finally {
    context.signal.removeEventListener("abort", declineStart);
    await server.close();
  }
}

function createSetupPageActions(file: string, port: number): SetupActions {
  /** Returns the values of a configuration that only `plenum plan` reads: its paths are placeholders. */
  const planningValues = (baseUrl: string): ConfigurationValues =>
    buildConfigurationValues(file, port, {
      ...{ name: "setup", baseUrl, allowPlainHttp: true, caFile: null },
      ...{ tokenFile: "token", timeZone: "UTC", mqttUrl: null },
    });
  return {
    inspect: ({ baseUrl, allowPlainHttp, token }, signal) =>
      summarizeBuilding({ baseUrl, allowPlainHttp, caFile: null, token: { text: token } }, signal),
    plan: (building, choices) => draftConfiguration(planningValues("https://plan.invalid"), choices, building).plan,
    write(building, { choices, timeZone, mqttUrl, baseUrl, allowPlainHttp, token }) {
      const timeZoneProblem = describeTimeZoneProblem(timeZone);
      if (timeZoneProblem !== null) throw new ConfigError(timeZoneProblem);
      const name = suggestSourceName(building);
      const tokenFile = pathNextToConfig(file, `secrets/${name}_token`);
      const brokerUrl = mqttUrl.trim() === "" ? null : mqttUrl.trim();
      const configValues = buildConfigurationValues(file, port, {
        ...{ name, baseUrl, allowPlainHttp, caFile: null, tokenFile, timeZone, mqttUrl: brokerUrl },
      });
      const { text } = draftConfiguration(configValues, choices, building);
      writeNewFiles({ file, text, option: "--config" }, { file: tokenFile, text: `${token}\n`, option: null });
      return { file, tokenFile, next: suggestNextCommands(file) };
    },
  };
}
