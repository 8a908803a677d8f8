import { z } from "zod";
import { Duration, durationBetween } from "../../../src/core/values/duration.ts";
import { CustomMessagePhrases, MESSAGE_LANGUAGES } from "./message-texts.ts";

export const PriorityLetter = z.string().regex(/^[A-Z]$/, "Write a priority as one capital letter: A, B or C.");

const TimeOfDay = z.string().regex(/^([01]\d|2[0-3]):[0-5]\d$/, "Write a time of day as 22:00.");

const QuietHours = z
  .strictObject({
    priorities: z.array(PriorityLetter).min(1).meta({ description: "Alarm priorities that wait in these hours." }),
    from: TimeOfDay.meta({ description: "Start, time of day in the site's zone.", examples: ["22:00"] }),
    to: TimeOfDay.meta({ description: "End; on the next day if it is earlier.", examples: ["06:00"] }),
    days: z
      .array(z.enum(["mon", "tue", "wed", "thu", "fri", "sat", "sun"]))
      .min(1)
      .optional()
      .meta({ description: "Days on which it starts; every day by default." }),
  })
  .refine(({ from, to }) => from !== to, { path: ["to"], message: "`from` and `to` are the same time." });

const AlarmStormOptions = z.strictObject({
  openings: z.int().min(2).max(1_000).meta({ description: "More new alarms than this become one incident." }),
  within: durationBetween("1m", "1d").prefault("5m").meta({ description: "Time in which they are counted." }),
  over: z.enum(["site", "all"]).default("site").meta({
    description: "Count for each site, or for all sites together.",
  }),
});

const AlarmGroupingOptions = z
  .strictObject({
    gateway: z.boolean().default(true).meta({
      description: "Group the alarms behind an offline gateway into one incident with a list.",
    }),
    storm: AlarmStormOptions.optional().meta({
      description: "Group many simultaneous alarms into one incident with a list.",
    }),
  })
  .meta({ description: "Grouping of alarms." });

const TimeSeriesOptions = z.strictObject({
  priorities: z.array(PriorityLetter).min(1).default(["A", "B"]).meta({
    description: "Alarm priorities that get it.",
  }),
  hours: z.int().min(1).max(24).default(3).meta({ description: "Range of the time series in hours." }),
});

export const INCIDENT_EVENT_KINDS = ["alarm-*", "gateway-offline", "gateway-online"] as const;

export const RECEIVER_OPTIONS = {
  fold: AlarmGroupingOptions.prefault({}),
  hold: Duration.refine((ms) => ms <= 86_400_000, "Choose at most 1d.")
    .prefault("0s")
    .meta({ description: "An alarm that ends within this time is not sent." }),
  quiet: z.array(QuietHours).max(20).default([]).meta({
    description: "Hours in which alarms wait; alarms that are active at the end are sent then.",
  }),
  initial: z.boolean().default(false).meta({
    description: "Also send alarms that were already active when Plenum first saw them.",
  }),
  dossier: z
    .union([z.literal(false), TimeSeriesOptions])
    .prefault({})
    .meta({
      description:
        "Add the time series of the alarm's tag, and of others of its system, if Plenum has them; false: none.",
    }),
  language: z.enum(MESSAGE_LANGUAGES).default("en").meta({ description: "Language of messages." }),
  words: CustomMessagePhrases.prefault({}).meta({ description: "Words that replace those of the language." }),
  status_url: z
    .url({ protocol: /^https?$/, error: "Write a whole address, such as https://plenum.example.com/." })
    .optional()
    .meta({ description: "Address of the status page for people; messages then link to it." }),
} as const;

export type ReceiverConfig = z.infer<z.ZodObject<typeof RECEIVER_OPTIONS>>;
export type QuietHours = z.infer<typeof QuietHours>;
