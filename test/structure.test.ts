import { basename } from "node:path";
import { describe, expect, test } from "vitest";
import { importsIn, importsOfAll, pages, programs, testPrograms, textOf } from "./structure/imports.ts";
import { roomsOf } from "./structure/rooms.ts";
import { unused, violations } from "./structure/violations.ts";

/** The rules that matter are programs: the table of rooms in src/README.md is the rule that is enforced here. */
const rooms = roomsOf(textOf("src/README.md"));
const imports = importsOfAll();
const files = programs();

describe("the table of rooms", () => {
  test("every import is one that the table allows", () => {
    expect(files.length).toBeGreaterThan(300);
    expect(violations(rooms, imports)).toEqual([]);
  });

  test("the table allows nothing that nobody needs", () => {
    expect(unused(rooms, imports)).toEqual([]);
  });

  test("no import runs in a circle", () => {
    const done = new Set<string>();
    const visit = (file: string, trail: readonly string[]): void => {
      expect(trail, `a circle of imports: ${[...trail, file].join(" → ")}`).not.toContain(file);
      if (done.has(file)) return;
      for (const target of imports.get(file) ?? []) visit(target, [...trail, file]);
      done.add(file);
    };
    for (const file of files) visit(file, []);
  });
});

/** For each row, by its first files: an import that must not pass. */
const FORBIDDEN: Readonly<Record<string, readonly (readonly [file: string, target: string])[]>> = {
  building: [
    ["src/core/runtime/waiting.ts", "src/engine/store/store.ts"],
    ["src/core/http/tls-trouble.ts", "undici"],
    ["src/core/model/event.ts", "node:sqlite"],
  ],
  connector: [["src/core/connector.ts", "src/engine/source/source.ts"]],
  "setup/": [
    ["src/ui/setup/look.ts", "src/engine/source/client.ts"],
    ["src/ui/setup/plan.ts", "src/app/build-sync.ts"],
    ["src/ui/setup/write.ts", "src/cli/shell/terminal.ts"],
  ],
  "setup/page/": [["src/ui/setup/page/setup.mjs", "src/ui/setup/wishes.ts"]],
  "plots/": [
    ["src/ui/plots/leaf.ts", "src/ui/status/answers.ts"],
    ["src/ui/plots/plots.ts", "src/engine/sync/snapshot.ts"],
  ],
  "silence/": [["src/engine/silence/silence.ts", "src/engine/sync/snapshot.ts"]],
  picture: [["src/engine/views/picture.ts", "src/engine/store/open.ts"]],
  "lake/": [
    ["connectors/shared/lake/rows.ts", "src/engine/store/store.ts"],
    ["connectors/shared/lake/rows.ts", "src/core/connector.ts"],
  ],
  "postgres/": [
    ["src/core/postgres/session.ts", "src/engine/store/store.ts"],
    ["src/core/postgres/session.ts", "connectors/shared/lake/table.ts"],
  ],
  "fleet/": [
    ["src/scale/fleet/share.ts", "src/engine/store/store.ts"],
    ["src/scale/fleet/fleet.ts", "src/app/worker.ts"],
    ["src/scale/fleet/kill-switch.ts", "src/engine/commands/kill-switch.ts"],
    ["src/scale/fleet/leases.ts", "pg"],
  ],
  "store/move/": [
    ["src/scale/move/move.ts", "pg"],
    ["src/scale/move/sets.ts", "src/engine/commands/journal.ts"],
  ],
  "store/postgres/": [
    ["src/scale/postgres/state-database.ts", "pg"],
    ["src/scale/postgres/state-database.ts", "node:sqlite"],
  ],
  "store/": [
    ["src/engine/store/outbox.ts", "src/engine/source/source.ts"],
    ["src/engine/store/outbox.ts", "src/engine/delivery/filter.ts"],
  ],
  "source/": [
    ["src/engine/source/client.ts", "src/engine/store/store.ts"],
    ["src/engine/source/client.ts", "p-queue"],
    ["src/engine/source/client.ts", "src/engine/sync/plan/group.ts"],
  ],
  "source/list-pace": [["src/engine/source/list-pace.ts", "src/engine/source/client.ts"]],
  "source/quota/": [
    ["src/engine/source/quota/lanes.ts", "src/engine/source/client.ts"],
    ["src/engine/source/quota/quota.ts", "src/engine/store/open.ts"],
    ["src/engine/source/quota/quota.ts", "node:sqlite"],
  ],
  "sync/snapshot": [
    ["src/engine/sync/snapshot.ts", "src/engine/sync/history/spans.ts"],
    ["src/engine/sync/standing.ts", "src/engine/source/client.ts"],
    ["src/engine/sync/standing.ts", "p-queue"],
    ["src/engine/sync/follower.ts", "src/engine/sync/read/board.ts"],
  ],
  "sync/schedule": [["src/engine/sync/schedule.ts", "src/engine/sync/read/live-reads.ts"]],
  "sync/scope": [["src/engine/sync/scope.ts", "src/engine/sync/read/live-reads.ts"]],
  "sync/plan/": [
    ["src/engine/sync/plan/group.ts", "src/engine/sync/snapshot.ts"],
    ["src/engine/sync/plan/share.ts", "src/engine/sync/history/buckets.ts"],
    ["src/engine/sync/plan/stretch.ts", "src/engine/source/source.ts"],
    ["src/engine/sync/plan/stretch.ts", "src/engine/store/store.ts"],
    ["src/engine/sync/plan/report.ts", "node:fs"],
  ],
  "sync/compare/": [
    ["src/engine/sync/compare/classes.ts", "src/engine/sync/snapshot.ts"],
    ["src/engine/sync/compare/selections.ts", "src/engine/source/source.ts"],
    ["src/engine/sync/compare/writable.ts", "src/engine/commands/config.ts"],
  ],
  "sync/tag-group/": [
    ["src/engine/sync/tag-group/suspects.ts", "src/engine/source/source.ts"],
    ["src/engine/sync/tag-group/refusal.ts", "src/engine/sync/read/board.ts"],
  ],
  "sync/alarms/diff*": [
    ["src/engine/sync/alarms/diff-alarm.ts", "src/engine/source/source.ts"],
    ["src/engine/sync/alarms/diff-resolved.ts", "src/engine/sync/alarms/poll.ts"],
    ["src/engine/sync/inventory/diff.ts", "src/engine/store/store.ts"],
    ["src/engine/sync/inventory/diff.ts", "src/core/runtime/clock.ts"],
    ["src/engine/sync/inventory/diff.ts", "node:fs"],
  ],
  "sync/alarms/": [
    ["src/engine/sync/alarms/poll.ts", "src/engine/sync/read/board.ts"],
    ["src/engine/sync/alarms/poll.ts", "src/engine/sync/inventory/poll.ts"],
  ],
  "sync/inventory/": [["src/engine/sync/inventory/poll.ts", "src/engine/sync/alarms/poll.ts"]],
  "sync/read/": [
    ["src/engine/sync/read/live-reads.ts", "src/engine/sync/history/pull.ts"],
    ["src/engine/sync/read/live-reads.ts", "src/engine/sync/sync.ts"],
    ["src/engine/sync/read/board.ts", "p-queue"],
  ],
  "sync/completeness/": [
    ["src/engine/sync/completeness/account.ts", "src/engine/store/store.ts"],
    ["src/engine/sync/completeness/reach.ts", "src/engine/sync/history/settle.ts"],
  ],
  "sync/history/": [
    ["src/engine/sync/history/pull.ts", "src/engine/sync/read/live-reads.ts"],
    ["src/engine/sync/history/request.ts", "src/engine/source/client.ts"],
    ["src/engine/sync/history/book.ts", "node:sqlite"],
  ],
  "sync/sensors/": [
    ["src/engine/sync/sensors/sensor-watch.ts", "src/engine/source/source.ts"],
    ["src/engine/sync/sensors/findings.ts", "src/engine/sync/read/board.ts"],
  ],
  "sync/": [
    ["src/engine/sync/sync.ts", "src/engine/delivery/dispatcher.ts"],
    ["src/engine/sync/scheduler.ts", "src/engine/source/quota/quota.ts"],
    ["src/engine/sync/scheduler.ts", "node-cron"],
    ["src/engine/sync/outage.ts", "src/engine/commands/commands.ts"],
  ],
  "commands/": [
    ["src/engine/commands/gate.ts", "src/engine/sync/scheduler.ts"],
    ["src/engine/commands/writer.ts", "src/engine/source/client.ts"],
    ["src/engine/commands/commands.ts", "src/engine/delivery/dispatcher.ts"],
    ["src/engine/commands/commands.ts", "mqtt"],
  ],
  "commands/audit/": [["src/engine/commands/audit/audit.ts", "src/engine/commands/approval/approval.ts"]],
  "commands/approval/": [["src/engine/commands/approval/approval.ts", "src/engine/store/store.ts"]],
  "delivery/": [
    ["src/engine/delivery/sink-loop.ts", "src/engine/source/source.ts"],
    ["src/engine/delivery/offer.ts", "connectors/mqtt/sink.ts"],
  ],
  "../connectors/catalog": [["connectors/catalog.ts", "connectors/mqtt/sink.ts"]],
  "../connectors/mqtt/": [
    ["connectors/mqtt/sink.ts", "src/engine/store/store.ts"],
    ["connectors/mqtt/commands.ts", "src/engine/commands/intake.ts"],
    ["connectors/mqtt/topics.ts", "connectors/influxdb/text.ts"],
  ],
  "../connectors/influxdb/": [["connectors/influxdb/sink.ts", "undici"]],
  "../connectors/kafka/": [["connectors/kafka/sink.ts", "mqtt"]],
  "../connectors/parquet/": [
    ["connectors/parquet/sink.ts", "src/engine/store/store.ts"],
    ["connectors/parquet/s3-store.ts", "pg"],
    ["connectors/parquet/paths.ts", "connectors/file/own-files.ts"],
  ],
  "outbound/": [["src/core/http/outbound/http-end.ts", "src/core/connector.ts"]],
  "reload/": [
    ["src/app/reload/reloader.ts", "src/engine/delivery/dispatcher.ts"],
    ["src/app/reload/reloader.ts", "src/app/worker.ts"],
  ],
  "receiver/": [["connectors/shared/receiver/text.ts", "src/core/http/outbound/ask.ts"]],
  "../connectors/webhook/": [["connectors/webhook/sink.ts", "mqtt"]],
  "../connectors/slack/": [["connectors/slack/receiver.ts", "@slack/types"]],
  "../connectors/alertmanager/": [["connectors/alertmanager/receiver.ts", "connectors/webhook/sink.ts"]],
  "../connectors/email/": [
    ["connectors/email/receiver.ts", "src/core/http/outbound/ask.ts"],
    ["connectors/email/receiver.ts", "undici"],
  ],
  "../connectors/jira/": [["connectors/jira/receiver.ts", "connectors/servicenow/texts.ts"]],
  "../connectors/servicenow/": [["connectors/servicenow/api.ts", "undici"]],
  "../connectors/parquet/delta/": [
    ["connectors/parquet/delta/table.ts", "connectors/shared/lake/rows.ts"],
    ["connectors/parquet/delta/log.ts", "undici"],
  ],
  "../connectors/postgres/": [
    ["connectors/postgres/sink.ts", "src/engine/store/store.ts"],
    ["connectors/postgres/columns.ts", "connectors/influxdb/text.ts"],
  ],
  "../connectors/<name>/": [
    ["connectors/file/sink.ts", "connectors/stdout/sink.ts"],
    ["connectors/made-up/sink.ts", "connectors/file/sink.ts"],
    ["connectors/stdout/sink.ts", "undici"],
  ],
  "config/": [
    ["src/app/config/load.ts", "src/engine/store/open.ts"],
    ["src/app/config/config.ts", "connectors/mqtt/config.ts"],
  ],
  "status/": [
    ["src/ui/status/report.ts", "src/engine/sync/history/progress.ts"],
    ["src/ui/status/server.ts", "src/engine/delivery/dispatcher.ts"],
  ],
  "status/page/": [["src/ui/status/page/app.mjs", "src/core/values/duration.ts"]],
  "operator/": [
    ["src/ui/operator/routes.ts", "src/engine/commands/writer.ts"],
    ["src/ui/operator/work.ts", "src/engine/sync/history/ledger.ts"],
  ],
  "simulator/": [
    ["src/simulator/world.ts", "src/core/model/building.ts"],
    ["src/simulator/server.ts", "src/core/errors/errors.ts"],
  ],
  "simulator/endpoints/": [["src/simulator/endpoints/read.ts", "src/engine/source/schema.ts"]],
  worker: [
    ["src/app/worker.ts", "src/cli/running/run.ts"],
    ["src/app/build-sync.ts", "src/engine/sync/read/board.ts"],
    ["src/app/build-sinks.ts", "connectors/mqtt/sink.ts"],
  ],
  "demo/": [["src/cli/demo/demo.ts", "src/cli/shell/context.ts"]],
  "demo/page/": [["src/cli/demo/page/inbox.mjs", "/htm.mjs"]],
  "cli/doctor/": [
    ["src/cli/doctor/reach.ts", "commander"],
    ["src/cli/doctor/troubles.ts", "src/cli/checking/check.ts"],
  ],
  "cli/": [["src/cli/program.ts", "src/engine/store/open.ts"]],
  "cli/shell/": [["src/cli/shell/terminal.ts", "src/cli/running/run.ts"]],
  "cli/running/": [["src/cli/running/run.ts", "src/engine/store/open.ts"]],
  "cli/checking/": [["src/cli/checking/check.ts", "mqtt"]],
  "cli/watching/": [["src/cli/watching/outbox.ts", "node:sqlite"]],
  "cli/building/": [["src/cli/building/tags.ts", "src/app/worker.ts"]],
  "cli/fleet/": [["src/cli/fleet/fleet.ts", "pg"]],
  "cli/past/": [["src/cli/past/backfill.ts", "src/engine/source/quota/quota.ts"]],
  "cli/writing/": [["src/cli/writing/write.ts", "src/engine/source/source.ts"]],
  "cli/manual/": [["src/cli/manual/man.ts", "src/app/worker.ts"]],
};

