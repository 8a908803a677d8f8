import type { Tag, TagNames } from "#src/core/model/building.ts";
import type { EventData, EventKind } from "#src/core/model/event.ts";

/** Where one field of an event's data arrives. Names are separated by spaces; `no` says why a writer leaves it out. */
export interface FieldPlace {
  readonly influxdb: string | NotCarried;
  /** Columns of the lake, `<table>.<column>`: Parquet, Delta Lake and PostgreSQL. */
  readonly lake: string | NotCarried;
  /** Keys of the MQTT state message; absent where MQTT carries the complete event. */
  readonly mqtt?: string | NotCarried;
}

export interface NotCarried {
  readonly reason: string;
}

type FieldName<T> = T extends unknown ? keyof T & string : never;
/** Names of an event's tag from the names file, e.g. `tag.alias`. */
type TagNameField<T> = T extends { readonly tag: Tag } ? `tag.${keyof TagNames}` : never;

const no = (reason: string): NotCarried => ({ reason });
const at = (influxdb: FieldPlace["influxdb"], lake: FieldPlace["lake"], mqtt?: FieldPlace["mqtt"]): FieldPlace => ({
  influxdb,
  lake,
  ...(mqtt === undefined ? {} : { mqtt }),
});

const WORKER_EVENT = "worker_event.data";

type WordOfText<Text extends string> = Text extends `${infer First} ${infer Rest}` ? First | WordOfText<Rest> : Text;

/** Fields with the same name in InfluxDB, in snake case, that `column` returns a lake column for. */
function sameName<Names extends string>(names: Names, column: (name: string) => FieldPlace["lake"]) {
  const toSnakeCase = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const entries = names.split(" ").map((name) => [name, at(toSnakeCase(name), column(toSnakeCase(name)))]);
  return Object.fromEntries(entries) as Readonly<Record<WordOfText<Names>, FieldPlace>>;
}

const inWorkerEvent = <Names extends string>(names: Names) => sameName(names, () => WORKER_EVENT);
const inTable = <Names extends string>(table: string, names: Names) => sameName(names, (name) => `${table}.${name}`);

const SITE = at("display_name object_id", "site.name site.site_id");
const GATEWAY_FIELDS = "display_name hardware ip_address location object_id online version";
const GATEWAY_COLUMNS =
  "gateway.gateway_id gateway.hardware gateway.ip_address gateway.location gateway.name gateway.version";
const GATEWAY = at(GATEWAY_FIELDS, GATEWAY_COLUMNS);
const HOST = at(
  "behind_gateway description display_name gateway host_type ip_address mac_address model_name object_id",
  "host.description host.gateway_id host.host_id host.ip host.mac_address host.model_name host.name host.type",
);
const SYSTEM = at(
  "code datapoints_count description discipline display_name installed_year location maintenance_notes manufacturer object_id",
  "system.code system.datapoints_count system.description system.discipline system.installed_year system.location system.maintenance_notes system.manufacturer system.name system.system_id",
);
const TAG = at("description display_name object_id unit", "tag.description tag.name tag.tag_id tag.unit tag.unit_ucum");
const TAG_NAMES = {
  "tag.alias": at("alias", "tag.alias"),
  "tag.path": at("path", "tag.path"),
  "tag.unitCode": at("unit_code", "tag.unit_code"),
};
const IN_TAG_TABLE = no("the table `tag` has it");
const IN_TAG_POINT = no("the points of tag-added and tag-changed have it");
const IN_INVENTORY_TOPIC = no("the topic `inventory` of the tag has it");
const TAG_NAMES_OF_SERIES = {
  "tag.alias": at("alias", IN_TAG_TABLE, IN_INVENTORY_TOPIC),
  "tag.path": at(IN_TAG_POINT, IN_TAG_TABLE, no("it is the topic")),
  "tag.unitCode": at(IN_TAG_POINT, IN_TAG_TABLE, IN_INVENTORY_TOPIC),
};
const tagNamesAt = (place: FieldPlace) => ({ "tag.alias": place, "tag.path": place, "tag.unitCode": place });
const TAG_NAMES_IN_WORKER_EVENT = tagNamesAt(at(IN_TAG_POINT, WORKER_EVENT));
const ALARM = at(
  "acknowledged acknowledged_at acknowledged_by acknowledged_message alarm_id alarm_source description last_active_at priority recovering_until resolved_at site trigger trigger_description trigger_enabled trigger_id triggered_at triggered_on value value_text",
  "alarm.acknowledged alarm.acknowledged_at alarm.acknowledged_by alarm.acknowledged_message alarm.alarm_id alarm.alarm_source alarm.description alarm.event_text alarm.event_value alarm.priority alarm.recovering_until alarm.resolved_at alarm.resolved_at_raw alarm.status alarm.trigger_description alarm.trigger_id alarm.trigger_name alarm.triggered_at alarm.triggered_at_offset alarm.triggered_at_raw",
);
const BEFORE = at("before", no("the row before it says so"));
const GATEWAY_STATE = {
  gateway: at("display_name gateway_id hardware ip_address location version", "gateway_state.gateway_id"),
  hosts: at("hosts", "gateway_state.hosts"),
  wholeSite: at("whole_site", "gateway_state.whole_site"),
};

