import { join } from "node:path";
import { API, type Checker, type Symbol as TsSymbol, type Type } from "typescript/unstable/sync";

/** Reads the types of events and their docstrings with the type checker. */

export interface Field {
  /** Such as `lastGood.time` or `tickets[].link`. */
  readonly name: string;
  readonly optional: boolean;
  /** Such as `number or null` or `list of Measurement`. */
  readonly type: string;
  /** Names of shapes in the type. */
  readonly shapes: readonly string[];
  readonly about: string;
}

export interface Shape {
  readonly name: string;
  readonly about: string;
  readonly fields: readonly Field[];
}

export interface KindType {
  readonly kind: string;
  readonly about: string;
  /** Several if the type is a union. */
  readonly forms: readonly Shape[];
}

export interface EventTypes {
  readonly envelope: Shape;
  readonly kinds: readonly KindType[];
  readonly shapes: ReadonlyMap<string, Shape>;
}

const EVENT_FILE = "src/core/model/event.ts";

/** Reads all event types. Starts the compiler, which takes some seconds. */
export function eventTypes(root: string): EventTypes {
  const api = new API({ cwd: root });
  try {
    const configFile = join(root, "tsconfig.json");
    const project = api.updateSnapshot({ openProjects: [configFile] }).getProject(configFile);
    const file = project?.program.getSourceFile(join(root, EVENT_FILE));
    const module = file && project?.checker.getSymbolAtLocation(file);
    if (project === undefined || module === undefined) throw new Error(`The compiler does not find ${EVENT_FILE}.`);
    return createReader(project.checker, module).read();
  } finally {
    api.close();
  }
}

function createReader(checker: Checker, module: TsSymbol) {
  const shapes = new Map<string, Shape>();
  const declared = new Map(checker.getExportsOfModule(module).map((symbol) => [symbol.name, symbol]));

  function getDeclaredType(name: string): Type {
    const symbol = declared.get(name);
    if (symbol === undefined) throw new Error(`${EVENT_FILE} does not export ${name}.`);
    return checker.getDeclaredTypeOfSymbol(symbol);
  }

  function getType(symbol: TsSymbol): Type {
    const type = checker.getTypeOfSymbol(symbol);
    if (type === undefined) throw new Error(`The compiler finds no type of ${symbol.name}.`);
    return type;
  }

  function readDocumentation(symbol: TsSymbol): string {
    return collapseWhitespace(checker.getDocumentationCommentOfSymbol(symbol));
  }

  /** Name of an interface; null for other types. */
  function interfaceName(type: Type): string | null {
    if (!type.isObjectType() || !type.isClassOrInterface()) return null;
    return type.getSymbol()?.name ?? null;
  }

  function buildShape(type: Type, name: string): Shape {
    const symbol = type.getSymbol();
    return {
      name,
      about: symbol === undefined ? "" : readDocumentation(symbol),
      fields: checker.getPropertiesOfType(type).flatMap((each) => buildFields(each, "")),
    };
  }

  /** Returns a property as a field, followed by the fields of its type if that has no name. */
  function buildFields(symbol: TsSymbol, prefix: string): readonly Field[] {
    const name = prefix + symbol.name;
    const described = describeType(getType(symbol));
    const [firstShape] = described.shapes;
    const field: Field = {
      name,
      optional: (symbol.flags & OPTIONAL) !== 0,
      type: described.text,
      shapes: described.shapes,
      // A field such as `site: Site` has the description of its shape.
      about: readDocumentation(symbol) || (firstShape === undefined ? "" : (shapes.get(firstShape)?.about ?? "")),
    };
    const separator = described.isList ? "[]." : ".";
    return [field, ...described.inner.flatMap((each) => buildFields(each, name + separator))];
  }

  interface TypeDescription {
    readonly text: string;
    readonly shapes: readonly string[];
    /** Fields of a shape without a name. */
    readonly inner: readonly TsSymbol[];
    readonly isList: boolean;
  }

  function describeType(type: Type): TypeDescription {
    const withoutFields = (text: string): TypeDescription => ({ text, shapes: [], inner: [], isList: false });
    if (type.isTypeParameter()) return withoutFields("text");
    if (type.isIndexedAccessType()) return withoutFields("object");
    if (type.isUnionType()) {
      const parts = (type.getTypes() ?? []).map(describeType);
      return {
        text: alternatives(parts.map(({ text }) => text)),
        shapes: [...new Set(parts.flatMap(({ shapes: names }) => names))],
        inner: parts.flatMap(({ inner }) => inner),
        isList: parts.some(({ isList }) => isList),
      };
    }
    if (checker.isArrayLikeType(type) && type.isTypeReference()) {
      const [elementType] = checker.getTypeArguments(type);
      if (elementType === undefined) throw new Error("The list has no element type.");
      const element = describeType(elementType);
      return { ...element, text: `list of ${element.text}`, isList: true };
    }
    if (type.isStringLiteralType()) return withoutFields(`\`${type.value}\``);
    if (!type.isObjectType())
      return withoutFields(TYPE_NAMES[checker.typeToString(type)] ?? checker.typeToString(type));
    const name = interfaceName(type);
    if (name !== null) {
      if (!shapes.has(name)) {
        shapes.set(name, { name, about: "", fields: [] });
        shapes.set(name, buildShape(type, name));
      }
      return { text: name, shapes: [name], inner: [], isList: false };
    }
    const properties = checker.getPropertiesOfType(type);
    // The keys of a record are values and have no description.
    const isRecord = properties.every((each) => readDocumentation(each) === "");
    if (!isRecord) return { ...withoutFields("object"), inner: properties };
    const keys = properties.map((each) => `\`${each.name}\``).join(", ");
    return withoutFields(keys === "" ? "object" : `object of ${keys}`);
  }

  return {
    read(): EventTypes {
      const kinds = checker.getPropertiesOfType(getDeclaredType("EventData")).map((symbol): KindType => {
        const type = getType(symbol);
        const forms = type.isUnionType() ? (type.getTypes() ?? []) : [type];
        return {
          kind: symbol.name.replaceAll('"', ""),
          about: readDocumentation(symbol),
          forms: forms.map((form) => buildShape(form, interfaceName(form) ?? "")),
        };
      });
      return { envelope: buildShape(getDeclaredType("Event"), "Event"), kinds, shapes };
    },
  };
}

/** `SymbolFlags.Optional` of the compiler. */
const OPTIONAL = 16_777_216;

const TYPE_NAMES: Readonly<Record<string, string>> = { string: "text", undefined: "", unknown: "anything" };

/** Joins types with "or", null last; `true or false` becomes `boolean`. */
function alternatives(texts: readonly string[]): string {
  const known = new Set(texts.filter((text) => text !== ""));
  if (known.has("true") && known.delete("false")) {
    known.delete("true");
    known.add("boolean");
  }
  if (known.delete("null")) known.add("null");
  return [...known].join(" or ");
}

function collapseWhitespace(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}
