import { z } from "zod";

/** The sink has nothing to choose: one JSON line an event, to the standard output of the process. */
export const StdoutConfig = z
  .strictObject({})
  .meta({ description: "Events as JSON lines on standard output." });
export type StdoutConfig = z.infer<typeof StdoutConfig>;
