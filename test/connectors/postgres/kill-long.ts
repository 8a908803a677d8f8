import { absent, startPostgres } from "../../real-servers.ts";
import { seed } from "../../seed.ts";
import { landUnderKills } from "./kill-campaign.ts";
import { createDatabase } from "./test-database.ts";

/** `node test/connectors/postgres/kill-long.ts [kills, default 200]` */
const kills = Number(process.argv[2] ?? 200);
if (absent("postgres")) process.exit(1);
const server = await startPostgres();
const from = performance.now();
const landed = await landUnderKills(server, await createDatabase(server), kills, seed);
await server.stop();
process.stdout.write(
  `${kills} kills of the worker and ${landed.serverKills} of the server in ${((performance.now() - from) / 1_000).toFixed(0)} s: of ${landed.rows} rows (${landed.events} events) ${landed.lost} lost, ${landed.doubled} doubled, ${landed.dead} events refused (PLENUM_SEED=${seed})\n`,
);
process.exitCode = landed.lost + landed.doubled + landed.dead === 0 && landed.events > 0 ? 0 : 1;
