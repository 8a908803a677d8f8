import { chmodSync, chownSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Hono } from "hono";
import { describe, expect, onTestFinished, test } from "vitest";
import { findWorkerState } from "#src/cli/shell/find-worker.ts";
import { readWorkerPointers, writePointerFile } from "#src/cli/shell/worker-location-file.ts";
import { createControlSocket } from "#src/ui/operator/control-socket-server.ts";

function createPointerFolder() {
  const folder = mkdtempSync(join(tmpdir(), "plenum-pointer-"));
  const previousRuntimeFolder = process.env.XDG_RUNTIME_DIR;
  process.env.XDG_RUNTIME_DIR = join(folder, "run");
  onTestFinished(() => {
    if (previousRuntimeFolder === undefined) delete process.env.XDG_RUNTIME_DIR;
    else process.env.XDG_RUNTIME_DIR = previousRuntimeFolder;
    rmSync(folder, { recursive: true, force: true });
  });
  const at = (...names: readonly string[]) => join(folder, ...names);
  const state = (name: string) => {
    mkdirSync(at(name), { mode: 0o700 });
    writeFileSync(at(name, "worker.lock"), "");
    return at(name);
  };
  writeFileSync(at("plenum.yaml"), "");
  return { at, state };
}

const pointersOf = (file: string) => readWorkerPointers(file).map(({ stateFolder }) => stateFolder);
const singlePointer = (stateFolder: string) => ({ stateFolder, isFleet: false });

describe("the pointer file from a configuration to the state folder of its worker", () => {
  test("is written next to the configuration, one for each configuration in a folder", () => {
    const { at, state } = createPointerFolder();
    const [one, two] = [state("one"), state("two")];
    expect(writePointerFile(at("plenum.yaml"), singlePointer(one))).toBe(true);
    expect(writePointerFile(at("other.yaml"), singlePointer(two))).toBe(true);
    expect([pointersOf(at("plenum.yaml")), pointersOf(at("other.yaml")), pointersOf(at("third.yaml"))]).toEqual([
      [one],
      [two],
      [],
    ]);
    expect(writePointerFile(at("plenum.yaml"), singlePointer(two))).toBe(true);
    expect(pointersOf(at("plenum.yaml"))).toEqual([two]);
  });

  test("is written to the runtime folder if the folder of the configuration is not writable", () => {
    const { at, state } = createPointerFolder();
    const folder = state("one");
    // Not even root can replace a folder by a file.
    mkdirSync(at(".plenum.yaml.worker", "full"), { recursive: true });
    expect(writePointerFile(at("plenum.yaml"), singlePointer(folder))).toBe(true);
    expect(pointersOf(at("plenum.yaml"))).toContain(folder);
  });

  test("is still found after a ConfigMap update", () => {
    const { at, state } = createPointerFolder();
    const folder = state("one");
    for (const version of ["..1", "..2"]) {
      mkdirSync(at("mount", version), { recursive: true });
      writeFileSync(at("mount", version, "plenum.yaml"), "");
    }
    symlinkSync("..1", at("mount", "..data"));
    symlinkSync(join("..data", "plenum.yaml"), at("mount", "plenum.yaml"));
    expect(writePointerFile(at("mount", "plenum.yaml"), singlePointer(folder))).toBe(true);
    symlinkSync("..2", at("mount", "..new"));
    renameSync(at("mount", "..new"), at("mount", "..data"));
    expect(pointersOf(at("mount", "plenum.yaml"))).toEqual([folder]);
  });

  test("is ignored if other users can write it, if it is a link, or if it names no folder", () => {
    const { at, state } = createPointerFolder();
    const file = at("plenum.yaml");
    writePointerFile(file, singlePointer(state("one")));
    const pointer = at(".plenum.yaml.worker");
    chmodSync(pointer, 0o666);
    expect(pointersOf(file)).toEqual([]);
    chmodSync(pointer, 0o600);
    renameSync(pointer, at("moved"));
    symlinkSync(at("moved"), pointer);
    expect(pointersOf(file)).toEqual([]);
    rmSync(pointer);
    writePointerFile(file, singlePointer(at("gone")));
    expect(pointersOf(file)).toEqual([]);
    writeFileSync(pointer, "{");
    expect(pointersOf(file)).toEqual([]);
  });

  test.skipIf(process.geteuid?.() !== 0)("is ignored if it belongs to another user", () => {
    const { at, state } = createPointerFolder();
    const file = at("plenum.yaml");
    const folder = state("one");
    writePointerFile(file, singlePointer(folder));
    chownSync(at(".plenum.yaml.worker"), 65_534, 65_534);
    expect(pointersOf(file), "of a stranger").toEqual([]);
    chownSync(folder, 65_534, 65_534);
    expect(pointersOf(file), "of a stranger, to the stranger's folder").toEqual([]);
    chownSync(file, 65_534, 65_534);
    expect(pointersOf(file), "of the owner of the configuration").toEqual([folder]);
  });
});

