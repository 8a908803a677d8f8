import { conduct } from "../campaign/conduct.ts";

/** A thousand random losses on every core (`npm run history:long`). */
await conduct({
  campaign: new URL("campaign.ts", import.meta.url),
  script: "history:long",
  kept: new URL("kept-seeds.json", import.meta.url),
});
