import type { Column, ColumnType, Table } from "./table.ts";

/** Tables of the lake with their columns; docs/lake/tables.md is generated from them. */

const column =
  (type: ColumnType, isNullable = false) =>
  (name: string, about: string): Column => ({ name, type, isNullable, about });

const text = column("text");
const textOrNull = column("text", true);
const time = column("time");
const timeOrNull = column("time", true);
const numberOrNull = column("number", true);
const integer = column("integer");
const integerOrNull = column("integer", true);
const boolean = column("boolean");
const booleanOrNull = column("boolean", true);
const jsonOrNull = column("json", true);

const SOURCE_ABOUT = "Name of the monitored service in the configuration; empty for the worker itself.";
const SOURCE_COLUMN = text("source", SOURCE_ABOUT);
const SITE_COLUMN = textOrNull("site_id", "The site's id; null for facts about no single site.");
const TAG_COLUMN = text("tag_id", "The tag's id.");
const SITE_COLUMNS = [SOURCE_COLUMN, SITE_COLUMN];
const TAG_COLUMNS = [...SITE_COLUMNS, TAG_COLUMN];

const TRACE_COLUMNS = [
  time(
    "observed_at",
    "When the worker committed the event; after its clock was set back by a day or less, just after what it committed last.",
  ),
  text("event_id", "The event's id: the same fact has the same id after every retry and restart."),
  integer(
    "position",
    "The event's place in the worker's log; 0 for what was told from the state. Of two rows about the same the one of the later observed_at counts, and of the same moment the one of the higher position: a worker that lost its state counts from 1 again.",
  ),
];

const VALUE_COLUMNS = [
  numberOrNull("value_number", "The value, where it is a number."),
  booleanOrNull("value_boolean", "The value, where it is a boolean."),
];

const UNIT_COLUMNS = [
  textOrNull("unit", "The unit as the service writes it; nothing is converted."),
  textOrNull("unit_ucum", "The same unit as a UCUM code, where that is certain."),
];

/** A time that the service states, and its original text. */
const statedTime = (name: string, about: string) => [
  timeOrNull(name, `${about}; null where the service's word is no moment, as one without an offset.`),
  textOrNull(`${name}_raw`, "The same as the service wrote it."),
  textOrNull(`${name}_offset`, "The offset with which it wrote that, such as +02:00; null for Z and for none."),
];

/** Table with one row for each event. */
function occurrences(name: string, about: string, columns: readonly Column[], sortedBy: readonly string[]): Table {
  const key = ["source", "event_id"];
  const [, time = ""] = sortedBy;
  return { name, about, rowPolicy: "append", columns: [...columns, ...TRACE_COLUMNS], key, time, sortedBy };
}

export const VALUE_TABLE = occurrences(
  "value",
  "Live values: one row for each value that was read and told.",
  [
    ...TAG_COLUMNS,
    time("time", "When the reply arrived; the service states no time of its own for a read."),
    ...VALUE_COLUMNS,
    text("quality", "good; uncertain; or bad: the gateway could not read it, and there is no value."),
    ...UNIT_COLUMNS,
    integer("latency_ms", "Milliseconds between sending the request and having the reply."),
    textOrNull("behind_gateway", "Id of the gateway that was offline and explains a bad value."),
  ],
  ["tag_id", "time"],
);

export const HISTORY_TABLE: Table = {
  name: "history",
  about: "Logged history: one row for each bucket, and one more for each time it was told with another value.",
  rowPolicy: "append",
  columns: [
    ...TAG_COLUMNS,
    text("resolution", "5m, 1h, 1d, 1w or 1mo."),
    text("time_zone", "IANA zone in which the service aligned the buckets."),
    time("time", "Start of the bucket, as the service stamps it."),
    ...VALUE_COLUMNS,
    text("quality", "good; or bad: the log has the bucket, but no value in it."),
    ...UNIT_COLUMNS,
    text("origin", "live: soon after the bucket closed; backfill: older than the following of this series."),
    integer(
      "revision",
      "0 when the bucket was told first; otherwise when it was told anew, in milliseconds since 1970. The highest counts.",
    ),
    ...TRACE_COLUMNS,
  ],
  key: ["source", "tag_id", "resolution", "time_zone", "time", "revision"],
  time: "time",
  sortedBy: ["tag_id", "resolution", "time"],
};

