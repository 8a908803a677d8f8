import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { stringify } from "yaml";
import { type Workplace, workplace } from "../cli/plenum.ts";
import { type Canaries, canaries, findLeaks, SLOTS } from "./canaries.ts";

const NOBODY = "http://127.0.0.1:9";

function configurations(all: Canaries): Readonly<Record<string, unknown>> {
  const source = (more: object = {}) => ({
    sources: { main: { base_url: NOBODY, token: { file: "secret-service" }, time_zone: "Europe/Oslo", ...more } },
  });
  const hook = (webhook: object) => ({ ...source(), sinks: { hook: { webhook } } });
  return {
    "the token itself": source({ token: all.service }),
    "the token as a file's name": source({ token: { file: all.service } }),
    "the token as a variable's name": source({ token: { env: all.service } }),
    "the token under a key that there is not": source({ tokn: all.service }),
    "the token in a list": source({ token: [all.service] }),
    "the token as a key": source({ [all.service]: true }),
    "the token as the zone": source({ time_zone: all.service }),
    "the password as a name of a site": source({ read: [{ name: all.influxPassword, every: "1m" }] }),
    "a password in the address": source({ base_url: `https://me:${encodeURIComponent(all.mqttPassword)}@127.0.0.1:9` }),
    "a key in the address": hook({ url: `https://127.0.0.1:9/services/${encodeURIComponent(all.webhookSigning)}` }),
    "a key in the query": hook({ url: `https://127.0.0.1:9/?code=${encodeURIComponent(all.webhookSigning)}` }),
    "a header": hook({
      url: "https://127.0.0.1:9/hook",
      unsigned: true,
      headers: { authorization: all.webhookHeader, "x-key": all.influxToken },
    }),
    "a signing secret": hook({ url: "https://127.0.0.1:9/hook", secrets: [all.webhookSigning] }),
    "a password as it is": { ...source(), status: { port: 0, password: all.statusPassword } },
    "a proxy": source({ proxy: { url: `http://me:${encodeURIComponent(all.proxyPassword)}@127.0.0.1:9` } }),
    "at the top": { ...source(), password: all.statusPassword, notes: { deep: [all.influxToken] } },
    "a text": all.influxToken,
    "a file that others may read": source({ token: { file: "open-secret" } }),
  };
}

async function fileOf(cli: Workplace, ...args: readonly string[]): Promise<string> {
  for (const name of readdirSync(cli.path("out"))) rmSync(cli.path(`out/${name}`));
  const { code, stdout, stderr } = await cli.plenum("doctor", "--to", "out", ...args);
  expect([code, stderr.replaceAll(/.* … \d+ s\n/g, "")]).toEqual([0, ""]);
  const [fileName = ""] = readdirSync(cli.path("out"));
  return `${stdout}\n${fileName}\n${readFileSync(cli.path(`out/${fileName}`), "utf8")}`;
}

function secretPlace(all: Canaries): Workplace {
  const cli = workplace(NOBODY);
  mkdirSync(cli.path("out"));
  for (const slot of SLOTS) writeFileSync(cli.path(`secret-${slot}`), `${all[slot]}\n`, { mode: 0o600 });
  writeFileSync(cli.path("open-secret"), all.service, { mode: 0o644 });
  return cli;
}

test("plenum doctor prints and writes no secret from any place in the configuration", async () => {
  const all = canaries();
  const cli = secretPlace(all);
  for (const [mistake, config] of Object.entries(configurations(all))) {
    writeFileSync(cli.path("plenum.yaml"), stringify(config));
    expect(findLeaks(all, { [mistake]: await fileOf(cli) })).toEqual([]);
  }
}, 120_000);

test("plenum doctor prints and writes no secret from a configuration that is invalid YAML", async () => {
  const all = canaries();
  const cli = secretPlace(all);
  const broken = {
    "no end of a text": `sources:\n  main:\n    token: "${all.service}\n`,
    "a text behind a text": `sources:\n  token: "abc" ${all.service}\n`,
    "an alias": `sources:\n  token: *${all.statusPassword.replaceAll(/[^\w-]/g, "a")}\n`,
    "a tag": `sources:\n  token: !${all.influxToken.replaceAll(/[^\w-]/g, "a")} x: y: z\n`,
    "a bare token": `${all.service}\n- x\n`,
  };
  for (const [mistake, text] of Object.entries(broken)) {
    writeFileSync(cli.path("plenum.yaml"), text);
    const plain = {
      ...all,
      statusPassword: all.statusPassword.replaceAll(/[^\w-]/g, "a"),
      influxToken: all.influxToken.replaceAll(/[^\w-]/g, "a"),
    };
    expect(findLeaks({ ...all, ...plain }, { [mistake]: await fileOf(cli) })).toEqual([]);
  }
});

test("plenum doctor --log includes no secret from a log of another program", async () => {
  const all = canaries();
  const cli = secretPlace(all);
  const lines = [
    `connecting to https://me:${encodeURIComponent(all.mqttPassword)}@broker.example/x`,
    `GET /api/v1/me Authorization: Bearer ${all.service}`,
    `password=${all.statusPassword.replaceAll(" ", "-")} ok`,
    JSON.stringify({ level: 50, token: all.influxToken, msg: "refused" }),
    `https://hooks.example/services/T0/${encodeURIComponent(all.webhookSigning)}?key=${encodeURIComponent(all.influxToken)}`,
    `saw ${all.service} in passing`,
  ];
  writeFileSync(cli.path("old.log"), lines.join("\n"));
  const text = await fileOf(cli, "--log", "old.log");
  expect(findLeaks(all, { log: text })).toEqual([]);
  expect(text).toContain("broker.example");
  writeFileSync(cli.path("plenum.yaml"), "sources: {}\n");
  expect(findLeaks(all, { log: await fileOf(cli, "--log", "old.log") })).toEqual([]);
});
