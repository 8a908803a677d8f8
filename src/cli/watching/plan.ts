import type { Command } from "commander";
import { planSettings } from "../../app/build-sync.ts";
import type { Config, SourceEntry } from "../../app/config/config.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import type { StateConfig } from "../../engine/store/config.ts";
import { factsFromLists, factsFromState } from "../../engine/sync/facts-for-plan.ts";
import { type PlanReport, planReport } from "../../engine/sync/plan/report.ts";
import { type ListProgress, listingText } from "../../engine/sync/seen-building.ts";
import { requestPlan } from "../../ui/operator/work.ts";
import { type CliContext, choose } from "../shell/context.ts";
import { findWorkerFor } from "../shell/find-worker.ts";
import { withLoneSource } from "../shell/lone-source.ts";
import { lookAtStateIfAny } from "../shell/look-at-state.ts";
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
          const known = options.ask === true ? null : await fromState(context, config, name, entry);
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
  config: Config,
  name: string,
  entry: SourceEntry,
): Promise<PlanReport | null> {
  const { state } = config;
  const which = { config, source: name };
  return lookAtStateIfAny(which, async (store) => {
    const found = await findWorkerFor(which, context.signal);
    if (found.kind === "silent")
      context.terminal().say(`${found.trouble.message} What it measures is left out.`);
    const running =
      found.kind === "open" ? await requestPlan(found.door, name, context.signal).catch(() => null) : null;
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
  const settings = planSettings(name, entry, state);
  const told = (progress: ListProgress) => update(listingText(progress, entry.quota));
  return withLoneSource(name, entry, process.env, async (source) =>
    planReport(await factsFromLists(source, settings, systemClock, context.signal, told)),
  );
}
