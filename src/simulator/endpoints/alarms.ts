import type { Alarm } from "../alarm-book.ts";
import { forbiddenReply } from "../envelope.ts";
import { alarmRecord, siteRecord, triggerOf } from "../records.ts";
import { maySeeSite } from "../tokens.ts";
import type { Call, Endpoint } from "./endpoint.ts";
import { contains, pageOf, readPage } from "./pages.ts";

/** Page size and search length of the alarm list: interface, Limits. */
const MAX_PER_PAGE = 500;
const MAX_SEARCH = 255;

export const alarms: Endpoint = {
  name: "alarms",
  method: "GET",
  path: "/api/v1/alarms",
  ability: "read:alarms",
  scoped: true,
  limited: false,
  answer(call) {
    const { query, scene, token } = call;
    const siteId = query.integer("site_id");
    const siteExists =
      siteId === undefined || (scene.world.sites.has(siteId) && scene.inventory.exists("sites", siteId));
    if (!siteExists) query.refuse("site_id", "The selected site id is invalid.");
    const status = query.oneOf("status", ["active", "resolved", "all"]) ?? "active";
    const priority = query.oneOf("priority", ["A", "B", "C", "a", "b", "c"])?.toUpperCase();
    const acknowledged = query.boolean("acknowledged");
    const search = query.text("search");
    if (search !== undefined && search.length > MAX_SEARCH) {
      query.refuse("search", `The search field must not be greater than ${MAX_SEARCH} characters.`);
    }
    const page = readPage(call, { max: MAX_PER_PAGE, overMax: "refuse" });

    const outOfScope = siteId !== undefined && siteExists && !maySeeSite(token, siteId);
    if (query.problems.length === 0 && outOfScope && scene.options.alarms.out_of_scope_site === "403") {
      return forbiddenReply(scene.options.forbidden);
    }
    const filter = {
      ...(siteId === undefined ? {} : { siteId }),
      ...(status === "all" ? {} : { status }),
    };
    const rows = () =>
      ordered(
        call,
        scene.alarms.list(call.nowMs, filter).filter((alarm) => {
          if (!maySeeSite(token, alarm.siteId) || !scene.inventory.exists("sites", alarm.siteId))
            return false;
          if (acknowledged !== undefined && acknowledged !== (alarm.acknowledged !== null)) return false;
          if (priority !== undefined && triggerOf(scene, alarm).priority !== priority) return false;
          return search === undefined || matches(call, alarm, search);
        }),
      );
    return pageOf(call, page, rows, (alarm) => alarmRecord(scene, alarm));
  },
};

function matches({ scene }: Call, alarm: Alarm, search: string): boolean {
  const site = scene.world.sites.get(alarm.siteId);
  const { attributes } = alarmRecord(scene, alarm);
  const siteName = site === undefined ? null : siteRecord(scene, site).display_name;
  return contains(
    search,
    attributes.source,
    attributes.description,
    attributes.trigger.display_name,
    siteName,
  );
}

function ordered({ scene }: Call, found: Alarm[]): readonly Alarm[] {
  switch (scene.options.alarms.order) {
    case "id":
      return found;
    case "triggered_desc":
      return found.sort((a, b) => b.triggeredAtMs - a.triggeredAtMs || Number(b.id) - Number(a.id));
    case "shuffled":
      return scene.random.shuffled(found);
  }
}
