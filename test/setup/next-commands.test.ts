import { expect, test } from "vitest";
import { suggestNextCommands } from "#src/cli/running/write-first-configuration.ts";
import { insertProgramName, programName } from "#src/cli/shell/exit-codes.ts";

test.each([
  ["plenum.yaml", "plenum", "plenum check"],
  ["plenum.yaml", "./plenum", "./plenum check"],
  ["/etc/plenum/plenum.yaml", "plenum", "plenum check --config /etc/plenum/plenum.yaml"],
  ["my building's.yaml", "/opt/my tools/plenum", "'/opt/my tools/plenum' check --config 'my building'\\''s.yaml'"],
])("nextCommands quotes the command for the configuration %s and the program %s for the shell", (file, by, command) => {
  expect(suggestNextCommands(file, programName({ PLENUM_CALLED: by }))[0]?.[0]).toBe(command);
});

test("programName is `plenum` when PATH finds the program", () => {
  const PATH = "/usr/bin:/usr/local/bin";
  expect(programName({ PLENUM_CALLED: "/usr/local/bin/plenum", PATH })).toBe("plenum");
  expect(programName({ PLENUM_CALLED: "/opt/plenum/plenum", PATH })).toBe("/opt/plenum/plenum");
  expect(programName({ PATH })).toBe("plenum");
});

test("withProgramName replaces the program name in a hint", () => {
  const hint = "Make one with `plenum init`, or see plenum.yaml.";
  expect(insertProgramName(hint, "./plenum")).toBe("Make one with `./plenum init`, or see plenum.yaml.");
  expect(insertProgramName(hint, "plenum")).toBe(hint);
});
