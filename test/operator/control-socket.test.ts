import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { Hono } from "hono";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { ConfigError } from "#src/core/errors/errors.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createKillSwitch, KILL_SWITCH_FILE } from "#src/engine/commands/kill-switch.ts";
import { openStore } from "#src/engine/store/open.ts";
import { preparePrivateFile } from "#src/engine/store/state-folder.ts";
import {
  callWorker,
  findWorker,
  WorkerNotReachable,
  WorkerNotResponding,
} from "#src/ui/operator/control-socket-client.ts";
import { createControlSocket } from "#src/ui/operator/control-socket-server.ts";
import { temporaryFolder } from "../real-servers.ts";

const { signal } = new AbortController();
const SOCKET = "operator.sock";

function privateFolder(...more: readonly string[]): string {
  const path = temporaryFolder("socket");
  onTestFinished(() => rmSync(path, { recursive: true }));
  const state = join(path, ...more);
  mkdirSync(state, { recursive: true, mode: 0o700 });
  return state;
}

/** Routes of a worker that responds to a ping. */
function pingRoutes(response = "here"): Hono {
  return new Hono().get("/ping", (context) => context.json({ result: response }));
}

async function openSocket(stateFolder: string, routes = pingRoutes()) {
  const socket = createControlSocket({ stateFolder, routes });
  onTestFinished(() => socket.stop(100));
  await socket.start(new AbortController().signal);
  return socket;
}

/** Accepts connections; by default without a response, as a stopped or blocked worker does. */
async function listen(stateFolder: string, onConnection: (socket: Socket) => void = () => undefined): Promise<void> {
  const server = createServer(onConnection);
  await new Promise<void>((resolve) => server.listen(join(stateFolder, SOCKET), resolve));
  onTestFinished(() => void server.close());
}

describe("createControlSocket", () => {
  test("creates a socket for the owner only, and removes the socket when the worker stops", async () => {
    const state = privateFolder();
    const socket = await openSocket(state);
    const stats = statSync(join(state, SOCKET));
    expect([stats.isSocket(), stats.mode & 0o777]).toEqual([true, 0o600]);
    expect(await findWorker(state, signal)).toEqual({ kind: "open", socket: { stateFolder: state } });
    await socket.stop(100);
    expect(readdirSync(state)).toEqual([]);
    expect(await findWorker(state, signal)).toEqual({ kind: "none" });
  });

  test.each([100, 101, 250])("works in a folder whose path has %i letters", async (length) => {
    const base = privateFolder();
    const state = join(base, "n".repeat(length - base.length - 1));
    mkdirSync(state, { mode: 0o700 });
    // A private temporary folder: other tests change the usual one.
    const temporary = privateFolder();
    vi.stubEnv("TMPDIR", temporary);
    onTestFinished(() => void vi.unstubAllEnvs());
    const socket = await openSocket(state, pingRoutes("far"));
    expect(await callWorker({ stateFolder: state }, "/ping", { signal })).toBe("far");
    expect(statSync(join(state, SOCKET)).mode & 0o777).toBe(0o600);
    await socket.stop(100);
    expect([readdirSync(state), readdirSync(temporary)]).toEqual([[], []]);
  });

  test("replaces the socket of a killed worker, and findWorker ignores that socket", async () => {
    const state = privateFolder();
    leaveSocket(state);
    expect(lstatSync(join(state, SOCKET)).isSocket()).toBe(true);
    expect(await findWorker(state, signal)).toEqual({ kind: "none" });
    await openSocket(state);
    expect((await findWorker(state, signal)).kind).toBe("open");
  });

  test("does not remove a socket on which another program listens, and findWorker reports that program as silent", async () => {
    const state = privateFolder();
    await listen(state);
    const socket = createControlSocket({ stateFolder: state, routes: pingRoutes() });
    expect(await findWorker(state, signal)).toEqual({ kind: "silent", failure: expect.any(WorkerNotResponding) });
    await expect(socket.start(signal)).rejects.toThrow(/^A program already listens on .*operator\.sock\.$/);
    await socket.stop(100);
    expect(lstatSync(join(state, SOCKET)).isSocket()).toBe(true);
  });

  test.each(["a file", "a link to a file", "a link to a socket", "a link to nothing", "a folder"])(
    "rejects %s at the path of the socket without following or changing it",
    async (kind) => {
      const state = privateFolder();
      const elsewhere = privateFolder();
      const victim = join(elsewhere, "victim");
      const path = join(state, SOCKET);
      if (kind === "a file") writeFileSync(path, "planted");
      if (kind === "a folder") mkdirSync(path);
      if (kind === "a link to a file") writeFileSync(victim, "untouched");
      if (kind === "a link to a socket") await openSocket(elsewhere, pingRoutes("stranger"));
      if (kind.startsWith("a link"))
        symlinkSync(kind === "a link to a socket" ? join(elsewhere, SOCKET) : victim, path);
      const inodeBefore = lstatSync(path).ino;
      await expect(findWorker(state, signal)).rejects.toThrow(ConfigError);
      const socket = createControlSocket({ stateFolder: state, routes: pingRoutes() });
      await expect(socket.start(signal)).rejects.toThrow(/operator\.sock is not a socket/);
      await socket.stop(100);
      expect(lstatSync(path).ino).toBe(inodeBefore);
      if (kind === "a link to a file") expect(readFileSync(victim, "utf8")).toBe("untouched");
      if (kind === "a link to nothing") expect(existsSync(victim)).toBe(false);
    },
  );
});

