-- The lake in DuckDB: tables over the Parquet files, and views that answer what people ask.
-- Start DuckDB in the lake's folder (or: SET file_search_path = '/srv/lake';) and run this file. Nothing is copied.

SET TimeZone = 'UTC';

CREATE OR REPLACE VIEW "value" AS SELECT * FROM read_parquet('value/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW history AS SELECT * FROM read_parquet('history/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW total AS SELECT * FROM read_parquet('total/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW alarm AS SELECT * FROM read_parquet('alarm/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW alarm_episode AS SELECT * FROM read_parquet('alarm_episode/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW command AS SELECT * FROM read_parquet('command/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW gateway_state AS SELECT * FROM read_parquet('gateway_state/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW worker_event AS SELECT * FROM read_parquet('worker_event/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW delivery_gap AS SELECT * FROM read_parquet('delivery_gap/**/*.parquet', hive_partitioning = true, union_by_name = true);
CREATE OR REPLACE VIEW site AS SELECT * FROM read_parquet('site/**/*.parquet', union_by_name = true);
CREATE OR REPLACE VIEW system AS SELECT * FROM read_parquet('system/**/*.parquet', union_by_name = true);
CREATE OR REPLACE VIEW tag AS SELECT * FROM read_parquet('tag/**/*.parquet', union_by_name = true);
CREATE OR REPLACE VIEW tag_system AS SELECT * FROM read_parquet('tag_system/**/*.parquet', union_by_name = true);
CREATE OR REPLACE VIEW gateway AS SELECT * FROM read_parquet('gateway/**/*.parquet', union_by_name = true);
CREATE OR REPLACE VIEW host AS SELECT * FROM read_parquet('host/**/*.parquet', union_by_name = true);

-- Views

-- The last value of each tag that was told.
CREATE OR REPLACE VIEW current_value AS
SELECT v.*
FROM (
  SELECT t.*, row_number() OVER (PARTITION BY source, tag_id ORDER BY time DESC, observed_at DESC, position DESC) AS nth
  FROM "value" t
) v
WHERE nth = 1;

-- History with revisions applied: each bucket once, with the value that was told last.
CREATE OR REPLACE VIEW history_current AS
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
CREATE OR REPLACE VIEW alarm_duration AS
SELECT e.*, epoch(ended_at) - epoch(triggered_at) AS duration_s
FROM alarm_episode e;

-- Each state of a tag, from when on it holds. The first one known holds for all times before it as well: history reaches
-- back to when nobody looked yet.
CREATE OR REPLACE VIEW tag_state AS
SELECT t.*, CASE WHEN nth = 1 THEN TIMESTAMPTZ '1970-01-01 00:00:00+00' ELSE valid_from END AS holds_from
FROM (
  SELECT tag.*, row_number() OVER (PARTITION BY source, tag_id ORDER BY valid_from) AS nth FROM tag
) t;

-- Systems that a tag belongs to now, as one text.
CREATE OR REPLACE VIEW tag_systems AS
SELECT m.source, m.tag_id, string_agg(s.code, ', ' ORDER BY s.code) AS system_codes, string_agg(s.name, ', ' ORDER BY s.code) AS system_names
FROM tag_system m
JOIN system s ON s.source = m.source AND s.system_id = m.system_id AND s.is_current
WHERE m.is_current
GROUP BY m.source, m.tag_id;

-- Values with what their tag was called at that moment, its systems and its site.
CREATE OR REPLACE VIEW value_named AS
SELECT v.*, t.name AS tag_name, t.description AS tag_description, s.system_codes, s.system_names, b.name AS site_name
FROM "value" v
LEFT JOIN tag_state t ON t.source = v.source AND t.tag_id = v.tag_id
  AND v.time >= t.holds_from AND (t.valid_to IS NULL OR v.time < t.valid_to)
LEFT JOIN tag_systems s ON s.source = v.source AND s.tag_id = v.tag_id
LEFT JOIN site b ON b.source = v.source AND b.site_id = v.site_id AND b.is_current;

-- The same for history.
CREATE OR REPLACE VIEW history_named AS
SELECT v.*, t.name AS tag_name, t.description AS tag_description, s.system_codes, s.system_names, b.name AS site_name
FROM history_current v
LEFT JOIN tag_state t ON t.source = v.source AND t.tag_id = v.tag_id
  AND v.time >= t.holds_from AND (t.valid_to IS NULL OR v.time < t.valid_to)
LEFT JOIN tag_systems s ON s.source = v.source AND s.tag_id = v.tag_id
LEFT JOIN site b ON b.source = v.source AND b.site_id = v.site_id AND b.is_current;

-- What became of the history of each UTC day of a site that is known: the last revision (docs/completeness.md).
CREATE OR REPLACE VIEW completeness AS
SELECT source, site_id,
  CAST(json_extract_string(data, '$.date') AS DATE) AS date,
  time AS sealed_at,
  CAST(json_extract(data, '$.revision') AS BIGINT) AS revision,
  CAST(json_extract(data, '$.revised') AS BIGINT) AS revised,
  CAST(json_extract(data, '$.series') AS BIGINT) AS series,
  CAST(json_extract(data, '$.expected') AS BIGINT) AS expected,
  CAST(json_extract(data, '$.had') AS BIGINT) AS had,
  CAST(json_extract(data, '$.null') AS BIGINT) AS nulls,
  CAST(json_extract(data, '$.absent') AS BIGINT) AS absent,
  CAST(json_extract(data, '$.withoutLog') AS BIGINT) AS without_log,
  CAST(json_extract(data, '$.refused') AS BIGINT) AS refused,
  CAST(json_extract(data, '$.pending') AS BIGINT) AS pending,
  CAST(json_extract(data, '$.notWanted') AS BIGINT) AS not_wanted
FROM (
  SELECT t.*, row_number() OVER (
    PARTITION BY source, site_id, json_extract_string(data, '$.date')
    ORDER BY observed_at DESC, position DESC
  ) AS nth
  FROM worker_event t
  WHERE event = 'day-sealed'
) e
WHERE nth = 1;

-- Up to which UTC day, itself not included, each site's history is complete; with how many series hold it back.
CREATE OR REPLACE VIEW watermark AS
SELECT source, site_id,
  json_extract_string(data, '$.resolution') AS resolution,
  json_extract_string(data, '$.timeZone') AS time_zone,
  CAST(json_extract(data, '$.total') AS BOOLEAN) AS is_total,
  CAST(json_extract_string(data, '$.from') AS DATE) AS complete_from,
  CAST(json_extract_string(data, '$.until') AS DATE) AS complete_until,
  CAST(json_extract(data, '$.series') AS BIGINT) AS series,
  CAST(json_extract(data, '$.waitingCount') AS BIGINT) AS waiting,
  time AS told_at
FROM (
  SELECT t.*, row_number() OVER (
    PARTITION BY source, site_id, json_extract_string(data, '$.resolution'),
      json_extract_string(data, '$.timeZone'), json_extract_string(data, '$.total')
    ORDER BY observed_at DESC, position DESC
  ) AS nth
  FROM worker_event t
  WHERE event = 'history-complete' AND json_extract_string(data, '$.until') IS NOT NULL
) e
WHERE nth = 1;
