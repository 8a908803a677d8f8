import type { Column, ColumnType, LakeTable } from "./table-model.ts";

/** Tables of the lake with their columns; docs/lake/tables.md is generated from them. */

const defineColumn =
  (type: ColumnType, isNullable = false) =>
  (name: string, about: string): Column => ({ name, type, isNullable, about });

const textColumn = defineColumn("text");
const optionalTextColumn = defineColumn("text", true);
const timeColumn = defineColumn("time");
const optionalTimeColumn = defineColumn("time", true);
const optionalNumberColumn = defineColumn("number", true);
const integerColumn = defineColumn("integer");
const optionalIntegerColumn = defineColumn("integer", true);
const booleanColumn = defineColumn("boolean");
const optionalBooleanColumn = defineColumn("boolean", true);
const optionalJsonColumn = defineColumn("json", true);

const SOURCE_COLUMN_DESCRIPTION = "Name of the source in the configuration; empty for the worker itself.";
const SOURCE_NAME_COLUMN = textColumn("source", SOURCE_COLUMN_DESCRIPTION);
const SITE_ID_COLUMN = optionalTextColumn("site_id", "Id of the site; null for events that belong to no single site.");
const TAG_ID_COLUMN = textColumn("tag_id", "The tag's id.");
const SOURCE_AND_SITE_COLUMNS = [SOURCE_NAME_COLUMN, SITE_ID_COLUMN];
const TAG_IDENTITY_COLUMNS = [...SOURCE_AND_SITE_COLUMNS, TAG_ID_COLUMN];

const EVENT_COLUMNS = [
  timeColumn(
    "observed_at",
    "When the worker committed the event; never before the previous commit, even if its clock was set back by up to a day.",
  ),
  textColumn("event_id", "Id of the event; the same after every retry and restart."),
  integerColumn(
    "position",
    "Position of the event in the worker's log; 0 for a snapshot of the state. Of two rows about one object, the one with the later observed_at is valid, then the one with the higher position. A worker that lost its state counts from 1 again.",
  ),
];

const TAG_VALUE_COLUMNS = [
  optionalNumberColumn("value_number", "The value, if it is a number."),
  optionalBooleanColumn("value_boolean", "The value, if it is a boolean."),
];

const UNIT_COLUMNS = [
  optionalTextColumn("unit", "The unit as the service writes it."),
  optionalTextColumn("unit_ucum", "The unit as a UCUM code, if it is certain."),
];

/** Columns for a time from the service: the time, its original text and its offset. */
const serviceTimeColumns = (name: string, about: string) => [
  optionalTimeColumn(name, `${about}; null where the service's word is no moment, as one without an offset.`),
  optionalTextColumn(`${name}_raw`, "The same time as the service wrote it."),
  optionalTextColumn(`${name}_offset`, "The offset in that text, such as +02:00; null for Z and without an offset."),
];

function defineEventTable(name: string, about: string, columns: Column[], sortedBy: string[]): LakeTable {
  const key = ["source", "event_id"];
  const [, timeColumn = ""] = sortedBy;
  return { name, about, rowPolicy: "append", columns: [...columns, ...EVENT_COLUMNS], key, time: timeColumn, sortedBy };
}

export const TAG_VALUE_TABLE = defineEventTable(
  "value",
  "Live values: one row per emitted value.",
  [
    ...TAG_IDENTITY_COLUMNS,
    timeColumn("time", "When the response arrived; the service states no time of its own."),
    ...TAG_VALUE_COLUMNS,
    textColumn("quality", "good; uncertain; or bad: the gateway could not read it, and there is no value."),
    ...UNIT_COLUMNS,
    integerColumn("latency_ms", "Milliseconds between the request and its response."),
    optionalTextColumn("behind_gateway", "Id of the offline gateway that explains a bad value."),
  ],
  ["tag_id", "time"],
);

