import { z } from "zod";
import { RESOLUTIONS } from "../../building.ts";
import { Duration } from "../../duration.ts";
import { Selection } from "../select.ts";

const name = z.string().min(1).meta({ description: "A name for logs, metrics and `plenum plan`." });
const select = Selection.prefault({}).meta({
  description: "Which tags; every tag when left out. The first entry of the list that selects a tag has it.",
});

/** One freshness class of the live reads: how old the value of these tags may become. */
export const ReadClass = z.strictObject({
  name,
  select,
  every: Duration.refine((ms) => ms >= 3_000, {
    message: "20 requests a minute are one every 3 s; a shorter interval cannot be kept.",
  }).meta({ description: "How old a value may become, at least 3s." }),
  firm: z.boolean().default(false).meta({
    description:
      "Keep this interval even when the wishes together exceed the quota; the other classes stretch. Firm classes together get at most 80 % of it.",
  }),
  importance: z.number().positive().max(100).default(1).meta({
    description: "When the wishes exceed the quota, a class of importance 2 stretches half as much.",
  }),
  on_change: z.boolean().default(false).meta({
    description:
      "Tell a value only when it or its quality differs from the one told last. The default tells every sample.",
  }),
  deadband: z
    .number()
    .nonnegative()
    .default(0)
    .meta({ description: "With on_change: how far a number may move without being told." }),
  max_silence: Duration.prefault("1h").meta({
    description:
      "With on_change: tell the value at least this often, so that silence is never read as steady.",
  }),
});
export type ReadClass = z.infer<typeof ReadClass>;

/** The live reads. A tag belongs to the first class that selects it; a tag that none selects is not read. */
export const ReadConfig = z.array(ReadClass).superRefine(uniqueNames).meta({
  description: "Live reads: classes of tags with the age that their values may reach, specific ones first.",
});
export type ReadConfig = z.infer<typeof ReadConfig>;

/** One set of tags whose logged history is pulled. */
export const HistoryClass = z.strictObject({
  name,
  select,
  resolution: z.enum(RESOLUTIONS).meta({ description: "Interval of the series." }),
  time_zone: z
    .string()
    .optional()
    .refine((zone) => zone === undefined || isTimeZone(zone), {
      message: "Write a zone of the IANA list, such as Europe/Stockholm.",
    })
    .meta({
      description:
        "IANA zone in which the service aligns hours, days, weeks and months; the source's when left out.",
    }),
  every: Duration.prefault("1h").meta({
    description:
      "How often closed buckets are fetched. A longer interval costs fewer requests, not fewer points.",
  }),
  backfill: Duration.prefault("0s").meta({
    description:
      "How far back from the first sight of a tag its history is fetched, beside the live following.",
  }),
  total: z.boolean().default(false).meta({
    description:
      "For meters: fetch one total per bucket (last minus first) instead of the series. Not for the resolution 5m.",
  }),
  grace: Duration.prefault("2m").meta({
    description: "How long after its end a bucket is left alone before it counts as closed.",
  }),
  look_back: Duration.prefault("1d").meta({
    description:
      "How late data may arrive and still be found. The last two buckets are read again with every fetch, the last 24 h (or this, if shorter) once a day, this once a week.",
  }),
});
export type HistoryClass = z.infer<typeof HistoryClass>;

/** The history to follow. Per resolution, and for totals apart, a tag belongs to the first entry that selects it. */
export const HistoryConfig = z
  .array(
    HistoryClass.refine((entry) => !entry.total || entry.resolution !== "5m", {
      path: ["total"],
      message: "A total per 5 minutes would cost a request per 5 minutes; use 1h or longer.",
    }),
  )
  .superRefine(uniqueNames)
  .meta({ description: "Logged history to follow and to backfill." });
export type HistoryConfig = z.infer<typeof HistoryConfig>;

function uniqueNames(entries: readonly { readonly name: string }[], context: z.RefinementCtx): void {
  const seen = new Set<string>();
  for (const [index, entry] of entries.entries()) {
    if (seen.has(entry.name)) {
      context.addIssue({
        code: "custom",
        path: [index, "name"],
        message: `The name ${entry.name} is used twice.`,
      });
    }
    seen.add(entry.name);
  }
}

/** The runtime itself is asked; an offset such as +01:00 is no zone, because it knows no daylight saving. */
function isTimeZone(zone: string): boolean {
  if (/^[+-]/.test(zone)) return false;
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone });
    return true;
  } catch {
    return false;
  }
}
