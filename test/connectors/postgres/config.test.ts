import { describe, expect, test } from "vitest";
import { PostgresConfig } from "#connectors/postgres/config.ts";
import { parsePostgresAddress } from "#src/core/postgres/server-address.ts";

const PARTS = { host: "db.example.com", database: "buildings", user: "plenum" };
const PLAIN_REFUSAL =
  "Without TLS everybody on the way can read password and data; set allow_plain: true to go on anyway.";

function complaints(config: object): readonly string[] {
  const result = PostgresConfig.safeParse(config);
  return result.error?.issues.map(({ path, message }) => `${path.join(".")}: ${message}`) ?? [];
}

describe("the address of a PostgreSQL database", () => {
  test.each([
    ["postgresql://plenum@db.example.com/buildings", "db.example.com", 5432, "verify-full"],
    ["postgres://plenum@db.example.com:6432/buildings?sslmode=require", "db.example.com", 6432, "verify-full"],
    ["postgresql://plenum@[::1]:5433/buildings?sslmode=disable", "::1", 5433, "disable"],
    ["postgresql://plenum@%2Fvar%2Frun%2Fpostgresql/buildings", "/var/run/postgresql", 5432, "disable"],
  ])("the address of a PostgreSQL database is parsed from the URL %s", (url, host, port, sslmode) => {
    expect(complaints({ url })).toEqual([]);
    const expected = { host, port, sslmode, database: "buildings", user: "plenum" };
    expect(parsePostgresAddress(PostgresConfig.parse({ url }))).toEqual(expected);
  });

  test("the address of a PostgreSQL database is read from separate options, and percent-decoded from a URL", () => {
    expect(parsePostgresAddress(PostgresConfig.parse(PARTS))).toEqual({ ...PARTS, port: 5432, sslmode: "verify-full" });
    const decoded = { user: "a@b", database: "my base" };
    expect(parsePostgresAddress({ url: "postgresql://a%40b@h/my%20base" })).toMatchObject(decoded);
    expect(parsePostgresAddress({ url: "postgresql://a@h/100%" }).database).toBe("100%");
  });

  test.each([
    ["mysql://u@h/d", "url: Write a whole address, such as postgresql://plenum@db.example.com:5432/buildings."],
    ["postgresql://u:secret@h/d", "url: Leave the password out of the address; use the option password."],
    ["postgresql://h/d", "url: The address names no user: postgresql://plenum@…."],
    ["postgresql://u@h", "url: The address names no database: …/buildings."],
    ["postgresql://u@h/d?sslrootcert=x", "url: Behind the address only sslmode may stand, not sslrootcert."],
    [
      "postgresql://u@h/d?sslmode=prefer",
      "url: sslmode prefer goes on without TLS where the server has none; write verify-full, or disable.",
    ],
    ["postgresql://u@h/d?sslmode=disable", `url: ${PLAIN_REFUSAL}`],
  ])("the URL %s is refused", (url, said) => {
    expect(complaints({ url })).toContain(said);
    expect(complaints({ url }).join("\n")).not.toContain("secret");
  });

  test("a connection to another machine without TLS needs allow_plain", () => {
    const plain = { ...PARTS, sslmode: "disable" };
    expect(complaints(plain)).toEqual([`sslmode: ${PLAIN_REFUSAL}`]);
    expect(complaints({ ...plain, allow_plain: true })).toEqual([]);
    for (const host of ["localhost", "127.0.0.1", "[::1]", "/run/postgresql"])
      expect(complaints({ ...plain, host })).toEqual([]);
  });

  test("each libpq value of sslmode is mapped to verify-full or disable, or refused", () => {
    const modeOf = (sslmode: string) => parsePostgresAddress(PostgresConfig.parse({ ...PARTS, sslmode })).sslmode;
    expect(["verify-full", "verify-ca", "require"].map(modeOf)).toEqual(["verify-full", "verify-full", "verify-full"]);
    expect(complaints({ ...PARTS, sslmode: "allow" })).toEqual([
      "sslmode: sslmode allow goes on without TLS where the server wants it so; write verify-full, or disable.",
    ]);
    expect(complaints({ ...PARTS, sslmode: "no-verify" })[0]).toContain("proves nothing");
    expect(complaints({ ...PARTS, sslmode: "full" })).toEqual(["sslmode: Write verify-full, or disable."]);
  });

  test("the configuration requires either url or all separate options", () => {
    expect(complaints({})).toEqual(["host", "database", "user"].map((name) => `${name}: Give url, or ${name}.`));
    expect(complaints({ url: "postgresql://u@h/d", port: 1 })).toEqual([
      "port: It belongs into url, which is given too.",
    ]);
  });

  test.each(["pg_mine", "Plenum", "a b", ""])("the schema name %j is refused", (schema) => {
    expect(complaints({ ...PARTS, schema })).toHaveLength(1);
  });
});
