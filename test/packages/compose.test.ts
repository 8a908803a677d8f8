import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import mqtt from "mqtt";
import { describe, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { Config } from "#src/config/config.ts";
import { absent, programPath, startMosquitto, temporaryFolder } from "../real-servers.ts";

/** What Docker would find if it read the file: nothing here can run it. */

const ROOT = join(import.meta.dirname, "../..");

interface Service {
  readonly image: string;
  readonly user: string;
  readonly read_only: boolean;
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

const read = (path: string) => readFileSync(join(ROOT, "packages/compose", path), "utf8");
const { services, secrets } = parse(read("compose.yaml"), { merge: true }) as Compose;
const each = Object.entries(services);

/** A copy of what the mounts name, made ready. */
function prepared(): string {
  const root = temporaryFolder("compose");
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  for (const path of ["packages", "connectors/mqtt"])
    cpSync(join(ROOT, path), join(root, path), { recursive: true });
  for (const path of ["secrets", "data", ".env"])
    rmSync(join(root, "packages/compose", path), { recursive: true, force: true });
  writeFileSync(join(root, "token"), "abc\n");
  execFileSync(join(root, "packages/compose/prepare"), ["--token-file", join(root, "token")]);
  return root;
}

describe("compose.yaml", () => {
  test("has the worker, a broker, a database and dashboards", () => {
    expect(Object.keys(services).toSorted()).toEqual(["grafana", "mosquitto", "plenum", "victoria-metrics"]);
  });

  test.each(each)(
    "%s: a pinned image, no rights, a health check, ports for this machine alone",
    (_, service) => {
      expect(service.image).toMatch(/:v?\d+\.\d+\.\d+$/);
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

  test("names the image by the version of Plenum", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    expect(services.plenum?.image).toBe(`plenum:${version}`);
  });

  test("mounts only what is there after `prepare`, and every secret is a file of its owner", () => {
    const folder = join(prepared(), "packages/compose");
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
  });

  test("`prepare` changes no password that is there, and says when the token is missing", () => {
    const folder = join(prepared(), "packages/compose");
    const before = readFileSync(join(folder, "secrets/mqtt_password"), "utf8");
    execFileSync(join(folder, "prepare"));
    expect(readFileSync(join(folder, "secrets/mqtt_password"), "utf8")).toBe(before);
    rmSync(join(folder, "secrets/service_token"));
    const { status, stderr } = spawnSync(join(folder, "prepare"), { encoding: "utf8" });
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: "The service's token is missing: run packages/compose/prepare --token-file FILE.\n",
    });
  });

  test("the worker's configuration is right, and its secrets are among those that it gets", () => {
    const text = read("plenum/plenum.yaml");
    const config = Config.parse(parse(text));
    expect(Object.keys(config.sinks)).toEqual(["broker", "values"]);
    const named = [...text.matchAll(/\/run\/secrets\/(\w+)/g)].map(([, name]) => name);
    expect(new Set(named)).toEqual(new Set(services.plenum?.secrets));
    for (const [, host] of text.matchAll(/url: \w+:\/\/([\w-]+):\d+/g))
      expect(Object.keys(services)).toContain(host);
  });

  test("Grafana is told of the database and of the dashboards", () => {
    const { datasources } = parse(read("grafana/datasources.yaml"));
    expect(datasources).toMatchObject([
      { type: "prometheus", url: "http://victoria-metrics:8428", isDefault: true },
    ]);
    const { providers } = parse(read("grafana/dashboards.yaml"));
    expect(services.grafana?.volumes).toContain(`../grafana:${providers[0].options.path}:ro`);
  });
});

test.skipIf(absent("victoria-metrics"))("the database understands what it scrapes", () => {
  const scrape = join(ROOT, "packages/compose/victoria-metrics/scrape.yaml");
  const args = [
    `-promscrape.config=${scrape}`,
    "-promscrape.config.dryRun",
    "-promscrape.config.strictParse",
  ];
  const { status, stderr } = spawnSync(programPath("victoria-metrics") ?? "", args, { encoding: "utf8" });
  expect({ status, trouble: status === 0 ? "" : stderr }).toEqual({ status: 0, trouble: "" });
});

describe.skipIf(absent("mosquitto") || absent("mosquitto_passwd"))("the broker", () => {
  test("lets the worker and the viewer in by the passwords of `prepare`, and nobody else", async () => {
    const root = prepared();
    const folder = join(root, "packages/compose");
    const run = join(root, "run");
    mkdirSync(run);
    // The start script as it is, but for where the container has its files, up to the start of the broker itself.
    const script = read("mosquitto/start")
      .replaceAll("/tmp/", `${run}/`)
      .replaceAll("/run/secrets", join(folder, "secrets"))
      .replace(/^exec .*$/m, "");
    execFileSync("sh", ["-c", script]);
    chmodSync(join(run, "passwords"), 0o600);
    const acl = join(root, "connectors/mqtt/acl.example");
    const broker = await startMosquitto({
      lines: (port) =>
        read("mosquitto/mosquitto.conf")
          .replace("listener 1883", `listener ${port} 127.0.0.1`)
          .replace("/tmp/passwords", join(run, "passwords"))
          .replace("/etc/plenum.acl", acl)
          .replace("/mosquitto/data/", `${run}/`)
          .split("\n"),
    });
    onTestFinished(() => broker.stop());
    const enters = async (username: string, password: string) => {
      const client = mqtt.connect(broker.url, { username, password, reconnectPeriod: 0 });
      onTestFinished(() => void client.end(true));
      return new Promise((resolve) => {
        client.once("connect", () => resolve(true));
        client.once("error", () => resolve(false));
        client.once("close", () => resolve(false));
      });
    };
    const secret = (name: string) => readFileSync(join(folder, "secrets", name), "utf8");
    expect(await enters("plenum", secret("mqtt_password"))).toBe(true);
    expect(await enters("viewer", secret("viewer_password"))).toBe(true);
    expect(await enters("viewer", secret("mqtt_password"))).toBe(false);
  });
});
