import { z } from "zod";
import { Duration } from "../../core/values/duration.ts";
import { SinkEventFilter } from "./filter.ts";

const RetryDelays = z
  .strictObject({
    first: Duration.prefault("1s").meta({ description: "Wait before the first retry; each further wait doubles." }),
    max: Duration.prefault("5m").meta({ description: "Maximum wait between two retries." }),
  })
  .meta({ description: "Waits between retries; half of each is random." });

export const DeliveryConfig = z
  .strictObject({
    filter: SinkEventFilter.prefault({}),
    from: z.enum(["now", "beginning", "state"]).default("now").meta({
      description:
        "Start of a new sink: new events only, all stored events, or the current state (inventory, active alarms, last values).",
    }),
    batch: z.int().min(1).max(5_000).default(100).meta({
      description: "Maximum events in one write, and so the maximum of duplicates after a crash.",
    }),
    retry: RetryDelays.prefault({}),
    schedule: z.array(Duration).optional().meta({
      description:
        "Waits between attempts for one event that the server answers but does not accept, e.g. [5s, 5m, 30m, 2h, 5h, 10h]; after the last attempt it becomes a dead letter. Without it, the event is retried while it is stored. An outage does not count.",
    }),
    replay_after_restart: Duration.refine((ms) => ms === 0 || ms >= 60_000, "Use 1m or more, or 0s for never.")
      .prefault("15m")
      .meta({
        description:
          "After a restart of the server, events that were delivered within this time are sent again, because some servers lose acknowledged data; 0s for never. For mqtt, influxdb and postgres, which can notice a restart.",
      }),
    sequence: z.boolean().default(false).meta({
      description:
        "Number each event of this sink, so that a receiver can prove that none is missing. For mqtt, kafka, webhook (cloudevents and standard), file and stdout.",
    }),
    deadline: Duration.prefault("30s").meta({
      description:
        "Maximum time of one write. It starts again with each acknowledgement of an MQTT broker, and with each request to a webhook, an alarm receiver or S3 storage.",
    }),
  })
  .meta({ description: "How events get to this sink." });

export type DeliveryConfig = z.infer<typeof DeliveryConfig>;
