import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isRecord, parseJson } from "#src/engine/source/reply.ts";
import { parseRecordList } from "#src/engine/source/service-records.ts";
import { LoggedSeries, parseHistoryJson } from "#src/engine/source/tag-values.ts";
import { replay, seed } from "../seed.ts";

/** `parseLogged` reads bytes and `parseJson` parses: both must return the same records, points and faults. */
const bytesOf = (text: string) => new TextEncoder().encode(text);

function meaning(parsed: ReturnType<typeof parseJson>): unknown {
  if (!parsed.ok || !isRecord(parsed.value)) return parsed;
  const records = parseRecordList(parsed.value.data) ?? [];
  const lists = records.map((record) => {
    if (!isRecord(record)) return null;
    const { measurements } = record;
    const series = Array.isArray(measurements) ? LoggedSeries.fromEntries(measurements) : measurements;
    if (!(series instanceof LoggedSeries)) return measurements;
    const points = [...series.points].map(({ time, value }) => [time, Object.is(value, -0) ? "-0" : value]);
    const { isBroken, firstFault: said, textValueCount: texts, unreadableTimesMs: unreadableMs } = series;
    return { points: isBroken ? "broken" : points, said, ...(isBroken ? {} : { texts, unreadableMs }) };
  });
  const without = (key: string, value: unknown) => (key === "measurements" ? undefined : value);
  return { lists, rest: JSON.stringify(parsed.value, without) };
}

async function expectSame(text: string | Uint8Array): Promise<void> {
  const bytes = typeof text === "string" ? bytesOf(text) : text;
  expect(meaning(await parseHistoryJson(bytes)), replay).toEqual(meaning(parseJson(bytes)));
}

const reply = (list: string, more = "") =>
  `{"data":[{"type":"logs","id":"1","attributes":{"display_name":"Värme"},"measurements":${list}${more}}]}`;
const entry = (stamp: string, value: string) => `{"timestamp":${stamp},"value":${value}}`;
const AT = `"2026-06-01T00:00:00Z"`;

const NUMBERS = [
  ...["0", "-0", "-0.0", "1", "21.5", "-3.25", "123456789012345", "1234567890123456789", "0.1", "0.30000000000000004"],
  ...["1e5", "1E-7", "1.5e+3", "1e999", "-1e999", "5e-324", "2.2250738585072011e-308", "9007199254740993", "4.35"],
  ...["01", "-", "1.", ".5", "+1", "1e", "1e+", "0x10", "NaN", "Infinity", "1_0", "1 2", "--1", "00", "1.5.5"],
  ...["1".repeat(400), "1".repeat(401), "1".repeat(402), "1".repeat(500), `0.${"3".repeat(399)}`],
];
const STAMPS = [
  ...[AT, `"2024-02-29T23:59:59Z"`, `"2026-02-29T00:00:00Z"`, `"2026-02-30T00:00:00Z"`, `"2026-13-01T00:00:00Z"`],
  ...[`"2026-06-31T00:00:00Z"`, `"2026-06-01T24:00:00Z"`, `"2026-06-01T23:59:60Z"`, `"0000-01-01T00:00:00Z"`],
  ...[`"9999-12-31T23:59:59Z"`, `"2026-06-01T00:00:00"`, `"2026-06-01T02:00:00+02:00"`, `"2026-06-01 00:00:00Z"`],
  ...[`"2026-06-01T00:00:00.123456Z"`, `"2026-06-01t00:00:00z"`, `"20a6-06-01T00:00:00Z"`],
  `"2026-06-0\\u0031T00:00:00Z"`,
  ...[`"2026-06-01X00:00:00Z"`, `""`, `"noon"`, "5", "null", `{"a":1}`, `"2026-W23-1"`, `"-026-06-01T00:00:00Z"`],
];
const VALUES = [
  ...["null", "true", "false", `"21.5"`, "[]", "{}", "nul", "tru", "falsee", "", "[1]", `{"a":[1,{"b":"]"}]}`],
  ...[`"-0"`, `"-3.25e2"`, `"1e999"`, `" 21.5"`, `"21,5"`, `"0x10"`, `"NaN"`, `""`, `"1."`, `"21.5`],
  ...[`"2\\u0031"`, `"\\u002d1"`, `"01"`, `"${"1".repeat(300)}"`, `"0.${"3".repeat(500)}"`, `"true"`],
];

