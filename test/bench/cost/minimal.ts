import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import mqtt from "mqtt";
import { request } from "undici";

/**
 * The minimum for the same result: reads 20 tags every 3 s, stores the rows, publishes with QoS 1, posts lines.
 * Messages and lines have the keys that the worker's have (`docs/reference/mqtt.schema.json`).
 */
const { values: options } = parseArgs({
  options: {
    service: { type: "string", default: "" },
    mqtt: { type: "string", default: "" },
    influx: { type: "string", default: "" },
    sources: { type: "string", default: "20" },
    folder: { type: "string", default: "." },
  },
});

const IDS = Array.from({ length: 20 }, (_, n) => String(10_001 + n));
mkdirSync(options.folder, { recursive: true });
const database = new DatabaseSync(join(options.folder, "minimal.db"));
database.exec(`
  PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
  CREATE TABLE event (position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, type TEXT, source TEXT,
    subject TEXT, time TEXT, data TEXT) STRICT;
  CREATE TABLE document (source TEXT, key TEXT, body TEXT, PRIMARY KEY (source, key)) STRICT, WITHOUT ROWID;
`);
const insertEvent = "INSERT INTO event (id, type, source, subject, time, data) VALUES (?, ?, ?, ?, ?, ?)";
const addEvent = database.prepare(insertEvent);
const upsertDocument = "INSERT INTO document VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body";
const putDocument = database.prepare(upsertDocument);

const broker = await mqtt.connectAsync(options.mqtt, { clientId: `minimal-${process.pid}`, protocolVersion: 5 });

interface Attributes {
  readonly display_name: string;
  readonly description: string;
  readonly unit: string;
}

interface ReadResponse {
  readonly data: readonly { readonly id: string; readonly value: number; readonly attributes: Attributes }[];
}

async function readAndPublish(source: string): Promise<void> {
  const startMs = Date.now();
  const reply = await request(`${options.service}/${source}/api/v1/tags/read?tags=${IDS.join(",")}`, {
    headers: { authorization: "Bearer token", accept: "application/json" },
  });
  const { data } = (await reply.body.json()) as ReadResponse;
  const latencyMs = Date.now() - startMs;
  const ts = new Date().toISOString();
  const events = data.map(({ id: tag, value, attributes }) => {
    const { display_name: name, description, unit } = attributes;
    const subject = `site/1/tag/${tag}`;
    const id = createHash("sha256").update(`${source} ${subject} ${ts}`).digest("hex").slice(0, 32);
    const body = JSON.stringify({
      ...{ value, lastGoodValue: value, ts, quality: "good", unit, name, alias: null, description, tag, source },
      ...{ site: "1", lastGoodTime: ts, staleReason: null, behindGateway: null, typeBefore: null, typeNow: null },
      ...{ latencyMs, id },
    });
    return { id, subject, tag, body };
  });
  database.exec("BEGIN IMMEDIATE");
  for (const { id, subject, tag, body } of events) {
    addEvent.run(id, "tag-value", source, subject, ts, body);
    putDocument.run(source, tag, body);
  }
  database.exec("COMMIT");
  const timeMs = Date.parse(ts);
  const pointLines = data.map(({ id, value, attributes: { unit } }) => {
    const tags = `site_id=1,source=${source},tag_id=${id},unit=${unit}`;
    return `tag_value,${tags} good=T,latency_ms=${latencyMs},quality="good",value=${value} ${timeMs}`;
  });
  await Promise.all([
    ...events.map(({ tag, body }) =>
      broker.publishAsync(`minimal/${source}/1/tag/${tag}/value`, body, { qos: 1, retain: true }),
    ),
    request(`${options.influx}/write?db=minimal&precision=ms`, { method: "POST", body: pointLines.join("\n") }).then(
      ({ body }) => body.dump(),
    ),
  ]);
}

for (let n = 0; n < Number(options.sources); n++) {
  const source = `s${n}`;
  setTimeout(() => setInterval(() => void readAndPublish(source), 3_000), (n * 3_000) / Number(options.sources));
}
process.stdout.write("running\n");
