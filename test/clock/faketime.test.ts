import { globSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { runPlenum } from "../plenum-process.ts";
import { absent, freePort, temporaryFolder } from "../real-servers.ts";

/** Runs the real process while libfaketime changes its wall clock. */

describe.skipIf(absent("faketime"))("a real worker process under faketime", () => {
  test("continues polling and stays responsive when the clock is set", async () => {
    const folder = temporaryFolder("faketime");
    const file = join(folder, "wall clock");
    const [library = ""] = globSync("/usr/lib/*/faketime/libfaketimeMT.so.1");
    const ports = { service: await freePort(), status: await freePort() };
    setClock("+0");
    writeFileSync(
      join(folder, "plenum.yaml"),
      `state: {folder: state}
status: {port: ${ports.status}}
sources:
  main:
    base_url: http://127.0.0.1:${ports.service}
    token: {env: TOKEN}
    time_zone: Europe/Oslo
    spread: 0s
    schedules: {alarms: "*/3 * * * * *"}
    alarms: {sites: [3]}
    inventory: {sites: [3]}
`,
    );
    const service = runPlenum(["simulate", "--port", String(ports.service)], { cwd: folder });
    onTestFinished(() => void service.end("SIGKILL"));
    await service.waitForOutput("answers at");
    const worker = runPlenum(["--config", "plenum.yaml", "run"], {
      cwd: folder,
      environment: {
        TOKEN: "simulator-token",
        LD_PRELOAD: library,
        FAKETIME_TIMESTAMP_FILE: file,
        FAKETIME_NO_CACHE: "1",
        FAKETIME_DONT_FAKE_MONOTONIC: "1",
        NO_FAKE_STAT: "1",
      },
    });
    onTestFinished(async () => {
      await worker.end("SIGKILL");
      // libfaketime does not delete the shared memory of a process that replaced itself.
      for (const sharedMemory of globSync(`/dev/shm/*faketime*_${worker.pid}`)) rmSync(sharedMemory, { force: true });
      rmSync(folder, { recursive: true, force: true });
    });
    await worker.waitForOutput("is running");
    await pollsOn();
    for (const [offset, told] of [
      ["-1h", /"seconds":-36\d\d,/],
      ["+10d", /"seconds":8676\d\d,/],
      ["+0", /"seconds":-8640\d\d,/],
    ] as const) {
      const cpuBefore = cpuSeconds(worker.pid);
      setClock(offset);
      await worker.waitForOutput(told);
      await pollsOn();
      expect(cpuSeconds(worker.pid) - cpuBefore).toBeLessThan(10);
    }
    await worker.waitForOutput("it is trusted");
    expect(await worker.end("SIGTERM")).toBe(0);

    async function pollsOn(): Promise<void> {
      const pollsBefore = await polls();
      await expect.poll(polls, { message: worker.output() }).toBeGreaterThanOrEqual(pollsBefore + 3);
    }

    async function polls(): Promise<number> {
      const reply = await fetch(`http://127.0.0.1:${ports.service}/_simulator/truth/totals`);
      const { data } = (await reply.json()) as { data: { totals: Record<string, number> } };
      return data.totals["alarms 200"] ?? 0;
    }

    function setClock(offset: string): void {
      writeFileSync(`${file}.new`, `${offset}\n`);
      renameSync(`${file}.new`, file);
    }
  });
});

function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / 100;
}
