import { type Command, InvalidArgumentError } from "commander";
import { buildPlanSettings } from "../../app/build-sync.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { WaitingSeries } from "../../core/model/history-event-data.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { dateToDay, dayDate, getDayCount, isCountedDay, utcDay } from "../../engine/sync/completeness/complete-days.ts";
import { createDayCounter, type DayBuckets } from "../../engine/sync/completeness/daily-bucket-counts.ts";
import { historySeriesKey, type SeriesLedger } from "../../engine/sync/history/series-registry.ts";
import { historyProgressFromStore } from "../../engine/sync/quota-plan-inputs.ts";
import { type FinalizedDay, syncSet } from "../../engine/sync/stored-documents.ts";
import { type CliContext, parseInteger, readSourceFromState, type SourceWithStore } from "../shell/command-context.ts";
import { EXIT_CODE } from "../shell/exit-codes.ts";

interface CompleteCommandOptions {
  readonly source?: string;
  readonly site?: number;
  readonly date?: number;
  readonly from?: number;
  readonly to?: number;
}

type SiteDayRow = Awaited<ReturnType<typeof listDayRows>>[number];

const DEFAULT_CHECKED_DAYS = 7;
const MAX_DAY_COUNT = 400;
const MAX_PRINTED_SERIES = 20;

const PENDING_REASON_TEXTS: Readonly<Record<WaitingSeries["why"], string>> = {
  behind: "closed and not fetched yet",
  backfill: "the configured backfill, not fetched yet",
  unproven: "not known yet whether it has a log",
  refused: "requested and refused",
  "out-of-scope": "the token does not see its site now",
  open: "not closed yet",
};

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--date <date>", "one UTC day, such as 2026-11-02", parseUtcDay)
    .option("--from <date>", "the first of several UTC days; the last seven that are over by default", parseUtcDay)
    .option("--to <date>", "the last of them; yesterday by default", parseUtcDay)
    .option("--site <id>", "only this site", parseInteger)
    .option("--source <name>", "which source, when there are several")
    .addHelpText(
      "after",
      `\nExit code 0: nothing of these days is pending or refused; ${EXIT_CODE.incomplete}: something is, or nothing of them is wanted.` +
        "\n\nExample:\n  plenum complete --date 2026-11-02 --site 1 --json",
    )
    .action(async (options: CompleteCommandOptions) => {
      const terminal = context.terminal();
      const nowMs = systemClock.now();
      const days = chooseUtcDays(options, nowMs);
      await readSourceFromState(context.config(), options.source, async (state) => {
        const { config, source, sourceConfig, store } = state;
        const settings = buildPlanSettings(source, sourceConfig, config.state);
        const { ledgers } = await historyProgressFromStore(store, settings, nowMs);
        const ledgersBySite = Map.groupBy(ledgers, ({ siteTag }) => siteTag.siteId);
        const { site } = options;
        if (site !== undefined && !ledgersBySite.has(site))
          throw new ConfigError(`No history of a site ${site} is followed in ${source}.`, {
            hint: "`plenum sites` lists the sites, and the classes of `history` say what is followed.",
          });
        const sites = site === undefined ? [...ledgersBySite.keys()].sort((a, b) => a - b) : [site];
        const rows: SiteDayRow[] = [];
        for (const id of sites) rows.push(...(await listDayRows(state, id, ledgersBySite.get(id) ?? [], days, nowMs)));
        if (rows.length === 0) terminal.info("No history is followed here: no class of `history` selects it.");
        terminal.printRows(rows, {
          site: "site",
          "day (UTC)": "date",
          state: siteDayStateText,
          expected: "expected",
          had: "had",
          null: "null",
          absent: "absent",
          "no log": "withoutLog",
          refused: "refused",
          pending: "pending",
          worst: worstSeriesText,
        });
        if (rows.length === 0 || !rows.every(({ complete }) => complete)) process.exitCode = EXIT_CODE.incomplete;
      });
    });
}

