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

const SOURCE_COLUMN_DESCRIPTION = "Name of the monitored service in the configuration; empty for the worker itself.";
const SOURCE_NAME_COLUMN = textColumn("source", SOURCE_COLUMN_DESCRIPTION);
const SITE_ID_COLUMN = optionalTextColumn("site_id", "The site's id; null for facts about no single site.");
const TAG_ID_COLUMN = textColumn("tag_id", "The tag's id.");
const SOURCE_AND_SITE_COLUMNS = [SOURCE_NAME_COLUMN, SITE_ID_COLUMN];
const TAG_IDENTITY_COLUMNS = [...SOURCE_AND_SITE_COLUMNS, TAG_ID_COLUMN];

const EVENT_COLUMNS = [
  timeColumn(
    "observed_at",
    "When the worker committed the event; after its clock was set back by a day or less, just after what it committed last.",
  ),
  textColumn("event_id", "The event's id: the same fact has the same id after every retry and restart."),
  integerColumn(
    "position",
    "The event's place in the worker's log; 0 for what was told from the state. Of two rows about the same the one of the later observed_at counts, and of the same moment the one of the higher position: a worker that lost its state counts from 1 again.",
  ),
];

const TAG_VALUE_COLUMNS = [
  optionalNumberColumn("value_number", "The value, where it is a number."),
  optionalBooleanColumn("value_boolean", "The value, where it is a boolean."),
];

const UNIT_COLUMNS = [
  optionalTextColumn("unit", "The unit as the service writes it; nothing is converted."),
  optionalTextColumn("unit_ucum", "The same unit as a UCUM code, where that is certain."),
];

/** Columns of a time that the service states: the time, its original text and its offset. */
const serviceTimeColumns = (name: string, about: string) => [
  optionalTimeColumn(name, `${about}; null where the service's word is no moment, as one without an offset.`),
  optionalTextColumn(`${name}_raw`, "The same as the service wrote it."),
  optionalTextColumn(`${name}_offset`, "The offset with which it wrote that, such as +02:00; null for Z and for none."),
];

function defineEventTable(name: string, about: string, columns: Column[], sortedBy: string[]): LakeTable {
  const key = ["source", "event_id"];
  const [, timeColumn = ""] = sortedBy;
  return { name, about, rowPolicy: "append", columns: [...columns, ...EVENT_COLUMNS], key, time: timeColumn, sortedBy };
}

export const TAG_VALUE_TABLE = defineEventTable(
  "value",
  "Live values: one row for each value that was read and told.",
  [
    ...TAG_IDENTITY_COLUMNS,
    timeColumn("time", "When the reply arrived; the service states no time of its own for a read."),
    ...TAG_VALUE_COLUMNS,
    textColumn("quality", "good; uncertain; or bad: the gateway could not read it, and there is no value."),
    ...UNIT_COLUMNS,
    integerColumn("latency_ms", "Milliseconds between sending the request and having the reply."),
    optionalTextColumn("behind_gateway", "Id of the gateway that was offline and explains a bad value."),
  ],
  ["tag_id", "time"],
);

export const HISTORY_TABLE: LakeTable = {
  name: "history",
  about: "Logged history: one row for each bucket, and one more for each time it was told with another value.",
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
      "0 when the bucket was told first; otherwise when it was told anew, in milliseconds since 1970. The highest counts.",
    ),
    ...EVENT_COLUMNS,
  ],
  key: ["source", "tag_id", "resolution", "time_zone", "time", "revision"],
  time: "time",
  sortedBy: ["tag_id", "resolution", "time"],
};

