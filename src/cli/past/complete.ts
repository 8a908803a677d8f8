import { type Command, InvalidArgumentError } from "commander";
import { planSettings } from "../../app/build-sync.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Resolution } from "../../core/model/building.ts";
import type { DayAccount, SeriesAccount, WaitingSeries } from "../../core/model/history-facts.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import type { Store } from "../../engine/store/store.ts";
import { createSiteDay, type SeriesDay } from "../../engine/sync/completeness/account.ts";
import { countFor, dateOf, dayOf, dayOfDate, isCountedOn } from "../../engine/sync/completeness/days.ts";
import { pastFromState } from "../../engine/sync/facts-for-plan.ts";
import type { LedgerOf } from "../../engine/sync/history/progress.ts";
import { historyKey } from "../../engine/sync/history/series.ts";
import { type FinalizedDay, syncSet } from "../../engine/sync/snapshot.ts";
import { type CliContext, chooseSource, parseInteger } from "../shell/context.ts";
import { EXIT } from "../shell/exit.ts";
import { readState } from "../shell/state-access.ts";

interface CompleteOptions {
  readonly source?: string;
  readonly site?: number;
  readonly date?: number;
  readonly from?: number;
  readonly to?: number;
}

/** One UTC day of a site. */
interface Row extends DayAccount {
  readonly site: number;
  readonly date: string;
  /** True if nothing is pending or refused. */
  readonly complete: boolean;
  /** Finalization of the day; null before it. */
  readonly sealed: { readonly revision: number; readonly at: string } | null;
  readonly series: number;
  /** Series without a count for this day: an earlier version fetched them, or the day is too old. */
  readonly notCounted: number;
  readonly byResolution: readonly SeriesAccount[];
  /** Series with pending or refused readings, the most incomplete first. */
  readonly worst: readonly WorstSeries[];
}

interface WorstSeries {
  readonly tagId: string;
  readonly displayName: string;
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly pending: number;
  readonly refused: number;
  readonly why: WaitingSeries["why"];
  readonly said: string | null;
  readonly at: string | null;
}

/** Days shown by default, and the maximum. */
const DAYS = 7;
const DAYS_MAX = 400;
const WORST_MAX = 20;

const WHY: Readonly<Record<WaitingSeries["why"], string>> = {
  behind: "closed and not fetched yet",
  backfill: "the configured backfill, not fetched yet",
  unproven: "not known yet whether it has a log",
  refused: "requested and refused",
  "out-of-scope": "the token does not see its site now",
  open: "not closed yet",
};

/** Shows for each UTC day which readings have arrived, by the ledgers in the state. Needs no running worker. */
export function define(command: Command, context: CliContext): void {
  command
    .option("--date <date>", "one UTC day, such as 2026-11-02", date)
    .option("--from <date>", "the first of several UTC days; the last seven that are over by default", date)
    .option("--to <date>", "the last of them; yesterday by default", date)
    .option("--site <id>", "only this site", parseInteger)
    .option("--source <name>", "which source, when there are several")
    .addHelpText(
      "after",
      `\nExit code 0: nothing of these days is pending or refused; ${EXIT.incomplete}: something is, or nothing of them is wanted.` +
        "\n\nExample:\n  plenum complete --date 2026-11-02 --site 1 --json",
    )
    .action(async (options: CompleteOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      const [name, entry] = chooseSource(config, options.source);
      const nowMs = systemClock.now();
      const days = daysOf(options, nowMs);
      await readState({ config, source: name }, async (store) => {
        const { ledgers } = await pastFromState(store, planSettings(name, entry, config.state), nowMs);
        const bySite = Map.groupBy(ledgers, ({ located: placed }) => placed.siteId);
        const { site } = options;
        if (site !== undefined && !bySite.has(site))
          throw new ConfigError(`No history of a site ${site} is followed in ${name}.`, {
            hint: "`plenum sites` lists the sites, and the classes of `history` say what is followed.",
          });
        const asked = site === undefined ? [...bySite.keys()].sort((a, b) => a - b) : [site];
        const rows: Row[] = [];
        for (const siteId of asked)
          rows.push(...(await rowsOf(store, name, siteId, bySite.get(siteId) ?? [], days, nowMs)));
        if (rows.length === 0) terminal.say("No history is followed here: no class of `history` selects it.");
        terminal.rows(rows, {
          site: "site",
          "day (UTC)": "date",
          state: stateOf,
          expected: "expected",
          had: "had",
          null: "null",
          absent: "absent",
          "no log": "withoutLog",
          refused: "refused",
          pending: "pending",
          worst: worstOf,
        });
        if (rows.length === 0 || !rows.every(({ complete }) => complete)) process.exitCode = EXIT.incomplete;
      });
    });
}