async function listDayRows(
  { store, source }: SourceWithStore,
  site: number,
  series: readonly SeriesLedger[],
  days: readonly number[],
  nowMs: number,
) {
  const finalizedDays = await store.documents<FinalizedDay>(syncSet("day-sealed", source));
  const dayRows = [];
  for (const day of days) {
    const dayCounter = createDayCounter(day);
    const incompleteSeries: IncompleteSeries[] = [];
    let notCounted = 0;
    for (const seriesLedger of series) {
      const { ledger, rules, siteTag, total } = seriesLedger;
      if (!isCountedDay(ledger, day, nowMs)) {
        notCounted++;
        continue;
      }
      const seriesKey = historySeriesKey(siteTag.tag.id, { resolution: rules.resolution, total });
      const seriesDay = dayCounter.add(seriesLedger, await getDayCount(store, source, seriesKey, ledger, day), nowMs);
      if (seriesDay.pending + seriesDay.refused > 0) incompleteSeries.push(toSeriesRow(seriesLedger, seriesDay));
    }
    const { account, series: countedSeries, byResolution } = dayCounter.buildCounts();
    const finalizedDay = finalizedDays.get(`${site} ${dayDate(day)}`);
    dayRows.push({
      site,
      date: dayDate(day),
      complete: account.pending + account.refused + notCounted === 0 && account.expected > 0,
      sealed: finalizedDay === undefined ? null : { revision: finalizedDay.revision, at: finalizedDay.sealedAt },
      series: countedSeries,
      /** Number of series without counts, because an earlier version of Plenum fetched the series or the day is old. */
      notCounted,
      ...account,
      byResolution,
      worst: incompleteSeries
        .toSorted((a, b) => b.pending + b.refused - a.pending - a.refused)
        .slice(0, MAX_PRINTED_SERIES),
    });
  }
  return dayRows;
}

type IncompleteSeries = ReturnType<typeof toSeriesRow>;

function toSeriesRow({ siteTag: { tag }, rules, total }: SeriesLedger, { pending, refused, why, refusal }: DayBuckets) {
  return {
    ...{ tagId: tag.id, displayName: tag.displayName, resolution: rules.resolution, total },
    ...{ pending, refused, why: why ?? ("refused" as const) },
    ...{ said: refusal?.said ?? null, at: refusal?.at ?? null },
  };
}

function siteDayStateText({ complete, sealed, expected, notCounted }: SiteDayRow): string {
  if (sealed !== null) return sealed.revision === 1 ? "sealed" : `sealed, revision ${sealed.revision}`;
  if (complete) return "complete, may still change";
  if (notCounted > 0) return `not counted: ${notCounted} series`;
  return expected === 0 ? "nothing wanted" : "incomplete";
}

function worstSeriesText({ worst }: SiteDayRow): string | null {
  const [worstSeries] = worst;
  if (worstSeries === undefined) return null;
  const { tagId, displayName, resolution, total, pending, refused, why, said } = worstSeries;
  const refusalText = said === null ? "" : `: ${said}`;
  return `${tagId} ${displayName}, ${resolution}${total ? " total" : ""}: ${pending + refused} ${PENDING_REASON_TEXTS[why]}${refusalText}`;
}

function chooseUtcDays({ date: onlyDay, from, to }: CompleteCommandOptions, nowMs: number): readonly number[] {
  if (onlyDay !== undefined && (from ?? to) !== undefined)
    throw new InvalidArgumentError("Say either --date, or --from and --to.");
  const lastDay = onlyDay ?? to ?? utcDay(nowMs) - 1;
  const firstDay = onlyDay ?? from ?? lastDay - DEFAULT_CHECKED_DAYS + 1;
  if (lastDay < firstDay) throw new InvalidArgumentError("The first day is after the last one.");
  if (lastDay - firstDay >= MAX_DAY_COUNT) throw new InvalidArgumentError(`At most ${MAX_DAY_COUNT} days at once.`);
  return Array.from({ length: lastDay - firstDay + 1 }, (_, i) => firstDay + i);
}

function parseUtcDay(text: string): number {
  const day = /^\d{4}-\d\d-\d\d$/.test(text) ? dateToDay(text) : Number.NaN;
  if (Number.isNaN(day) || dayDate(day) !== text) throw new InvalidArgumentError("Write a UTC day as 2026-11-02.");
  return day;
}
