import { z } from "zod";

const BYTES_PER_UNIT: Readonly<Record<string, number>> = {
  b: 1,
  kb: 1_000,
  mb: 1_000 ** 2,
  gb: 1_000 ** 3,
  tb: 1_000 ** 4,
  kib: 1_024,
  mib: 1_024 ** 2,
  gib: 1_024 ** 3,
  tib: 1_024 ** 4,
};

/** Parses a text such as `1GB`, `512 MiB` or `64 kB` to bytes; null for other text, also for the ambiguous `1G`. */
export function parseByteSize(text: string): number | null {
  const [, number, unit = ""] = /^(\d+(?:\.\d+)?) ?([a-z]+)$/i.exec(text.trim()) ?? [];
  const bytesPerUnit = BYTES_PER_UNIT[unit.toLowerCase()];
  return number === undefined || bytesPerUnit === undefined ? null : Math.round(Number(number) * bytesPerUnit);
}

/** Formats bytes in the largest exact unit of 1,024: 1073741824 → `1GiB`. */
function formatByteSize(bytes: number): string {
  for (const byteUnit of ["TiB", "GiB", "MiB", "KiB"]) {
    const bytesPerUnit = BYTES_PER_UNIT[byteUnit.toLowerCase()] ?? 1;
    if (bytes >= bytesPerUnit && bytes % bytesPerUnit === 0) return `${bytes / bytesPerUnit}${byteUnit}`;
  }
  return String(bytes);
}

function describeByteSizeProblem(text: string): string {
  const [, number, unit = ""] = /^([\d_., ]+?) ?([kmgt]?)$/i.exec(text.trim()) ?? [];
  const numberDigits = number?.replaceAll(/[_, ]/g, "");
  if (numberDigits === undefined || numberDigits === "") return "Write bytes as a number, or as 64KiB, 512MiB or 1GB.";
  if (unit === "") return `Write ${numberDigits}, as a number without quotes.`;
  const byteUnitLetter = unit.toUpperCase();
  return `Write ${numberDigits}${byteUnitLetter}B (thousands) or ${numberDigits}${byteUnitLetter}iB (1,024).`;
}

export function byteSizeSchema({ min, max }: { readonly min: number; readonly max?: number }) {
  const integer = z.int().min(min);
  const textSchema = z.string().transform((sizeText, context) => {
    const bytes = parseByteSize(sizeText);
    const addSizeIssue = (message: string) => {
      context.addIssue({ code: "custom", message });
      return z.NEVER;
    };
    if (bytes === null) return addSizeIssue(describeByteSizeProblem(sizeText));
    if (bytes < min) return addSizeIssue(`Write at least ${formatByteSize(min)}.`);
    if (max !== undefined && bytes > max) return addSizeIssue(`Write at most ${formatByteSize(max)}.`);
    return bytes;
  });
  return z.union([max === undefined ? integer : integer.max(max), textSchema]).meta({ examples: ["512MiB", "1GB"] });
}
