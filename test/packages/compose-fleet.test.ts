import { execFile, execFileSync, spawnSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { Config } from "#src/app/config/config.ts";
import { SERVICE_TOKEN, SimulatorOptions } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { temporaryFolder } from "../real-servers.ts";
import { copyPackages, expectPrepared, expectSecured, ROOT, readCompose } from "./compose-file.ts";

const run = promisify(execFile);

const FOLDER = "packages/compose-fleet";
const readPackageFile = (path: string) => readFileSync(join(ROOT, FOLDER, path), "utf8");
const compose = readCompose(FOLDER);
const { services } = compose;
const serviceEntries = Object.entries(services);
const config = () => Config.parse(parse(readPackageFile("plenum/plenum.yaml")));

function prepared(): string {
  const folder = join(copyPackages(FOLDER), FOLDER);
  execFileSync(join(folder, "prepare"));
  return folder;
}

describe("the Compose file of a fleet", () => {
  test("has three members, a database, a broker, and a simulator for each source", () => {
    expect(Object.keys(services).toSorted()).toEqual([
      ...["member-1", "member-2", "member-3", "mosquitto", "postgres"],
      ...["simulator-north", "simulator-south", "simulator-west"],
    ]);
    expect(Object.keys(config().sources)).toEqual(["north", "south", "west"]);
  });

  test.each(serviceEntries)("%s has a pinned image, no privileges, a health check and loopback ports", (_, service) =>
    expectSecured(compose, service),
  );

  test("has members that differ only in name and port and use the image of this version", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    const members = serviceEntries.filter(([name]) => name.startsWith("member-"));
    const comparableMembers = members.map(([name, { command, ports, ...rest }]) => {
      expect(command.slice(-2)).toEqual(["--member", name]);
      expect(ports).toEqual([`127.0.0.1:985${name.slice(-1)}:9850`]);
      return { ...rest, command: command.slice(0, -1) };
    });
    expect(new Set(comparableMembers.map((member) => JSON.stringify(member))).size).toBe(1);
    for (const [, { image }] of [...members, ...serviceEntries.filter(([name]) => name.startsWith("simulator-"))])
      expect(image).toBe(`plenum:${version}`);
  });

  test("mounts only files that exist after the script prepare ran, with secrets of mode 600", () => {
    const folder = prepared();
    expectPrepared(compose, folder);
    for (const sourceName of ["north", "south", "west"])
      expect(readFileSync(join(folder, `secrets/${sourceName}_token`), "utf8").trim()).toBe(SERVICE_TOKEN);
    const passwordBefore = readFileSync(join(folder, "secrets/database_password"), "utf8");
    execFileSync(join(folder, "prepare"));
    expect(readFileSync(join(folder, "secrets/database_password"), "utf8")).toBe(passwordBefore);
    expect(spawnSync(join(folder, "prepare"), ["--token-file", "x"], { encoding: "utf8" })).toMatchObject({
      status: 64,
      stderr: "Usage: packages/compose-fleet/prepare\n",
    });
  });

  test("has a valid configuration of the members with existing services and secrets", () => {
    const configText = readPackageFile("plenum/plenum.yaml");
    expect(config().state.postgres).toMatchObject({ schema: "plenum_state" });
    const namedSecrets = [...configText.matchAll(/\/run\/secrets\/(\w+)/g)].map(([, name]) => name);
    expect(new Set(namedSecrets)).toEqual(new Set(services["member-1"]?.secrets));
    const hosts = [...configText.matchAll(/url: \w+:\/\/(?:\w+@)?([\w-]+):\d+/g)].map(([, host]) => host);
    expect(hosts).toHaveLength(5);
    for (const host of hosts) expect(Object.keys(services)).toContain(host);
  });

  test("has a simulator with its own building per source, which passes its health check", async () => {
    const sites = new Set<number>();
    for (const [name, { command, healthcheck }] of serviceEntries) {
      if (!name.startsWith("simulator-")) continue;
      const file = command.at(-1) ?? "";
      const options = SimulatorOptions.parse(
        parse(readPackageFile(file.replace("/etc/plenum-simulator", "simulator"))),
      );
      for (const site of options.sites ?? []) sites.add(Number(site));
      const simulator = createSimulator(options, { now: Date.now });
      const server = await startSimulatorServer(simulator, { port: 0 });
      onTestFinished(() => server.close());
      const { port } = new URL(server.url);
      const script = join(temporaryFolder("health"), "ask.mjs");
      onTestFinished(() => rmSync(join(script, ".."), { recursive: true, force: true }));
      writeFileSync(script, (healthcheck.test.at(-1) ?? "").replace(":8080", `:${port}`));
      const isWell = run(process.execPath, [script]).then(
        () => true,
        () => false,
      );
      expect(await isWell, name).toBe(true);
    }
    expect(sites.size).toBe(3);
  });
});