async function startControlSocket(stateFolder: string, file: string): Promise<void> {
  const routes = new Hono();
  routes.get("/ping", (context) => context.json({ result: "here" }));
  routes.get("/configuration", (context) =>
    context.json({ result: { file, config: { state: { folder: stateFolder } } } }),
  );
  const controlSocket = createControlSocket({ stateFolder, routes });
  await controlSocket.start(new AbortController().signal);
  onTestFinished(() => controlSocket.stop(1_000));
}

async function findStates(file: string): Promise<unknown> {
  const { folders, running: workers } = await findWorkerState(file, {}, AbortSignal.timeout(60_000));
  return { folders, running: workers.map(({ config }) => config.state.folder) };
}

describe("findState with a broken configuration file", () => {
  test("finds the worker by the pointer file, or by the section state", async () => {
    const { at, state } = createPointerFolder();
    const file = at("plenum.yaml");
    const folder = state("one");
    await startControlSocket(folder, file);
    expect(await findStates(file), "by nothing").toEqual({ folders: [], running: [] });
    writeFileSync(file, `state:\n  folder: ${folder}\nsources: [\n`);
    expect(await findStates(file), "by the file").toEqual({ folders: [folder], running: [folder] });
    writeFileSync(file, "");
    writePointerFile(file, singlePointer(folder));
    expect(await findStates(file), "by the pointer").toEqual({ folders: [folder], running: [folder] });
  });

  test("does not find the worker of another configuration that uses the same folder", async () => {
    const { at, state } = createPointerFolder();
    const folder = state("state");
    writePointerFile(at("plenum.yaml"), singlePointer(folder));
    await startControlSocket(folder, at("other.yaml"));
    expect(await findStates(at("plenum.yaml"))).toEqual({ folders: [], running: [] });
  });

  test("returns the folder that the pointer file names for a stopped worker, but not for a stopped fleet member", async () => {
    const { at, state } = createPointerFolder();
    const folder = state("one");
    writePointerFile(at("plenum.yaml"), singlePointer(folder));
    expect(await findStates(at("plenum.yaml"))).toEqual({ folders: [folder], running: [] });
    writePointerFile(at("plenum.yaml"), { stateFolder: folder, isFleet: true });
    expect(await findStates(at("plenum.yaml"))).toEqual({ folders: [], running: [] });
  });

  test("returns the folder and the database that the section state names for a stopped fleet member", async () => {
    const { at, state } = createPointerFolder();
    const folder = state("one");
    const url = "postgresql://plenum@127.0.0.1/plenum";
    writeFileSync(at("plenum.yaml"), `state: { folder: ${folder}, postgres: { url: "${url}" } }\nsources: [\n`);
    const { fleetState } = await findWorkerState(at("plenum.yaml"), {}, AbortSignal.timeout(60_000));
    expect(fleetState).toMatchObject({ folder, postgres: { url } });
  });
});
