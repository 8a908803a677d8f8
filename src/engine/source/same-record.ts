/** Whether two records made of plain objects and single values say the same: as `isDeepStrictEqual`, only quicker. */
export function sameRecord(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  const record = one as Readonly<Record<string, unknown>>;
  const beside = other as Readonly<Record<string, unknown>>;
  let members = 0;
  for (const name in record) {
    if (!(name in beside) || !sameRecord(record[name], beside[name])) return false;
    members += 1;
  }
  for (const _name in beside) members -= 1;
  return members === 0;
}
