import { HttpError } from "@influxdata/influxdb-client";
import { expect, test } from "vitest";
import { detectInfluxRestart, parseProcessStartSeconds } from "#connectors/influxdb/bucket-client.ts";
import { never } from "./context.ts";

const metrics = (startedAt: number) =>
  `go_goroutines 30\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds ${startedAt}\nvm_rows 1\n`;

const server = (body: string) => ({ get: async () => ({ status: 200, body }) });

test("reads the process start time from metrics in the formats of the Prometheus libraries", () => {
  expect(parseProcessStartSeconds(metrics(1_795_335_234))).toBe(1_795_335_234);
  expect(parseProcessStartSeconds("process_start_time_seconds 1.79533523446e+09\n")).toBe(1_795_335_234.46);
  expect(parseProcessStartSeconds('process_start_time_seconds{job="a"} 17\n')).toBe(17);
  for (const invalidMetrics of ["", "<html>", "my_process_start_time_seconds 3\n", "process_start_time_seconds NaN\n"])
    expect(parseProcessStartSeconds(invalidMetrics)).toBeNull();
});

test("treats only a later start time as a server restart", async () => {
  const detectRestart = (before: string | null, startedAt: number) =>
    detectInfluxRestart(server(metrics(startedAt)), before, never());
  expect(await detectRestart(null, 100)).toEqual({ instanceId: "100", isNew: false });
  expect(await detectRestart("100", 100)).toEqual({ instanceId: "100", isNew: false });
  expect(await detectRestart("100", 200)).toEqual({ instanceId: "200", isNew: true });
  expect(await detectRestart("200", 100)).toEqual({ instanceId: "200", isNew: false });
});

test("reports no server instance when the server hides its start time, and rejects when the server is unreachable", async () => {
  const refusingClient = { get: () => Promise.reject(new HttpError(404, "Not Found")) };
  expect(await detectInfluxRestart(refusingClient, "100", never())).toBeNull();
  expect(await detectInfluxRestart(server("ok"), "100", never())).toBeNull();
  const unreachableClient = { get: () => Promise.reject(new Error("ECONNREFUSED")) };
  await expect(detectInfluxRestart(unreachableClient, "100", never())).rejects.toThrow("ECONNREFUSED");
});
