import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import mqtt from "mqtt";
import { request } from "undici";

/** The minimum for the same result: reads 20 tags every 3 s, stores the rows, publishes with QoS 1, posts lines. */
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

interface ReadResponse {
  readonly data: readonly { readonly id: string; readonly value: number; readonly attributes: object }[];
}

async function readAndPublish(source: string): Promise<void> {
  const reply = await request(`${options.service}/${source}/api/v1/tags/read?tags=${IDS.join(",")}`, {
    headers: { authorization: "Bearer token", accept: "application/json" },
  });
  const { data } = (await reply.body.json()) as ReadResponse;
  const time = new Date().toISOString();
  const events = data.map(({ id, value, attributes }) => {
    const subject = `site/1/tag/${id}`;
    const hash = createHash("sha256").update(`${source} ${subject} ${time}`).digest("hex").slice(0, 32);
    const body = JSON.stringify({ value, quality: "good", time, tag: { id, ...attributes } });
    return { id: hash, subject, tag: id, body };
  });
  database.exec("BEGIN IMMEDIATE");
  for (const { id, subject, tag, body } of events) {
    addEvent.run(id, "tag-value", source, subject, time, body);
    putDocument.run(source, tag, body);
  }
  database.exec("COMMIT");
  const pointLines = data.map(({ id, value }) => `tag,source=${source},tag=${id} value=${value} ${Date.parse(time)}`);
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
