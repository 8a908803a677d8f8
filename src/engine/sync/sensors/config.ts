import { z } from "zod";
import { Duration } from "../../../core/values/duration.ts";
import { TagSelection } from "../tag-selection.ts";

const DAY_MS = 86_400_000;

const { exclude: _exclude, ...narrowing } = TagSelection.shape;

const SensorSelection = z.strictObject({
  classes: z
    .array(z.string().min(1))
    .min(1)
    .optional()
    .meta({ description: "Names of classes of the live reads (`read`)." }),
  ...narrowing,
});
export type SensorSelection = z.infer<typeof SensorSelection>;

/** Name patterns of set points and limits in English, Norwegian, Swedish and German; such tags may stay constant. */
const RESTING_TAG_NAME_PATTERNS = [
  ...["*setpoint*", "*set point*", "*set-point*", "*_SP", "*-SP", "* SP", "*settpunkt*", "*børverdi*", "*börvärde*"],
  ...["*sollwert*", "*limit*", "*grense*", "*gräns*"],
];

export const SilentSensorsConfig = z
  .union([
    z.literal(false),
    z.strictObject({
      every: Duration.refine((ms) => ms >= DAY_MS && ms <= 31 * DAY_MS, { message: "Write between 1d and 31d." })
        .prefault("7d")
        .meta({ description: "How long tags are watched for one report, 1d to 31d." }),
      exclude: SensorSelection.prefault({}).meta({
        description: "Tags that are not judged at all: those that any of these entries fits.",
      }),
      may_rest: SensorSelection.prefault({ units: [""], name: RESTING_TAG_NAME_PATTERNS }).meta({
        description:
          "Tags that may stay at one value for as long as they like: those that any of these entries fits. By default what has no unit (states, modes, counters of starts) and what is called a set point or a limit. Booleans always may, and so may 0 of anything but a temperature, and 100 %.",
      }),
    }),
  ])
  .prefault({});
export type SilentSensorsConfig = Exclude<z.infer<typeof SilentSensorsConfig>, false>;
