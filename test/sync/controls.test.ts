import { describe, expect, test } from "vitest";
import { Malformed, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import { createControls } from "../../src/engine/sync/read/controls.ts";

describe("Whether failed reads concern all tags", () => {
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

  test("three refusals are worth an idle slot for a control, six are worth a search's", () => {
    const controls = controlsOf("a");
    const worth = Array.from({ length: 8 }, () => {
      controls.refused(["x", "y"]);
      return [controls.mayUse("idle"), controls.mayUse("search")];
    });
    expect(worth.findIndex(([idle]) => idle)).toBe(2);
    expect(worth.findIndex(([, search]) => search)).toBe(5);
    expect(controls.isTrying()).toBe(false);
  });

  test("three controls that are refused, each another tag, say that it concerns all", () => {
    const controls = controlsOf("a", "b", "c", "d");
    const outcomes = [1, 2, 3].map(() => refuseNext(controls));
    expect(outcomes).toEqual([
      ["a", false],
      ["b", false],
      ["c", true],
    ]);
    expect(controls.isTrying()).toBe(true);
  });

  test("a control that is answered ends the doubt, and the next one begins with the first tag again", () => {
    const controls = controlsOf("a", "b");
    for (let n = 0; n < 3; n++) controls.refused(["x"]);
    expect(refuseNext(controls)[1]).toBe(false);
    controls.succeeded();
    expect(controls.mayUse("idle")).toBe(false);
    expect(controls.next()).toEqual(["a"]);
  });

  test("a group that is refused beside the controls says nothing about all", () => {
    const controls = controlsOf("a", "b", "c");
    for (let n = 0; n < 3; n++) {
      const group = controls.next();
      expect(controls.refused(["a", "x"])).toBe(false);
      controls.returned(group);
    }
    expect(controls.isTrying()).toBe(false);
  });

  test("one control at a time, and what ended otherwise leaves room for the next", () => {
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

  test("a new beginning forgets a control that never came back", () => {
    const controls = controlsOf("a");
    controls.next();
    controls.restart();
    expect(controls.isUnderWay()).toBe(false);
  });

  test("where nothing was ever read, eight refusals in a row say the same", () => {
    const controls = controlsOf();
    const outcomes = Array.from({ length: 8 }, () => controls.refused(["x"]));
    expect(outcomes).toEqual([false, false, false, false, false, false, false, true]);
    expect(controls.next()).toEqual([]);
  });

  test("while it is trying, too, it takes three: one may be of a site that is refused now", () => {
    const controls = controlsOf("a", "b");
    controls.failed(new Rejected("The token is refused."));
    expect(controls.isTrying()).toBe(true);
    const outcomes = [1, 2, 3].map(() => refuseNext(controls));
    expect(outcomes).toEqual([
      ["a", false],
      ["b", false],
      ["a", true],
    ]);
    expect(controls.isTrying()).toBe(true);
  });

  test("what failed for another reason meanwhile is no refusal", () => {
    const controls = controlsOf("a", "b");
    expect(refuseNext(controls)[1]).toBe(false);
    expect(refuseNext(controls)[1]).toBe(false);
    controls.failed(away);
    expect(refuseNext(controls)[1]).toBe(false);
  });

  test.each([
    ["one gateway can be away", away],
    ["one reply can be garbled", new Malformed("Not JSON.", "<html>")],
  ])("%s: only the third failure in a row concerns all", (_, failure) => {
    const controls = controlsOf("a");
    expect([1, 2, 3].map(() => controls.failed(failure))).toEqual([false, false, true]);
    // Until something is read, each further one does.
    controls.restart();
    expect(controls.failed(failure)).toBe(true);
    controls.succeeded();
    expect(controls.failed(failure)).toBe(false);
  });
});
