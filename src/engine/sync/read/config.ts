import { z } from "zod";
import { Duration } from "../../../core/values/duration.ts";
import { rejectDuplicateNames, TagSelection } from "../tag-selection.ts";

export const ReadClass = z
  .strictObject({
    name: z.string().min(1).meta({ description: "Name for logs, metrics and `plenum plan`." }),
    select: TagSelection.prefault({}).meta({
      description: "Tags of this class; all tags by default. A tag belongs to the first class that selects it.",
    }),
    every: Duration.refine((ms) => ms >= 3_000, {
      message: "Write 3s or more: 20 requests a minute are one every 3 s, so a shorter interval cannot be kept.",
    }).meta({ description: "How often each tag yields a value, and how old a value may become; at least 3s." }),
    fresher: z.boolean().default(false).meta({
      description:
        "For live screens: read the tags again in requests that nothing else needs, and emit each of these values. A lake then stores up to ten times as many rows.",
    }),
    firm: z.boolean().default(false).meta({
      description:
        "Keep this interval even when all intervals together exceed the quota; other classes are stretched. Firm classes together get at most 80 % of the quota.",
    }),
    importance: z.number().positive().max(100).default(1).meta({
      description: "When the intervals exceed the quota, a class of importance 2 is stretched half as much.",
    }),
    on_change: z.boolean().default(false).meta({
      description:
        "Emit a value only when it or its quality differs from the last emitted one. The default emits one per interval.",
    }),
    deadband: z.number().nonnegative().default(0).meta({
      description: "With on_change: maximum change of a number that is not emitted.",
    }),
    max_silence: Duration.prefault("1h").meta({
      description:
        "With on_change: emit the value at least this often, so that a reader can distinguish a constant value from a failure.",
    }),
  })
  .refine(({ deadband, on_change: onChange }) => deadband === 0 || onChange, {
    path: ["deadband"],
    message: "A deadband counts only with on_change: true.",
  });
export type ReadClass = z.infer<typeof ReadClass>;

/** A tag belongs to the first read class that selects it. Other tags are not read. */
export const ReadConfig = z.array(ReadClass).superRefine(rejectDuplicateNames).meta({
  description: "Live reads: classes of tags with their intervals, specific classes first.",
});
export type ReadConfig = z.infer<typeof ReadConfig>;
