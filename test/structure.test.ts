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
    ["src/waiting.ts", "src/store/store.ts"],
    ["src/tls-trouble.ts", "undici"],
    ["src/event.ts", "node:sqlite"],
  ],
  connector: [["src/connector.ts", "src/source/source.ts"]],
  "setup/": [
    ["src/setup/look.ts", "src/source/client.ts"],
    ["src/setup/plan.ts", "src/build-sync.ts"],
    ["src/setup/write.ts", "src/cli/shell/terminal.ts"],
  ],
  "setup/page/": [["src/setup/page/setup.mjs", "src/setup/wishes.ts"]],
  "plots/": [
    ["src/plots/leaf.ts", "src/status/answers.ts"],
    ["src/plots/plots.ts", "src/sync/snapshot.ts"],
  ],
  "silence/": [["src/silence/silence.ts", "src/sync/snapshot.ts"]],
  picture: [["src/picture.ts", "src/store/open.ts"]],
  "lake/": [
    ["src/lake/rows.ts", "src/store/store.ts"],
    ["src/lake/rows.ts", "src/connector.ts"],
  ],
  "postgres/": [
    ["src/postgres/session.ts", "src/store/store.ts"],
    ["src/postgres/session.ts", "src/lake/table.ts"],
  ],
  "fleet/": [
    ["src/fleet/share.ts", "src/store/store.ts"],
    ["src/fleet/fleet.ts", "src/worker.ts"],
    ["src/fleet/kill-switch.ts", "src/commands/kill-switch.ts"],
    ["src/fleet/leases.ts", "pg"],
  ],
  "store/move/": [
    ["src/store/move/move.ts", "pg"],
    ["src/store/move/sets.ts", "src/commands/journal.ts"],
  ],
  "store/postgres/": [
    ["src/store/postgres/state-database.ts", "pg"],
    ["src/store/postgres/state-database.ts", "node:sqlite"],
  ],
  "store/": [
    ["src/store/outbox.ts", "src/source/source.ts"],
    ["src/store/outbox.ts", "src/delivery/filter.ts"],
  ],
  "source/": [
    ["src/source/client.ts", "src/store/store.ts"],
    ["src/source/client.ts", "p-queue"],
    ["src/source/client.ts", "src/sync/plan/group.ts"],
  ],
  "source/list-pace": [["src/source/list-pace.ts", "src/source/client.ts"]],
  "source/quota/": [
    ["src/source/quota/lanes.ts", "src/source/client.ts"],
    ["src/source/quota/quota.ts", "src/store/open.ts"],
    ["src/source/quota/quota.ts", "node:sqlite"],
  ],
  "sync/snapshot": [
    ["src/sync/snapshot.ts", "src/sync/history/spans.ts"],
    ["src/sync/standing.ts", "src/source/client.ts"],
    ["src/sync/standing.ts", "p-queue"],
    ["src/sync/follower.ts", "src/sync/read/board.ts"],
  ],
  "sync/schedule": [["src/sync/schedule.ts", "src/sync/read/live-reads.ts"]],
  "sync/scope": [["src/sync/scope.ts", "src/sync/read/live-reads.ts"]],
  "sync/plan/": [
    ["src/sync/plan/group.ts", "src/sync/snapshot.ts"],
    ["src/sync/plan/share.ts", "src/sync/history/buckets.ts"],
    ["src/sync/plan/stretch.ts", "src/source/source.ts"],
    ["src/sync/plan/stretch.ts", "src/store/store.ts"],
    ["src/sync/plan/report.ts", "node:fs"],
  ],
  "sync/compare/": [
    ["src/sync/compare/classes.ts", "src/sync/snapshot.ts"],
    ["src/sync/compare/selections.ts", "src/source/source.ts"],
    ["src/sync/compare/writable.ts", "src/commands/config.ts"],
  ],
  "sync/tag-group/": [
    ["src/sync/tag-group/suspects.ts", "src/source/source.ts"],
    ["src/sync/tag-group/refusal.ts", "src/sync/read/board.ts"],
  ],
  "sync/alarms/diff*": [
    ["src/sync/alarms/diff-alarm.ts", "src/source/source.ts"],
    ["src/sync/alarms/diff-resolved.ts", "src/sync/alarms/poll.ts"],
    ["src/sync/inventory/diff.ts", "src/store/store.ts"],
    ["src/sync/inventory/diff.ts", "src/clock.ts"],
    ["src/sync/inventory/diff.ts", "node:fs"],
  ],
  "sync/alarms/": [
    ["src/sync/alarms/poll.ts", "src/sync/read/board.ts"],
    ["src/sync/alarms/poll.ts", "src/sync/inventory/poll.ts"],
  ],
  "sync/inventory/": [["src/sync/inventory/poll.ts", "src/sync/alarms/poll.ts"]],
  "sync/read/": [
    ["src/sync/read/live-reads.ts", "src/sync/history/pull.ts"],
    ["src/sync/read/live-reads.ts", "src/sync/sync.ts"],
    ["src/sync/read/board.ts", "p-queue"],
  ],
  "sync/completeness/": [
    ["src/sync/completeness/account.ts", "src/store/store.ts"],
    ["src/sync/completeness/reach.ts", "src/sync/history/settle.ts"],
  ],
  "sync/history/": [
    ["src/sync/history/pull.ts", "src/sync/read/live-reads.ts"],
    ["src/sync/history/request.ts", "src/source/client.ts"],
    ["src/sync/history/book.ts", "node:sqlite"],
  ],
  "sync/sensors/": [
    ["src/sync/sensors/sensor-watch.ts", "src/source/source.ts"],
    ["src/sync/sensors/findings.ts", "src/sync/read/board.ts"],
  ],
  "sync/": [
    ["src/sync/sync.ts", "src/delivery/dispatcher.ts"],
    ["src/sync/scheduler.ts", "src/source/quota/quota.ts"],
    ["src/sync/scheduler.ts", "node-cron"],
    ["src/sync/outage.ts", "src/commands/commands.ts"],
  ],
  "commands/": [
    ["src/commands/gate.ts", "src/sync/scheduler.ts"],
    ["src/commands/writer.ts", "src/source/client.ts"],
    ["src/commands/commands.ts", "src/delivery/dispatcher.ts"],
    ["src/commands/commands.ts", "mqtt"],
  ],
  "commands/audit/": [["src/commands/audit/audit.ts", "src/commands/approval/approval.ts"]],
  "commands/approval/": [["src/commands/approval/approval.ts", "src/store/store.ts"]],
  "delivery/": [
    ["src/delivery/sink-loop.ts", "src/source/source.ts"],
    ["src/delivery/offer.ts", "connectors/mqtt/sink.ts"],
  ],
  "../connectors/catalog": [["connectors/catalog.ts", "connectors/mqtt/sink.ts"]],
  "../connectors/mqtt/": [
    ["connectors/mqtt/sink.ts", "src/store/store.ts"],
    ["connectors/mqtt/commands.ts", "src/commands/intake.ts"],
    ["connectors/mqtt/topics.ts", "connectors/influxdb/text.ts"],
  ],
  "../connectors/influxdb/": [["connectors/influxdb/sink.ts", "undici"]],
  "../connectors/kafka/": [["connectors/kafka/sink.ts", "mqtt"]],
  "../connectors/parquet/": [
    ["connectors/parquet/sink.ts", "src/store/store.ts"],
    ["connectors/parquet/s3-store.ts", "pg"],
    ["connectors/parquet/paths.ts", "connectors/file/own-files.ts"],
  ],
  "outbound/": [["src/outbound/http-end.ts", "src/connector.ts"]],
  "reload/": [
    ["src/reload/reloader.ts", "src/delivery/dispatcher.ts"],
    ["src/reload/reloader.ts", "src/worker.ts"],
  ],
  "receiver/": [["src/receiver/text.ts", "src/outbound/ask.ts"]],
  "../connectors/webhook/": [["connectors/webhook/sink.ts", "mqtt"]],
  "../connectors/slack/": [["connectors/slack/receiver.ts", "@slack/types"]],
  "../connectors/alertmanager/": [["connectors/alertmanager/receiver.ts", "connectors/webhook/sink.ts"]],
  "../connectors/email/": [
    ["connectors/email/receiver.ts", "src/outbound/ask.ts"],
    ["connectors/email/receiver.ts", "undici"],
  ],
  "../connectors/jira/": [["connectors/jira/receiver.ts", "connectors/servicenow/texts.ts"]],
  "../connectors/servicenow/": [["connectors/servicenow/api.ts", "undici"]],
  "../connectors/parquet/delta/": [
    ["connectors/parquet/delta/table.ts", "src/lake/rows.ts"],
    ["connectors/parquet/delta/log.ts", "undici"],
  ],
  "../connectors/postgres/": [
    ["connectors/postgres/sink.ts", "src/store/store.ts"],
    ["connectors/postgres/columns.ts", "connectors/influxdb/text.ts"],
  ],
  "../connectors/<name>/": [
    ["connectors/file/sink.ts", "connectors/stdout/sink.ts"],
    ["connectors/made-up/sink.ts", "connectors/file/sink.ts"],
    ["connectors/stdout/sink.ts", "undici"],
  ],
  "config/": [
    ["src/config/load.ts", "src/store/open.ts"],
    ["src/config/config.ts", "connectors/mqtt/config.ts"],
  ],
  "status/": [
    ["src/status/report.ts", "src/sync/history/progress.ts"],
    ["src/status/server.ts", "src/delivery/dispatcher.ts"],
  ],
  "status/page/": [["src/status/page/app.mjs", "src/duration.ts"]],
  "operator/": [
    ["src/operator/routes.ts", "src/commands/writer.ts"],
    ["src/operator/work.ts", "src/sync/history/ledger.ts"],
  ],
  "simulator/": [
    ["src/simulator/world.ts", "src/building.ts"],
    ["src/simulator/server.ts", "src/errors.ts"],
  ],
  "simulator/endpoints/": [["src/simulator/endpoints/read.ts", "src/source/schema.ts"]],
  worker: [
    ["src/worker.ts", "src/cli/running/run.ts"],
    ["src/build-sync.ts", "src/sync/read/board.ts"],
    ["src/build-sinks.ts", "connectors/mqtt/sink.ts"],
  ],
  "demo/": [["src/demo/demo.ts", "src/cli/shell/context.ts"]],
  "demo/page/": [["src/demo/page/inbox.mjs", "/htm.mjs"]],
  "cli/doctor/": [
    ["src/cli/doctor/reach.ts", "commander"],
    ["src/cli/doctor/troubles.ts", "src/cli/checking/check.ts"],
  ],
  "cli/": [["src/cli/program.ts", "src/store/open.ts"]],
  "cli/shell/": [["src/cli/shell/terminal.ts", "src/cli/running/run.ts"]],
  "cli/running/": [["src/cli/running/run.ts", "src/store/open.ts"]],
  "cli/checking/": [["src/cli/checking/check.ts", "mqtt"]],
  "cli/watching/": [["src/cli/watching/outbox.ts", "node:sqlite"]],
  "cli/building/": [["src/cli/building/tags.ts", "src/worker.ts"]],
  "cli/fleet/": [["src/cli/fleet/fleet.ts", "pg"]],
  "cli/past/": [["src/cli/past/backfill.ts", "src/source/quota/quota.ts"]],
  "cli/writing/": [["src/cli/writing/write.ts", "src/source/source.ts"]],
  "cli/manual/": [["src/cli/manual/man.ts", "src/worker.ts"]],
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
import "#src/clock.ts";
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
        "src/clock.ts",
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
