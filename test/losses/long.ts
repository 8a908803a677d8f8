import { conduct } from "../campaign/conduct.ts";

await conduct({
  campaign: new URL("campaign.ts", import.meta.url),
  script: "history:long",
  kept: new URL("kept-seeds.json", import.meta.url),
});
