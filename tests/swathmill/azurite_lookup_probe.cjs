// Counts how often a table's lookup reads a row's key, and prints what it finds, as JSON.
"use strict";

const Loki = require("lokijs");
const { default: Queries } = require(
  "azurite/dist/src/table/persistence/LokiTableStoreQueryGenerator",
);

const indices = ["PartitionKey", "RowKey"];
const table = new Loki("probe").addCollection("rows", { indices, disableMeta: true });
let reads = 0;
for (let number = 0; number < 3000; number++) {
  const key = `t|${String(number % 1000).padStart(4, "0")}`;
  table.insert({
    PartitionKey: "abc"[Math.floor(number / 1000)],
    get RowKey() {
      reads++;
      return key;
    },
    number,
  });
}
reads = 0;
const found = [
  table.findOne({ PartitionKey: "b", RowKey: "t|0007" }),
  table.findOne({ PartitionKey: "c", RowKey: "t|0007" }),
  table.findOne({ PartitionKey: "d", RowKey: "t|0007" }),
  table.findOne({ PartitionKey: "b", RowKey: "t|1007" }),
  table.findOne({ number: 5 }),
].map((row) => row && row.number);
const lookups = reads;

function query(rows, partition, start, end) {
  const quoted = [partition, start, end].map((text) => `'${text.replaceAll("'", "''")}'`);
  const filter = `PartitionKey eq ${quoted[0]} and RowKey ge ${quoted[1]} and RowKey lt ${quoted[2]}`;
  return rows.chain().where(Queries.generateQueryForPersistenceLayer({ filter })).data();
}

reads = 0;
const range = query(table, "b", "t|0100", "t|0110").map((row) => row.number);
const ranged = reads;

// Ranges of all kinds of keys, by the index and by comparing all: the same rows.
const mixed = new Loki("mixed").addCollection("rows", { indices, disableMeta: true });
let seed = 1;
const draw = (below) => (seed = (seed * 48271) % 2147483647) % below;
const piece = () => ["x|", "y", "z|", "a", "e5", "0", "12", "7.5", "'", "~", "-", "é", "X"][draw(13)];
const text = () => Array.from({ length: 1 + draw(3) }, piece).join("");
for (let number = 0; number < 500; number++) {
  mixed.insert({ PartitionKey: "pq"[draw(2)], RowKey: text(), number });
}
let wrong = 0;
for (let number = 0; number < 1000; number++) {
  const [partition, start, end] = ["pq"[draw(2)], text(), text()];
  const expected = mixed.data.filter(
    (row) => row.PartitionKey === partition && row.RowKey >= start && row.RowKey < end,
  );
  const numbers = (rows) => rows.map((row) => row.number).sort((a, b) => a - b).join();
  wrong += numbers(query(mixed, partition, start, end)) !== numbers(expected);
}
console.log(JSON.stringify({ found, lookups, range, ranged, wrong }));
