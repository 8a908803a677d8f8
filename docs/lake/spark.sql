-- The lake in Spark SQL: tables over the Parquet files, and views that answer what people ask.
-- Start spark-sql in the lake's folder, or put the lake's address before each path ('s3a://bucket/lake/value').
-- Nothing is copied. For a Delta table write USING delta.

SET spark.sql.session.timeZone=UTC;

CREATE OR REPLACE TEMPORARY VIEW `value` USING parquet OPTIONS (path 'value', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `history` USING parquet OPTIONS (path 'history', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `total` USING parquet OPTIONS (path 'total', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `alarm` USING parquet OPTIONS (path 'alarm', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `alarm_episode` USING parquet OPTIONS (path 'alarm_episode', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `command` USING parquet OPTIONS (path 'command', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `gateway_state` USING parquet OPTIONS (path 'gateway_state', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `worker_event` USING parquet OPTIONS (path 'worker_event', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `delivery_gap` USING parquet OPTIONS (path 'delivery_gap', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `site` USING parquet OPTIONS (path 'site', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `system` USING parquet OPTIONS (path 'system', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `tag` USING parquet OPTIONS (path 'tag', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `tag_system` USING parquet OPTIONS (path 'tag_system', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `gateway` USING parquet OPTIONS (path 'gateway', mergeSchema 'true');
CREATE OR REPLACE TEMPORARY VIEW `host` USING parquet OPTIONS (path 'host', mergeSchema 'true');

-- Views

-- The last value of each tag that was told.
CREATE OR REPLACE TEMPORARY VIEW current_value AS
SELECT v.*
FROM (
  SELECT t.*, row_number() OVER (PARTITION BY source, tag_id ORDER BY time DESC, observed_at DESC, position DESC) AS nth
  FROM `value` t
) v
WHERE nth = 1;

-- History with revisions applied: each bucket once, with the value that was told last.
CREATE OR REPLACE TEMPORARY VIEW history_current AS
SELECT h.*
FROM (
  SELECT t.*, row_number() OVER (
    PARTITION BY source, tag_id, resolution, time_zone, time
    ORDER BY revision DESC, observed_at DESC, position DESC
  ) AS nth
  FROM history t
) h
WHERE nth = 1;

-- Alarms from beginning to end, with how long they lasted, in seconds; null while they last, and where it is not known since
-- when.
CREATE OR REPLACE TEMPORARY VIEW alarm_duration AS
SELECT e.*, unix_timestamp(ended_at) - unix_timestamp(triggered_at) AS duration_s
FROM alarm_episode e;

-- Each state of a tag, from when on it holds. The first one known holds for all times before it as well: history reaches
-- back to when nobody looked yet.
CREATE OR REPLACE TEMPORARY VIEW tag_state AS
SELECT t.*, CASE WHEN nth = 1 THEN TIMESTAMP '1970-01-01 00:00:00' ELSE valid_from END AS holds_from
FROM (
  SELECT tag.*, row_number() OVER (PARTITION BY source, tag_id ORDER BY valid_from) AS nth FROM tag
) t;

-- Systems that a tag belongs to now, as one text.
CREATE OR REPLACE TEMPORARY VIEW tag_systems AS
SELECT m.source, m.tag_id, array_join(array_sort(collect_set(s.code)), ', ') AS system_codes, array_join(array_sort(collect_set(s.name)), ', ') AS system_names
FROM tag_system m
JOIN `system` s ON s.source = m.source AND s.system_id = m.system_id AND s.is_current
WHERE m.is_current
GROUP BY m.source, m.tag_id;

-- Values with what their tag was called at that moment, its systems and its site.
CREATE OR REPLACE TEMPORARY VIEW value_named AS
SELECT v.*, t.name AS tag_name, t.description AS tag_description, s.system_codes, s.system_names, b.name AS site_name
FROM `value` v
LEFT JOIN tag_state t ON t.source = v.source AND t.tag_id = v.tag_id
  AND v.time >= t.holds_from AND (t.valid_to IS NULL OR v.time < t.valid_to)
LEFT JOIN tag_systems s ON s.source = v.source AND s.tag_id = v.tag_id
LEFT JOIN site b ON b.source = v.source AND b.site_id = v.site_id AND b.is_current;

-- The same for history.
CREATE OR REPLACE TEMPORARY VIEW history_named AS
SELECT v.*, t.name AS tag_name, t.description AS tag_description, s.system_codes, s.system_names, b.name AS site_name
FROM history_current v
LEFT JOIN tag_state t ON t.source = v.source AND t.tag_id = v.tag_id
  AND v.time >= t.holds_from AND (t.valid_to IS NULL OR v.time < t.valid_to)
LEFT JOIN tag_systems s ON s.source = v.source AND s.tag_id = v.tag_id
LEFT JOIN site b ON b.source = v.source AND b.site_id = v.site_id AND b.is_current;

-- What became of the history of each UTC day of a site that is known: the last revision (docs/completeness.md).
CREATE OR REPLACE TEMPORARY VIEW completeness AS
SELECT source, site_id,
  CAST(get_json_object(data, '$.date') AS DATE) AS date,
  time AS sealed_at,
  CAST(get_json_object(data, '$.revision') AS BIGINT) AS revision,
  CAST(get_json_object(data, '$.revised') AS BIGINT) AS revised,
  CAST(get_json_object(data, '$.series') AS BIGINT) AS series,
  CAST(get_json_object(data, '$.expected') AS BIGINT) AS expected,
  CAST(get_json_object(data, '$.had') AS BIGINT) AS had,
  CAST(get_json_object(data, '$.null') AS BIGINT) AS nulls,
  CAST(get_json_object(data, '$.absent') AS BIGINT) AS absent,
  CAST(get_json_object(data, '$.withoutLog') AS BIGINT) AS without_log,
  CAST(get_json_object(data, '$.refused') AS BIGINT) AS refused,
  CAST(get_json_object(data, '$.pending') AS BIGINT) AS pending,
  CAST(get_json_object(data, '$.notWanted') AS BIGINT) AS not_wanted
FROM (
  SELECT t.*, row_number() OVER (
    PARTITION BY source, site_id, get_json_object(data, '$.date')
    ORDER BY observed_at DESC, position DESC
  ) AS nth
  FROM worker_event t
  WHERE event = 'day-sealed'
) e
WHERE nth = 1;

-- Up to which UTC day, itself not included, each site's history is complete; with how many series hold it back.
CREATE OR REPLACE TEMPORARY VIEW watermark AS
SELECT source, site_id,
  get_json_object(data, '$.resolution') AS resolution,
  get_json_object(data, '$.timeZone') AS time_zone,
  CAST(get_json_object(data, '$.total') AS BOOLEAN) AS is_total,
  CAST(get_json_object(data, '$.from') AS DATE) AS complete_from,
  CAST(get_json_object(data, '$.until') AS DATE) AS complete_until,
  CAST(get_json_object(data, '$.series') AS BIGINT) AS series,
  CAST(get_json_object(data, '$.waitingCount') AS BIGINT) AS waiting,
  time AS told_at
FROM (
  SELECT t.*, row_number() OVER (
    PARTITION BY source, site_id, get_json_object(data, '$.resolution'),
      get_json_object(data, '$.timeZone'), get_json_object(data, '$.total')
    ORDER BY observed_at DESC, position DESC
  ) AS nth
  FROM worker_event t
  WHERE event = 'history-complete' AND get_json_object(data, '$.until') IS NOT NULL
) e
WHERE nth = 1;
