import { z } from "zod";
import { byteSize } from "../byte-size.ts";
import { Duration } from "../duration.ts";

const QUARTER_OF_AN_HOUR_MS = 15 * 60_000;
const MEBIBYTE = 1024 ** 2;

/** Where the worker keeps its memory, and how much of it. */
export const StateConfig = z
  .strictObject({
    folder: z.string().min(1).default("state").meta({
      description:
        "Folder of the state, on a local disk. Created with access for its owner only; whoever owns it operates the worker, so one that others may write, or that belongs to another user, is refused.",
    }),
    max_bytes: byteSize({ min: MEBIBYTE })
      .default(1024 * MEBIBYTE)
      .meta({
        description:
          "Bytes that the log of events may take. Beyond, telemetry goes before alarms; a loss leaves a gap record.",
      }),
    max_age: Duration.prefault("7d").meta({
      description:
        "How long an event waits for a sink that does not accept it. Counted is time in which the worker runs and its clock is not in doubt.",
    }),
    replay_window: Duration.refine((ms) => ms >= QUARTER_OF_AN_HOUR_MS, {
      message: "The replay window has to be 15m or longer: a sink may lose what it has just acknowledged.",
    })
      .prefault("24h")
      .meta({
        description:
          "How long an event is kept after every sink has it, so that it can be sent again. Counted as for max_age.",
      }),
    plots: z.boolean().default(true).meta({
      description:
        "Keep series for the plots of the status page: of each tag a day as it was read and a month by the hour, some 14 kB a tag. False clears them away.",
    }),
  })
  .meta({ description: "The state: what is remembered over restarts." });

export type StateConfig = z.infer<typeof StateConfig>;
