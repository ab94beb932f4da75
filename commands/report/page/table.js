// Tables of columns, in the packed form of commands/report/columns.h.

const DIGITS_OF_64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const VALUE_OF_DIGIT = new Map([...DIGITS_OF_64].map((digit, value) => [digit, value]));

/** Returns the cells of a packed column, by row. */
function unpackedCells(column, rows) {
  if ("all" in column) return Array(rows).fill(column.all);
  if ("values" in column) return column.values;
  const width = column.at.length / rows;
  return Array.from({ length: rows }, (_, row) => {
    let index = 0;
    for (let i = row * width; i < (row + 1) * width; ++i) index = index * 64 + VALUE_OF_DIGIT.get(column.at[i]);
    return column.words[index];
  });
}

/** Returns the value of a JSON text, with every column of a table as the list of its cells. */
function unpackedTables(text) {
  return JSON.parse(text, (_, value) => {
    if (value?.columns === undefined) return value;
    const columns = Object.entries(value.columns).map(([name, one]) => [name, unpackedCells(one, value.rows)]);
    return { rows: value.rows, columns: Object.fromEntries(columns) };
  });
}

/** Returns the distinct values that are not missing, in order. */
function ordered(values) {
  const list = [...new Set(values)].filter((value) => value !== null);
  return list.every((value) => typeof value === "number") ? list.sort((a, b) => a - b) : list.map(String).sort();
}

class Table {
  constructor({ rows, columns }) {
    this.rows = rows;
    this.columns = columns;
  }
  has(name) { return name in this.columns; }
  get(row, name) { return this.columns[name]?.[row] ?? null; }
  distinct(name) { return ordered(this.columns[name] ?? []); }
  indices() { return Array.from({ length: this.rows }, (_, row) => row); }
}
