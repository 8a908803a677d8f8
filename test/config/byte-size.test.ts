import { describe, expect, test } from "vitest";
import { byteSizeSchema } from "#src/core/values/byte-size.ts";

describe("a byte size in the configuration", () => {
  const ByteSize = byteSizeSchema({ min: 1_024, max: 4 * 1_024 ** 4 });

  test.each<[text: string | number, bytes: number]>([
    [65_536, 65_536],
    ["65536B", 65_536],
    ["64KiB", 65_536],
    ["64 kB", 64_000],
    ["1gb", 1_000_000_000],
    ["1.5GiB", 1_610_612_736],
    ["2TB", 2_000_000_000_000],
  ])("%j is %d bytes", (text, bytes) => {
    expect(ByteSize.parse(text)).toBe(bytes);
  });

  test.each([
    ["1G", "Write 1GB (thousands) or 1GiB (1,024)."],
    ["512 m", "Write 512MB (thousands) or 512MiB (1,024)."],
    ["1073741824", "Write 1073741824, as a number without quotes."],

    ["GB", "Write bytes as a number, or as 64KiB, 512MiB or 1GB."],
    ["1kB", "Write at least 1KiB."],
    ["5TiB", "Write at most 4TiB."],
  ])("rejects %j and states the correct form", (text, said) => {
    const sizeIssues = JSON.stringify(ByteSize.safeParse(text).error?.issues);
    expect(sizeIssues).toContain(said);
  });
});
