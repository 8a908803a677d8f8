import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { addProcessMetrics, createMetrics } from "#src/core/runtime/metrics.ts";
import { openHarness, simulatedServer } from "../cli/plenum.ts";
import { absent, programPath, startVictoriaMetrics } from "../real-servers.ts";

const PACKAGES = join(import.meta.dirname, "../../packages");
const readPackageFile = (path: string) => readFileSync(join(PACKAGES, path), "utf8");

interface Panel {
  readonly title: string;
  readonly targets: readonly { readonly expr: string }[];
}

interface Dashboard {
  readonly uid: string;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly query: string | { readonly query: string } }[] };
}

const dashboard = (name: string) => JSON.parse(readPackageFile(`grafana/${name}.json`)) as Dashboard;
const listExpressions = ({ panels }: Dashboard) => panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));

const { groups } = parse(readPackageFile("prometheus/plenum.rules.yaml")) as {
  readonly groups: readonly { readonly rules: readonly { readonly alert: string; readonly expr: string }[] }[];
};
const rules = groups.flatMap((group) => group.rules);

/** Replaces variables as Grafana does without a selection. */
const replaceVariables = (expr: string) =>
  expr.replaceAll(/"\$(source|site|unit|name)"/g, '".*"').replaceAll("$__rate_interval", "5m");

function promtool(args: readonly string[], input?: string) {
  const { status, stdout, stderr } = spawnSync(programPath("promtool") ?? "", args, {
    cwd: join(PACKAGES, "prometheus"),
    encoding: "utf8",
    ...(input === undefined ? {} : { input }),
  });
  return { status, complaints: status === 0 ? stderr : stdout + stderr };
}

const FINE = { status: 0, complaints: "" };

describe("expressions of alert rules and dashboards", () => {
  const metrics = createMetrics();
  addProcessMetrics(metrics);
  const names = metrics.registry.getMetricsAsArray().map(({ name }) => name);
  const texts = [
    ...rules.map(({ alert, expr }) => [alert, expr] as const),
    ...listExpressions(dashboard("plenum-worker")).map((expr) => [expr, expr] as const),
    ...dashboard("plenum-worker").templating.list.map(({ query }) => ["a variable", JSON.stringify(query)] as const),
  ];

  test.each(texts)("use only existing metrics of the worker: %s", (_, expr) => {
    for (const [found] of expr.matchAll(/\bplenum_[a-z_]+/g))
      expect(names).toContain(found.replace(/_(bucket|sum|count)$/, ""));
  });

  test("belong to rules and dashboards with unique names", () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
    expect(dashboard("plenum-worker").uid).not.toBe(dashboard("plenum-building").uid);
  });
});

describe.skipIf(absent("promtool"))("promtool of Prometheus", () => {
  test("accepts the alert rules", () => {
    expect(promtool(["check", "rules", "plenum.rules.yaml"])).toEqual(FINE);
  });

  test("fires each alert rule in its test and no other rule", () => {
    expect(promtool(["test", "rules", "plenum.rules.test.yaml"])).toEqual(FINE);
    const tested = readPackageFile("prometheus/plenum.rules.test.yaml");
    for (const { alert } of rules) expect(tested).toContain(`alertname="${alert}"`);
  });
});

describe.skipIf(absent("promtool") || absent("victoria-metrics"))("the metrics of a real worker", () => {
  test("are valid, and all panels and alert rules can be queried", async () => {
    const [service, victoria] = await Promise.all([simulatedServer(), startVictoriaMetrics()]);
    onTestFinished(() => victoria.stop());
    const workFolder = openHarness(service.url);
    workFolder.configure({
      commands: { enabled: true, allow: [] },
      sources: {
        main: {
          base_url: service.url,
          token: { file: "token" },
          time_zone: "Europe/Oslo",
          quota: { list_requests_per_minute: 600 },
          read: [{ name: "all", every: "1m" }],
        },
      },
      sinks: {
        values: {
          influxdb: {
            ...{ url: victoria.url, api: "v2", bucket: "plenum", tags_from: ["name", "site_name", "system"] },
            gzip: false,
          },
        },
      },
    });
    const worker = workFolder.start("run");
    const [, address = ""] = /"status":"([^"]+)"/.exec(await worker.waitForOutput('"msg":"started"')) ?? [];
    const query = async (expr: string) => {
      const reply = await fetch(`${victoria.url}/api/v1/query?${new URLSearchParams({ query: expr })}`);
      const { status, data, error } = (await reply.json()) as {
        readonly status: string;
        readonly data?: { readonly result: readonly { readonly metric: Readonly<Record<string, string>> }[] };
        readonly error?: string;
      };
      expect({ expr, status, error }).toEqual({ expr, status: "success", error: undefined });
      return data?.result ?? [];
    };
    await expect.poll(async () => (await query('tag_value_value{name!="",site_name!=""}')).length).toBeGreaterThan(5);

    const metricsText = await (await fetch(new URL("/metrics", address))).text();
    expect(promtool(["check", "metrics"], metricsText)).toEqual(FINE);
    for (const metricName of ["poll_due_timestamp_seconds", "token_expires_timestamp_seconds", "disk_free_bytes"])
      expect(metricsText).toMatch(new RegExp(`^plenum_${metricName}(\\{.*\\})? [1-9]`, "m"));
    expect(metricsText).toMatch(/^plenum_writes_stopped 0$/m);

    // Renames the worker's label `job` as a scraper does.
    const scraped = metricsText.replaceAll(/([{,])job="/g, '$1exported_job="');
    const labels = new URLSearchParams([["extra_label", "job=plenum"]]);
    await fetch(`${victoria.url}/api/v1/import/prometheus?${labels}`, { method: "POST", body: scraped });
    await expect.poll(async () => (await query("plenum_disk_free_bytes")).length).toBe(1);
    const [board, building] = [dashboard("plenum-worker"), dashboard("plenum-building")];
    for (const expr of [...listExpressions(board), ...listExpressions(building)]) await query(replaceVariables(expr));
    for (const { expr } of rules) await query(expr);
    for (const panelTitle of ["Values", "Share of successful reads", "Current values", "Tags with a value, by site"]) {
      const expr = building.panels.find((panel) => panel.title === panelTitle)?.targets[0]?.expr ?? "";
      expect((await query(replaceVariables(expr))).length, panelTitle).toBeGreaterThan(0);
    }
    for (const title of [
      "Late polls",
      "Free disk space",
      "Time since the last successful poll",
      "Age of the oldest waiting event, by sink",
    ]) {
      const expr = board.panels.find((panel) => panel.title === title)?.targets[0]?.expr ?? "";
      expect((await query(replaceVariables(expr))).length, title).toBeGreaterThan(0);
    }
    worker.signal("SIGTERM");
    expect((await worker.ended).code).toBe(0);
  });
});
