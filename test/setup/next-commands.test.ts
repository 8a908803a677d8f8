import { expect, test } from "vitest";
import { nextCommands } from "#src/cli/running/setup-steps.ts";

test.each([
  ["plenum.yaml", "plenum", "plenum check"],
  ["plenum.yaml", "./plenum", "./plenum check"],
  ["/etc/plenum/plenum.yaml", "plenum", "plenum check --config /etc/plenum/plenum.yaml"],
  [
    "my building's.yaml",
    "/opt/my tools/plenum",
    "'/opt/my tools/plenum' check --config 'my building'\\''s.yaml'",
  ],
])("of %s made by %s the next command is one that can be typed", (file, called, command) => {
  expect(nextCommands(file, called)[0]?.[0]).toBe(command);
});
