import type { Command } from "commander";
import { planSettings } from "../../app/build-sync.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { pastFromState } from "../../engine/sync/facts-for-plan.ts";
import { gapsIn, type HistoryGap, type HistoryGapReason } from "../../engine/sync/history/progress.ts";
import { type CliContext, chooseSource } from "../shell/context.ts";
import { refuseUnknown } from "../shell/known-ids.ts";
import { readState } from "../shell/state-access.ts";

const WHY: Readonly<Record<HistoryGapReason, string>> = {
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

/** Reasons that need no further request: the service responded. */
const ANSWERED: ReadonlySet<HistoryGapReason> = new Set(["no-log", "null"]);

export interface Group {
  readonly tags: number;
  /** Id and name of the first tag. */
  readonly example: string;
  readonly hole: HistoryGap;
}

/** The reason, with the message of the service. */
export function reasonOf({ why, said, at, againAt }: HistoryGap): string {
  return [
    WHY[why],
    ...(said === null ? [] : [`${at === null ? "" : `at ${at}: `}${said}`]),
    ...(againAt === null ? [] : [`asked again after ${againAt}`]),
  ].join("; ");
}

/** Lists the gaps in the fetched history by the ledgers in the state. Needs no running worker. */
export function define(command: Command, context: CliContext): void {
  command
    .argument("[tag...]", "only these tags; then one line for each tag, and what was answered without a value too")
    .option("--source <name>", "which source, when there are several")
    .addHelpText(
      "after",
      "\nTags with the same hole share a line; --json names every tag.\n\nExample:\n  plenum gaps 10001",
    )
    .action(async (tagIds: string[], options: { readonly source?: string }) => {
      const terminal = context.terminal();
      const config = context.config();
      const [name, entry] = chooseSource(config, options.source);
      await readState({ config, source: name }, async (store) => {
        const nowMs = systemClock.now();
        const past = await pastFromState(store, planSettings(name, entry, config.state), nowMs);
        const wanted = new Set(tagIds.flatMap((text) => text.split(",")));
        await refuseUnknown(store, [name], "tag", wanted);
        const ledgers = past.ledgers.filter(({ located: placed }) => wanted.size === 0 || wanted.has(placed.tag.id));
        const holes = gapsIn(ledgers, past.orders, nowMs, { silences: wanted.size > 0 });
        if (terminal.json) {
          terminal.object(holes, []);
          return;
        }
        if (holes.every(({ why }) => ANSWERED.has(why))) terminal.say(noHoles(ledgers.length));
        if (holes.length === 0) return;
        terminal.rows(grouped(holes, wanted.size > 0), {
          tags: "tags",
          [wanted.size > 0 ? "tag" : "for one"]: "example",
          resolution: ({ hole }) => `${hole.resolution}${hole.total ? " total" : ""}`,
          from: ({ hole }) => hole.from,
          to: ({ hole }) => hole.to,
          why: ({ hole }) => reasonOf(hole),
        });
      });
    });
}

function noHoles(series: number): string {
  return series === 0
    ? "No history is followed here: no class of `history` selects it, or no tags are known yet."
    : `No holes: all ${series} series are had up to now.`;
}

/** Groups tags with the same gap; `single` keeps one group for each tag. */
export function grouped(holes: readonly HistoryGap[], single: boolean): readonly Group[] {
  const groups = Map.groupBy(
    holes,
    (hole) => `${reasonOf(hole)} ${hole.resolution} ${hole.total} ${hole.from} ${hole.to} ${single ? hole.tagId : ""}`,
  );
  return [...groups.values()].flatMap((members) => {
    const [hole] = members;
    if (hole === undefined) return [];
    return [{ tags: members.length, example: `${hole.tagId} ${hole.tagName}`, hole }];
  });
}
