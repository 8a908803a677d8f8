import type { Resolution } from "../../building.ts";
import { isoUtc } from "../../clock.ts";
import { closedUntil, ms, toldRanges, unfetched } from "./ledger.ts";
import { type BackfillOrders, pendingOf } from "./orders.ts";
import type { LedgerOf } from "./progress.ts";
import { merged, type Range, subtract } from "./ranges.ts";

/** A stretch of a series that is not told. Times are UTC, the end not included. */
export interface Hole {
  readonly tagId: string;
  readonly tagName: string;
  readonly resolution: Resolution;
  readonly total: boolean;
  /** Null where the stretch is not known, because the tag has no log or nobody knows whether it has one. */
  readonly from: string | null;
  readonly to: string | null;
  readonly why: HoleReason;
}

/**
 * `ordered`: asked for by `plenum backfill`. `backfill`: the configured past, still to be fetched. `behind`: closed
 * lately and overdue. `between`: nobody asked for it, though there is something told before it. `no-log`: the service
 * says that the tag has none. `unproven`: it is not known yet whether it has one.
 */
export type HoleReason = "ordered" | "backfill" | "behind" | "between" | "no-log" | "unproven";

/** Every hole that the ledgers know of, by tag, oldest first. Pure. */
export function holesIn(
  ledgers: readonly LedgerOf[],
  orders: BackfillOrders,
  nowMs: number,
): readonly Hole[] {
  return ledgers.flatMap((ledger) => {
    const { placed, rules, total, held } = ledger;
    const hole = (why: HoleReason, range: Range | null): Hole => ({
      tagId: placed.tag.id,
      tagName: placed.tag.displayName,
      resolution: rules.resolution,
      total,
      from: range === null ? null : isoUtc(range.fromMs),
      to: range === null ? null : isoUtc(range.toMs),
      why,
    });
    if (held.state !== "following") return [hole(held.state, null)];
    const ordered = total
      ? []
      : merged(
          orders.open
            .filter((order) => order.resolution === rules.resolution && order.matches(placed))
            .flatMap((order) => pendingOf(order, held, rules, nowMs)),
        );
    const past = { fromMs: ms(held.target), toMs: ms(held.reached) };
    const backfill =
      total || past.fromMs >= past.toMs
        ? []
        : unfetched(held, past).flatMap((range) => subtract(range, ordered));
    const between = total ? [] : betweenTold(held).flatMap((range) => subtract(range, [...ordered, past]));
    return [
      ...between.map((range) => hole("between", range)),
      ...backfill.map((range) => hole("backfill", range)),
      ...ordered.map((range) => hole("ordered", range)),
      ...behind(ledger, nowMs).map((range) => hole("behind", range)),
    ].toSorted((a, b) => ((a.from ?? "") < (b.from ?? "") ? -1 : 1));
  });
}

/** Overdue by more than one fetch. */
function behind({ held, rules, total }: LedgerOf, nowMs: number): readonly Range[] {
  const range = { fromMs: ms(held.watermark), toMs: closedUntil(rules, nowMs) };
  const everyMs = total ? 0 : rules.everyMs;
  return range.toMs - range.fromMs > 2 * Math.max(everyMs, 60_000) ? [range] : [];
}

function betweenTold(held: LedgerOf["held"]): readonly Range[] {
  const told = toldRanges(held);
  const [first] = told;
  const last = told.at(-1);
  return first === undefined || last === undefined
    ? []
    : subtract({ fromMs: first.fromMs, toMs: last.toMs }, told);
}
