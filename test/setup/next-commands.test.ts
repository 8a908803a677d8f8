import { expect, test } from "vitest";
import { nextCommands } from "#src/cli/running/setup.ts";
import { programName, withProgramName } from "#src/cli/shell/exit.ts";

test.each([
  ["plenum.yaml", "plenum", "plenum check"],
  ["plenum.yaml", "./plenum", "./plenum check"],
  ["/etc/plenum/plenum.yaml", "plenum", "plenum check --config /etc/plenum/plenum.yaml"],
  ["my building's.yaml", "/opt/my tools/plenum", "'/opt/my tools/plenum' check --config 'my building'\\''s.yaml'"],
])("of %s made by %s the next command is one that can be typed", (file, by, command) => {
  expect(nextCommands(file, programName({ PLENUM_CALLED: by }))[0]?.[0]).toBe(command);
});

test("who found the program by its name alone is told that name", () => {
  const PATH = "/usr/bin:/usr/local/bin";
  expect(programName({ PLENUM_CALLED: "/usr/local/bin/plenum", PATH })).toBe("plenum");
  expect(programName({ PLENUM_CALLED: "/opt/plenum/plenum", PATH })).toBe("/opt/plenum/plenum");
  expect(programName({ PATH })).toBe("plenum");
});

test("the commands in a sentence are those that can be typed", () => {
  const hint = "Make one with `plenum init`, or see plenum.yaml.";
  expect(withProgramName(hint, "./plenum")).toBe("Make one with `./plenum init`, or see plenum.yaml.");
  expect(withProgramName(hint, "plenum")).toBe(hint);
});
