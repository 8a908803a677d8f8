import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type Harness, openHarness } from "../cli/plenum.ts";
import { type Lake, openLake } from "./duckdb.ts";

/** Executes docs/lake/five-minutes.md: its configuration, its commands and its queries. */

const DOCS = join(import.meta.dirname, "../../docs/lake");
const page = readFileSync(join(DOCS, "five-minutes.md"), "utf8");

const blocks = (language: string) =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map(([, text = ""]) => text);

function words(command: string): readonly string[] {
  const [, rest = ""] = new RegExp(`\\./plenum (${command} .*?) >`).exec(page) ?? [];
  return rest.split(" ");
}

const queries = [...page.matchAll(/^```sql\n(SELECT .*?)^```\n\n\| (.*?) \|$/gms)].map(([, sql = "", head = ""]) => ({
  sql,
  columns: head.split(" | "),
}));

const MANIFESTS = "lake/_manifests/site=6";

function isFilled(here: Harness): boolean {
  if (!existsSync(here.path(MANIFESTS)) || readdirSync(here.path(MANIFESTS)).length < 3) return false;
  return readdirSync(here.path("lake/value")).some((name) => name !== "date=1970-01-01");
}

test("all commands of the lake tutorial succeed, and the SQL views return the rows that the worker wrote", async () => {
  const [, token = ""] = /LAKE_TOKEN=(\S+) /.exec(page) ?? [];
  const here = openHarness("http://replaced.invalid", { LAKE_TOKEN: token });
  const [configure = ""] = blocks("sh").filter((text) => text.startsWith("cat > lake.yaml"));
  execFileSync("sh", ["-c", configure], { cwd: here.folder });

  writeFileSync(here.path("one-building.yaml"), "sites: [6]\n");
  const simulate = words("simulate").map((word) => (word === "8095" ? "0" : word));
  const simulator = here.start(...simulate, "--options", "one-building.yaml");
  await expect.poll(() => simulator.printed()).toContain("answers at");
  const [url = ""] = /http:[^;]+/.exec(simulator.printed()) ?? [];
  const written = readFileSync(here.path("lake.yaml"), "utf8");
  const ports = /^status: \{ port: 9855 \}\n[\s\S]*http:\/\/127\.0\.0\.1:8095\n/m;
  expect(written).toMatch(ports);
  const moved = written.replace("http://127.0.0.1:8095", url).replace("port: 9855", "port: 0");
  writeFileSync(here.path("lake.yaml"), moved);

  const worker = here.start(...words("run"));
  await worker.waitForOutput("Plenum is running");
  await expect.poll(() => isFilled(here), { interval: 500 }).toBe(true);
  worker.signal("SIGTERM");
  expect((await worker.ended).code).toBe(0);

  const lake = await openLake();
  onTestFinished(() => lake.close());
  await lake.run(`SET file_search_path = '${here.path("lake")}'`);
  expect(page).toContain(".read ../docs/lake/duckdb.sql");
  await lake.run(readFileSync(join(DOCS, "duckdb.sql"), "utf8"));
  await answersThePage(lake);
  await findsConstantTags(lake);
  await namesAndCounts(lake);
  await addsUp(lake);
});

async function answersThePage(lake: Lake): Promise<void> {
  expect(queries).toHaveLength(4);
  for (const { sql, columns } of queries) {
    const rows = await lake.query(sql);
    expect(rows.length, sql).toBeGreaterThan(0);
    expect(Object.keys(rows[0] ?? {}), sql).toEqual(columns);
    // A missing reading of the building is a bad value, null.
    const whole = rows.filter((row) => !Object.values(row).includes(null));
    expect(whole.length, sql).toBeGreaterThan(0);
  }
}

async function findsConstantTags(lake: Lake): Promise<void> {
  const { sql = "" } = queries.find(({ columns }) => columns.includes("different_values")) ?? {};
  const constantTags = async (view: string) =>
    (await lake.query(sql.replace("history_named", view))).map((row) => `${row.tag_name}: ${row.different_values}`);
  expect(await constantTags("history_named")).toEqual(["320.001_Drift: 1", "320.001_Driftstatus: 1"]);
  expect(await constantTags("value_named")).toHaveLength(8);
  const unreadable = "SELECT * REPLACE (NULL::DOUBLE AS value_number) FROM history_named WHERE unit = 'W'";
  expect(await constantTags(`(${unreadable})`)).toEqual(["320.001-OE001_Effekt: 0"]);
  const old = "SELECT * REPLACE (time - INTERVAL 8 DAY AS time) FROM history_named";
  expect(await constantTags(`(${old})`)).toEqual([]);
}

async function namesAndCounts(lake: Lake): Promise<void> {
  const current = "SELECT count(*)::INTEGER AS tags, count(*) = count(DISTINCT tag_id) AS once FROM current_value";
  expect(await lake.query(current)).toEqual([{ tags: 8, once: true }]);
  for (const view of ["value_named", "history_named"]) {
    const named = `
      SELECT count(*) > 0 AS some, count(*) = count(tag_name) AND count(*) = count(site_name) AS named,
        count(DISTINCT (tag_id, time)) = count(*) AS once
      FROM ${view}`;
    expect(await lake.query(named), view).toEqual([{ some: true, named: true, once: true }]);
  }
  const episodes = "SELECT count(*) = (SELECT count(*) FROM alarm_episode) AS same FROM alarm_duration";
  expect(await lake.query(episodes)).toEqual([{ same: true }]);
}

async function addsUp(lake: Lake): Promise<void> {
  const days = await lake.query(`
    SELECT c.date, c.expected = c.had + c.nulls + c.absent + c.without_log + c.refused + c.pending AS sum,
      c.had = count(h.value_number) + count(h.value_boolean) AS had, c.series = count(DISTINCT h.tag_id) AS series
    FROM completeness c
    JOIN history_current h ON h.source = c.source AND h.site_id = c.site_id AND CAST(h.time AS DATE) = c.date
    GROUP BY c.date, c.expected, c.had, c.nulls, c.absent, c.without_log, c.refused, c.pending, c.series`);
  expect(days.length).toBeGreaterThanOrEqual(3);
  for (const day of days) expect(day).toMatchObject({ sum: true, had: true, series: true });
  const watermark = `
    SELECT w.resolution, w.series = c.series AS series, w.waiting::INTEGER AS waiting, w.complete_until > c.last AS behind
    FROM watermark w, (SELECT max(date) AS last, any_value(series) AS series FROM completeness) c`;
  expect(await lake.query(watermark)).toEqual([{ resolution: "1h", series: true, waiting: 0, behind: true }]);
}
