import { hostname } from "node:os";
import { join, resolve } from "node:path";
import type { Command } from "commander";
import { acceptsCommands, type Config } from "../../app/config/config.ts";
import { ALLOW_WRITABLE_FLAG, refuseUntrustedConfigFile } from "../../app/config/file-permission-check.ts";
import { createWorker, type Worker, type WorkerOptions } from "../../app/worker.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog, type Log } from "../../core/runtime/log.ts";
import type { ProcessEnv } from "../../core/runtime/secret.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { FleetMemberOptions } from "../../scale/fleet-member.ts";
import { type CliContext, waitUntilAborted } from "../shell/command-context.ts";
import { redirectStandardError } from "../shell/uncaught-errors.ts";
import { writePointerFile } from "../shell/worker-location-file.ts";
import { createTerminalFeed, newEventPages, type TerminalFeed } from "./terminal-event-feed.ts";

/** Limits the time of a stop, because containers and service managers kill a process after about 10 s. */
const STOP_TIMEOUT_MS = 8_000;
const READINESS_CHECK_INTERVAL_MS = 2_000;

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--arm-writing", "let a new state write, as the configuration allows; once is enough")
    .option("--member <name>", "in a fleet (state.postgres): this member's name; its machine's when left out")
    .option(
      ALLOW_WRITABLE_FLAG,
      "read a configuration file that other users may change: they then decide what is written to the building",
    )
    .option("--setup", "where there is no configuration yet: make one on a page of this machine, then run")
    .addHelpText(
      "after",
      "\nAt a terminal it says what happens, a line for each thing that matters; where standard error leads elsewhere, and\n" +
        "with --json, it is the log: lines of JSON.\n\nExample:\n  plenum run --config /etc/plenum/plenum.yaml",
    )
    .action(async (options: RunCommandOptions) => {
      if (options.setup === true && !(await (await import("./write-first-configuration.ts")).runSetupPage(context)))
        return;
      const loadTrustedConfig = () => {
        if (options.allowWritableConfig === true) return context.config();
        refuseUntrustedConfigFile(context.configFile());
        const trustedConfig = context.config();
        // A names file must be trusted: with swapped names a person sees one tag's value and writes to another tag.
        if (Object.values(trustedConfig.sinks).some(acceptsCommands))
          for (const { names } of Object.values(trustedConfig.sources))
            if (names !== undefined) refuseUntrustedConfigFile(names);
        return trustedConfig;
      };
      const config = loadTrustedConfig();
      restartWithNodeFlags(Object.keys(config.sources).length);
      const terminal = context.terminal();
      const feed = process.stderr.isTTY && !terminal.json ? createTerminalFeed(terminal.info, systemClock.now) : null;
      const logDestinationOption = feed === null ? {} : { destination: feed.destination };
      const log = createLog({ level: config.log.level, ...logDestinationOption });
      redirectStandardError(log);
      const workerOptions = {
        config,
        log,
        armWriting: options.armWriting ?? false,
        configFile: { file: resolve(context.configFile()), loadConfig: loadTrustedConfig, isWatched: true },
      };
      if (config.state.postgres !== undefined)
        return runMember({ ...workerOptions, ...memberNameAndFolder(config, options.member) }, feed, context.signal);
      if (options.member !== undefined)
        throw new ConfigError("Only a fleet has members.", {
          hint: "Leave --member out, or name the fleet's database under state.postgres.",
        });
      // A worker whose state was damaged while it was open starts again with a new state.
      let shouldArmWriting = workerOptions.armWriting;
      while (await runSingleWorker({ ...workerOptions, armWriting: shouldArmWriting }, feed, context.signal))
        shouldArmWriting = false;
    });
}

/** Runs a worker until it is stopped; returns true if it must restart because its state is damaged. */
async function runSingleWorker(
  options: WorkerOptions & Pick<FleetMemberOptions, "config" | "configFile"> & { readonly log: Log },
  feed: TerminalFeed | null,
  signal: AbortSignal,
): Promise<boolean> {
  const { log } = options;
  const worker = await createWorker(options);
  if (process.stdin.isTTY !== true) reloadOnHangup(() => void worker.reload?.("signal", false));
  const lastEventPosition = (await worker.store.outbox.latest(1))[0]?.position ?? 0;
  writeWorkerPointer(options, false);
  await worker.start();
  log.info({ status: worker.statusUrl() }, "Plenum is running");
  const stopController = new AbortController();
  const printLoop = feed === null ? null : printActivity(worker, feed, lastEventPosition, log, stopController.signal);
  const { damaged } = worker.store;
  await waitUntilAborted(damaged === undefined ? signal : AbortSignal.any([signal, damaged]));
  feed?.printMessage(signal.aborted ? "Stopping." : "The state is damaged; the worker starts again.");
  stopController.abort();
  await printLoop;
  await worker.stop(STOP_TIMEOUT_MS);
  return !signal.aborted;
}

interface RunCommandOptions {
  readonly armWriting?: boolean;
  readonly allowWritableConfig?: boolean;
  readonly member?: string;
  readonly setup?: boolean;
}

/** Restricts the name of a fleet member, because topics, paths and tables contain it. */
const MEMBER_NAME_PATTERN = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;

