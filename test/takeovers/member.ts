import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Running, runPlenum } from "../plenum-process.ts";
import { createWallClock } from "../wall-clock.ts";
import { startDatabaseProxy } from "./database-proxy.ts";

export type Member = Awaited<ReturnType<typeof createMember>>;

export async function createMember(options: {
  readonly name: string;
  readonly folder: string;
  readonly databasePort: number;
  readonly configuration: (databasePort: number) => object;
  readonly environment: Readonly<Record<string, string>>;
}) {
  const { name, configuration } = options;
  const folder = join(options.folder, name);
  mkdirSync(folder, { recursive: true });
  const clock = createWallClock(folder, 1);
  const way = await startDatabaseProxy(options.databasePort);
  writeFileSync(join(folder, "plenum.yaml"), JSON.stringify(configuration(way.port)));
  const environment = { ...options.environment, ...clock.environment };
  let running: Running | null = null;
  let before = "";
  let frozen = false;

  function signal(signalName: "SIGSTOP" | "SIGCONT"): void {
    if (running !== null) process.kill(running.pid, signalName);
    frozen = signalName === "SIGSTOP";
  }

  async function end(how: "SIGTERM" | "SIGKILL"): Promise<number | null> {
    const ending = running;
    if (ending === null) return null;
    if (frozen && how === "SIGTERM") signal("SIGCONT");
    const code = await ending.end(how);
    frozen = false;
    before += `${ending.output()}--- ended by ${how} at ${new Date().toISOString()} with ${code}\n`;
    clock.cleanUp(ending.pid);
    running = null;
    return code;
  }

  return {
    name,
    way,
    async start(): Promise<void> {
      running = runPlenum(["run", "--config", "plenum.yaml", "--member", name, "--arm-writing"], {
        cwd: folder,
        environment,
      });
      await running.waitForOutput("is running");
    },
    kill: async () => void (await end("SIGKILL")),
    stop: () => end("SIGTERM"),
    freeze: () => signal("SIGSTOP"),
    thaw: () => signal("SIGCONT"),
    setClock: clock.set,
    output: () => before + (running?.output() ?? ""),
    async close(): Promise<void> {
      await end("SIGKILL");
      await way.close();
    },
  };
}
