import { expect, test } from "vitest";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { joinExpositions } from "#src/ui/status/health.ts";

/** As a member has them for one of its sources. */
function metricsOf(source: string) {
  const metrics = createMetrics();
  metrics.registry.setDefaultLabels({ source });
  metrics.outboxDepth.set({ sink: "broker" }, source.length);
  metrics.tagsRead.inc({ source, quality: "good" }, 3);
  return metrics;
}

test("the metrics of several sources declare each family once, and every sample says of which source it is", async () => {
  const process = createMetrics();
  process.clockSteps.inc({ direction: "back" });
  const texts = await Promise.all(
    [process, metricsOf("north"), metricsOf('so,source="uth')].map(({ registry }) => registry.metrics()),
  );
  const lines = joinExpositions(texts).split("\n");

  const declared = lines.filter((line) => line.startsWith("# TYPE"));
  expect(new Set(declared).size).toBe(declared.length);
  expect(lines.filter((line) => line.startsWith("plenum_outbox_depth{"))).toEqual([
    'plenum_outbox_depth{sink="broker",source="north"} 5',
    'plenum_outbox_depth{sink="broker",source="so,source=\\"uth"} 14',
  ]);
  expect(lines.filter((line) => line.startsWith("plenum_tags_read_total{"))).toEqual([
    'plenum_tags_read_total{source="north",quality="good"} 3',
    'plenum_tags_read_total{source="so,source=\\"uth",quality="good"} 3',
  ]);
  expect(lines).toContain('plenum_clock_steps_total{direction="back"} 1');
  // The samples of a family stand together, right below what declares it.
  const families = lines.map((line) => line.replace(/^# (?:HELP|TYPE) /, "").split(/[ {]/)[0] ?? "");
  const seen = families.filter((name, n) => name !== families[n - 1] && name === "plenum_outbox_depth");
  expect(seen).toHaveLength(1);
});