/** Leaves a socket without a listener, as a killed worker does. */
function leaveSocket(state: string): void {
  const script = `require("node:net").createServer().listen(${JSON.stringify(join(state, SOCKET))}, () => process.kill(process.pid, "SIGKILL"))`;
  spawnSync(process.execPath, ["-e", script]);
}

describe("requests to a worker by its control socket", () => {
  test("wait for a long response while the worker responds to pings, and fail when the pings fail too", async () => {
    const state = privateFolder();
    let isStuck = false;
    const routes = new Hono()
      .get("/ping", async (context) => {
        if (isStuck) await new Promise(() => undefined);
        return context.json({ result: "here" });
      })
      .get("/long", async (context) => {
        await systemClock.sleep(6_000, context.req.raw.signal);
        return context.json({ result: "done" });
      })
      .get("/never", () => new Promise(() => undefined));
    await openSocket(state, routes);
    const askWithoutLimit = (path: string) => callWorker({ stateFolder: state }, path, { signal, timeoutMs: null });
    expect(await askWithoutLimit("/long")).toBe("done");
    isStuck = true;
    await expect(askWithoutLimit("/never")).rejects.toThrow("A worker is there and does not answer within 5 s.");
  });

  test("fail when no worker listens or the worker closes the connection", async () => {
    const state = privateFolder();
    const ping = () => callWorker({ stateFolder: state }, "/ping", { signal });
    await expect(ping()).rejects.toThrow(WorkerNotReachable);
    await listen(state, (socket) => socket.destroy());
    await expect(ping()).rejects.toThrow("The worker does not answer any more.");
  });
});

describe("the state folder", () => {
  test.each([0o770, 0o777, 0o702, 0o1777])(
    "is rejected when other users can write to the folder (mode %o)",
    async (mode) => {
      const state = privateFolder();
      chmodSync(state, mode);
      onTestFinished(() => chmodSync(state, 0o700));
      const refusal = /^Others than its owner can write to the state folder .* \(mode [0-7]+\)\.$/;
      await expect(openStore({ folder: state, clock: systemClock })).rejects.toThrow(refusal);
      await expect(findWorker(state, signal)).rejects.toThrow(refusal);
      expect(readdirSync(state)).toEqual([]);
    },
  );

  test.each([0o700, 0o750, 0o755])(
    "is accepted when other users can at most read the folder (mode %o)",
    async (mode) => {
      const state = privateFolder();
      chmodSync(state, mode);
      await (await openStore({ folder: state, clock: systemClock })).close();
    },
  );

  test.runIf(process.geteuid?.() === 0)("is rejected when the folder belongs to another user", async () => {
    const state = privateFolder();
    chownSync(state, 12_345, 12_345);
    await expect(openStore({ folder: state, clock: systemClock })).rejects.toThrow(
      /belongs to another user \(12345; the worker is 0\)/,
    );
  });

  test.each(["plenum.db", "worker.lock"])(
    "is rejected with a link in place of %s, without changing the target",
    async (name) => {
      const state = privateFolder();
      const victim = join(privateFolder(), "victim");
      writeFileSync(victim, "", { mode: 0o644 });
      symlinkSync(victim, join(state, name));
      await expect(openStore({ folder: state, clock: systemClock })).rejects.toThrow(
        new RegExp(`${name} cannot be written \\(ELOOP\\)`),
      );
      expect([readFileSync(victim, "utf8"), statSync(victim).mode & 0o777]).toEqual(["", 0o644]);
    },
  );

  test("is rejected with a named pipe in place of a file, without waiting for a writer", async () => {
    const state = privateFolder();
    const pipe = join(state, "worker.lock");
    spawnSync("mkfifo", [pipe]);
    expect(() => preparePrivateFile(pipe)).toThrow(ConfigError);
  });
});

describe("createKillSwitch", () => {
  test.each(["to nothing", "to a file"])(
    "stops writing when the switch file is a link %s, and does not change the target",
    (to) => {
      const state = privateFolder();
      const victim = join(privateFolder(), "victim");
      if (to === "to a file") writeFileSync(victim, "untouched");
      symlinkSync(victim, join(state, KILL_SWITCH_FILE));
      const killSwitch = createKillSwitch(state);
      expect(killSwitch.isOn()).toBe(true);
      killSwitch.turnOn("a test", "2026-11-22T10:00:00Z");
      expect(existsSync(victim) ? readFileSync(victim, "utf8") : "").toBe(to === "to a file" ? "untouched" : "");
      expect(existsSync(victim)).toBe(to === "to a file");
      killSwitch.turnOff();
      expect(killSwitch.isOn()).toBe(false);
    },
  );

  test("keeps the name of the first user when the switch is thrown twice", () => {
    const killSwitch = createKillSwitch(privateFolder());
    killSwitch.turnOn("Anna", "2026-11-22T10:00:00Z");
    killSwitch.turnOn("Boris", "2026-11-22T10:01:00Z");
    expect(readFileSync(killSwitch.file, "utf8")).toContain("Anna");
  });
});