export const HISTORY_TABLE: LakeTable = {
  name: "history",
  about: "Logged history: one row per bucket, and one more per revision.",
  rowPolicy: "append",
  columns: [
    ...TAG_IDENTITY_COLUMNS,
    textColumn("resolution", "5m, 1h, 1d, 1w or 1mo."),
    textColumn("time_zone", "IANA zone in which the service aligned the buckets."),
    timeColumn("time", "Start of the bucket, as the service stamps it."),
    ...TAG_VALUE_COLUMNS,
    textColumn("quality", "good; or bad: the log has the bucket, but no value in it."),
    ...UNIT_COLUMNS,
    textColumn("origin", "live: soon after the bucket closed; backfill: older than the following of this series."),
    integerColumn(
      "revision",
      "0 for the first row of a bucket; otherwise the time of the revision in milliseconds since 1970. The highest is valid.",
    ),
    ...EVENT_COLUMNS,
  ],
  key: ["source", "tag_id", "resolution", "time_zone", "time", "revision"],
  time: "time",
  sortedBy: ["tag_id", "resolution", "time"],
};

export const TOTAL_TABLE = defineEventTable(
  "total",
  "Totals over a period: last value minus first, as computed by the service.",
  [
    ...TAG_IDENTITY_COLUMNS,
    textColumn("resolution", "5m, 1h, 1d, 1w or 1mo."),
    textColumn("time_zone", "IANA zone in which the service aligned the buckets."),
    timeColumn("from_time", "Start of the period."),
    timeColumn("to_time", "End of the period."),
    optionalNumberColumn("total", "Last minus first; null when unknown."),
    booleanColumn("is_reset", "True if the total is negative: the meter was reset or replaced."),
    ...UNIT_COLUMNS,
  ],
  ["tag_id", "from_time"],
);

const ALARM_IDENTITY_COLUMNS = [
  ...SOURCE_AND_SITE_COLUMNS,
  textColumn("alarm_id", "The alarm's id."),
  textColumn("episode", "Alarm id and trigger time: one episode is one raise and one end."),
];

const ALARM_TRIGGER_COLUMNS = [
  textColumn("priority", "A (highest), B or C, as the service states it."),
  textColumn("trigger_id", "The trigger's id."),
  textColumn("trigger_name", "The trigger's name."),
  optionalTextColumn("trigger_description", "The trigger's description."),
  textColumn("alarm_source", "Source of the alarm in the text of the service."),
  textColumn("description", "The alarm's description."),
  ...serviceTimeColumns("triggered_at", "When it was triggered, according to the service"),
  ...serviceTimeColumns("resolved_at", "When it was resolved, according to the service"),
  booleanColumn("acknowledged", "True if a person has acknowledged it."),
  optionalTextColumn("acknowledged_by", "Who did."),
  optionalTextColumn("acknowledged_message", "Text of the acknowledgement."),
  optionalTimeColumn("acknowledged_at", "When."),
];

export const ALARM_TABLE = defineEventTable(
  "alarm",
  "Events of alarms: one row per event of an episode.",
  [
    ...ALARM_IDENTITY_COLUMNS,
    textColumn("event", "alarm-raised, alarm-resolved and the other kinds of events about alarms."),
    timeColumn("time", "When it happened according to the service, otherwise when Plenum saw it."),
    textColumn("status", "active, resolved, or whatever the service says."),
    ...ALARM_TRIGGER_COLUMNS,
    optionalTimeColumn("recovering_until", "End of the recovery time."),
    booleanColumn("late", "True if found later, by the sweep over resolved alarms."),
    booleanColumn("initial", "True if it was active when the worker first polled."),
    optionalTextColumn("behind_gateway", "Id of the offline gateway that explains it."),
    optionalNumberColumn("event_value", "The value of the last event that kept it active."),
    optionalTextColumn("event_text", "The same value as text, if the service has one."),
    optionalJsonColumn("before", "For alarm-changed: the fields that differ, with the old values."),
  ],
  ["alarm_id", "time"],
);

