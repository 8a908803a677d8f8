import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/** `npm run lake:spark -- <folder of a lake>` runs docs/lake/spark.sql in Spark. Needs Java 17 and pyspark==3.5.3. */

const [folder] = process.argv.slice(2);
const sql = readFileSync(join(import.meta.dirname, "../../docs/lake/spark.sql"), "utf8");
const [, views = ""] = sql.split(/^-- Views$/m);
const names = [...views.matchAll(/^CREATE OR REPLACE TEMPORARY VIEW (\S+) AS/gm)].map(([, name]) => name);

function ends(text: string): never {
  process.stderr.write(`${text}\n`);
  process.exit(1);
}

if (folder === undefined) ends("Name the folder of a lake: npm run lake:spark -- /srv/lake");
if (spawnSync("spark-sql", ["--version"]).status !== 0)
  ends("There is no spark-sql on the PATH: install Java 17 and `pip install pyspark==3.5.3`.");

const own = mkdtempSync(join(tmpdir(), "lake-spark-"));
try {
  const file = join(own, "all.sql");
  writeFileSync(file, `${sql}\n${names.map((name) => `SELECT '${name}', count(*) FROM ${name};`).join("\n")}\n`);
  const settings = ["spark.ui.enabled=false", `spark.sql.warehouse.dir=${own}/warehouse`];
  const catalogue = `spark.driver.extraJavaOptions=-Dderby.system.home=${own}`;
  const { status, stdout, stderr } = spawnSync(
    "spark-sql",
    ["--master", "local[1]", ...[...settings, catalogue].flatMap((each) => ["--conf", each]), "-S", "-f", file],
    { cwd: resolve(folder), encoding: "utf8" },
  );
  process.stdout.write(stdout);
  if (status !== 0) ends(stderr.split("\n").slice(-20).join("\n"));
} finally {
  rmSync(own, { recursive: true });
}
