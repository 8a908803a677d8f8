import { expect, test } from "vitest";
import { createDocumentStore } from "#src/scale/postgres/document-store.ts";

function server(fails = false) {
  const asked: string[][] = [];
  const documents = createDocumentStore("main", async (_text, values = []) => {
    asked.push(values.slice(1, 2).map(String));
    if (fails) throw new Error("away");
    return { command: "SELECT", rows: ["1", "2", "3"].map((key) => [key, `{"of":${key}}`]) };
  });
  return { asked, documents };
}

test("documents requested at the same time need one query per document set", async () => {
  const { asked, documents } = server();
  const found = await Promise.all(["1", "2", "9"].map((key) => documents.document("value", key)));
  expect(found).toEqual([{ of: 1 }, { of: 2 }, undefined]);
  expect(asked).toEqual([["value"]]);
  await Promise.all([documents.document("value", "3"), documents.document("other", "3")]);
  expect(asked).toHaveLength(3);
  await documents.document("value", "3");
  expect(asked).toHaveLength(4);
});

test("a failed query for documents rejects all waiting calls, and the next call queries again", async () => {
  const { asked, documents } = server(true);
  const found = await Promise.allSettled(["1", "2"].map((key) => documents.document("value", key)));
  expect(found.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await expect(documents.document("value", "1")).rejects.toThrow("away");
  expect(asked).toHaveLength(2);
});
