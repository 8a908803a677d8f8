import { expect, test } from "vitest";
import { historyEvent } from "#src/core/codec/history-event.ts";
import { Points } from "#src/core/codec/points.ts";
import type { Resolution } from "#src/core/model/building.ts";
import { sourceUri } from "#src/core/model/event.ts";
import type { PlotResponse } from "#src/ui/status/history.ts";
import { statusRoutes } from "#src/ui/status/server.ts";
import { fillSource, NOW, serverOptions, shownBuilding } from "./shown-building.ts";

/** What was told of history fills what was not read. */
async function plotOf(
  span: string,
  logs: readonly (readonly [Resolution, readonly (readonly [string, number | null])[]])[],
) {
  const building = await shownBuilding();
  await fillSource(building.store, "north", { tagNames: ["T1"] });
  const tag = { id: "10001", displayName: "T1", description: null, unit: "°C" };
  await building.store.commit({
    events: logs.map(([resolution, points]) =>
      historyEvent({
        ...{
          source: sourceUri("north"),
          subject: `site/1/tag/10001/history/${resolution}`,
          time: NOW,
          siteId: 1,
        },
        ...{ tag, resolution, timeZone: "UTC", origin: "live", revisedAt: null },
        points: Points.of(points.map(([time, value]) => ({ time: `2026-11-21T${time}:00.000Z`, value }))),
      }),
    ),
  });
  const headers = { host: "127.0.0.1:9850" };
  const path = `/api/plot?source=north&tag=10001&span=${span}`;
  const response = await statusRoutes(serverOptions(building)).request(path, { headers });
  const { t, ...plot } = (await response.json()) as PlotResponse;
  return { ...plot, t: t.map((time) => new Date(time * 1_000).toISOString().slice(11, 16)) };
}

test("of hours the finest word counts, and each says its lowest and highest", async () => {
  const plot = await plotOf("7d", [
    [
      "5m",
      [
        ["06:00", 20],
        ["06:05", 25],
        ["06:10", 21],
        ["07:00", null],
      ],
    ],
    [
      "1h",
      [
        ["06:00", 99],
        ["07:00", 22],
      ],
    ],
  ]);
  expect(plot).toMatchObject({
    ...{ origin: "logged", stepSeconds: 3_600, unit: "°C" },
    ...{ t: ["06:00", "07:00"], value: [21, 22], low: [20, 22], high: [25, 22] },
  });
});

test("of a day the hours fill where there are no finer values", async () => {
  const plot = await plotOf("6h", [
    [
      "5m",
      [
        ["06:00", 20],
        ["06:05", 25],
        ["06:10", null],
      ],
    ],
    [
      "1h",
      [
        ["05:00", 18],
        ["06:00", 99],
      ],
    ],
  ]);
  expect(plot).toMatchObject({ origin: "logged", t: ["05:00", "06:00", "06:05", "06:10"] });
  expect(plot.value).toEqual([18, 20, 25, null]);
});
