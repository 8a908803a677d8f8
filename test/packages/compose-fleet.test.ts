import { execFile, execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { Config } from "#src/config/config.ts";
import { DEFAULT_TOKEN, SimulatorOptions } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { temporaryFolder } from "../real-servers.ts";

const run = promisify(execFile);

/** What Docker would find if it read the file: nothing here can run it. */

const ROOT = join(import.meta.dirname, "../..");

interface Service {
  readonly image: string;
  readonly user: string;
  readonly command: readonly string[];
  readonly ports: readonly string[];
  readonly volumes: readonly string[];
  readonly secrets: readonly string[];
  readonly healthcheck: { readonly test: readonly string[] };
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
}

const read = (path: string) => readFileSync(join(ROOT, "packages/compose-fleet", path), "utf8");
const { services, secrets } = parse(read("compose.yaml"), { merge: true }) as Compose;
const each = Object.entries(services);
const config = () => Config.parse(parse(read("plenum/plenum.yaml")));

/** A copy of what the mounts name, made ready. */
function prepared(): string {
  const root = temporaryFolder("compose");
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  for (const path of ["packages", "connectors/mqtt"])
    cpSync(join(ROOT, path), join(root, path), { recursive: true });
  const folder = join(root, "packages/compose-fleet");
  for (const path of ["secrets", "data", ".env"])
    rmSync(join(folder, path), { recursive: true, force: true });
  execFileSync(join(folder, "prepare"));
  return folder;
}

describe("compose.yaml of a fleet", () => {
  test("has three members, a database, a broker, and a simulator for each source", () => {
    expect(Object.keys(services).toSorted()).toEqual([
      ...["member-1", "member-2", "member-3", "mosquitto", "postgres"],
      ...["simulator-north", "simulator-south", "simulator-west"],
    ]);
    expect(Object.keys(config().sources)).toEqual(["north", "south", "west"]);
  });

  test.each(each)(
    "%s: a pinned image, no rights, a health check, ports for this machine alone",
    (_, service) => {
      expect(service.image).toMatch(/:v?\d+(\.\d+){1,2}$/);
      expect(service).toMatchObject({
        read_only: true,
        cap_drop: ["ALL"],
        security_opt: ["no-new-privileges:true"],
      });
      expect(service.user).toContain("PLENUM_UID");
      expect(service.healthcheck.test.length).toBeGreaterThan(1);
      expect(service.ports.filter((port) => !port.startsWith("127.0.0.1:"))).toEqual([]);
      for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
        expect(Object.keys(services)).toContain(other);
        expect(condition).toBe("service_healthy");
      }
    },
  );

  test("members differ by their name and their port alone, and have the image of this version", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    const members = each.filter(([name]) => name.startsWith("member-"));
    const bare = members.map(([name, { command, ports, ...rest }]) => {
      expect(command.slice(-2)).toEqual(["--member", name]);
      expect(ports).toEqual([`127.0.0.1:985${name.slice(-1)}:9850`]);
      return { ...rest, command: command.slice(0, -1) };
    });
    expect(new Set(bare.map((member) => JSON.stringify(member))).size).toBe(1);
    for (const [, { image }] of [...members, ...each.filter(([name]) => name.startsWith("simulator-"))])
      expect(image).toBe(`plenum:${version}`);
  });

  test("mounts only what is there after `prepare`, and every secret is a file of its owner", () => {
    const folder = prepared();
    for (const [name, { volumes, secrets: used }] of each) {
      for (const volume of volumes)
        expect(existsSync(join(folder, volume.split(":")[0] ?? "")), `${name} ${volume}`).toBe(true);
      for (const secret of used) expect(Object.keys(secrets), name).toContain(secret);
    }
    for (const { file } of Object.values(secrets)) {
      expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
      expect(readFileSync(join(folder, file), "utf8").trim().length).toBeGreaterThan(2);
    }
    expect(readFileSync(join(folder, ".env"), "utf8")).toMatch(/^PLENUM_UID=[1-9]\d*\nPLENUM_GID=\d+\n$/);
    expect(readFileSync(join(folder, "secrets/service_token"), "utf8").trim()).toBe(DEFAULT_TOKEN);
    const before = readFileSync(join(folder, "secrets/database_password"), "utf8");
    execFileSync(join(folder, "prepare"));
    expect(readFileSync(join(folder, "secrets/database_password"), "utf8")).toBe(before);
    expect(spawnSync(join(folder, "prepare"), ["--token-file", "x"], { encoding: "utf8" })).toMatchObject({
      status: 64,
      stderr: "Usage: packages/compose-fleet/prepare\n",
    });
  });

  test("the members' configuration is right, and leads to what is there", () => {
    const text = read("plenum/plenum.yaml");
    expect(config().state.postgres).toMatchObject({ schema: "plenum_state" });
    const named = [...text.matchAll(/\/run\/secrets\/(\w+)/g)].map(([, name]) => name);
    expect(new Set(named)).toEqual(new Set(services["member-1"]?.secrets));
    const hosts = [...text.matchAll(/url: \w+:\/\/(?:\w+@)?([\w-]+):\d+/g)].map(([, host]) => host);
    expect(hosts).toHaveLength(5);
    for (const host of hosts) expect(Object.keys(services)).toContain(host);
  });

  test("each simulator has a building of its own, and answers the question after its health", async () => {
    const sites = new Set<number>();
    for (const [name, { command, healthcheck }] of each) {
      if (!name.startsWith("simulator-")) continue;
      const file = command.at(-1) ?? "";
      const options = SimulatorOptions.parse(parse(read(file.replace("/etc/plenum-simulator", "simulator"))));
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
