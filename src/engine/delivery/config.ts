import { z } from "zod";
import { Duration } from "../../core/values/duration.ts";
import { SinkEventFilter } from "./filter.ts";

const RetryDelays = z
  .strictObject({
    first: Duration.prefault("1s").meta({ description: "Wait before the first retry; it doubles from then on." }),
    max: Duration.prefault("5m").meta({ description: "Longest wait between two retries." }),
  })
  .meta({ description: "Waits between retries; half of each is random." });

export const DeliveryConfig = z
  .strictObject({
    filter: SinkEventFilter.prefault({}),
    from: z.enum(["now", "beginning", "state"]).default("now").meta({
      description:
        "Where a new sink starts: with what happens from now on, with all that is kept, or with what is believed now (inventory, active alarms, last values).",
    }),
    batch: z
      .int()
      .min(1)
      .max(5_000)
      .default(100)
      .meta({ description: "Most events in one write, and so the most that can arrive twice after a crash." }),
    retry: RetryDelays.prefault({}),
    schedule: z.array(Duration).optional().meta({
      description:
        "Waits between attempts for one event that the far end answers but does not take, e.g. [5s, 5m, 30m, 2h, 5h, 10h]; after the last it becomes a dead letter. Without this it is tried as long as it is kept. An outage does not count.",
    }),
    replay_after_restart: Duration.refine((ms) => ms === 0 || ms >= 60_000, "Use 1m or more, or 0s for never.")
      .prefault("15m")
      .meta({
        description:
          "What was delivered within this time is sent again when the far end was restarted, because some lose what they had acknowledged; 0s for never. For mqtt, influxdb and postgres, which notice it.",
      }),
    sequence: z.boolean().default(false).meta({
      description:
        "Each event carries its number in the count of what this sink was offered, so that a receiver sees that none is missing. For mqtt, kafka, webhook (cloudevents and standard), file and stdout.",
    }),
    deadline: Duration.prefault("30s").meta({
      description:
        "How long one write may take. It begins anew with each acknowledgement of an MQTT broker, and with each request to a webhook, another receiver of alarms or an S3-compatible storage.",
    }),
  })
  .meta({ description: "How events get to this sink." });

export type DeliveryConfig = z.infer<typeof DeliveryConfig>;
