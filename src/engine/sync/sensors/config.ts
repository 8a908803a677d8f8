import { z } from "zod";
import { Duration } from "../../../core/values/duration.ts";
import { optionalList, TagSelection } from "../tag-selection.ts";

const DAY_MS = 86_400_000;

const { exclude: _exclude, ...includeFields } = TagSelection.shape;

const SensorSelection = z.strictObject({
  classes: optionalList(z.string().min(1), "Names of classes of the live reads (`read`)."),
  ...includeFields,
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
        .meta({ description: "Observation time of a report, 1d to 31d." }),
      exclude: SensorSelection.prefault({}).meta({
        description: "Tags to leave out: tags that match any of these entries.",
      }),
      may_rest: SensorSelection.prefault({ units: [""], name: RESTING_TAG_NAME_PATTERNS }).meta({
        description:
          "Tags that may keep one value: tags that match any of these entries. By default tags without a unit (states, modes, start counters), set points and limits. Booleans, 0 of anything except a temperature, and 100 % are always allowed.",
      }),
    }),
  ])
  .prefault({});
export type SilentSensorsConfig = Exclude<z.infer<typeof SilentSensorsConfig>, false>;
