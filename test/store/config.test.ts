import { expect, test } from "vitest";
import { StateConfig } from "#src/engine/store/state-config.ts";

test("the configuration of the state has defaults, and rejects a replay window shorter than 15 minutes", () => {
  expect(StateConfig.parse({})).toEqual({
    folder: "state",
    max_bytes: 2 ** 30,
    max_age: 7 * 86_400_000,
    replay_window: 86_400_000,
    plots: true,
  });
  expect(StateConfig.parse({ replay_window: "15m" }).replay_window).toBe(900_000);
  expect(() => StateConfig.parse({ replay_window: "14m" })).toThrow("15m or longer");
  expect(() => StateConfig.parse({ max_bytes: 1_000 })).toThrow();
  expect(() => StateConfig.parse({ path: "x" })).toThrow();
});
