import { writeSync } from "node:fs";
import type { ConnectorContext } from "#src/core/connector.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { FileConfig } from "../../../connectors/file/config.ts";
import { createFileSink } from "../../../connectors/file/sink.ts";
import { valueEvent } from "../../sample-events.ts";

/** Records the file sink: batches of 1 to 12 events in small files, closed and opened again. */
const [folder = ""] = process.argv.slice(2);
const config = FileConfig.parse({ folder, max_file_mb: 1, keep_files: 1_000 });
const context = { log: createLog({ level: "silent" }), clock: systemClock } as ConnectorContext;
const signal = new AbortController().signal;
let n = 0;
for (let round = 0; round < 4; round += 1) {
  const sink = createFileSink(config, context);
  await sink.open(signal);
  for (let write = 0; write < 8; write += 1) {
    const batch = Array.from({ length: 1 + ((round * 8 + write) % 12) }, (_, index) => valueEvent(n + index));
    await sink.write(batch, signal);
    n += batch.length;
    writeSync(1, `said ${n - 1}\n`);
  }
  await sink.close();
}
