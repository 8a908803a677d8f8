import { expect, onTestFinished, test } from "vitest";
import { describeMetrics } from "../../tools/reference/metrics.ts";
import { absent, startVictoriaMetrics } from "../real-servers.ts";
import { inlineCodeIn, pages } from "./markdown.ts";

/** Metrics and expressions in the documents. */

const knownMetrics = describeMetrics().flatMap(({ name, type }) =>
  type === "histogram" ? [name, `${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
);

test("documents name only existing metrics", () => {
  const namedMetrics = pages.flatMap(({ file, text }) =>
    [...text.matchAll(/\bplenum_[a-z_]+(?=\b(?![*…/]))/g)].map(([name]) => ({ file, name })),
  );
  // Names of Slack's message metadata.
  const slackNames = new Set(["plenum_incident", "plenum_state"]);
  expect(namedMetrics.length).toBeGreaterThan(70);
  expect(namedMetrics.filter(({ name }) => !knownMetrics.includes(name) && !slackNames.has(name))).toEqual([]);
});

test.skipIf(absent("victoria-metrics"))("VictoriaMetrics accepts the expressions of docs/operations.md", async () => {
  const server = await startVictoriaMetrics();
  onTestFinished(() => server.stop());
  const expressions = pages
    .filter(({ file }) => file === "docs/operations.md")
    .flatMap(inlineCodeIn)
    .filter((span) => span.includes("plenum_"))
    .map((span) => span.replaceAll("\\|", "|"));
  expect(expressions.length).toBeGreaterThan(8);
  for (const query of expressions) {
    const { status } = await fetch(`${server.url}/api/v1/query?${new URLSearchParams({ query })}`);
    expect(status, query).toBe(200);
  }
});
