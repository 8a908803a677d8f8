import { join } from "node:path";
import type { Simulator } from "#src/simulator/simulator.ts";
import { FIRST_VALUE, LARGEST_PAYLOAD_BYTES, RANGE, type Tags } from "./messages.ts";
import type { TagLimits } from "./post-judge.ts";

export const SITES = [1, 2, 9, 10, 11, 12, 13];
const MIN_INTERVAL_MS = 20_000;
const MAX_STEP = 300;
export const CLIENT_ID = "campaign";
export const FILES = "files";

export function openTags(simulator: Simulator) {
  const analog = [...simulator.world.tags.values()].filter((tag) => tag.kind === "analog" && !tag.isCumulative);
  const limits = new Map<string, TagLimits>();
  const outsideHoursTags: string[] = [];
  const operatorOnly: string[] = [];
  const open: string[] = [];
  const closedFromHour = (new Date(simulator.now()).getUTCHours() + 12) % 23;
  const hour = (n: number) => `${String(n).padStart(2, "0")}:00`;
  const allow = analog.map((tag, index) => {
    simulator.control.setTag(tag.id, FIRST_VALUE);
    const isOperators = index % 40 === 9;
    const isQuiet = index % 4 === 1 && !isOperators;
    const maxStep = index % 20 === 0 ? MAX_STEP : null;
    const maxPerDay = index % 11 === 3 ? 4 : 1_000;
    const isClosed = index % 25 === 7;
    (isOperators ? operatorOnly : isQuiet ? outsideHoursTags : open).push(tag.id);
    limits.set(tag.id, { minIntervalMs: MIN_INTERVAL_MS, maxPerDay, maxStep, isClosed });
    return {
      site_id: tag.site.id,
      tag_id: tag.id,
      type: "number",
      ...RANGE,
      min_interval: `${MIN_INTERVAL_MS}ms`,
      max_per_day: maxPerDay,
      restore: isQuiet || index % 3 === 0,
      from: isOperators ? ["operator"] : ["broker"],
      ...(maxStep === null ? {} : { max_step: maxStep }),
      ...(isClosed ? { hours: `${hour(closedFromHour)}-${hour(closedFromHour + 1)}` } : {}),
    };
  });
  const tags: Tags = { open, quiet: outsideHoursTags, operatorOnly };
  return { tags, limits, allow };
}

export function configurationOf(parts: {
  readonly stateFolder: string;
  readonly folder: string;
  readonly service: string;
  readonly broker: string;
  readonly protocol: string;
  readonly allow: readonly object[];
}) {
  const filter = { kinds: ["command-result"] };
  return {
    state: { folder: parts.stateFolder },
    status: { port: 0 },
    sources: {
      main: {
        base_url: parts.service,
        token: { env: "TOKEN" },
        time_zone: "UTC",
        quota: { list_requests_per_minute: 600 },
        schedules: { alarms: false, resolved_sweep: false, hosts: false, systems: false },
        read: [{ name: "some", select: { sites: [10, 11] }, every: "60s" }],
      },
    },
    sinks: {
      broker: {
        mqtt: { url: parts.broker, protocol: parts.protocol, client_id: CLIENT_ID, commands: { enabled: true } },
        filter,
        retry: { max: "10s" },
      },
      [FILES]: { file: { folder: join(parts.folder, "events") }, filter, from: "beginning" },
    },
    commands: { enabled: true, max_per_hour: 100_000, max_payload_bytes: LARGEST_PAYLOAD_BYTES, allow: parts.allow },
  };
}