function firstOf(title: string): string {
  return /`([^`]+)`/.exec(title)?.[1] ?? "";
}

describe("each row of the table refuses what it does not name", () => {
  test("the list below has an import for every row", () => {
    expect(Object.keys(FORBIDDEN).toSorted()).toEqual(rooms.map(({ title }) => firstOf(title)).toSorted());
  });

  const cases = rooms.flatMap(({ title }) =>
    (FORBIDDEN[firstOf(title)] ?? []).map(([file, target]) => ({ title, file, target })),
  );
  test.each(cases)("$file importing $target", ({ title, file, target }) => {
    expect(violations(rooms, new Map([[file, [target]]]))).toEqual([
      `${file} imports ${target}, which the row "${title}" does not allow.`,
    ]);
  });
});

describe("how the table is read", () => {
  const table = (...rows: readonly string[]) =>
    roomsOf(
      [
        "# Rooms",
        "| Room | One sentence | May import | Packages |",
        "|---|---|---|---|",
        ...rows,
        "",
        "x",
      ].join("\n"),
    );
  const small = table(
    "| base: `words` | shared | nothing | |",
    "| `kitchen/` | cooks | base, `kitchen/stove/`, `shop/till` (it pays) | `node:*`, `salt` |",
    "| `kitchen/stove/` | heats | base | |",
    "| `kitchen/pure*` | recipes | nothing | |",
    "| `shop/` | sells | base | `node:sqlite` |",
  );
  const told = (file: string, ...targets: readonly string[]) => violations(small, new Map([[file, targets]]));

  test.each([
    ["src/kitchen/cook.ts", "src/kitchen/other.ts"],
    ["src/kitchen/cook.ts", "src/words.ts"],
    ["src/kitchen/cook.ts", "src/kitchen/stove/gas.ts"],
    ["src/kitchen/cook.ts", "src/shop/till.ts"],
    ["src/kitchen/cook.ts", "node:fs"],
    ["src/kitchen/cook.ts", "salt/fine"],
    ["src/shop/till.ts", "node:sqlite"],
  ])("%s may import %s", (file, target) => {
    expect(told(file, target)).toEqual([]);
  });

  test.each([
    ["src/kitchen/cook.ts", "src/shop/shelf.ts"],
    ["src/kitchen/cook.ts", "src/kitchen/pure-soup.ts"],
    ["src/kitchen/cook.ts", "node:sqlite"],
    ["src/kitchen/cook.ts", "salted"],
    ["src/kitchen/stove/gas.ts", "src/kitchen/cook.ts"],
    ["src/kitchen/pure-soup.ts", "src/words.ts"],
    ["src/kitchen/pure-soup.ts", "node:fs"],
    ["src/words.ts", "src/shop/till.ts"],
  ])("%s may not import %s", (file, target) => {
    expect(told(file, target)).toHaveLength(1);
  });

  test("a file without a row is told", () => {
    expect(told("src/attic/box.ts")).toEqual(["src/attic/box.ts stands in no row of the table of rooms."]);
    expect(told("src/kitchen/cellar/wine.ts")).toHaveLength(1);
  });

  test("a word that fits nothing, and a permission that nobody uses, is told", () => {
    const graph = new Map([
      ["src/words.ts", []],
      ["src/kitchen/cook.ts", ["src/words.ts", "src/kitchen/stove/gas.ts", "node:fs", "salt"]],
      ["src/kitchen/stove/gas.ts", ["src/words.ts"]],
      ["src/shop/till.ts", ["src/words.ts", "node:sqlite"]],
    ]);
    expect(unused(small, graph)).toEqual([
      'Nobody in "`kitchen/`" imports src/shop/till (any more).',
      "No file fits src/kitchen/pure* (`kitchen/pure*`).",
    ]);
  });

  test("a cell that is not understood is refused", () => {
    expect(() => table("| `a/` | x | the same | |")).toThrow('no row is named "the same"');
    expect(() => table("| `a/` | x | every `config.ts` | |")).toThrow("Not understood");
    expect(() => table("| `a/` | x | nothing |")).toThrow("too few cells");
    expect(() => table("| words | x | nothing | |")).toThrow("names no files");
    expect(() => roomsOf("no table")).toThrow("no table with the heading");
  });

  test("every way to import is seen, and strings are not taken for one", () => {
    const text = `import type { A } from "./a.ts";
