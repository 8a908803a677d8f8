import { expect, test } from "vitest";
import { type Responses, responseRoutes } from "#src/ui/status/api.ts";

const ELSEWHERE = {
  message: "The source north is held by the member b of the fleet, on machine-2: ask there.",
  holder: { name: "b", page: "" },
};

function routes(elsewhere?: Responses["elsewhere"]) {
  const answers = { sources: ["south"], ...(elsewhere && { elsewhere }) } as unknown as Responses;
  return responseRoutes(answers, { alarms: async () => [], silences: async () => [] });
}

const QUESTIONS = ["/source?name=north", "/tag?source=north&id=1", "/alarm?source=north&id=1", "/tags?source=north"];

test.each(QUESTIONS)("%s says which member of the fleet has the source", async (path) => {
  const inFleet = await routes(async (source) => (source === "north" ? ELSEWHERE : null)).request(path);
  expect([inFleet.status, await inFleet.json()]).toEqual([404, ELSEWHERE]);
  const alone = await routes().request(path);
  expect([alone.status, await alone.json()]).toEqual([404, { message: "There is no such source." }]);
});