export const TOTAL_TABLE = occurrences(
  "total",
  "Totals over a period: last value minus first, as the service gives it.",
  [
    ...TAG_COLUMNS,
    text("resolution", "5m, 1h, 1d, 1w or 1mo."),
    text("time_zone", "IANA zone in which the service aligned the buckets."),
    time("from_time", "Start of the period."),
    time("to_time", "End of the period."),
    numberOrNull("total", "Last minus first; null when unknown."),
    boolean("is_reset", "The total is negative: the meter was reset or exchanged."),
    ...UNIT_COLUMNS,
  ],
  ["tag_id", "from_time"],
);

const ALARM_IDENTITY = [
  ...SITE_COLUMNS,
  text("alarm_id", "The alarm's id."),
  text("episode", "Alarm id and trigger time: one episode is one raise and one end."),
];

const ALARM_TRIGGER = [
  text("priority", "A (highest), B or C, as the service states it."),
  text("trigger_id", "The trigger's id."),
  text("trigger_name", "The trigger's name."),
  textOrNull("trigger_description", "The trigger's description."),
  text("alarm_source", "What the alarm is about, in the service's words."),
  text("description", "The alarm's description."),
  ...statedTime("triggered_at", "When it was triggered, by the service's word"),
  ...statedTime("resolved_at", "When it was resolved, by the service's word"),
  boolean("acknowledged", "Whether somebody has acknowledged it."),
  textOrNull("acknowledged_by", "Who did."),
  textOrNull("acknowledged_message", "What they wrote."),
  timeOrNull("acknowledged_at", "When."),
];

export const ALARM_TABLE = occurrences(
  "alarm",
  "What happened to alarms: one row for each event of an episode.",
  [
    ...ALARM_IDENTITY,
    text("event", "alarm-raised, alarm-resolved and the other kinds of events about alarms."),
    time("time", "When it happened by the service's own word, otherwise when it was seen."),
    text("status", "active, resolved, or whatever the service says."),
    ...ALARM_TRIGGER,
    timeOrNull("recovering_until", "Until when it counts as recovering."),
    boolean("late", "Found after the fact, by the sweep over resolved alarms."),
    boolean("initial", "It was active already when the worker looked for the first time."),
    textOrNull("behind_gateway", "Id of the gateway that was offline and explains it."),
    numberOrNull("event_value", "The value of the last event that kept it active."),
    textOrNull("event_text", "The same as text, where the service has one."),
    jsonOrNull("before", "Of alarm-changed: the fields that differ, with the value before."),
  ],
  ["alarm_id", "time"],
);

export const ALARM_EPISODE_TABLE: Table = {
  name: "alarm_episode",
  about: "Alarms from beginning to end: one row for each episode, closed when it is over.",
  rowPolicy: "latest",
  columns: [
    ...ALARM_IDENTITY,
    text("state", "active, resolved, vanished (gone without a word) or out-of-scope."),
    time("raised_at", "As triggered_at; 1970-01-01 where that is null, because it is the same in every row."),
    ...ALARM_TRIGGER,
    timeOrNull("ended_at", "When it was over: the service's word, or when it was seen to be gone."),
    ...TRACE_COLUMNS,
  ],
  key: ["source", "episode"],
  time: "raised_at",
  sortedBy: ["alarm_id", "raised_at"],
};

const valueColumns = (name: string, about: string) => [
  numberOrNull(`${name}_number`, `${about}, where it is a number.`),
  booleanOrNull(`${name}_boolean`, `${about}, where it is a boolean.`),
];

export const COMMAND_TABLE = occurrences(
  "command",
  "Commands to the building: one row for each that was accepted, and one for what became of it.",
  [
    ...SITE_COLUMNS,
    textOrNull("tag_id", "The tag's id; null where the command named none that is known."),
    text("command_id", "The command's id."),
    text("event", "command-accepted, command-result or command-not-restored."),
    time("time", "When it happened."),
    textOrNull("outcome", "Of command-result: confirmed, accepted-unverified, mismatch, rejected and so on."),
    textOrNull("reason", "Machine-readable reason; null when confirmed."),
    textOrNull("message", "The same for a person."),
    ...valueColumns("requested", "What was asked for"),
    ...valueColumns("before", "What the tag held before"),
    ...valueColumns("read_back", "What the tag held afterwards"),
    booleanOrNull("rehearsal", "True when everything but the write was done."),
    timeOrNull("expires_at", "Of command-accepted: after this time it is not sent any more."),
  ],
  ["command_id", "time"],
);

