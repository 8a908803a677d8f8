import { me } from "./account.ts";
import { alarms } from "./alarms.ts";
import type { Endpoint } from "./endpoint.ts";
import { history } from "./history.ts";
import { gateways, hosts, sites, systems, tags } from "./inventories.ts";
import { read } from "./read.ts";
import { write } from "./write.ts";

/** The ten endpoints that need a token; the eleventh is the health check. */
export const ENDPOINTS: readonly Endpoint[] = [
  sites,
  alarms,
  tags,
  read,
  write,
  history,
  me,
  gateways,
  hosts,
  systems,
];