async function rowsOf(
  store: Store,
  source: string,
  site: number,
  series: readonly LedgerOf[],
  days: readonly number[],
  nowMs: number,
): Promise<readonly Row[]> {
  const sealed = await store.documents<FinalizedDay>(syncSet("day-sealed", source));
  const books = days.map((day) => ({
    day,
    book: createSiteDay(day),
    worst: [] as WorstSeries[],
    notCounted: 0,
  }));
  for (const each of series) {
    const { ledger: held, rules, located: placed, total } = each;
    const key = historyKey(placed.tag.id, { resolution: rules.resolution, total });
    for (const of of books) {
      if (!isCountedOn(held, of.day, nowMs)) of.notCounted++;
      else {
        const own = of.book.add(each, await countFor(store, source, key, held, of.day), nowMs);
        if (own.pending + own.refused > 0) of.worst.push(worstSeries(each, own));
      }
    }
  }
  return books.map(({ day, book, worst, notCounted }) => {
    const { account, series: counted, byResolution } = book.done();
    const seal = sealed.get(`${site} ${dateOf(day)}`);
    const isComplete = account.pending + account.refused + notCounted === 0;
    return {
      site,
      date: dateOf(day),
      complete: isComplete && account.expected > 0,
      sealed: seal === undefined ? null : { revision: seal.revision, at: seal.sealedAt },
      series: counted,
      notCounted,
      ...account,
      byResolution,
      worst: worst.toSorted((a, b) => b.pending + b.refused - a.pending - a.refused).slice(0, WORST_MAX),
    };
  });
}

function worstSeries({ located: placed, rules, total }: LedgerOf, own: SeriesDay): WorstSeries {
  const { tag } = placed;
  return {
    ...{ tagId: tag.id, displayName: tag.displayName, resolution: rules.resolution, total },
    ...{ pending: own.pending, refused: own.refused, why: own.why ?? "refused" },
    ...{ said: own.refusal?.said ?? null, at: own.refusal?.at ?? null },
  };
}

function stateOf({ complete, sealed, expected, notCounted }: Row): string {
  if (sealed !== null) return sealed.revision === 1 ? "sealed" : `sealed, revision ${sealed.revision}`;
  if (complete) return "complete, may still change";
  if (notCounted > 0) return `not counted: ${notCounted} series`;
  return expected === 0 ? "nothing wanted" : "incomplete";
}

function worstOf({ worst }: Row): string | null {
  const [first] = worst;
  if (first === undefined) return null;
  const { tagId, displayName, resolution, total, pending, refused, why, said } = first;
  const words = said === null ? "" : `: ${said}`;
  return `${tagId} ${displayName}, ${resolution}${total ? " total" : ""}: ${pending + refused} ${WHY[why]}${words}`;
}

function daysOf({ date: only, from, to }: CompleteOptions, nowMs: number): readonly number[] {
  if (only !== undefined && (from ?? to) !== undefined)
    throw new InvalidArgumentError("Say either --date, or --from and --to.");
  const last = only ?? to ?? dayOf(nowMs) - 1;
  const first = only ?? from ?? last - DAYS + 1;
  if (last < first) throw new InvalidArgumentError("The first day is after the last one.");
  if (last - first >= DAYS_MAX) throw new InvalidArgumentError(`At most ${DAYS_MAX} days at once.`);
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

/** Parses a UTC day into its number; rejects 2026-02-30. */
function date(text: string): number {
  const day = /^\d{4}-\d\d-\d\d$/.test(text) ? dayOfDate(text) : Number.NaN;
  if (Number.isNaN(day) || dateOf(day) !== text) throw new InvalidArgumentError("Write a UTC day as 2026-11-02.");
  return day;
}
