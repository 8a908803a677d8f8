import { createInterface } from "node:readline";
import { pino } from "pino";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { readClocks } from "#src/core/runtime/elapsed-time.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createCommands } from "#src/engine/commands/commands.ts";
import { CommandsConfig } from "#src/engine/commands/config.ts";
import { folderGuards } from "#src/engine/commands/guards.ts";
import { createSource } from "#src/engine/source/client.ts";
import { SourceConfig } from "#src/engine/source/config.ts";
import type { QuotaLimiter } from "#src/engine/source/quota/quota.ts";
import { createHttpTransport, type Transport } from "#src/engine/source/transport.ts";
import { openStore } from "#src/engine/store/open.ts";
import type { Store } from "#src/engine/store/store.ts";
import { arrivalOf } from "./rig.ts";

/** Executes a command per input line and prints `ack <id>` and `result <id> <outcome>`; `kill <step>` kills itself. */
const [folder = "", url = "", config = "{}"] = process.argv.slice(2);
const opened = await openStore({ folder, clock: systemClock });
let plan = "";

function step(name: string, moment: "before" | "after"): void {
  if (plan === `${name} ${moment}`) process.kill(process.pid, "SIGKILL");
}

const store: Store = {
  ...opened,
  async commit(change) {
    const [record] = (change.records ?? []) as readonly { body: { step: string } }[];
    const known = record?.body.step ?? "none";
    const name = known === "accepted" || known === "sending" ? known : "end";
    step(name, "before");
    const committed = await opened.commit(change);
    step(name, "after");
    return committed;
  },
};

const sourceConfig = SourceConfig.parse({ base_url: url, token: { env: "TOKEN" }, time_zone: "Europe/Oslo" });
const http = createHttpTransport(sourceConfig);
const transport: Transport = async (request, signal) => {
  const name = request.method === "POST" ? "post" : "read";
  step(name, "before");
  if (plan === `${name} during`) setTimeout(() => process.kill(process.pid, "SIGKILL"), 10);
  const reply = await http.send(request, signal);
  step(name, "after");
  return reply;
};
const noLimiter: QuotaLimiter = {
  run: (_lane, _endpoint, task) => task(readClocks(systemClock)),
  pause() {},
  release() {},
  permitTrial() {},
  observe() {},
  status: () => ({ buckets: [], heldUntilMs: null }),
};
const log = pino({ level: "silent" });
const metrics = createMetrics();
const source = createSource({
  name: "main",
  config: sourceConfig,
  limiter: noLimiter,
  clock: systemClock,
  metrics,
  log,
  transport,
  environment: { TOKEN: "simulator-token" },
});
const commands = await createCommands({
  config: CommandsConfig.parse(JSON.parse(config)),
  sources: [{ source, timeZone: "Europe/Oslo" }],
  store,
  guards: folderGuards(folder),
  armAtStart: true,
  clock: systemClock,
  clockDoubt: createClockCheck({ clock: systemClock, log }),
  log,
  metrics,
});

const running = new AbortController();
void tell();
await commands.start(running.signal);
process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  if (line.startsWith("kill ")) plan = line.slice(5);
  else if (line !== "") {
    await commands.accept(arrivalOf(line, Date.now()));
    process.stdout.write(`ack ${(JSON.parse(line) as { id: string }).id}\n`);
  }
}

async function tell(): Promise<void> {
  const told = new Set<string>();
  for (;;) {
    const changed = opened.outbox.changed(running.signal);
    for (const { event } of await opened.outbox.latest(10_000, ["command-result"])) {
      const { commandId, outcome } = (event as Event<"command-result">).data;
      if (!told.has(event.id)) process.stdout.write(`result ${commandId} ${outcome}\n`);
      told.add(event.id);
    }
    await changed;
  }
}