/** Gives a named fleet member a folder of its own, so that one machine can run several members. */
function memberNameAndFolder({ state }: Config, givenName: string | undefined) {
  const memberName = givenName ?? hostname();
  if (!MEMBER_NAME_PATTERN.test(memberName))
    throw new ConfigError(`A member cannot be called ${memberName}.`, {
      hint: "Give it a name with --member: up to 63 letters, digits, `_`, `.` and `-`, a letter or digit first.",
    });
  return { name: memberName, folder: givenName === undefined ? state.folder : join(state.folder, memberName) };
}

async function runMember(options: FleetMemberOptions, feed: TerminalFeed | null, signal: AbortSignal): Promise<void> {
  const { createFleetMember: createMember } = await import("../../scale/fleet-member.ts");
  const member = await createMember(options);
  const { reload } = member;
  if (process.stdin.isTTY !== true) reloadOnHangup(() => void reload?.("signal", false));
  writeWorkerPointer(options, true);
  await member.start();
  const pageUrl = member.statusUrl();
  options.log?.info({ member: member.name, status: pageUrl }, "Plenum is running");
  feed?.printMessage(`Plenum is running as member ${member.name}; status page ${pageUrl}. Ctrl-C stops it.`);
  const stopController = new AbortController();
  const printLoop = feed === null ? null : printReadiness(pageUrl, feed, stopController.signal).catch(() => undefined);
  await waitUntilAborted(signal);
  feed?.printMessage("Stopping.");
  stopController.abort();
  await printLoop;
  await member.stop(STOP_TIMEOUT_MS);
}

function writeWorkerPointer(
  { config, configFile, log }: Pick<FleetMemberOptions, "config" | "configFile" | "log">,
  isFleet: boolean,
): void {
  if (configFile === undefined) return;
  if (writePointerFile(configFile.file, { stateFolder: resolve(config.state.folder), isFleet })) return;
  log?.info(
    "the pointer to the state folder could not be written; while the configuration file is wrong, commands find the state only by state.folder",
  );
}

/** Reloads the configuration on SIGHUP, except at a terminal, where SIGHUP ends the worker. */
function reloadOnHangup(reload: () => void): void {
  process.removeAllListeners("SIGHUP");
  process.on("SIGHUP", reload);
}

/** Prints events and readiness to the terminal. A failure does not affect the worker. */
async function printActivity(
  worker: Worker,
  feed: TerminalFeed,
  startPosition: number,
  log: Log,
  signal: AbortSignal,
): Promise<void> {
  const statusUrl = worker.statusUrl();
  const printNewEvents = async () => {
    for await (const page of newEventPages(worker.store, startPosition, signal)) page.forEach(feed.printEvent);
  };
  feed.printMessage(`Plenum is running; status page ${statusUrl}. Ctrl-C stops it.`);
  try {
    await Promise.all([printNewEvents(), printReadiness(statusUrl, feed, signal)]);
  } catch (error) {
    if (!signal.aborted) log.warn({ err: error }, "the terminal no longer shows events, because reading them failed");
  }
}

async function printReadiness(statusUrl: string, feed: TerminalFeed, signal: AbortSignal): Promise<void> {
  while (await sleepFor(systemClock, READINESS_CHECK_INTERVAL_MS, signal)) {
    const response = await fetch(new URL("/readyz", statusUrl), { signal }).catch(() => null);
    if (response === null) continue;
    const { reasons } = (await response.json()) as { readonly reasons: readonly { readonly message: string }[] };
    feed.printReadiness(reasons.map(({ message }) => message));
  }
}

/** Node.js flags that the start scripts set; docs/sizing.md has the measurements. */
const FEW_SOURCES_FLAGS = [
  "--min-semi-space-size=4",
  "--max-semi-space-size=4",
  "--heap-growing-percent=20",
  "--no-parallel-scavenge",
  "--no-allocation-site-pretenuring",
];

/** Semi-space sizes of V8 from these numbers of sources on. Larger ones save processor time and need more memory. */
const SEMI_SPACE_SIZES = [
  { sources: 100, megabytes: 64 },
  { sources: 10, megabytes: 32 },
];

/** Returns Node.js flags with larger semi-spaces for ten sources or more; null to keep the current flags. */
export function chooseNodeFlags(
  sourceCount: number,
  flags: readonly string[],
  environment: ProcessEnv,
): readonly string[] | null {
  const isUserChoice = environment.PLENUM_NODE_FLAGS !== undefined || flags.join(" ") !== FEW_SOURCES_FLAGS.join(" ");
  const size = SEMI_SPACE_SIZES.find(({ sources }) => sourceCount >= sources);
  if (isUserChoice || size === undefined) return null;
  return FEW_SOURCES_FLAGS.map((flag) => flag.replace("size=4", `size=${size.megabytes}`).replace("=20", "=60"));
}

/** Restarts the process with other flags, because heap sizes are fixed at the start of a process. */
function restartWithNodeFlags(sourceCount: number): void {
  const nodeFlags = chooseNodeFlags(sourceCount, process.execArgv, process.env);
  // Windows cannot replace a process.
  if (nodeFlags === null || process.platform === "win32") return;
  process.execve?.(process.execPath, [process.execPath, ...nodeFlags, ...process.argv.slice(1)], process.env);
}
