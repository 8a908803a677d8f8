import { ByteReader, ByteWriter } from "./bytes.ts";
import { digitsOf, readNumber, writeNumber } from "./digits.ts";

/** One number per minute for a day, by name; null when unknown. */
export interface Minutes {
  /** Sets the value of a minute, in minutes since 1970. */
  set(name: string, minute: number, value: number | null): void;
  names(): readonly string[];
  /** The day that ends with a minute, oldest first. */
  of(name: string, last: number): readonly (number | null)[];
  pack(last: number): PackedMinutes;
  load(packed: PackedMinutes): void;
}

export interface PackedMinutes {
  readonly last: number;
  /** By name. */
  readonly columns: Readonly<Record<string, string>>;
}

export const DAY_MINUTES = 1_440;

export function createMinutes(): Minutes {
  const columns = new Map<string, Map<number, number | null>>();

  function columnOf(name: string): Map<number, number | null> {
    const column = columns.get(name) ?? new Map<number, number | null>();
    columns.set(name, column);
    return column;
  }

  function of(name: string, last: number): readonly (number | null)[] {
    const column = columns.get(name);
    return Array.from({ length: DAY_MINUTES }, (_, n) => column?.get(last - DAY_MINUTES + 1 + n) ?? null);
  }

  return {
    of,
    names: () => [...columns.keys()],
    set(name, minute, value) {
      const column = columnOf(name);
      column.set(minute, value);
      // Whatever the clock did meanwhile, no column becomes longer than a day.
      if (column.size > DAY_MINUTES)
        for (const old of column.keys()) {
          column.delete(old);
          break;
        }
    },
    pack: (last) => ({
      last,
      columns: Object.fromEntries([...columns.keys()].map((name) => [name, packed(of(name, last))])),
    }),
    load({ columns: held, last }) {
      for (const [name, text] of Object.entries(held))
        for (const [n, value] of unpacked(text).entries())
          if (value !== null) columnOf(name).set(last - DAY_MINUTES + 1 + n, value);
    },
  };
}

function packed(values: readonly (number | null)[]): string {
  const writer = new ByteWriter();
  const digits = digitsOf(values);
  writer.whole(digits);
  let whole = 0;
  for (const value of values) whole = writeNumber(writer, digits, value, whole);
  return writer.text();
}

/** Nothing where the text is damaged. */
function unpacked(text: string): readonly (number | null)[] {
  const values: (number | null)[] = [];
  try {
    const reader = new ByteReader(text);
    const digits = reader.whole();
    for (let whole = 0; !reader.isDone; ) {
      const next = readNumber(reader, digits, whole);
      whole = next.whole;
      values.push(next.value);
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return [];
  }
  return values.length === DAY_MINUTES ? values : [];
}
