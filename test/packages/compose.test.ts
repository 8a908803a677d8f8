import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import mqtt from "mqtt";
import { describe, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { Config } from "#src/app/config/config.ts";
import { absent, programPath, startMosquitto } from "../real-servers.ts";
import { copyPackages, expectPrepared, expectSecured, ROOT, readCompose } from "./compose-file.ts";

const FOLDER = "packages/compose";
const readPackageFile = (path: string) => readFileSync(join(ROOT, FOLDER, path), "utf8");
const compose = readCompose(FOLDER);
const { services } = compose;
const serviceEntries = Object.entries(services);

function prepared(): string {
  const copyRoot = copyPackages(FOLDER);
  writeFileSync(join(copyRoot, "token"), "abc\n");
  execFileSync(join(copyRoot, FOLDER, "prepare"), ["--token-file", join(copyRoot, "token")]);
  return copyRoot;
}

describe("the Compose file of one worker", () => {
  test("has the worker, a broker, a database and dashboards", () => {
    expect(Object.keys(services).toSorted()).toEqual(["grafana", "mosquitto", "plenum", "victoria-metrics"]);
  });

  test.each(serviceEntries)("%s has a pinned image, no privileges, a health check and loopback ports", (_, service) => {
    expect(service.image).toMatch(/:v?\d+\.\d+\.\d+$/);
    expectSecured(compose, service);
  });

  test("uses the image of the current version of Plenum", () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
    expect(services.plenum?.image).toBe(`plenum:${version}`);
  });

  test("mounts only files that exist after the script prepare ran, with secrets of mode 600", () => {
    expectPrepared(compose, join(prepared(), FOLDER));
  });

  test("has a script prepare that keeps existing passwords and reports a missing token", () => {
    const folder = join(prepared(), "packages/compose");
    const passwordBefore = readFileSync(join(folder, "secrets/mqtt_password"), "utf8");
    execFileSync(join(folder, "prepare"));
    expect(readFileSync(join(folder, "secrets/mqtt_password"), "utf8")).toBe(passwordBefore);
    rmSync(join(folder, "secrets/service_token"));
    const { status, stderr } = spawnSync(join(folder, "prepare"), { encoding: "utf8" });
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: "The service's token is missing: run packages/compose/prepare --token-file FILE.\n",
    });
  });

  test("has a valid worker configuration with the mounted secrets", () => {
    const yaml = readPackageFile("plenum/plenum.yaml");
    const config = Config.parse(parse(yaml));
    expect(Object.keys(config.sinks)).toEqual(["broker", "values"]);
    const namedSecrets = [...yaml.matchAll(/\/run\/secrets\/(\w+)/g)].map(([, name]) => name);
    expect(new Set(namedSecrets)).toEqual(new Set(services.plenum?.secrets));
    for (const [, host] of yaml.matchAll(/url: \w+:\/\/([\w-]+):\d+/g)) expect(Object.keys(services)).toContain(host);
  });

  test("configures Grafana with the database and the dashboards", () => {
    const { datasources } = parse(readPackageFile("grafana/datasources.yaml"));
    expect(datasources).toMatchObject([{ type: "prometheus", url: "http://victoria-metrics:8428", isDefault: true }]);
    const { providers } = parse(readPackageFile("grafana/dashboards.yaml"));
    expect(services.grafana?.volumes).toContain(`../grafana:${providers[0].options.path}:ro`);
  });
});

test.skipIf(absent("victoria-metrics"))("VictoriaMetrics accepts the scrape configuration", () => {
  const scrape = join(ROOT, "packages/compose/victoria-metrics/scrape.yaml");
  const args = [`-promscrape.config=${scrape}`, "-promscrape.config.dryRun", "-promscrape.config.strictParse"];
  const { status, stderr } = spawnSync(programPath("victoria-metrics") ?? "", args, { encoding: "utf8" });
  expect({ status, trouble: status === 0 ? "" : stderr }).toEqual({ status: 0, trouble: "" });
});

describe.skipIf(absent("mosquitto") || absent("mosquitto_passwd"))("the MQTT broker of the Compose file", () => {
  test("accepts only the passwords that the script prepare generated for the worker and the viewer", async () => {
    const copyRoot = prepared();
    const folder = join(copyRoot, "packages/compose");
    const run = join(copyRoot, "run");
    mkdirSync(run);
    const script = readPackageFile("mosquitto/start")
      .replaceAll("/tmp/", `${run}/`)
      .replaceAll("/run/secrets", join(folder, "secrets"))
      .replace(/^exec .*$/m, "");
    execFileSync("sh", ["-c", script]);
    chmodSync(join(run, "passwords"), 0o600);
    const acl = join(copyRoot, "connectors/mqtt/acl.example");
    const broker = await startMosquitto({
      lines: (port) =>
        readPackageFile("mosquitto/mosquitto.conf")
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
