import { describe, expect, test } from "vitest";
import { Malformed, Retryable } from "../../src/core/errors/errors.ts";
import { createControls } from "../../src/engine/sync/read/controls.ts";

describe("createControls", () => {
  const away = new Retryable("The service is away.");

  /** Tags that were read lately, in the order in which they are to be asked. */
  function controlsOf(...lately: readonly string[]) {
    return createControls((tried) => lately.find((id) => !tried.includes(id)));
  }

  /** Asks the next control and says that it was refused; answers which tag it was and whether that concerns all. */
  function refuseNext(controls: ReturnType<typeof controlsOf>): [tag: string | undefined, isOfAll: boolean] {
    const group = controls.next();
    expect(group).toHaveLength(1);
    const isOfAll = controls.refused(group);
    controls.returned(group);
    return [group[0], isOfAll];
  }

  test("allows a control in idle slots after three refusals, and in search slots after six", () => {
    const controls = controlsOf("a");
    const worth = Array.from({ length: 8 }, () => {
      controls.refused(["x", "y"]);
      return [controls.mayUse("idle"), controls.mayUse("search")];
    });
    expect(worth.findIndex(([idle]) => idle)).toBe(2);
    expect(worth.findIndex(([, search]) => search)).toBe(5);
    expect(controls.isTrying()).toBe(false);
  });

  test("reports that all tags are concerned after three refused controls", () => {
    const controls = controlsOf("a", "b", "c", "d");
    const outcomes = [1, 2, 3].map(() => refuseNext(controls));
    expect(outcomes).toEqual([
      ["a", false],
      ["b", false],
      ["c", true],
    ]);
    expect(controls.isTrying()).toBe(true);
  });

  test("starts again with the first tag after a control has succeeded", () => {
    const controls = controlsOf("a", "b");
    for (let n = 0; n < 3; n++) controls.refused(["x"]);
    expect(refuseNext(controls)[1]).toBe(false);
    controls.succeeded();
    expect(controls.mayUse("idle")).toBe(false);
    expect(controls.next()).toEqual(["a"]);
  });

  test("does not count refused groups as refused controls", () => {
    const controls = controlsOf("a", "b", "c");
    for (let n = 0; n < 3; n++) {
      const group = controls.next();
      expect(controls.refused(["a", "x"])).toBe(false);
      controls.returned(group);
    }
    expect(controls.isTrying()).toBe(false);
  });

  test("has one control under way at a time", () => {
    const controls = controlsOf("a", "b");
    const first = controls.next();
    expect(first).toEqual(["a"]);
    expect(controls.next()).toEqual([]);
    controls.returned(["a"]);
    // Another request for the same tag is not the control.
    expect(controls.isUnderWay()).toBe(true);
    controls.returned(first);
    expect(controls.next()).toEqual(["b"]);
  });

  test("reports that all tags are concerned after eight refusals if no tag was ever read", () => {
    const controls = controlsOf();
    const outcomes = Array.from({ length: 8 }, () => controls.refused(["x"]));
    expect(outcomes).toEqual([false, false, false, false, false, false, false, true]);
    expect(controls.next()).toEqual([]);
  });

  test.each([
    ["one gateway can be away", away],
    ["one reply can be garbled", new Malformed("Not JSON.", "<html>")],
  ])("%s: reports that all tags are concerned at the third failure in a row", (_, failure) => {
    const controls = controlsOf("a");
    expect([1, 2, 3].map(() => controls.failed(failure))).toEqual([false, false, true]);
    // Until something is read, each further one does.
    controls.restart();
    expect(controls.failed(failure)).toBe(true);
    controls.succeeded();
    expect(controls.failed(failure)).toBe(false);
  });
});
