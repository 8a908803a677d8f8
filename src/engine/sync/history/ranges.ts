/** Milliseconds since 1970, the end not included. */
export interface Range {
  readonly fromMs: number;
  readonly toMs: number;
}

/** What of a range is left when others are taken out; ascending. Pure. */
export function subtract(range: Range, taken: readonly Range[]): readonly Range[] {
  const left: Range[] = [];
  let fromMs = range.fromMs;
  for (const each of merged(taken)) {
    if (each.toMs <= fromMs) continue;
    if (each.fromMs >= range.toMs) break;
    if (each.fromMs > fromMs) left.push({ fromMs, toMs: each.fromMs });
    fromMs = each.toMs;
  }
  return fromMs < range.toMs ? [...left, { fromMs, toMs: range.toMs }] : left;
}

/** The same times in as few ranges as possible, ascending. */
export function merged(ranges: readonly Range[]): readonly Range[] {
  const result: Range[] = [];
  for (const range of ranges.filter((each) => each.fromMs < each.toMs).sort((a, b) => a.fromMs - b.fromMs)) {
    const last = result.at(-1);
    if (last === undefined || range.fromMs > last.toMs) result.push(range);
    else result[result.length - 1] = { fromMs: last.fromMs, toMs: Math.max(last.toMs, range.toMs) };
  }
  return result;
}

export function lengthOfAll(ranges: readonly Range[]): number {
  return ranges.reduce((sum, { fromMs, toMs }) => sum + toMs - fromMs, 0);
}
