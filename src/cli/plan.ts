import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import { buildSource } from "../build-source.ts";
import { planSettings } from "../build-sync.ts";
import { systemClock } from "../clock.ts";
import type { SourceEntry } from "../config/config.ts";
import { createLog } from "../log.ts";
import { createMetrics } from "../metrics.ts";
import { findWorker } from "../operator/remote.ts";
import { askPlan } from "../operator/work.ts";
import type { StateConfig } from "../store/config.ts";
import { openStore } from "../store/open.ts";
import { factsFromLists, factsFromState } from "../sync/facts-for-plan.ts";
import { type PlanReport, planReport } from "../sync/plan/report.ts";
import { refuseUnverifiedTls } from "../verified-tls.ts";
import { type CliContext, choose } from "./context.ts";
import { lookAtStateIfAny } from "./look-at-state.ts";
import { planLines } from "./plan-lines.ts";

interface PlanOptions {
  readonly source?: string;
  readonly ask?: boolean;
}

/** What the quota buys, before anything runs or beside a worker. It sends no tag request and writes nothing. */
export function define(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "only this source")
    .option("--ask", "list sites and tags at the service, even where the state knows them")
    .addHelpText(
      "after",
      "\nLists cost nothing of the quota. Change the configuration and plan again: nothing has to run for it." +
        "\n\nExample:\n  plenum plan --json",
    )
    .action(async (options: PlanOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      const { sources, state } = config;
      const chosen =
        options.source === undefined ? Object.entries(sources) : [choose(config, options.source)];
      const reports = await terminal.progress("Planning", async (update) => {
        const made: PlanReport[] = [];
        for (const [name, entry] of chosen) {
          const known = options.ask === true ? null : await fromState(context, state, name, entry);
          made.push(known ?? (await fromLists(context, state, name, entry, update)));
        }
        return made;
      });
      terminal.object(reports, reports.flatMap(planLines));
    });
}

/**
 * From the running worker, which knows what it achieves; without one from its state. Null without an inventory. The
 * configuration that counts is the file's: a worker that runs with another one is asked for its measurements only.
 */
async function fromState(
  context: CliContext,
  state: StateConfig,
  name: string,
  entry: SourceEntry,
): Promise<PlanReport | null> {
  const { folder } = state;
  return lookAtStateIfAny(folder, async (store) => {
    const found = await findWorker(folder, context.signal);
    if (found.kind === "silent")
      context.terminal().say(`${found.trouble.message} What it measures is left out.`);
    const running =
      found.kind === "open" ? await askPlan(found.door, name, context.signal).catch(() => null) : null;
    const freshness = (running?.classes ?? []).map((each) => ({
      name: each.name,
      tags: each.tags,
      promisedMs: each.promisedSeconds * 1_000,
      achievedMs: each.measuredSeconds === null ? null : each.measuredSeconds * 1_000,
    }));
    const { quota } = entry;
    const usual = Math.max(1, quota.requests_per_minute * quota.polite - quota.reserve_for_writes);
    const live = running && {
      // What refusals or a foreign client take now counts, a change of the file as well.
      quota: { polls: Math.min(usual, running.quota.polls), shared: running.quota.shared },
      freshness,
    };
    const facts = await factsFromState(store, planSettings(name, entry, state), systemClock, live);
    return facts.tags === 0 ? null : planReport(facts);
  });
}

async function fromLists(
  context: CliContext,
  state: StateConfig,
  name: string,
  entry: SourceEntry,
  update: (text: string) => void,
): Promise<PlanReport> {
  refuseUnverifiedTls();
  // A state of its own, thrown away: the real one may belong to a running worker.
  const folder = mkdtempSync(join(tmpdir(), "plenum-plan-"));
  const store = await openStore({ folder, clock: systemClock });
  const log = createLog({ level: "silent" });
  const { source } = buildSource({ name, entry, store, clock: systemClock, log, metrics: createMetrics() });
  try {
    const settings = planSettings(name, entry, state);
    return planReport(await factsFromLists(source, settings, systemClock, context.signal, update));
  } finally {
    await source.close();
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  }
}
