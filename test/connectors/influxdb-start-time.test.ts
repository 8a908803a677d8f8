import { HttpError } from "@influxdata/influxdb-client";
import { expect, test } from "vitest";
import { detectServerInstance, parseStartTime } from "#connectors/influxdb/server.ts";
import { never } from "./context.ts";

const metrics = (startedAt: number) =>
  `go_goroutines 30\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds ${startedAt}\nvm_rows 1\n`;

const server = (answer: () => string) => ({ get: async () => ({ status: 200, body: answer() }) });

test("reads the process start time from metrics in the formats of the Prometheus libraries", () => {
  expect(parseStartTime(metrics(1_795_335_234))).toBe(1_795_335_234);
  expect(parseStartTime("process_start_time_seconds 1.79533523446e+09\n")).toBe(1_795_335_234.46);
  expect(parseStartTime('process_start_time_seconds{job="a"} 17\n')).toBe(17);
  for (const none of ["", "<html>", "my_process_start_time_seconds 3\n", "process_start_time_seconds NaN\n"])
    expect(parseStartTime(none)).toBeNull();
});

test("treats only a later start time as a server restart", async () => {
  const look = (before: string | null, startedAt: number) =>
    detectServerInstance(
      server(() => metrics(startedAt)),
      before,
      never(),
    );
  expect(await look(null, 100)).toEqual({ instanceId: "100", isNew: false });
  expect(await look("100", 100)).toEqual({ instanceId: "100", isNew: false });
  expect(await look("100", 200)).toEqual({ instanceId: "200", isNew: true });
  expect(await look("200", 100)).toEqual({ instanceId: "200", isNew: false });
});

test("serverInstanceOf returns null when the server hides its start time, and rejects when the server is unreachable", async () => {
  const refusing = { get: () => Promise.reject(new HttpError(404, "Not Found")) };
  expect(await detectServerInstance(refusing, "100", never())).toBeNull();
  expect(
    await detectServerInstance(
      server(() => "ok"),
      "100",
      never(),
    ),
  ).toBeNull();
  const away = { get: () => Promise.reject(new Error("ECONNREFUSED")) };
  await expect(detectServerInstance(away, "100", never())).rejects.toThrow("ECONNREFUSED");
});
