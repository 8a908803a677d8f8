import { hostname } from "node:os";
import { join, resolve } from "node:path";
import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { ALLOW_WRITABLE_FLAG, refuseUntrustedFile } from "../../app/config/trusted-file.ts";
import { createWorker, type Worker, type WorkerOptions } from "../../app/worker.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog, createRecentLines, type Log } from "../../core/runtime/log.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { MemberOptions } from "../../scale/member.ts";
import { aborted, type CliContext } from "../shell/context.ts";
import { writePointer } from "../shell/pointer.ts";
import { redirectStandardError } from "../shell/uncaught-errors.ts";
import { createTerminalFeed, newEvents, type TerminalFeed } from "./terminal-feed.ts";

/** Containers and service managers kill after about 10 s. */
const STOP_WITHIN_MS = 8_000;
const READY_EVERY_MS = 2_000;

export function define(command: Command, context: CliContext): void {
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
    .action(async (options: RunOptions) => {
      if (options.setup === true && !(await (await import("./setup.ts")).runSetup(context))) return;
      const load = () => {
        if (options.allowWritableConfig !== true) refuseUntrustedFile(context.configFile());
        return context.config();
      };
      const config = load();
      takeBetterFlags(Object.keys(config.sources).length);
      const recent = createRecentLines();
      const terminal = context.terminal();
      const people = process.stderr.isTTY && !terminal.json ? createTerminalFeed(terminal.say, systemClock.now) : null;
      const log = createLog({
        level: config.log.level,
        recent,
        ...(people === null ? {} : { destination: people.destination }),
      });
      redirectStandardError(log);
      const running = {
        config,
        log,
        recentLog: recent.lines,
        armWriting: options.armWriting ?? false,
        configFile: { file: resolve(context.configFile()), load, isWatched: true },
      };
      if (config.state.postgres !== undefined)
        return runMember({ ...running, ...memberOf(config, options.member) }, people, context.signal);
      if (options.member !== undefined)
        throw new ConfigError("Only a fleet has members.", {
          hint: "Leave --member out, or name the fleet's database under state.postgres.",
        });
      // A restart replaces a state that was damaged while it was open.
      let isArming = running.armWriting;
      while (await runWorker({ ...running, armWriting: isArming }, people, context.signal)) isArming = false;
    });
}

/** Returns true if the state was damaged, and the worker has to restart. */
async function runWorker(
  options: WorkerOptions & Pick<MemberOptions, "config" | "configFile"> & { readonly log: Log },
  people: TerminalFeed | null,
  signal: AbortSignal,
): Promise<boolean> {
  const { log } = options;
  const worker = await createWorker(options);
  if (process.stdin.isTTY !== true) onHangup(() => void worker.reload?.("signal", false));
  const [latest] = await worker.store.outbox.latest(1);
  leavePointerFor(options, false);
  await worker.start();
  const status = worker.statusUrl();
  log.info({ status }, "Plenum is running");
  const over = new AbortController();
  const printing = people === null ? null : printActivity(worker, people, latest?.position ?? 0, log, over.signal);
  const { damaged } = worker.store;
  await aborted(damaged === undefined ? signal : AbortSignal.any([signal, damaged]));
  people?.say(signal.aborted ? "Stopping." : "The state is damaged; the worker starts again.");
  over.abort();
  await printing;
  await worker.stop(STOP_WITHIN_MS);
  return !signal.aborted;
}

interface RunOptions {
  readonly armWriting?: boolean;
  readonly allowWritableConfig?: boolean;
  readonly member?: string;
  readonly setup?: boolean;
}

/** Topics, paths and tables contain member names. */
const MEMBER_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;

/** A named member has its own folder, so one machine can run several. */
function memberOf({ state }: Config, given: string | undefined) {
  const name = given ?? hostname();
  if (!MEMBER_NAME.test(name))
    throw new ConfigError(`A member cannot be called ${name}.`, {
      hint: "Give it a name with --member: up to 63 letters, digits, `_`, `.` and `-`, a letter or digit first.",
    });
  return { name, folder: given === undefined ? state.folder : join(state.folder, name) };
}

