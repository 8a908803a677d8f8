import { addProcessMetrics, createMetrics } from "../../src/core/runtime/metrics.ts";
import { code, page, table } from "./markdown.ts";

/** Every metric in the registry of a worker. */

export const METRICS_FILE = "docs/reference/metrics.md";

export interface MetricWords {
  readonly name: string;
  readonly type: string;
  readonly labels: readonly string[];
  readonly help: string;
  readonly buckets: readonly number[];
}

/** Metrics of the worker and of its process. */
export function metricWords(): readonly MetricWords[] {
  const metrics = createMetrics();
  addProcessMetrics(metrics);
  return metrics.registry.getMetricsAsArray().map((metric) => {
    // The library's types lack these fields.
    const { labelNames = [], upperBounds = [] } = metric as typeof metric & {
      readonly labelNames?: readonly string[];
      readonly upperBounds?: readonly number[];
    };
    return {
      name: metric.name,
      type: metric.type,
      labels: labelNames,
      help: metric.help,
      buckets: metric.type === "histogram" ? upperBounds.filter(Number.isFinite) : [],
    };
  });
}

export function metricsText(metrics: readonly MetricWords[]): string {
  const isOfProcess = ({ name }: MetricWords) => /^plenum_(process|nodejs)_/.test(name);
  return page(
    INTRODUCTION,
    "## Of the worker",
    tableOf(metrics.filter((metric) => !isOfProcess(metric))),
    "## Of its process",
    OF_PROCESS,
    tableOf(metrics.filter(isOfProcess)),
  );
}

function tableOf(metrics: readonly MetricWords[]): string {
  const rows = metrics.map(({ name, type, labels, help, buckets }) => [
    `<a id="${name}"></a>${code(name)}`,
    type,
    labels.map(code).join(", "),
    buckets.length === 0 ? help : `${help} Buckets: ${buckets.join(", ")}.`,
  ]);
  return table(["Metric", "Type", "Labels", "Meaning"], rows);
}

const INTRODUCTION = `# Metrics

Written by \`npm run reference\` from the registry of the worker. They are at \`/metrics\` of the status page, in the text
format of Prometheus; \`status.metrics_token\` opens that address and nothing else. What to watch stands in
[operations.md](../operations.md#monitor).

- Durations are in seconds, sizes in bytes. A counter counts from the start of the worker.
- No tag, alarm or command is a label: a building has thousands of them.
- **A number that is not known is absent.** 0 and "not read" are different things, and a rule has to treat them so.
- A histogram has \`_bucket\`, \`_sum\` and \`_count\`, by the labels and \`le\`.`;

const OF_PROCESS = `What the library for metrics tells of any process of Node.js, with \`plenum_\` before its names; here under Linux,
elsewhere some are missing. The lag of the event loop has the 500 ms in it at which it is looked at.`;
