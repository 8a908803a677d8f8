import type { Command } from "commander";
import { systemClock } from "../clock.ts";
import { Retryable } from "../errors.ts";
import { askReport, isReady, openDoor } from "../operator/remote.ts";
import { createStatus, type StatusReport } from "../status/report.ts";
import { openStore } from "../store/open.ts";
import { VERSION } from "../version.ts";
import type { CliContext } from "./context.ts";

export function addStatus(program: Command, context: CliContext): void {
  program
    .command("status")
    .description("what the status page shows: sources, sinks and their lag, quota, alarms")
    .option("--probe", "say nothing; exit 0 when a worker is alive and ready (for health checks)")
    .addHelpText("after", "\nExample:\n  plenum status --json")
    .action(async (options: { readonly probe?: boolean }) => {
      const door = await openDoor(context.config().state.folder, context.signal);
      if (options.probe === true) {
        if (door === null) throw new Retryable("No worker answers.");
        if (!(await isReady(door, context.signal))) throw new Retryable("The worker is not ready.");
        return;
      }
      const report = door === null ? await fromStore(context) : await askReport(door, context.signal);
      context.terminal().object(report, lines(report));
    });
}

async function fromStore(context: CliContext): Promise<StatusReport> {
  const { state, sources, sinks } = context.config();
  const store = await openStore({ folder: state.folder, clock: systemClock, readOnly: true });
  try {
    const named = Object.entries(sources).map(([name, source]) => ({
      name,
      origin: new URL(source.base_url).origin,
    }));
    return await createStatus({
      version: VERSION,
      clock: systemClock,
      store,
      sources: named,
      sinks: Object.keys(sinks),
      live: null,
    }).report();
  } finally {
    await store.close();
  }
}

function lines(report: StatusReport): string[] {
  return [
    report.startedAt === null
      ? "No worker is running; this is what the state remembers."
      : `Running since ${report.startedAt}.`,
    ...report.notices.map((notice) => `! ${notice}`),
    ...report.sources.flatMap((source) => [
      `source ${source.name}: ${source.counts.sites} sites, ${source.counts.tags} tags, ${source.counts.values} values, ${source.counts.alarms} active alarms`,
      ...(source.token === null || source.token.expiresAt === null
        ? []
        : [`  token "${source.token.name}" expires ${source.token.expiresAt}`]),
      ...(source.history === null
        ? []
        : [
            `  history: ${source.history.complete} of ${source.history.series} series complete, told until ${source.history.toldUntil ?? "–"}`,
          ]),
      ...(source.quota?.buckets ?? []).map(
        (bucket) => `  quota ${bucket.name}: ${bucket.used} of ${bucket.perMinute} used`,
      ),
    ]),
    ...report.sinks.map(
      (sink) =>
        `sink ${sink.sink}: ${sink.state}, lag ${sink.depth + sink.again}, ${sink.deadLetters} dead letters` +
        (sink.problem === null ? "" : `; ${sink.problem}`),
    ),
    `state ${report.store.file}, ${(report.store.bytes / 1_048_576).toFixed(1)} MiB`,
  ];
}