import {
  b,
  type C,
} from "../b.ts";
import "#src/core/runtime/clock.ts";
export { d } from "./d.ts";
const e = await import("./e.ts");
let f: import("./f.ts").F;
import g from "mqtt";
// nobody imports from "./nowhere.ts"
const h = [{ title: "from", value: (x) => x.from }, { title: "to" }];`;
    expect(importsIn("src/room/file.ts", text).toSorted()).toEqual(
      [
        "mqtt",
        ...["a", "d", "e", "f"].map((name) => `src/room/${name}.ts`),
        "src/b.ts",
        "src/core/runtime/clock.ts",
      ].toSorted(),
    );
  });
});

describe("the walks through the code", () => {
  const sections = textOf("src/README.md").split("\n## ");

  test.each(["The walk of a value", "The walk of a history bucket"])("%s", (heading) => {
    const section = sections.find((text) => text.startsWith(`${heading}\n`)) ?? "";
    const steps = [...section.matchAll(/^\| [\d–]+ \| ([^|]+) \|/gm)];
    const named = steps.flatMap((step) => [...(step[1] ?? "").matchAll(/`([^`]+)`/g)].map((name) => name[1]));
    expect(named.filter((name) => !files.includes(`src/${name}.ts`))).toEqual([]);
    expect(new Set(named).size).toBe(named.length);
    expect(section).toContain(`${named.length} files`);
    const lastNumber = steps.at(-1)?.[0].match(/\d+(?= \|)/)?.[0];
    expect(Number(lastNumber)).toBe(named.length);
  });
});

