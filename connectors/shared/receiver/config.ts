import { z } from "zod";
import { Duration } from "../../../src/core/values/duration.ts";
import { CustomMessagePhrases, MESSAGE_LANGUAGES } from "./text.ts";

export const PriorityLetter = z.string().regex(/^[A-Z]$/, "Write a priority as one capital letter: A, B or C.");

const TimeOfDay = z.string().regex(/^([01]\d|2[0-3]):[0-5]\d$/, "Write a time of day as 22:00.");

const QuietHours = z
  .strictObject({
    priorities: z.array(PriorityLetter).min(1).meta({ description: "Alarm priorities that wait in these hours." }),
    from: TimeOfDay.meta({ description: "Beginning, time of day in the site's zone.", examples: ["22:00"] }),
    to: TimeOfDay.meta({ description: "End; on the next day where it is earlier.", examples: ["06:00"] }),
    days: z
      .array(z.enum(["mon", "tue", "wed", "thu", "fri", "sat", "sun"]))
      .min(1)
      .optional()
      .meta({ description: "Days on which it begins; every day without this." }),
  })
  .refine(({ from, to }) => from !== to, { path: ["to"], message: "`from` and `to` are the same time." });

const AlarmStormOptions = z.strictObject({
  openings: z.int().min(2).max(1_000).meta({ description: "More openings than this are told as one thing." }),
  within: Duration.refine((ms) => ms >= 60_000 && ms <= 86_400_000, "Choose between 1m and 1d.")
    .prefault("5m")
    .meta({ description: "Within this time." }),
  over: z.enum(["site", "all"]).default("site").meta({
    description: "Counted for each site by itself, or for all together.",
  }),
});

const AlarmGroupingOptions = z
  .strictObject({
    gateway: z.boolean().default(true).meta({
      description: "Alarms behind a gateway that is offline are one thing with a list.",
    }),
    storm: AlarmStormOptions.optional().meta({ description: "Many alarms at once are one thing with a list." }),
  })
  .meta({ description: "What is told together." });

const TimeSeriesOptions = z.strictObject({
  priorities: z.array(PriorityLetter).min(1).default(["A", "B"]).meta({
    description: "Alarm priorities that are told with it.",
  }),
  hours: z.int().min(1).max(24).default(3).meta({ description: "How far back, in hours." }),
});

export const INCIDENT_EVENT_KINDS = ["alarm-*", "gateway-online"] as const;

export const RECEIVER_OPTIONS = {
  fold: AlarmGroupingOptions.prefault({}),
  hold: Duration.refine((ms) => ms <= 86_400_000, "Choose at most 1d.")
    .prefault("0s")
    .meta({ description: "An alarm that ends within this time is not told at all." }),
  quiet: z.array(QuietHours).max(20).default([]).meta({
    description: "Hours in which alarms wait; what is active at their end is told then.",
  }),
  initial: z.boolean().default(false).meta({
    description: "Whether alarms that were active already when Plenum saw them first are told.",
  }),
  dossier: z
    .union([z.literal(false), TimeSeriesOptions])
    .prefault({})
    .meta({
      description: "How the alarm's value went, and others of its system, as far as Plenum has them; false: not.",
    }),
  language: z.enum(MESSAGE_LANGUAGES).default("en").meta({ description: "Language of what is told." }),
  words: CustomMessagePhrases.prefault({}).meta({ description: "Words in place of those of the language." }),
  status_url: z
    .url({ protocol: /^https?$/, error: "Write a whole address, such as https://plenum.example.com/." })
    .optional()
    .meta({ description: "Address of the status page as people reach it; messages then link to it." }),
} as const;

export type ReceiverConfig = z.infer<z.ZodObject<typeof RECEIVER_OPTIONS>>;
export type QuietHours = z.infer<typeof QuietHours>;