export const ALARM_EPISODE_TABLE: LakeTable = {
  name: "alarm_episode",
  about: "Alarms from start to end: one row per episode, completed at its end.",
  rowPolicy: "latest",
  columns: [
    ...ALARM_IDENTITY_COLUMNS,
    textColumn("state", "active, resolved, vanished (gone without a word) or out-of-scope."),
    timeColumn("raised_at", "As triggered_at, or 1970-01-01 if that is null; the same in every row of the episode."),
    ...ALARM_TRIGGER_COLUMNS,
    optionalTimeColumn("ended_at", "End according to the service, or when Plenum saw that it had disappeared."),
    ...EVENT_COLUMNS,
  ],
  key: ["source", "episode"],
  time: "raised_at",
  sortedBy: ["alarm_id", "raised_at"],
};

const defineValueColumns = (name: string, about: string) => [
  optionalNumberColumn(`${name}_number`, `${about}, where it is a number.`),
  optionalBooleanColumn(`${name}_boolean`, `${about}, where it is a boolean.`),
];

export const COMMAND_TABLE = defineEventTable(
  "command",
  "Commands: one row per accepted command, and one per result.",
  [
    ...SOURCE_AND_SITE_COLUMNS,
    optionalTextColumn("tag_id", "Id of the tag; null if the command named no known tag."),
    textColumn("command_id", "The command's id."),
    textColumn("event", "command-accepted, command-result or command-not-restored."),
    timeColumn("time", "When it happened."),
    optionalTextColumn("outcome", "For command-result: confirmed, accepted-unverified, mismatch, rejected and so on."),
    optionalTextColumn("reason", "Machine-readable reason; null when confirmed."),
    optionalTextColumn("message", "The reason as a sentence."),
    ...defineValueColumns("requested", "The requested value"),
    ...defineValueColumns("before", "The value before the write"),
    ...defineValueColumns("read_back", "The value after the write"),
    optionalBooleanColumn("rehearsal", "True for a rehearsal without a write."),
    optionalTimeColumn("expires_at", "For command-accepted: end of the time to live."),
  ],
  ["command_id", "time"],
);

export const GATEWAY_STATE_TABLE = defineEventTable(
  "gateway_state",
  "Gateways that went offline or online: one row per change.",
  [
    ...SOURCE_AND_SITE_COLUMNS,
    textColumn("gateway_id", "The gateway's id."),
    timeColumn("time", "When Plenum saw it."),
    optionalBooleanColumn("online", "Null if the service does not state it."),
    optionalBooleanColumn("whole_site", "True if the site has no other gateway."),
    optionalJsonColumn("hosts", "Hosts behind it: a list of id and name."),
  ],
  ["gateway_id", "time"],
);

export const WORKER_EVENT_TABLE = defineEventTable(
  "worker_event",
  "All other events, such as an unreachable service: one row per event.",
  [
    ...SOURCE_AND_SITE_COLUMNS,
    textColumn("event", "The kind of the event."),
    textColumn("subject", "Subject of the event."),
    timeColumn("time", "When it happened."),
    optionalJsonColumn("data", "What it says."),
  ],
  ["event", "time"],
);

export const DELIVERY_GAP_TABLE = defineEventTable(
  "delivery_gap",
  "Events that were dropped before a sink received them: one row per gap.",
  [
    SOURCE_NAME_COLUMN,
    textColumn("sink", "Name of the sink that did not receive them."),
    textColumn("reason", "age or size: which bound of the log was reached."),
    timeColumn("first_time", "Time of the first dropped event."),
    timeColumn("last_time", "Time of the last dropped event."),
    integerColumn("count", "How many."),
    timeColumn("time", "When they were dropped."),
  ],
  ["sink", "time"],
);

const VALIDITY_COLUMNS = [
  timeColumn("valid_from", "Start of this state, as far as Plenum saw it."),
  optionalTimeColumn("valid_to", "End of this state; null while it is current."),
  booleanColumn("is_current", "True for the current state."),
];

