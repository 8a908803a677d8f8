import { z } from "zod";
import { RESOLUTIONS } from "../../../core/model/building.ts";
import { Duration } from "../../../core/values/duration.ts";
import { TimeZone } from "../../source/config.ts";
import { rejectDuplicateNames, TagSelection } from "../tag-selection.ts";

export const HistoryClass = z.strictObject({
  name: z.string().min(1).meta({ description: "Name for logs, metrics and `plenum plan`." }),
  select: TagSelection.prefault({}).meta({
    description: "Tags of this class; all tags by default. A tag belongs to the first class that selects it.",
  }),
  resolution: z.enum(RESOLUTIONS).meta({ description: "Interval of the series." }),
  time_zone: TimeZone.optional().meta({
    description: "IANA zone in which the service aligns hours, days, weeks and months; the source's zone by default.",
  }),
  every: Duration.prefault("1h").meta({
    description: "How often finished intervals are fetched. A longer time needs fewer requests for the same points.",
  }),
  backfill: Duration.prefault("0s").meta({
    description: "How far before the first sight of a tag its history is fetched, next to current history.",
  }),
  total: z.boolean().default(false).meta({
    description:
      "For meters: fetch one total per interval (last minus first) instead of the series. Not for the resolution 5m.",
  }),
  grace: Duration.prefault("2m").meta({ description: "How long after its end an interval counts as finished." }),
  look_back: Duration.prefault("1d").meta({
    description:
      "How late data may arrive and still be found. Plenum reads the last two intervals again with every fetch, the last 24 h (or this, if shorter) once a day, and this range once a week.",
  }),
});
export type HistoryClass = z.infer<typeof HistoryClass>;

export const HistoryConfig = z
  .array(
    HistoryClass.refine((historyClass) => !historyClass.total || historyClass.resolution !== "5m", {
      path: ["total"],
      message: "A total per 5 minutes would cost a request per 5 minutes; use 1h or longer.",
    }),
  )
  .superRefine(rejectDuplicateNames)
  .meta({ description: "Logged history to follow and to backfill." });
export type HistoryConfig = z.infer<typeof HistoryConfig>;
