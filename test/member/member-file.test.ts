import { expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMemberConfigFile } from "#src/scale/fleet-member-config-file.ts";
import { createVirtualClock } from "../virtual-clock.ts";

function configWith(level: string): Config {
  return Config.parse({
    log: { level },
    sources: { main: { base_url: "http://127.0.0.1", token: { env: "TOKEN" }, time_zone: "UTC" } },
  });
}

test("a member does not apply a changed configuration file, and reports pending changes and errors of the file", async () => {
  let inFile = () => configWith("info");
  const file = createMemberConfigFile({
    configFile: { file: "plenum.yaml", loadConfig: () => inFile(), isWatched: false },
    config: configWith("info"),
    clock: createVirtualClock(0),
    log: createLog({ level: "silent" }),
  });
  expect((await file.reload("command", false)).pending).toEqual([]);
  expect(file.notices()).toEqual([]);

  inFile = () => configWith("debug");
  const dry = await file.reload("command", true);
  expect(dry).toMatchObject({ changes: [], pending: [{ path: "log.level", effect: "restart" }], refused: null });
  expect(file.state().pending).toEqual([]);
  await file.reload("signal", false);
  expect(file.state()).toMatchObject({ pending: [{ path: "log.level" }], last: { by: "signal" } });
  expect(file.notices()).toEqual([
    "The configuration file was changed (log.level); it counts once all members of the fleet were stopped and started.",
  ]);

  const { last } = file.state();
  await file.reload("file", false);
  expect(file.state().last).toBe(last);
  await file.reload("command", false);
  expect(file.state().last).toMatchObject({ by: "command", pending: [{ path: "log.level" }] });

  inFile = () => {
    throw new Error("It is no YAML.");
  };
  expect((await file.reload("command", false)).refused).toEqual(["It is no YAML."]);
  expect(file.state()).toMatchObject({ refused: ["It is no YAML."], pending: [{ path: "log.level" }] });
  expect(file.notices()).toHaveLength(2);
  expect(file.notices()[0]).toBe(
    "The configuration file plenum.yaml is wrong and changes nothing; the worker goes on as before. It is no YAML.",
  );
  inFile = () => configWith("info");
  await file.reload("command", false);
  expect(file.notices()).toEqual([]);
});
