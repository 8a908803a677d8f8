import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { zoneComplaint } from "../../core/values/time-zone.ts";
import { createEntryCode } from "../../ui/setup/entry-code.ts";
import { createPageSetup, type SetupSteps } from "../../ui/setup/page-setup.ts";
import type { Frame } from "../../ui/setup/plenum-yaml.ts";
import { startSetupServer } from "../../ui/setup/server.ts";
import { sourceName } from "../../ui/setup/source-name.ts";
import { besideConfig, refuseExisting, writeSetup } from "../../ui/setup/write.ts";
import type { CliContext } from "../shell/context.ts";
import { draft, frameFor, freeStatusPort, lookAtBuilding, nextCommands } from "./setup-steps.ts";

/**
 * The setup page, until the configuration is written and the worker is asked for (true), or the command is stopped
 * (false). Throws ConfigError where there is a configuration already.
 */
export async function runSetup(context: CliContext): Promise<boolean> {
  const file = context.configFile();
  refuseExisting(file, "--config");
  const terminal = context.terminal();
  const entry = createEntryCode(systemClock);
  const machineZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  // The worker's page comes where the setup was.
  const port = await freeStatusPort();
  const setup = createPageSetup({ steps: stepsFor(file, port), clock: systemClock, machineZone });
  const started = Promise.withResolvers<boolean>();
  const stop = () => started.resolve(false);
  context.signal.addEventListener("abort", stop, { once: true });
  const onStart = () => started.resolve(true);
  const server = await startSetupServer({ setup, entry, onStart }, port);
  terminal.say(
    "",
    `  setup page   ${server.url}`,
    `  code         ${entry.code}  (asked for there, good for one browser)`,
    "",
    "  Ctrl-C ends it; nothing is written before the page says so.",
    "",
  );
  if (context.signal.aborted) stop();
  try {
    return await started.promise;
  } finally {
    context.signal.removeEventListener("abort", stop);
    await server.close();
  }
}

function stepsFor(file: string, port: number): SetupSteps {
  /** Enough for a plan, which asks nothing of where things are. */
  const planFrame = (baseUrl: string): Frame =>
    frameFor(file, port, {
      ...{ name: "setup", baseUrl, allowPlainHttp: true, caFile: null },
      ...{ tokenFile: "token", timeZone: "UTC", mqttUrl: null },
    });
  return {
    look: ({ baseUrl, allowPlainHttp, token }, signal) =>
      lookAtBuilding({ baseUrl, allowPlainHttp, caFile: null, token: { text: token } }, signal),
    plan: (seen, wishes) => draft(planFrame("https://plan.invalid"), wishes, seen).plan,
    write(seen, { wishes, timeZone, mqttUrl, baseUrl, allowPlainHttp, token }) {
      const complaint = zoneComplaint(timeZone);
      if (complaint !== null) throw new ConfigError(complaint);
      const name = sourceName(seen);
      const tokenFile = besideConfig(file, `secrets/${name}_token`);
      const broker = mqttUrl.trim() === "" ? null : mqttUrl.trim();
      const frame = frameFor(file, port, {
        ...{ name, baseUrl, allowPlainHttp, caFile: null, tokenFile, timeZone, mqttUrl: broker },
      });
      const { text } = draft(frame, wishes, seen);
      writeSetup({ file, text, option: "--config" }, { file: tokenFile, text: `${token}\n`, option: null });
      return { file, tokenFile, next: nextCommands(file) };
    },
  };
}