async function runMember(options: MemberOptions, people: TerminalFeed | null, signal: AbortSignal): Promise<void> {
  const { createMember } = await import("../../scale/member.ts");
  const member = await createMember(options);
  const { reload } = member;
  if (process.stdin.isTTY !== true) onHangup(() => void reload?.("signal", false));
  leavePointerFor(options, true);
  await member.start();
  const status = member.statusUrl();
  options.log?.info({ member: member.name, status }, "Plenum is running");
  people?.say(`Plenum is running as member ${member.name}; status page ${status}. Ctrl-C stops it.`);
  const over = new AbortController();
  const printing = people === null ? null : printReadiness(status, people, over.signal).catch(() => undefined);
  await aborted(signal);
  people?.say("Stopping.");
  over.abort();
  await printing;
  await member.stop(STOP_WITHIN_MS);
}

/** Commands find the state by this pointer while the file is wrong. */
function leavePointerFor(
  { config, configFile, log }: Pick<MemberOptions, "config" | "configFile" | "log">,
  isFleet: boolean,
): void {
  if (configFile === undefined) return;
  const stateFolder = resolve(config.state.folder);
  if (writePointer(configFile.file, { stateFolder, isFleet })) return;
  log?.info("no pointer to the state could be left; while the file is wrong, commands find it only by state.folder");
}

/** At a terminal SIGHUP still ends the worker. */
function onHangup(reload: () => void): void {
  process.removeAllListeners("SIGHUP");
  process.on("SIGHUP", reload);
}

/** A failure here does not affect the worker. */
async function printActivity(
  worker: Worker,
  people: TerminalFeed,
  position: number,
  log: Log,
  signal: AbortSignal,
): Promise<void> {
  const status = worker.statusUrl();
  const printEvents = async () => {
    for await (const page of newEvents(worker.store, position, signal)) page.forEach(people.event);
  };
  people.say(`Plenum is running; status page ${status}. Ctrl-C stops it.`);
  try {
    await Promise.all([printEvents(), printReadiness(status, people, signal)]);
  } catch (error) {
    if (!signal.aborted) log.warn({ err: error }, "what happens cannot be told here any more");
  }
}

async function printReadiness(status: string, people: TerminalFeed, signal: AbortSignal): Promise<void> {
  while (await sleepFor(systemClock, READY_EVERY_MS, signal)) {
    const answer = await fetch(new URL("/readyz", status), { signal }).catch(() => null);
    if (answer === null) continue;
    const { reasons } = (await answer.json()) as {
      readonly reasons: readonly { readonly message: string }[];
    };
    people.readiness(reasons.map(({ message }) => message));
  }
}

/** Flags of the start scripts and the image; docs/sizing.md has the measurements. */
const OF_FEW_SOURCES = [
  "--min-semi-space-size=4",
  "--max-semi-space-size=4",
  "--heap-growing-percent=20",
  "--no-parallel-scavenge",
  "--no-allocation-site-pretenuring",
];

/** With 20 to 200 sources: 17 to 25 % less processor time for each value, 20 to 55 MB more memory. */
const OF_MANY_SOURCES = [
  "--min-semi-space-size=8",
  "--max-semi-space-size=8",
  "--heap-growing-percent=60",
  "--no-parallel-scavenge",
  "--no-allocation-site-pretenuring",
];

/** From here on the larger young generation pays. */
const MANY_SOURCES = 10;

export function betterFlags(
  sources: number,
  flags: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): readonly string[] | null {
  const isByHand = environment.PLENUM_NODE_FLAGS !== undefined || flags.join(" ") !== OF_FEW_SOURCES.join(" ");
  return isByHand || sources < MANY_SOURCES ? null : OF_MANY_SOURCES;
}

/** The size of the young generation is fixed at the start of a process, so this executes the process again. */
function takeBetterFlags(sources: number): void {
  const flags = betterFlags(sources, process.execArgv, process.env);
  // Windows cannot replace a process.
  if (flags === null || process.platform === "win32") return;
  process.execve?.(process.execPath, [process.execPath, ...flags, ...process.argv.slice(1)], process.env);
}
