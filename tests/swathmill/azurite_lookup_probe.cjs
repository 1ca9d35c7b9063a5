// Counts how often a table's lookup reads a row's key, and prints what it finds, as JSON.
"use strict";

const Loki = require("lokijs");

const table = new Loki("probe").addCollection("rows", {
  indices: ["PartitionKey", "RowKey"],
  disableMeta: true,
});
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
console.log(JSON.stringify({ found, reads }));
