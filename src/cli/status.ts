import type { Command } from "commander";
import { systemClock } from "../clock.ts";
import { Retryable } from "../errors.ts";
import { readDoor } from "../operator/key.ts";
import { createStatus, type StatusReport } from "../status/report.ts";
import { openStore } from "../store/open.ts";
import { VERSION } from "../version.ts";
import type { CliContext } from "./context.ts";

export function addStatus(program: Command, context: CliContext): void {
  program
    .command("status")
    .description("what the status page shows: sources, sinks and their lag, quota, alarms")
    .option("--probe", "say nothing; exit 0 when a worker is alive and ready (for health checks)")
    .action(async (options: { readonly probe?: boolean }) => {
      const { state } = context.config();
      const door = readDoor(state.folder);
      const report = door === null ? null : await ask(door.url, door.key.reveal(), context.signal);
      if (options.probe === true) {
        if (report === null) throw new Retryable("No worker answers.");
        return;
      }
      const shown = report ?? (await fromStore(context));
      context.terminal().object(shown, lines(shown));
    });
}

async function ask(url: string, key: string, signal: AbortSignal): Promise<StatusReport | null> {
  try {
    const response = await fetch(new URL("/operator/status", url), {
      headers: { authorization: `Bearer ${key}` },
      redirect: "error",
      signal: AbortSignal.any([signal, AbortSignal.timeout(5_000)]),
    });
    return response.ok ? ((await response.json()) as StatusReport) : null;
  } catch {
    // Nobody there: the worker ended without taking its address along.
    return null;
  }
}

async function fromStore(context: CliContext): Promise<StatusReport> {
  const { state, sources } = context.config();
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
      `source ${source.name}: ${source.counts.sites} sites, ${source.counts.tags} tags, ${source.counts.alarms} active alarms`,
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