export const GATEWAY_STATE_TABLE = occurrences(
  "gateway_state",
  "Gateways that went offline or came back: one row for each change.",
  [
    ...SITE_COLUMNS,
    text("gateway_id", "The gateway's id."),
    time("time", "When it was seen."),
    booleanOrNull("online", "Null where the service does not say."),
    booleanOrNull("whole_site", "True when the site has no other gateway."),
    jsonOrNull("hosts", "What hangs on it: a list of id and name."),
  ],
  ["gateway_id", "time"],
);

export const WORKER_EVENT_TABLE = occurrences(
  "worker_event",
  "Everything else that was told, such as a service that could not be reached: one row for each event.",
  [
    ...SITE_COLUMNS,
    text("event", "The kind of the event."),
    text("subject", "What it is about."),
    time("time", "When it happened."),
    jsonOrNull("data", "What it says."),
  ],
  ["event", "time"],
);

export const DELIVERY_GAP_TABLE = occurrences(
  "delivery_gap",
  "What had to be dropped before a sink had taken it: one row for each gap.",
  [
    SOURCE_COLUMN,
    text("sink", "Name of the sink that did not get it."),
    text("reason", "age or size: which bound of the log was reached."),
    time("first_time", "Time of the first event that was dropped."),
    time("last_time", "Time of the last."),
    integer("count", "How many."),
    time("time", "When it was dropped."),
  ],
  ["sink", "time"],
);

/** `applyUpdates` sets `valid_to` and `is_current`. */
const VALIDITY_COLUMNS = [
  time("valid_from", "From when on it was so, as far as was seen."),
  timeOrNull("valid_to", "Until when; null while it is so."),
  boolean("is_current", "True while it is so."),
];

function dimension(name: string, about: string, id: Column, columns: readonly Column[]): Table {
  return {
    name,
    about: `${about}: one row for each state that it was in.`,
    rowPolicy: "versions",
    columns: [
      SOURCE_COLUMN,
      ...(name === "site" ? [] : [SITE_COLUMN]),
      id,
      ...columns,
      ...VALIDITY_COLUMNS,
      ...TRACE_COLUMNS,
    ],
    key: ["source", id.name, ...(name === "tag_system" ? ["system_id"] : []), "valid_from"],
    time: "valid_from",
    sortedBy: [id.name, "valid_from"],
  };
}

const NAME_COLUMN = text("name", "Its name, as the service shows it.");
const DESCRIPTION_COLUMN = textOrNull("description", "Its description.");

export const SITE_TABLE = dimension("site", "Sites", text("site_id", "The site's id."), [NAME_COLUMN]);

export const SYSTEM_TABLE = dimension(
  "system",
  "Technical systems of buildings",
  text("system_id", "The system's id."),
  [
    text("code", "Its code, such as 320.001."),
    NAME_COLUMN,
    textOrNull("discipline", "Such as Heating."),
    DESCRIPTION_COLUMN,
    textOrNull("location", "Where it stands."),
    textOrNull("manufacturer", "Who made it."),
    integerOrNull("installed_year", "When it was installed."),
    textOrNull("maintenance_notes", "Notes on its maintenance."),
    integerOrNull("datapoints_count", "How many tags it has by the service's word."),
  ],
);

export const TAG_TABLE = dimension("tag", "Tags (data points)", TAG_COLUMN, [
  NAME_COLUMN,
  DESCRIPTION_COLUMN,
  ...UNIT_COLUMNS,
]);

export const TAG_SYSTEM_TABLE = dimension("tag_system", "Which tags belong to which systems", TAG_COLUMN, [
  text("system_id", "The system's id."),
]);

export const GATEWAY_TABLE = dimension("gateway", "Gateways", text("gateway_id", "The gateway's id."), [
  NAME_COLUMN,
  textOrNull("version", "Version of its software."),
  textOrNull("hardware", "What it is made of."),
  textOrNull("ip_address", "Its address."),
  textOrNull("location", "Where it stands."),
]);

export const HOST_TABLE = dimension("host", "Hosts (devices)", text("host_id", "The host's id."), [
  NAME_COLUMN,
  DESCRIPTION_COLUMN,
  textOrNull("type", "What kind of device it is."),
  textOrNull("model_name", "Its model."),
  textOrNull("ip", "Its address."),
  textOrNull("mac_address", "Its hardware address."),
  textOrNull("gateway_id", "Id of the gateway that it hangs on."),
]);

/** All tables: facts first, then dimensions. */
export const TABLES: readonly Table[] = [
  VALUE_TABLE,
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
