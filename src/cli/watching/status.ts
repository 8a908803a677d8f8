import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { Rejected, Retryable } from "../../core/errors/errors.ts";
import { refusedNotice } from "../../core/model/reload-facts.ts";
import { counted } from "../../core/values/plural.ts";
import type { FleetStatus } from "../../scale/fleet/fleet.ts";
import { readFleet } from "../../scale/fleet/report.ts";
import { type FoundWorker, requestReady, requestReport } from "../../ui/operator/remote.ts";
import type { StatusReport } from "../../ui/status/report.ts";
import { usedInstead } from "../shell/accepted-config.ts";
import type { CliContext } from "../shell/context.ts";
import { findWorkerFor, membersHere } from "../shell/find-worker.ts";
import { lookAtState } from "../shell/look-at-state.ts";
import { rememberedStatus } from "../shell/remembered-status.ts";
import { withStateDatabase } from "../shell/state-database.ts";
import { statusLines } from "./status-lines.ts";

export function define(command: Command, context: CliContext): void {
  command
    .option("--probe", "say nothing; exit 0 when a worker is alive and ready (for health checks)")
    .addHelpText(
      "after",
      "\nExits 75 when a worker is there and does not answer; `--probe` exits 1 when none is running.\n\nExample:\n  plenum status --json",
    )
    .action(async (options: { readonly probe?: boolean }) => {
      const { config, rejected } = await context.accepted();
      const found = await findWorkerFor({ config }, context.signal);
      if (options.probe === true) return probe(found, context.signal);
      const first = rejected === null ? [] : [usedInstead(context.configFile(), rejected)];
      if (config.state.postgres !== undefined) return showFleet(context, config, first);
      const { report: own, silent } = await reportOf(found, config, context.signal);
      const report = withFirst(first, own);
      context.terminal().object(report, statusLines(report, silent !== null));
      // What the state remembers is shown all the same; the exit code says that nobody vouches for it.
      if (silent !== null) throw silent;
    });
}

async function probe(found: FoundWorker, signal: AbortSignal): Promise<void> {
  if (found.kind === "none") throw new Rejected("No worker is running on this state folder.");
  if (found.kind === "silent") throw found.trouble;
  const reason = await requestReady(found.door, signal);
  if (reason !== null) throw new Retryable(`The worker is not ready. ${reason}`);
}

/** The worker's own report; what the state remembers when there is no worker, or one that does not answer. */
async function reportOf(
  found: FoundWorker,
  config: Config,
  signal: AbortSignal,
): Promise<{ readonly report: StatusReport; readonly silent: Retryable | null }> {
  if (found.kind === "silent") return { report: await fromStore(config), silent: found.trouble };
  if (found.kind === "none") return { report: await fromStore(config), silent: null };
  try {
    return { report: await requestReport(found.door, signal), silent: null };
  } catch (error) {
    if (!(error instanceof Retryable)) throw error;
    return { report: await fromStore(config), silent: error };
  }
}

/** Puts the warning about the file first, in place of what the worker says of the same file. */
function withFirst(first: readonly string[], report: StatusReport): StatusReport {
  const { configuration, notices } = report;
  if (first.length === 0) return report;
  const refused = configuration?.refused ?? null;
  const same = configuration === null || refused === null ? null : refusedNotice(configuration.file, refused);
  return { ...report, notices: [...first, ...notices.filter((notice) => notice !== same)] };
}

function fromStore(config: Config): Promise<StatusReport> {
  return lookAtState({ config }, (store) => rememberedStatus(store, config));
}

/** The whole fleet by its database, then each member of this machine; those of other machines show theirs on their pages. */
async function showFleet(context: CliContext, config: Config, first: readonly string[]): Promise<void> {
  const terminal = context.terminal();
  const fleet = await withStateDatabase(config, (database) =>
    readFleet(database, null, Object.keys(config.sources)),
  );
  const found = await membersHere(config.state, context.signal);
  const here = await Promise.all(
    found.map((each) => (each.kind === "open" ? requestReport(each.door, context.signal) : null)),
  );
  const reports = here.filter((report) => report !== null).map((report) => withFirst(first, report));
  terminal.object({ fleet, members: reports }, [
    ...first.map((warning) => `! ${warning}`),
    ...fleetLines(fleet),
    ...reports.flatMap((report) => [
      "",
      `Member ${report.member ?? ""}, on this machine:`,
      ...statusLines(report, false),
    ]),
    ...(reports.length === 0 ? ["", "No member runs on this machine."] : []),
  ]);
  for (const each of found) if (each.kind === "silent") throw each.trouble;
}

function fleetLines({ members, sources }: FleetStatus): readonly string[] {
  const loose = sources.filter(({ holder }) => holder === null).map(({ source }) => source);
  return [
    ...members.map(({ name, state, host, sources: count, page, seenAt }) =>
      [
        `Member ${name} on ${host}: ${state}, ${counted(count, "source")}`,
        ...(state === "alive" && page !== "" ? [page] : [`last heard of at ${seenAt}`]),
      ].join(", "),
    ),
    ...(loose.length === 0 ? [] : [`! Nobody holds ${loose.join(", ")}.`]),
  ];
}