const ONLY_FOR_REQUESTER = no("only for the requester");
const REQUESTER_FIELDS = {
  correlation: at(ONLY_FOR_REQUESTER, ONLY_FOR_REQUESTER),
  replyTo: at(ONLY_FOR_REQUESTER, ONLY_FOR_REQUESTER),
};

const SILENCE = {
  silence: at(
    "made_by reason silence silence_alarm silence_name silence_priorities silence_site silence_source since until",
    WORKER_EVENT,
  ),
  by: at("by", WORKER_EVENT),
};

const ALARM_FACT = {
  alarm: ALARM,
  episode: at("episode", "alarm.episode alarm_episode.episode"),
  late: at("late", "alarm.late"),
  behindGateway: at("behind_gateway", "alarm.behind_gateway"),
  superseded: at(no("a later event of the alarm says so"), no("a later row says so")),
  tickets: at("tickets", no("no column yet; the event and InfluxDB have them")),
};

/**
 * Every field of every event. A new field does not compile before it has a line here, and the test next to this file
 * changes the field and looks where the change arrives. Kafka, webhook, file and stdout carry the complete event.
 */
export const EVENT_FIELDS: {
  readonly [K in EventKind]: { readonly [F in FieldName<EventData[K]> | TagNameField<EventData[K]>]-?: FieldPlace };
} = {
  "site-added": { site: SITE },
  "site-changed": { site: SITE, before: BEFORE },
  "site-removed": { site: SITE },
  "site-status-changed": {
    ...inWorkerEvent("status reason since"),
    site: at(no("site_id says so"), WORKER_EVENT, "name site"),
  },
  "gateway-added": { gateway: at(GATEWAY_FIELDS, `${GATEWAY_COLUMNS} gateway_state.gateway_id gateway_state.online`) },
  "gateway-changed": { gateway: GATEWAY, before: BEFORE },
  "gateway-removed": { gateway: GATEWAY },
  "gateway-online": GATEWAY_STATE,
  "gateway-offline": GATEWAY_STATE,
  "host-added": { host: HOST },
  "host-changed": { host: HOST, before: BEFORE },
  "host-removed": { host: HOST },
  "system-added": { system: SYSTEM },
  "system-changed": { system: SYSTEM, before: BEFORE },
  "system-removed": { system: SYSTEM },
  "tag-added": { tag: TAG, ...TAG_NAMES },
  "tag-changed": { tag: TAG, ...TAG_NAMES, before: BEFORE },
  "tag-removed": { tag: TAG, ...TAG_NAMES },
  "tag-systems-changed": {
    ...tagNamesAt(at(IN_TAG_POINT, IN_TAG_TABLE)),
    tag: at("description display_name object_id unit", "tag_system.tag_id"),
    systems: at("systems", "tag_system.system_id"),
    before: at("systems_before", "tag_system.valid_to"),
  },
  "series-break": {
    ...TAG_NAMES_IN_WORKER_EVENT,
    ...inWorkerEvent("systems what"),
    tag: at("display_name tag_id unit", WORKER_EVENT),
    before: at("unit_before", WORKER_EVENT),
    since: at("last_before", WORKER_EVENT),
  },
  "alarm-raised": { ...ALARM_FACT, initial: at("initial", "alarm.initial") },
  "alarm-resolved": ALARM_FACT,
  "alarm-acknowledged": ALARM_FACT,
  "alarm-unacknowledged": ALARM_FACT,
  "alarm-recovering": ALARM_FACT,
  "alarm-retriggered": ALARM_FACT,
  "alarm-changed": { ...ALARM_FACT, before: at("before", "alarm.before") },
  "alarm-vanished": ALARM_FACT,
  "alarm-out-of-scope": ALARM_FACT,
  "tag-value": {
    ...TAG_NAMES_OF_SERIES,
    "tag.alias": at("alias", IN_TAG_TABLE, "alias"),
    tag: at("tag_id unit", "value.tag_id value.unit value.unit_ucum", "description name tag unit"),
    value: at("value", "value.value_number", "value"),
    quality: at("good quality", "value.quality", "quality"),
    time: at(no("the point has the time of the event"), "value.time", "ts"),
    latencyMs: at("latency_ms", "value.latency_ms", "latencyMs"),
    lastGood: at(
      no("earlier points and rows say so"),
      no("earlier points and rows say so"),
      "lastGoodTime lastGoodValue",
    ),
    type: at("type_before type_now", no("no column yet; the quality is `uncertain`"), "typeBefore typeNow"),
    behindGateway: at("behind_gateway", "value.behind_gateway", "behindGateway"),
    staleReason: at("stale_reason", WORKER_EVENT, "staleReason"),
  },
  "tag-history": {
    ...TAG_NAMES_OF_SERIES,
    tag: at("tag_id unit", "history.tag_id history.unit history.unit_ucum", "name tag unit"),
    resolution: at("resolution", "history.resolution", "resolution"),
    timeZone: at("time_zone", "history.time_zone", "timeZone"),
    points: at("value time good", "history.value_number history.time history.quality", "points"),
    origin: at("origin", "history.origin", "origin"),
    revised: at("revised", "history.revision", "revised"),
  },
  "tag-total": {
    ...TAG_NAMES_OF_SERIES,
    tag: at("tag_id unit", "total.tag_id total.unit total.unit_ucum", "name tag unit"),
    resolution: at("resolution", "total.resolution", "resolution"),
    timeZone: at("time_zone", "total.time_zone", "timeZone"),
    from: at("time", "total.from_time", "from"),
    to: at("to", "total.to_time", "to"),
    total: at("value", "total.total", "total"),
    reset: at("reset", "total.is_reset", "reset"),
  },
  "history-complete": {
    ...TAG_NAMES_IN_WORKER_EVENT,
    ...inWorkerEvent(
      "resolution timeZone total firstDate lastDate expected had null absent withoutLog refused pending notWanted from until series",
    ),
    tag: at("tag_id", WORKER_EVENT),
    site: at(no("site_id says so"), WORKER_EVENT),
    waitingCount: at("waiting", WORKER_EVENT),
    waiting: at(no("a list of objects"), WORKER_EVENT),
  },
  "day-sealed": {
    ...inWorkerEvent("revision revised series expected had null absent withoutLog refused pending notWanted"),
    site: at(no("site_id says so"), WORKER_EVENT),
    date: at("time", WORKER_EVENT),
    timeZones: at(no("a list"), WORKER_EVENT),
    byResolution: at(no("a list of objects"), WORKER_EVENT),
    seriesWithoutLog: at(no("a list of objects"), no("a list of objects"), no("a list of objects")),
    seriesWithoutLogCount: at(no("without_log counts buckets"), WORKER_EVENT),
    seriesRefused: at(no("a list of objects"), no("a list of objects"), no("a list of objects")),
    seriesRefusedCount: at(no("refused counts buckets"), WORKER_EVENT),
  },
  "command-accepted": {
    ...inTable("command", "commandId tagId expiresAt"),
    requested: at("requested", "command.requested_number"),
    ...sameName("waitMs messageRequests messageSeconds", () => no("an estimate")),
    forMs: at("for_ms", no("only the command's journal needs it")),
    needsSecond: at("needs_second", no("only while it waits")),
    ...REQUESTER_FIELDS,
  },
  "command-result": {
    ...inTable("command", "commandId tagId outcome reason message rehearsal"),
    requested: at("requested", "command.requested_number"),
    before: at("before", "command.before_number"),
    readBack: at("read_back", "command.read_back_number"),
    ...REQUESTER_FIELDS,
  },
  "command-not-restored": {
    ...inTable("command", "commandId tagId reason message"),
    inForce: at("in_force", "command.read_back_number"),
    since: at("since", no("the result of the command says so")),
    wanted: at("wanted", "command.requested_number"),
    dueAt: at("due_at", no("the time of the event says so")),
  },
  "audit-head": inWorkerEvent("records head"),
  "silence-started": SILENCE,
  "silence-ended": SILENCE,
  "token-expiring": inWorkerEvent("expiresAt daysLeft"),
  "source-unavailable": inWorkerEvent("reason since"),
  "source-available": { unavailableSince: at("since", WORKER_EVENT) },
  "worker-alive": { intervalSeconds: at("interval_s", WORKER_EVENT), ...inWorkerEvent("version alarmsPolledAt") },
  "configuration-changed": { ...inWorkerEvent("by pending"), changes: at("changed count", WORKER_EVENT) },
  "delivery-gap": inTable("delivery_gap", "sink reason firstTime lastTime count"),
};