function defineVersionTable(name: string, about: string, idColumn: Column, columns: readonly Column[]): LakeTable {
  return {
    name,
    about: `${about}: one row per state.`,
    rowPolicy: "versions",
    columns: [
      SOURCE_NAME_COLUMN,
      ...(name === "site" ? [] : [SITE_ID_COLUMN]),
      idColumn,
      ...columns,
      ...VALIDITY_COLUMNS,
      ...EVENT_COLUMNS,
    ],
    key: ["source", idColumn.name, ...(name === "tag_system" ? ["system_id"] : []), "valid_from"],
    time: "valid_from",
    sortedBy: [idColumn.name, "valid_from"],
  };
}

const NAME_COLUMN = textColumn("name", "Name in the service.");
const DESCRIPTION_COLUMN = optionalTextColumn("description", "Its description.");

export const SITE_TABLE = defineVersionTable("site", "Sites", textColumn("site_id", "The site's id."), [NAME_COLUMN]);

export const SYSTEM_TABLE = defineVersionTable(
  "system",
  "Technical systems of buildings",
  textColumn("system_id", "The system's id."),
  [
    textColumn("code", "Its code, such as 320.001."),
    NAME_COLUMN,
    optionalTextColumn("discipline", "Such as Heating."),
    DESCRIPTION_COLUMN,
    optionalTextColumn("location", "Location."),
    optionalTextColumn("manufacturer", "Who made it."),
    optionalIntegerColumn("installed_year", "When it was installed."),
    optionalTextColumn("maintenance_notes", "Notes on its maintenance."),
    optionalIntegerColumn("datapoints_count", "Number of its tags according to the service."),
  ],
);

export const TAG_TABLE = defineVersionTable("tag", "Tags (data points)", TAG_ID_COLUMN, [
  NAME_COLUMN,
  DESCRIPTION_COLUMN,
  ...UNIT_COLUMNS,
  optionalTextColumn("alias", "Its alias in the names file (`sources[].names`); null without one."),
  optionalTextColumn("path", "Its path in the names file, such as b1/432.001/OE001; null without one."),
  optionalTextColumn("unit_code", "The code of its unit in the names file; null without one."),
]);

export const TAG_SYSTEM_TABLE = defineVersionTable("tag_system", "Which tags belong to which systems", TAG_ID_COLUMN, [
  textColumn("system_id", "The system's id."),
]);

export const GATEWAY_TABLE = defineVersionTable("gateway", "Gateways", textColumn("gateway_id", "The gateway's id."), [
  NAME_COLUMN,
  optionalTextColumn("version", "Version of its software."),
  optionalTextColumn("hardware", "Hardware version."),
  optionalTextColumn("ip_address", "Its address."),
  optionalTextColumn("location", "Location."),
]);

export const HOST_TABLE = defineVersionTable("host", "Hosts (devices)", textColumn("host_id", "The host's id."), [
  NAME_COLUMN,
  DESCRIPTION_COLUMN,
  optionalTextColumn("type", "Kind of device."),
  optionalTextColumn("model_name", "Its model."),
  optionalTextColumn("ip", "Its address."),
  optionalTextColumn("mac_address", "Its hardware address."),
  optionalTextColumn("gateway_id", "Id of its gateway."),
]);

export const LAKE_TABLES: readonly LakeTable[] = [
  TAG_VALUE_TABLE,
  HISTORY_TABLE,
  TOTAL_TABLE,
  ALARM_TABLE,
  ALARM_EPISODE_TABLE,
  COMMAND_TABLE,
  GATEWAY_STATE_TABLE,
  WORKER_EVENT_TABLE,
  DELIVERY_GAP_TABLE,
  SITE_TABLE,
  SYSTEM_TABLE,
  TAG_TABLE,
  TAG_SYSTEM_TABLE,
  GATEWAY_TABLE,
  HOST_TABLE,
];
