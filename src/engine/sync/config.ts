import { z } from "zod";
import { Duration } from "../../core/values/duration.ts";
import { cronExpressionProblem, expandCronNickname } from "./cron-schedule.ts";
import { optionalList } from "./tag-selection.ts";

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
    description: "Information about the token (expiry, sites, abilities).",
  }),
  sites: CronSchedule.prefault("*/5 * * * *").meta({ description: "List of sites; one request." }),
  alarms: CronSchedule.prefault("*/30 * * * * *").meta({
    description:
      "Active alarms; one request if they fit into one page, and one more for each site from which an alarm disappeared.",
  }),
  resolved_sweep: CronSchedule.prefault("5 */10 * * * *").meta({
    description:
      "Search for alarms that were raised and resolved between two polls; one request per 500 resolved alarms, or one if the service lists the newest first.",
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

const AlarmPollSettings = z.strictObject({
  startup: z.enum(["reconcile", "announce", "silent"]).default("reconcile").meta({
    description:
      "At a start: `reconcile` emits what changed since the last run (and every active alarm, marked initial, without a stored state); `announce` emits every active alarm, marked initial; `silent` stores the current alarms and emits nothing.",
  }),
  sites: optionalList(z.int(), "Ids of the sites whose alarms are polled; all sites by default."),
  vanish_after_misses: z.int().min(2).max(100).default(2).meta({
    description:
      "Number of complete lists in a row without an alarm, and without a statement about it, before it counts as vanished.",
  }),
  resolved_overlap: Duration.prefault("1h").meta({
    description:
      "How far before the latest known resolution the sweep searches again, because of late entries and clock differences.",
  }),
  resolved_pages_max: z.int().min(1).max(1000).default(200).meta({
    description:
      "Maximum pages of resolved alarms that one sweep reads; at 30 requests a minute 200 pages take 7 minutes.",
  }),
});

const InventoryPollSettings = z.strictObject({
  sites: optionalList(
    z.int(),
    "Ids of the sites whose gateways, hosts, systems and tags are polled; all sites by default.",
  ),
  remove_after: Duration.prefault("7d").meta({
    description: "How long an object must be absent from complete lists before it counts as removed.",
  }),
  tags_of_systems: z.boolean().default(false).meta({
    description:
      "Read which tags belong to which system, for selection by system and for `tag-systems-changed`; one list per system with every poll of tags.",
  }),
});

export const SyncConfig = z.strictObject({
  schedules: PollSchedules.prefault({}).meta({
    description:
      "Cron expressions with 5 fields, or 6 with seconds first, in UTC; or @hourly, @daily, @weekly, @monthly. False switches a job off.",
  }),
  heartbeat: z
    .union([z.literal(false), Duration.refine((ms) => ms >= 10_000 && ms <= 86_400_000, "Write between 10s and 1d.")])
    .prefault(false)
    .meta({
      description:
        "Interval of the event `worker-alive`, 10s to 1d, so that another system notices when events stop; false for none.",
    }),
  spread: Duration.prefault("5s").meta({
    description:
      "Each job starts up to this much after its scheduled time, always by the same amount, so that jobs do not start together.",
  }),
  alarms: AlarmPollSettings.prefault({}).meta({ description: "Polling of alarms." }),
  inventory: InventoryPollSettings.prefault({}).meta({
    description: "Polling of sites, gateways, hosts, systems and tags.",
  }),
});
export type SyncConfig = z.infer<typeof SyncConfig>;