export const TOTAL_TABLE = defineEventTable(
  "total",
  "Totals over a period: last value minus first, as the service gives it.",
  [
    ...TAG_IDENTITY_COLUMNS,
    textColumn("resolution", "5m, 1h, 1d, 1w or 1mo."),
    textColumn("time_zone", "IANA zone in which the service aligned the buckets."),
    timeColumn("from_time", "Start of the period."),
    timeColumn("to_time", "End of the period."),
    optionalNumberColumn("total", "Last minus first; null when unknown."),
    booleanColumn("is_reset", "The total is negative: the meter was reset or exchanged."),
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
  textColumn("alarm_source", "What the alarm is about, in the service's words."),
  textColumn("description", "The alarm's description."),
  ...serviceTimeColumns("triggered_at", "When it was triggered, by the service's word"),
  ...serviceTimeColumns("resolved_at", "When it was resolved, by the service's word"),
  booleanColumn("acknowledged", "Whether somebody has acknowledged it."),
  optionalTextColumn("acknowledged_by", "Who did."),
  optionalTextColumn("acknowledged_message", "What they wrote."),
  optionalTimeColumn("acknowledged_at", "When."),
];

export const ALARM_TABLE = defineEventTable(
  "alarm",
  "What happened to alarms: one row for each event of an episode.",
  [
    ...ALARM_IDENTITY_COLUMNS,
    textColumn("event", "alarm-raised, alarm-resolved and the other kinds of events about alarms."),
    timeColumn("time", "When it happened by the service's own word, otherwise when it was seen."),
    textColumn("status", "active, resolved, or whatever the service says."),
    ...ALARM_TRIGGER_COLUMNS,
    optionalTimeColumn("recovering_until", "Until when it counts as recovering."),
    booleanColumn("late", "Found after the fact, by the sweep over resolved alarms."),
    booleanColumn("initial", "It was active already when the worker looked for the first time."),
    optionalTextColumn("behind_gateway", "Id of the gateway that was offline and explains it."),
    optionalNumberColumn("event_value", "The value of the last event that kept it active."),
    optionalTextColumn("event_text", "The same as text, where the service has one."),
    optionalJsonColumn("before", "Of alarm-changed: the fields that differ, with the value before."),
  ],
  ["alarm_id", "time"],
);

export const ALARM_EPISODE_TABLE: LakeTable = {
  name: "alarm_episode",
  about: "Alarms from beginning to end: one row for each episode, closed when it is over.",
  rowPolicy: "latest",
  columns: [
    ...ALARM_IDENTITY_COLUMNS,
    textColumn("state", "active, resolved, vanished (gone without a word) or out-of-scope."),
    timeColumn("raised_at", "As triggered_at; 1970-01-01 where that is null, because it is the same in every row."),
    ...ALARM_TRIGGER_COLUMNS,
    optionalTimeColumn("ended_at", "When it was over: the service's word, or when it was seen to be gone."),
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
  "Commands to the building: one row for each that was accepted, and one for what became of it.",
  [
    ...SOURCE_AND_SITE_COLUMNS,
    optionalTextColumn("tag_id", "The tag's id; null where the command named none that is known."),
    textColumn("command_id", "The command's id."),
    textColumn("event", "command-accepted, command-result or command-not-restored."),
    timeColumn("time", "When it happened."),
    optionalTextColumn("outcome", "Of command-result: confirmed, accepted-unverified, mismatch, rejected and so on."),
    optionalTextColumn("reason", "Machine-readable reason; null when confirmed."),
    optionalTextColumn("message", "The same for a person."),
    ...defineValueColumns("requested", "What was asked for"),
    ...defineValueColumns("before", "What the tag held before"),
    ...defineValueColumns("read_back", "What the tag held afterwards"),
    optionalBooleanColumn("rehearsal", "True when everything but the write was done."),
    optionalTimeColumn("expires_at", "Of command-accepted: after this time it is not sent any more."),
  ],
  ["command_id", "time"],
);

export const GATEWAY_STATE_TABLE = defineEventTable(
  "gateway_state",
  "Gateways that went offline or came back: one row for each change.",
  [
    ...SOURCE_AND_SITE_COLUMNS,
    textColumn("gateway_id", "The gateway's id."),
    timeColumn("time", "When it was seen."),
    optionalBooleanColumn("online", "Null where the service does not say."),
    optionalBooleanColumn("whole_site", "True when the site has no other gateway."),
    optionalJsonColumn("hosts", "What hangs on it: a list of id and name."),
  ],
  ["gateway_id", "time"],
);

export const WORKER_EVENT_TABLE = defineEventTable(
  "worker_event",
  "Everything else that was told, such as a service that could not be reached: one row for each event.",
  [
    ...SOURCE_AND_SITE_COLUMNS,
    textColumn("event", "The kind of the event."),
    textColumn("subject", "What it is about."),
    timeColumn("time", "When it happened."),
    optionalJsonColumn("data", "What it says."),
  ],
  ["event", "time"],
);

export const DELIVERY_GAP_TABLE = defineEventTable(
  "delivery_gap",
  "What had to be dropped before a sink had taken it: one row for each gap.",
  [
    SOURCE_NAME_COLUMN,
    textColumn("sink", "Name of the sink that did not get it."),
    textColumn("reason", "age or size: which bound of the log was reached."),
    timeColumn("first_time", "Time of the first event that was dropped."),
    timeColumn("last_time", "Time of the last."),
    integerColumn("count", "How many."),
    timeColumn("time", "When it was dropped."),
  ],
  ["sink", "time"],
);

const VALIDITY_COLUMNS = [
  timeColumn("valid_from", "From when on it was so, as far as was seen."),
  optionalTimeColumn("valid_to", "Until when; null while it is so."),
  booleanColumn("is_current", "True while it is so."),
];

function defineVersionTable(name: string, about: string, id: Column, columns: readonly Column[]): LakeTable {
  return {
    name,
    about: `${about}: one row for each state that it was in.`,
    rowPolicy: "versions",
    columns: [
      SOURCE_NAME_COLUMN,
      ...(name === "site" ? [] : [SITE_ID_COLUMN]),
      id,
      ...columns,
      ...VALIDITY_COLUMNS,
      ...EVENT_COLUMNS,
    ],
    key: ["source", id.name, ...(name === "tag_system" ? ["system_id"] : []), "valid_from"],
    time: "valid_from",
    sortedBy: [id.name, "valid_from"],
  };
}

const NAME_COLUMN = textColumn("name", "Its name, as the service shows it.");
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
    optionalTextColumn("location", "Where it stands."),
    optionalTextColumn("manufacturer", "Who made it."),
    optionalIntegerColumn("installed_year", "When it was installed."),
    optionalTextColumn("maintenance_notes", "Notes on its maintenance."),
    optionalIntegerColumn("datapoints_count", "How many tags it has by the service's word."),
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
  optionalTextColumn("hardware", "What it is made of."),
  optionalTextColumn("ip_address", "Its address."),
  optionalTextColumn("location", "Where it stands."),
]);

export const HOST_TABLE = defineVersionTable("host", "Hosts (devices)", textColumn("host_id", "The host's id."), [
  NAME_COLUMN,
  DESCRIPTION_COLUMN,
  optionalTextColumn("type", "What kind of device it is."),
  optionalTextColumn("model_name", "Its model."),
  optionalTextColumn("ip", "Its address."),
  optionalTextColumn("mac_address", "Its hardware address."),
  optionalTextColumn("gateway_id", "Id of the gateway that it hangs on."),
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