test("parseLogged yields to the event loop while it parses 250,000 measurements with numbers as text", async () => {
  const entries = Array.from({ length: 250_000 }, (_, n) => {
    const stamp = `${new Date(Date.UTC(2024, 0, 1) + n * 300_000).toISOString().slice(0, 19)}Z`;
    return entry(`"${stamp}"`, `"${n / 4}"`);
  });
  const reading = parseHistoryJson(bytesOf(reply(`[${entries.join()}]`)));
  let ticks = 0;
  let isRead = false;
  const parsed = reading.finally(() => (isRead = true));
  while (!isRead) {
    await new Promise(setImmediate);
    ticks++;
  }
  expect(ticks).toBeGreaterThan(50);
  const [log] = ((await parsed) as unknown as { value: { data: [{ measurements: LoggedSeries }] } }).value.data;
  expect([log.measurements.points.length, log.measurements.textValueCount]).toEqual([250_000, 250_000]);
  expect(log.measurements.points.value(249_999)).toBe(249_999 / 4);
});

describe("parseLogged compared with parseJson", () => {
  test.each([...NUMBERS, ...VALUES])("both parsers of history agree on the value %s", async (value) => {
    await expectSame(reply(`[${entry(AT, value)},${entry(`"2026-06-01T00:05:00Z"`, "1")}]`));
  });

  test.each(STAMPS)("both parsers of history agree on the timestamp %s", async (stamp) => {
    await expectSame(reply(`[${entry(stamp, "1")},${entry(AT, "2")},${entry(stamp, `"x"`)}]`));
  });

  const one = entry(AT, "1");
  test.each([
    ...["[]", "[ ]", `[${one}`, `[${one},]`, `[,${one}]`, `[${one}${one}]`, `[${one}}`, "[1,2]", "[[]]", `["a"]`, "[}"],
    ...["{}", `{"0":${one}}`, "null", "5", `"[1]"`, "[null]", `[${one},5,${one}]`, `[${one},${one}],`],
    `[ ${one} , ${one} ]`,
    `[{ "timestamp" : ${AT} ,\n"value"\t:\r1 }]`,
    `[{"value":1,"timestamp":${AT}}]`,
    `[{"timestamp":${AT},"value":1,"quality":"good"}]`,
    `[{"timestamp":${AT},"value":1,"value":2}]`,
    `[{"timestamp":${AT}}]`,
    `[{"value":1}]`,
    `[{"timest\\u0061mp":${AT},"value":1}]`,
    `[{"__proto__":{"timestamp":${AT}},"value":1}]`,
    `[{"timestamp":${AT},"value":1\u0001}]`,
    `[{"timestamp":${AT},\u00a0"value":1}]`,
    `[${"[".repeat(40)}${"]".repeat(40)}]`,
    `[${"[".repeat(28)}${"]".repeat(28)}]`,
    `[${"[".repeat(27)}${"]".repeat(27)}]`,
  ])("both parsers of history agree on the measurements %s", async (list) => {
    await expectSame(reply(list));
  });

  test.each([
    reply(`[${one}]`, `,"measurements":[${one},${one}]`),
    reply(`[{"value":1}]`, `,"measurements":[${one}]`),
    reply(`[${one}]`, `,"measurements":5`),
    reply(`[${one}]`, `,"measure\\u006dents":[0]`),
    `{"data":{"0":{"id":"1","measurements":[${one}]},"3":{"id":"2","measurements":[]}}}`,
    `{"data":{"id":"1","measurements":[${one}]}}`,
    `{"data":[[{"measurements":[${one}]}]]}`,
    `{"d\\u0061ta":[{"measurements":[${one}]}]}`,
    `{"data":[{"measurements":[${one}]}],"data":[]}`,
    `{"meta":{"a":{"measurements":[${one}]}},"data":[{"id":"1","measurements":[${one}]}]}`,
    `{"data":[{"id":"1","attributes":{"measurements":[${one}]},"measurements":[${one}]}]}`,
    `{"data":[{"id":"1","measurements":[${one}]}],"errors":[{"status":404,"message":"No log."}]}`,
    `{"errors":[{"status":401}],"data":[{"id":"1","measurements":[${one}]}]}`,
    `[{"data":[{"measurements":[${one}]}]}]`,
    `\ufeff${reply(`[${one}]`)}`,
    `${reply(`[${one}]`)} x`,
    `${reply(`[${one}]`)}{}`,
    ...["", "{", `{"data":`, `"data`, `{"data":[{"measurements":`, `{"data":[{"measurements":[`, "null"],
  ])("both parsers of history agree on the reply %s", async (text) => {
    await expectSame(text);
  });

  test("both parsers of history agree after a change of any byte, also to invalid UTF-8, and after any truncation", async () => {
    const bytes = bytesOf(reply(`[${one},{"timestamp": ${AT}, "value": -2.50e1},${entry(AT, "null")}]`));
    for (let at = 0; at < bytes.length; at++) {
      await expectSame(bytes.slice(0, at));
      for (const byte of [...bytesOf(`"\\{}[],:0 -.eZn`), 0xff]) {
        const changed = bytes.slice();
        changed[at] = byte;
        await expectSame(changed);
      }
    }
  });

  test("both parsers of history agree on numbers of 14 to 18 digits", async () => {
    const long = fc
      .tuple(fc.bigInt({ min: 10n ** 13n, max: 10n ** 18n }), fc.integer({ min: 1, max: 12 }))
      .map(([digits, at]) => `${String(digits).slice(0, at)}.${String(digits).slice(at)}`);
    await fc.assert(
      fc.asyncProperty(fc.array(long, { minLength: 50, maxLength: 50 }), (numbers) =>
        expectSame(reply(`[${numbers.map((number) => entry(AT, number)).join(",")}]`)),
      ),
      { seed, numRuns: 50 },
    );
  });

  test("both parsers of history agree on random lists longer than one chunk", async () => {
    const usualNumber = fc.constantFrom(...NUMBERS.slice(0, 20));
    const number = fc.oneof(fc.double().map(String), fc.integer().map(String), usualNumber);
    const decimal = fc.tuple(fc.integer({ min: -9_999_999, max: 9_999_999 }), fc.integer({ min: 0, max: 6 }));
    const fixed = decimal.map(([n, d]) => (n / 10 ** d).toFixed(d));
    const value = fc.oneof(number, fixed, fc.constantFrom("null", "true", "false"));
    const stamp = fc.date({ min: new Date(0), max: new Date("2100-01-01"), noInvalidDate: true });
    const usual = fc.tuple(stamp, value).map(([at, v]) => entry(`"${at.toISOString().slice(0, 19)}Z"`, v));
    const odd = fc.tuple(fc.constantFrom(...STAMPS), fc.constantFrom(...VALUES)).map(([s, v]) => entry(s, v));
    const weighted = { weight: 20, arbitrary: usual };
    const any = fc.oneof(weighted, { weight: 1, arbitrary: fc.json() }, { weight: 1, arbitrary: odd });
    await fc.assert(
      fc.asyncProperty(fc.array(any, { maxLength: 40 }), fc.constantFrom(1, 400), async (list, times) => {
        await expectSame(reply(`[${Array(times).fill(list.join(",")).join(",")}]`));
      }),
      { seed, numRuns: 150 },
    );
  });
});
