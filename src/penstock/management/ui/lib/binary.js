// Bodies that are no text: MessagePack and Avro object containers as values, or null where a body is
// neither. Bytes become {"bytes": hex}, integers beyond 2^53 texts, so nothing is rounded unseen.

const TEXT = new TextDecoder("utf-8", { fatal: true });
const DEPTH_MAX = 64;
const ITEMS_MAX = 20_000;

class Reader {
  constructor(data) {
    this.view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    this.at = 0;
    this.items = 0;
  }

  take(size) {
    const at = this.at;
    if (size < 0 || at + size > this.view.byteLength) throw new Error("it ends too early");
    this.at += size;
    return at;
  }

  bytes(size) {
    return new Uint8Array(this.view.buffer, this.view.byteOffset + this.take(size), size);
  }

  text(size) {
    return TEXT.decode(this.bytes(size));
  }

  count(size) {
    this.items += size;
    if (this.items > ITEMS_MAX) throw new Error("it has too many values");
    return size;
  }
}

const hex = (data) => ({ bytes: [...data].map((byte) => byte.toString(16).padStart(2, "0")).join("") });
const whole = (big) => (big >= Number.MIN_SAFE_INTEGER && big <= Number.MAX_SAFE_INTEGER ? Number(big) : String(big));

// -- MessagePack ----------------------------------------------------------------------------------

/** A map or an array; a single number or text would fit too many bodies. */
export function messagePack(data) {
  const first = data[0];
  const isTree = (first >= 0x80 && first <= 0x9f) || (first >= 0xdc && first <= 0xdf);
  if (!isTree) return null;
  try {
    const reader = new Reader(data);
    const value = unpacked(reader, 0);
    return reader.at === data.length ? value : null;
  } catch {
    return null;
  }
}

function unpacked(reader, depth) {
  if (depth > DEPTH_MAX) throw new Error("it is too deep");
  const { view } = reader;
  const tag = view.getUint8(reader.take(1));
  const size = (bytes) => {
    const at = reader.take(bytes);
    return bytes === 1 ? view.getUint8(at) : bytes === 2 ? view.getUint16(at) : view.getUint32(at);
  };
  const list = (length) => Array.from({ length: reader.count(length) }, () => unpacked(reader, depth + 1));
  const map = (length) => {
    const pairs = Array.from({ length: reader.count(length) }, () => [unpacked(reader, depth + 1), unpacked(reader, depth + 1)]);
    return Object.fromEntries(pairs.map(([key, value]) => [typeof key === "string" ? key : JSON.stringify(key), value]));
  };
  const extension = (length) => ({ extension: view.getInt8(reader.take(1)), ...hex(reader.bytes(length)) });
  if (tag < 0x80) return tag;
  if (tag < 0x90) return map(tag & 15);
  if (tag < 0xa0) return list(tag & 15);
  if (tag < 0xc0) return reader.text(tag & 31);
  if (tag >= 0xe0) return tag - 256;
  switch (tag) {
    case 0xc0: return null;
    case 0xc2: return false;
    case 0xc3: return true;
    case 0xc4: case 0xc5: case 0xc6: return hex(reader.bytes(size(1 << (tag - 0xc4))));
    case 0xc7: case 0xc8: case 0xc9: return extension(size(1 << (tag - 0xc7)));
    case 0xca: return view.getFloat32(reader.take(4));
    case 0xcb: return view.getFloat64(reader.take(8));
    case 0xcc: case 0xcd: case 0xce: return size(1 << (tag - 0xcc));
    case 0xcf: return whole(view.getBigUint64(reader.take(8)));
    case 0xd0: return view.getInt8(reader.take(1));
    case 0xd1: return view.getInt16(reader.take(2));
    case 0xd2: return view.getInt32(reader.take(4));
    case 0xd3: return whole(view.getBigInt64(reader.take(8)));
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return extension(1 << (tag - 0xd4));
    case 0xd9: case 0xda: case 0xdb: return reader.text(size(1 << (tag - 0xd9)));
    case 0xdc: case 0xdd: return list(size(tag === 0xdc ? 2 : 4));
    case 0xde: case 0xdf: return map(size(tag === 0xde ? 2 : 4));
    default: throw new Error("no MessagePack");
  }
}

// -- Avro -----------------------------------------------------------------------------------------

/** An object container without compression: it carries its schema. Others need one from elsewhere. */
export function avro(data) {
  try {
    const reader = new Reader(data);
    if (reader.text(4) !== "Obj\x01") return null;
    const meta = decoded(reader, { type: "map", values: "bytes" }, {}, 0, (bytes) => TEXT.decode(bytes));
    if ((meta["avro.codec"] ?? "null") !== "null") return null;
    reader.take(16);
    const schema = JSON.parse(meta["avro.schema"]);
    const records = [];
    while (reader.at < data.length) {
      const length = reader.count(Number(long(reader)));
      long(reader); // the size of the block
      const names = {};
      for (let left = length; left > 0; left -= 1) records.push(decoded(reader, schema, names, 0));
      reader.take(16);
    }
    return { schema, records };
  } catch {
    return null;
  }
}

function long(reader) {
  let value = 0n;
  for (let shift = 0n; shift < 70n; shift += 7n) {
    const byte = reader.view.getUint8(reader.take(1));
    value |= BigInt(byte & 0x7f) << shift;
    if (byte < 0x80) return (value >> 1n) ^ -(value & 1n);
  }
  throw new Error("a number is too long");
}

/** Blocks of items; a negative count is followed by the size of its block. */
function blocks(reader, item) {
  const found = [];
  for (;;) {
    let length = Number(long(reader));
    if (length === 0) return found;
    if (length < 0) {
      length = -length;
      long(reader);
    }
    for (reader.count(length); length > 0; length -= 1) found.push(item());
  }
}

function decoded(reader, schema, names, depth, ofBytes = hex) {
  if (depth > DEPTH_MAX) throw new Error("it is too deep");
  const inner = (one) => decoded(reader, one, names, depth + 1, ofBytes);
  if (Array.isArray(schema)) return inner(schema[Number(long(reader))]);
  const type = typeof schema === "string" ? schema : schema.type;
  if (typeof type === "object") return inner(type);
  if (schema.name) names[schema.name] = schema;
  switch (type) {
    case "null": return null;
    case "boolean": return reader.view.getUint8(reader.take(1)) === 1;
    case "int": case "long": return whole(long(reader));
    case "float": return reader.view.getFloat32(reader.take(4), true);
    case "double": return reader.view.getFloat64(reader.take(8), true);
    case "bytes": return ofBytes(reader.bytes(Number(long(reader))));
    case "string": return reader.text(Number(long(reader)));
    case "fixed": return hex(reader.bytes(schema.size));
    case "enum": return schema.symbols[Number(long(reader))];
    case "array": return blocks(reader, () => inner(schema.items));
    case "map": return Object.fromEntries(blocks(reader, () => [reader.text(Number(long(reader))), inner(schema.values)]));
    case "record": return Object.fromEntries(schema.fields.map((field) => [field.name, inner(field.type)]));
    default: {
      const known = names[type] ?? names[type.split(".").at(-1)];
      if (!known || known === schema) throw new Error("an unknown type");
      return inner(known);
    }
  }
}
