-- Views over the tables that the sink `postgres` keeps (connectors/postgres/README.md), for whoever queries them.
-- Run it as a role that may create in the schema, after the sink has made its tables, and again after an update:
--
--   psql --single-transaction -f docs/lake/postgresql.sql "dbname=buildings"
--
-- The schema is `plenum`, the sink's default; put another name in its place if yours has one.

-- The last value of each tag that the inventory has: one step in the index for each, however many values there are.
create or replace view plenum.current_value as
select tag.source, tag.site_id, tag.tag_id, tag.name, last.time, last.value_number, last.value_boolean, last.quality,
  last.unit, last.unit_ucum, last.behind_gateway
from plenum.tag
cross join lateral (
  select *
  from plenum.value
  where value.tag_id = tag.tag_id and value.source = tag.source
  order by value.time desc, value.observed_at desc, value.position desc
  limit 1
) as last
where tag.is_current;

-- History with its revisions applied: of each bucket what was told last.
create or replace view plenum.history_current as
select history.*
from plenum.history
where not exists (
  select
  from plenum.history as later
  where later.tag_id = history.tag_id
    and later.resolution = history.resolution
    and later.time = history.time
    and later.source = history.source
    and later.time_zone = history.time_zone
    and later.revision > history.revision
);

-- Alarms from beginning to end, with how long they lasted or have lasted up to now, and in seconds how long they lasted.
-- Null where it is not known since when.
create or replace view plenum.alarm_duration as
select alarm_episode.*,
  ended_at is null and state = 'active' as is_active,
  case
    when ended_at is not null then ended_at - triggered_at
    when state = 'active' then now() - triggered_at
  end as duration,
  extract(epoch from ended_at - triggered_at)::double precision as duration_s
from plenum.alarm_episode;

-- Live values with the names that tag, site and systems had at the time of the value. Before the first that is known of a
-- thing, its first names stand for it. A tag may belong to several systems, so they are lists, and no value comes twice.
create or replace view plenum.value_named as
select value.*, tag.name as tag_name, tag.description as tag_description, site.name as site_name,
  systems.codes as system_codes, systems.names as system_names
from plenum.value
left join lateral (
  select name, description
  from plenum.tag
  where tag.source = value.source and tag.tag_id = value.tag_id
  order by tag.valid_from <= value.time desc,
    case when tag.valid_from <= value.time then tag.valid_from end desc,
    tag.valid_from
  limit 1
) as tag on true
left join lateral (
  select name
  from plenum.site
  where site.source = value.source and site.site_id = value.site_id
  order by site.valid_from <= value.time desc,
    case when site.valid_from <= value.time then site.valid_from end desc,
    site.valid_from
  limit 1
) as site on true
left join lateral (
  select array_agg(system.code order by system.code, system.system_id) as codes,
    array_agg(system.name order by system.code, system.system_id) as names
  from (
    select tag_system.system_id
    from plenum.tag_system
    where tag_system.source = value.source and tag_system.tag_id = value.tag_id
    group by tag_system.system_id
    having bool_or(tag_system.valid_from <= value.time and (tag_system.valid_to is null or tag_system.valid_to > value.time))
      or min(tag_system.valid_from) > value.time
  ) as belongs
  cross join lateral (
    select system_id, code, name
    from plenum.system
    where system.source = value.source and system.system_id = belongs.system_id
    order by system.valid_from <= value.time desc,
      case when system.valid_from <= value.time then system.valid_from end desc,
      system.valid_from
    limit 1
  ) as system
) as systems on true;

-- The same for history, with its revisions applied.
create or replace view plenum.history_named as
select history.*, tag.name as tag_name, tag.description as tag_description, site.name as site_name,
  systems.codes as system_codes, systems.names as system_names
from plenum.history_current as history
left join lateral (
  select name, description
  from plenum.tag
  where tag.source = history.source and tag.tag_id = history.tag_id
  order by tag.valid_from <= history.time desc,
    case when tag.valid_from <= history.time then tag.valid_from end desc,
    tag.valid_from
  limit 1
) as tag on true
left join lateral (
  select name
  from plenum.site
  where site.source = history.source and site.site_id = history.site_id
  order by site.valid_from <= history.time desc,
    case when site.valid_from <= history.time then site.valid_from end desc,
    site.valid_from
  limit 1
) as site on true
left join lateral (
  select array_agg(system.code order by system.code, system.system_id) as codes,
    array_agg(system.name order by system.code, system.system_id) as names
  from (
    select tag_system.system_id
    from plenum.tag_system
    where tag_system.source = history.source and tag_system.tag_id = history.tag_id
    group by tag_system.system_id
    having bool_or(tag_system.valid_from <= history.time and (tag_system.valid_to is null or tag_system.valid_to > history.time))
      or min(tag_system.valid_from) > history.time
  ) as belongs
  cross join lateral (
    select system_id, code, name
    from plenum.system
    where system.source = history.source and system.system_id = belongs.system_id
    order by system.valid_from <= history.time desc,
      case when system.valid_from <= history.time then system.valid_from end desc,
      system.valid_from
    limit 1
  ) as system
) as systems on true;

-- What became of the history of each UTC day of a site that is known: the last revision (docs/completeness.md).
create or replace view plenum.completeness as
select distinct on (source, site_id, data ->> 'date')
  source, site_id,
  (data ->> 'date')::date as date,
  time as sealed_at,
  (data ->> 'revision')::bigint as revision,
  (data ->> 'revised')::bigint as revised,
  (data ->> 'series')::bigint as series,
  (data ->> 'expected')::bigint as expected,
  (data ->> 'had')::bigint as had,
  (data ->> 'null')::bigint as nulls,
  (data ->> 'absent')::bigint as absent,
  (data ->> 'withoutLog')::bigint as without_log,
  (data ->> 'refused')::bigint as refused,
  (data ->> 'pending')::bigint as pending,
  (data ->> 'notWanted')::bigint as not_wanted
from plenum.worker_event
where event = 'day-sealed'
order by source, site_id, data ->> 'date', observed_at desc, position desc;

-- Up to which UTC day, itself not included, each site's history is complete; with how many series hold it back.
create or replace view plenum.watermark as
select distinct on (source, site_id, data ->> 'resolution', data ->> 'timeZone', data ->> 'total')
  source, site_id,
  data ->> 'resolution' as resolution,
  data ->> 'timeZone' as time_zone,
  (data ->> 'total')::boolean as is_total,
  (data ->> 'from')::date as complete_from,
  (data ->> 'until')::date as complete_until,
  (data ->> 'series')::bigint as series,
  (data ->> 'waitingCount')::bigint as waiting,
  time as told_at
from plenum.worker_event
where event = 'history-complete' and data ->> 'until' is not null
order by source, site_id, data ->> 'resolution', data ->> 'timeZone', data ->> 'total', observed_at desc, position desc;
