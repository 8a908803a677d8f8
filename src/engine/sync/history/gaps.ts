import type { Resolution } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type BackfillRequests, pendingOf } from "./backfills.ts";
import { closedUntil, ms, unfetched, wishedPast } from "./ledger.ts";
import { fetchedIn, type LedgerRange, rangesIn } from "./ledger-ranges.ts";
import type { LedgerOf } from "./progress.ts";
import { merged, type Range, subtract } from "./ranges.ts";

/** A stretch of a series of which no values are told, and why. Times are UTC, the end not included. */
export interface HistoryGap {
  readonly tagId: string;
  readonly tagName: string;
  readonly resolution: Resolution;
  readonly total: boolean;
  /** Null where nothing has closed yet of a series that is not followed. */
  readonly from: string | null;
  readonly to: string | null;
  readonly why: HistoryGapReason;
  /** The service's words, when it said them, and when it is asked again; null where there are none. */
  readonly said: string | null;
  readonly at: string | null;
  readonly againAt: string | null;
}

/**
 * Not had: `ordered`, asked for by `plenum backfill`. `backfill`, the configured past, still to be fetched. `behind`,
 * closed lately and overdue. `between`, nobody asked for it, though there is something told before it. `refused`, asked
 * for and refused. `unreadable`, answered, and the answer could not be read. `out-of-scope`, the token does not see the site. `not-listed`, the
 * listings of tags do not show it lately. `unproven`, it is not known yet whether there is a
 * log. Had: `no-log`, the service says that it has none. `null`, it answered, and without a value.
 */
export type HistoryGapReason =
  | "ordered"
  | "backfill"
  | "behind"
  | "between"
  | "refused"
  | "unreadable"
  | "out-of-scope"
  | "not-listed"
  | "unproven"
  | "no-log"
  | "null";

type Words = Pick<LedgerRange, "said" | "at" | "againAt">;

/**
 * Every hole that the ledgers know of, by tag, oldest first; `silences`: also what was answered without a value. What is
 * told, the holes and the silences make up the whole time that is wished. Pure.
 */
export function gapsIn(
  ledgers: readonly LedgerOf[],
  orders: BackfillRequests,
  nowMs: number,
  { silences = false }: { readonly silences?: boolean } = {},
): readonly HistoryGap[] {
  return ledgers.flatMap((ledger) => {
    const { placed, rules, total, held } = ledger;
    const found: HistoryGap[] = [];
    const add = (why: HistoryGapReason, range: Range | null, { said, at, againAt }: Words = {}) =>
      found.push({
        tagId: placed.tag.id,
        tagName: placed.tag.displayName,
        resolution: rules.resolution,
        total,
        from: range === null ? null : isoUtc(range.fromMs),
        to: range === null ? null : isoUtc(range.toMs),
        why,
        said: said ?? null,
        at: at ?? null,
        againAt: againAt ?? null,
      });

    const ordered = orderedOf(ledger, orders, nowMs);
    const front = frontOf(ledger, nowMs);
    let left = missing(ledger, [...ordered, front]);
    /** Gives a reason to what of some ranges has none yet. */
    const give = (why: HistoryGapReason, ranges: readonly Range[], words?: Words) => {
      for (const range of ranges) {
        for (const part of left.flatMap((hole) => overlap(hole, range))) add(why, part, words);
        left = left.flatMap((hole) => subtract(hole, [range]));
      }
    };
    for (const span of rangesIn(held.spans))
      if (span.why === "refused") give(span.reason ?? "refused", [span], span);
    if (placed.outOfSight !== undefined)
      give(placed.outOfSight === "site" ? "out-of-scope" : "not-listed", left);
    const words = held.refusal ?? {};
    if (held.state !== "following") {
      const why = held.state === "unproven" && held.refusal !== null ? "refused" : held.state;
      if (left.length === 0 && found.length === 0) add(why, null, words);
      give(why, left, words);
    }
    give(held.refusal === null ? "behind" : (held.refusal.reason ?? "refused"), [front], words);
    give("ordered", ordered);
    give("backfill", total ? [] : [wishedPast(held)]);
    give("between", left);
    for (const span of rangesIn(held.spans)) {
      if (span.why === "no-log" || (silences && span.why === "null")) add(span.why, span, span);
    }
    return found.toSorted((a, b) => ((a.from ?? "") < (b.from ?? "") ? -1 : 1));
  });
}

/** What has closed and should be had by now: overdue by more than one fetch, or not followed at all. */
function frontOf({ held, rules, total }: LedgerOf, nowMs: number): Range {
  const range = { fromMs: ms(held.watermark), toMs: closedUntil(rules, nowMs) };
  const everyMs = total ? 0 : rules.everyMs;
  // Only an order asks for it: it wants nothing that closes from now on.
  if (!Number.isFinite(everyMs)) return { ...range, toMs: range.fromMs };
  const isOverdue = range.toMs - range.fromMs > 2 * Math.max(everyMs, 60_000);
  return isOverdue || held.state !== "following" ? range : { ...range, toMs: range.fromMs };
}

function orderedOf({ held, rules, total, placed }: LedgerOf, orders: BackfillRequests, nowMs: number) {
  if (total) return [];
  return merged(
    orders.open
      .filter((order) => order.resolution === rules.resolution && order.matches(placed))
      .flatMap((order) => pendingOf(order, held, rules, nowMs)),
  );
}

/** Everything between the first and the last time that is told or wanted, as far as it is not had. */
function missing({ held, total }: LedgerOf, wanted: readonly Range[]): readonly Range[] {
  const past = total ? [] : [wishedPast(held)];
  const all = merged([...fetchedIn(held.spans), ...wanted, ...past]);
  const [first] = all;
  const last = all.at(-1);
  return first === undefined || last === undefined
    ? []
    : unfetched(held, { fromMs: first.fromMs, toMs: last.toMs });
}

function overlap(a: Range, b: Range): readonly Range[] {
  const both = { fromMs: Math.max(a.fromMs, b.fromMs), toMs: Math.min(a.toMs, b.toMs) };
  return both.fromMs < both.toMs ? [both] : [];
}
