import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { isWorkerReady } from "#src/cli/shell/readiness-probe.ts";
import { writePointerFile } from "#src/cli/shell/worker-location-file.ts";
import { socketPath } from "#src/ui/operator/control-socket-path.ts";
import { temporaryFolder } from "../real-servers.ts";

async function answering(body: object, { status = 200, isFleet = false } = {}) {
  const folder = temporaryFolder("probe");
  const file = join(folder, "plenum.yaml");
  const state = join(folder, "state");
  const own = isFleet ? join(state, "member-1") : state;
  mkdirSync(own, { recursive: true, mode: 0o700 });
  writeFileSync(file, "sources: {}\n", { mode: 0o644 });
  writePointerFile(file, { stateFolder: state, isFleet });
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? "");
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(socketPath(own), resolve));
  onTestFinished(async () => {
    await new Promise((resolve) => server.close(resolve));
    rmSync(folder, { recursive: true });
  });
  return { asked, file, state, probe: (...args: readonly string[]) => isWorkerReady(args, { PLENUM_CONFIG: file }) };
}

describe("isWorkerReady (the fast path of plenum status --probe)", () => {
  test.each([[["status", "--probe"]], [["--probe", "status"]]])(
    "requests /ready from the worker for the arguments %j",
    async (args) => {
      const { asked, file, probe } = await answering({ result: null });
      expect(await probe(...args)).toBe(true);
      for (const named of [["--config", file], [`--config=${file}`], ["-c", file]])
        expect(await isWorkerReady([...args, ...named], {}), named.join(" ")).toBe(true);
      expect(asked).toEqual(["/ready", "/ready", "/ready", "/ready"]);
    },
  );

  test("finds a fleet member in the member's own folder", async () => {
    const { probe } = await answering({ result: null }, { isFleet: true });
    expect(await probe("status", "--probe")).toBe(true);
  });

  test("returns false for every other command line, without a request", async () => {
    const { asked, probe } = await answering({ result: null });
    for (const args of [[], ["status"], ["--probe"], ["status", "--probe", "--json"], ["run", "--probe"]])
      expect(await probe(...args), args.join(" ")).toBe(false);
    expect(asked).toEqual([]);
  });

  test("returns false for a worker that is not ready or responds with an error", async () => {
    const starting = await answering({ result: "The worker is starting or stopping." });
    expect(await starting.probe("status", "--probe")).toBe(false);
    const failingWorker = await answering({ result: null }, { status: 500 });
    expect(await failingWorker.probe("status", "--probe")).toBe(false);
  });

  test("ignores a state folder that other users can write", async () => {
    const { asked, probe, state } = await answering({ result: null });
    chmodSync(state, 0o777);
    expect(await probe("status", "--probe")).toBe(false);
    expect(asked).toEqual([]);
  });
});
