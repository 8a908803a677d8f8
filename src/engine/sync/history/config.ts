import { z } from "zod";
import { RESOLUTIONS } from "../../../core/model/building.ts";
import { Duration } from "../../../core/values/duration.ts";
import { TimeZone } from "../../source/config.ts";
import { rejectDuplicateNames, TagSelection } from "../tag-selection.ts";

export const HistoryClass = z.strictObject({
  name: z.string().min(1).meta({ description: "A name for logs, metrics and `plenum plan`." }),
  select: TagSelection.prefault({}).meta({
    description: "Which tags; every tag when left out. The first entry of the list that selects a tag has it.",
  }),
  resolution: z.enum(RESOLUTIONS).meta({ description: "Interval of the series." }),
  time_zone: TimeZone.optional().meta({
    description: "IANA zone in which the service aligns hours, days, weeks and months; the source's when left out.",
  }),
  every: Duration.prefault("1h").meta({
    description: "How often closed buckets are fetched. A longer interval costs fewer requests, not fewer points.",
  }),
  backfill: Duration.prefault("0s").meta({
    description: "How far back from the first sight of a tag its history is fetched, beside the live following.",
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

export const HistoryConfig = z
  .array(
    HistoryClass.refine((entry) => !entry.total || entry.resolution !== "5m", {
      path: ["total"],
      message: "A total per 5 minutes would cost a request per 5 minutes; use 1h or longer.",
    }),
  )
  .superRefine(rejectDuplicateNames)
  .meta({ description: "Logged history to follow and to backfill." });
export type HistoryConfig = z.infer<typeof HistoryConfig>;