describe("the files keep the house rules", () => {
  test("names say something", () => {
    const vague = /\/(utils?|helpers?|common|misc|types|index|manager|handler|service|processor)\.ts$/;
    expect(files.filter((file) => vague.test(file))).toEqual([]);
    expect(files.filter((file) => !/^[a-z0-9./-]+$/.test(file))).toEqual([]);
  });

  test("nothing is left open, and no file is a god", () => {
    for (const file of files) {
      const text = textOf(file);
      expect(text, file).not.toMatch(/\b(TODO|FIXME|XXX|HACK)\b/);
      expect(text, file).not.toMatch(/\.catch\(\(\) => \{\}\)/);
      expect(text.split("\n").length, `${file} has grown crowded`).toBeLessThanOrEqual(420);
    }
  });
});

describe("nothing is dead", () => {
  test("every program is imported, but where one begins", () => {
    const imported = new Set([...imports.values()].flat());
    // What a browser loads is named by the page, or by the server that hands it out.
    const naming = [...pages(), ...files].map((file) => ({ file, text: textOf(file) }));
    const isLoaded = (file: string) =>
      file.includes("/page/") &&
      naming.some((other) => other.file !== file && other.text.includes(basename(file)));
    const isEntry = (file: string) => file === "src/cli/main.ts" || isLoaded(file);
    expect(files.filter((file) => !imported.has(file) && !isEntry(file))).toEqual([]);
  });

  test("what is exported is used elsewhere, and a type at least in what its file exports", () => {
    const wordsIn = new Map([...files, ...testPrograms()].map((file) => [file, countWords(textOf(file))]));
    const filesWith = new Map<string, number>();
    for (const words of wordsIn.values())
      for (const word of words.keys()) filesWith.set(word, (filesWith.get(word) ?? 0) + 1);
    const declared = /^export (?:async )?(const|let|class|function\*?|type|interface) (\w+)/gm;
    const dead = files.flatMap((file) =>
      [...textOf(file).matchAll(declared)].flatMap(([, kind, name = ""]) => {
        const isType = kind === "type" || kind === "interface";
        const isUsed = (filesWith.get(name) ?? 0) > 1 || (isType && (wordsIn.get(file)?.get(name) ?? 0) > 1);
        return isUsed ? [] : [`${file}: ${name}`];
      }),
    );
    expect(dead).toEqual([]);
  });
});

function countWords(text: string): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const [word] of text.matchAll(/\w+/g)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}
