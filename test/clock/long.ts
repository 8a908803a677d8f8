import { conduct } from "../campaign/conduct.ts";

/** A thousand random wall clocks on every core (`npm run clock:long`). */
await conduct({
  campaign: new URL("campaign.ts", import.meta.url),
  script: "clock:long",
  kept: new URL("kept-seeds.json", import.meta.url),
});
