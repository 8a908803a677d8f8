import { z } from "zod";

const UNIT_BYTES: Readonly<Record<string, number>> = {
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

/** Bytes of a text such as `1GB`, `512 MiB` or `64 kB`; null for other text. `1G` is ambiguous and therefore null. */
export function parseByteSize(text: string): number | null {
  const [, number, unit = ""] = /^(\d+(?:\.\d+)?) ?([a-z]+)$/i.exec(text.trim()) ?? [];
  const unitBytes = UNIT_BYTES[unit.toLowerCase()];
  return number === undefined || unitBytes === undefined ? null : Math.round(Number(number) * unitBytes);
}

/** Formats bytes in the largest exact unit of 1,024: 1073741824 → `1GiB`. */
function formatByteSize(bytes: number): string {
  for (const unit of ["TiB", "GiB", "MiB", "KiB"]) {
    const unitBytes = UNIT_BYTES[unit.toLowerCase()] ?? 1;
    if (bytes >= unitBytes && bytes % unitBytes === 0) return `${bytes / unitBytes}${unit}`;
  }
  return String(bytes);
}

function describeByteSizeProblem(text: string): string {
  const [, number, unit = ""] = /^([\d_., ]+?) ?([kmgt]?)$/i.exec(text.trim()) ?? [];
  const numberDigits = number?.replaceAll(/[_, ]/g, "");
  if (numberDigits === undefined || numberDigits === "") return "Write bytes as a number, or as 64KiB, 512MiB or 1GB.";
  if (unit === "") return `Write ${numberDigits}, as a number without quotes.`;
  const unitLetter = unit.toUpperCase();
  return `Write ${numberDigits}${unitLetter}B (thousands) or ${numberDigits}${unitLetter}iB (1,024).`;
}

export function byteSize({ min, max }: { readonly min: number; readonly max?: number }) {
  const number = z.int().min(min);
  const textSchema = z.string().transform((given, context) => {
    const bytes = parseByteSize(given);
    const addIssue = (message: string) => {
      context.addIssue({ code: "custom", message });
      return z.NEVER;
    };
    if (bytes === null) return addIssue(describeByteSizeProblem(given));
    if (bytes < min) return addIssue(`Write at least ${formatByteSize(min)}.`);
    if (max !== undefined && bytes > max) return addIssue(`Write at most ${formatByteSize(max)}.`);
    return bytes;
  });
  return z.union([max === undefined ? number : number.max(max), textSchema]).meta({ examples: ["512MiB", "1GB"] });
}
