import { z } from "zod";
import { Duration } from "../../core/values/duration.ts";
import { cronExpressionProblem, expandCronNickname } from "./cron-schedule.ts";

const CronSchedule = z
  .union([
    z
      .string()
      .transform(expandCronNickname)
      .superRefine((expression, context) => {
        const message = cronExpressionProblem(expression);
        if (message !== null) context.addIssue({ code: "custom", message });
      }),
    z.literal(false),
  ])
  .meta({ examples: ["*/5 * * * *", "@hourly", false] });

const PollSchedules = z.strictObject({
  token: CronSchedule.prefault("0 * * * *").meta({
    description: "What the service says about the token (expiry, sites, abilities).",
  }),
  sites: CronSchedule.prefault("*/5 * * * *").meta({ description: "List of sites; one request." }),
  alarms: CronSchedule.prefault("*/30 * * * * *").meta({
    description:
      "Active alarms; one request while they fit into one page, and one more for each site that an alarm went away from.",
  }),
  resolved_sweep: CronSchedule.prefault("5 */10 * * * *").meta({
    description:
      "Search for alarms that were raised and resolved between two polls; a request per 500 resolved alarms, or one when the service lists the newest first.",
  }),
  gateways: CronSchedule.prefault("*/5 * * * *").meta({
    description: "Gateways and whether they are online; one request per site.",
  }),
  hosts: CronSchedule.prefault("20 */6 * * *").meta({
    description: "Hosts (devices); one request per site and 100 hosts.",
  }),
  systems: CronSchedule.prefault("30 */12 * * *").meta({
    description: "Technical systems; one request per site and 100 systems.",
  }),
  tags: CronSchedule.prefault("40 */6 * * *").meta({ description: "List of tags; one request per site and 100 tags." }),
});

const ALARM_STARTUP_MODES = ["reconcile", "announce", "silent"] as const;

const AlarmPollSettings = z.strictObject({
  startup: z.enum(ALARM_STARTUP_MODES).default("reconcile").meta({
    description:
      "At a start: `reconcile` tells what changed while we were away (and every active alarm, marked initial, when nothing is known yet); `announce` tells every active alarm, marked initial; `silent` takes the picture over and tells nothing of it.",
  }),
  sites: z
    .array(z.int())
    .min(1)
    .optional()
    .meta({ description: "Ids of the sites whose alarms are followed; every site when left out." }),
  vanish_after_misses: z.int().min(2).max(100).default(2).meta({
    description:
      "Complete listings in a row without an alarm, and without a word about it, before it counts as vanished.",
  }),
  resolved_overlap: Duration.prefault("1h").meta({
    description:
      "How far behind the latest known resolution the sweep looks again, against late entries and clocks that differ.",
  }),
  resolved_pages_max: z.int().min(1).max(1000).default(200).meta({
    description:
      "Most pages of resolved alarms that one sweep reads; at 30 requests a minute 200 pages take 7 minutes.",
  }),
});

const InventoryPollSettings = z.strictObject({
  sites: z.array(z.int()).min(1).optional().meta({
    description: "Ids of the sites whose gateways, hosts, systems and tags are followed; every site when left out.",
  }),
  remove_after: Duration.prefault("7d").meta({
    description: "How long complete listings must be without a thing before it counts as removed.",
  }),
  tags_of_systems: z.boolean().default(false).meta({
    description:
      "Learn which tags belong to which system, for selections by system and for `tag-systems-changed`; one listing per system with every poll of tags.",
  }),
});

export const SyncConfig = z.strictObject({
  schedules: PollSchedules.prefault({}).meta({
    description:
      "Cron expressions with 5 or 6 fields (the sixth, in front, for seconds), in UTC, or @hourly, @daily, @weekly, @monthly; false switches a job off.",
  }),
  heartbeat: z
    .union([z.literal(false), Duration.refine((ms) => ms >= 10_000 && ms <= 86_400_000, "Write between 10s and 1d.")])
    .prefault(false)
    .meta({
      description:
        "Interval of the event `worker-alive`, 10s to 1d, so that somebody else notices when events stop; false for none.",
    }),
  spread: Duration.prefault("5s").meta({
    description:
      "Each job runs up to this much after its tick, always by the same amount, so that not everything starts at second 0.",
  }),
  alarms: AlarmPollSettings.prefault({}).meta({ description: "How alarms are followed." }),
  inventory: InventoryPollSettings.prefault({}).meta({
    description: "How sites, gateways, hosts, systems and tags are followed.",
  }),
});
export type SyncConfig = z.infer<typeof SyncConfig>;
