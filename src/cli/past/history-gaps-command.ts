import type { Command } from "commander";
import { buildPlanSettings } from "../../app/build-sync.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { type HistoryGap, type HistoryGapReason, listHistoryGaps } from "../../engine/sync/history/history-progress.ts";
import { historyProgressFromStore } from "../../engine/sync/quota-plan-inputs.ts";
import { type CliContext, readSourceFromState } from "../shell/command-context.ts";
import { splitCommaSeparatedIds } from "../shell/common-command-options.ts";
import { refuseUnknownIds } from "../shell/refuse-unknown-ids.ts";

const GAP_REASON_TEXTS: Readonly<Record<HistoryGapReason, string>> = {
  ordered: "requested by `plenum backfill`, not fetched yet",
  backfill: "the configured backfill, not fetched yet",
  behind: "closed and overdue",
  between: "never requested",
  refused: "requested and refused",
  unreadable: "the response is unreadable",
  "out-of-scope": "the token does not see its site now",
  "not-listed": "not in the last listings of tags",
  unproven: "not known yet whether it has a log",
  "no-log": "the service says that it has no log of it",
  null: "the response has no value",
};

const NO_DATA_GAP_REASONS: ReadonlySet<HistoryGapReason> = new Set(["no-log", "null"]);

export function gapReasonText({ why, said, at, againAt }: HistoryGap): string {
  return [
    GAP_REASON_TEXTS[why],
    ...(said === null ? [] : [`${at === null ? "" : `at ${at}: `}${said}`]),
    ...(againAt === null ? [] : [`asked again after ${againAt}`]),
  ].join("; ");
}

export function defineCommand(command: Command, context: CliContext): void {
  command
    .argument("[tag...]", "only these tags; then one line for each tag, and what was answered without a value too")
    .option("--source <name>", "which source, when there are several")
    .addHelpText(
      "after",
      "\nTags with the same gap share a line; --json names every tag.\n\nExample:\n  plenum gaps 10001",
    )
    .action(async (tagIds: string[], options: { readonly source?: string }) => {
      const terminal = context.terminal();
      await readSourceFromState(context.config(), options.source, async ({ config, source, sourceConfig, store }) => {
        const nowMs = systemClock.now();
        const settings = buildPlanSettings(source, sourceConfig, config.state);
        const storedHistory = await historyProgressFromStore(store, settings, nowMs);
        const ids = splitCommaSeparatedIds(tagIds);
        const isListedPerTag = ids.length > 0;
        await refuseUnknownIds(store, [source], "tag", ids);
        const ledgers = storedHistory.ledgers.filter(({ siteTag }) => !isListedPerTag || ids.includes(siteTag.tag.id));
        const gaps = listHistoryGaps(ledgers, storedHistory.backfill, nowMs, { silences: isListedPerTag });
        if (terminal.json) return terminal.print(gaps, []);
        if (gaps.every(({ why }) => NO_DATA_GAP_REASONS.has(why))) terminal.info(noGapsText(ledgers.length));
        if (gaps.length === 0) return;
        terminal.printRows(groupEqualGaps(gaps, isListedPerTag), {
          tags: "tags",
          [isListedPerTag ? "tag" : "for one"]: "example",
          resolution: ({ gap }) => `${gap.resolution}${gap.total ? " total" : ""}`,
          from: ({ gap }) => gap.from,
          to: ({ gap }) => gap.to,
          why: ({ gap }) => gapReasonText(gap),
        });
      });
    });
}

function noGapsText(seriesCount: number): string {
  return seriesCount === 0
    ? "No history is followed here: no class of `history` selects it, or no tags are known yet."
    : `No gaps: all ${seriesCount} series are fetched up to now.`;
}

/** Groups tags with the same history gap, unless `isListedPerTag`. `example`: first tag of a group. */
export function groupEqualGaps(gaps: readonly HistoryGap[], isListedPerTag: boolean) {
  const gapGroupKey = (gap: HistoryGap) =>
    `${gapReasonText(gap)} ${gap.resolution} ${gap.total} ${gap.from} ${gap.to} ${isListedPerTag ? gap.tagId : ""}`;
  return [...Map.groupBy(gaps, gapGroupKey).values()].flatMap(([gap, ...otherGaps]) =>
    gap === undefined ? [] : [{ tags: otherGaps.length + 1, example: `${gap.tagId} ${gap.tagName}`, gap }],
  );
}
