// Opens a LokiJS database as Azurite does, says what is in it, and changes it. Before a change is
// acknowledged it says what will be, and afterwards what is. At the given call of the file system it
// is killed; of a text that it was about to write, half is on the disk then.
//
//   node --require JOURNAL azurite_journal_probe.cjs DATABASE CALL
"use strict";

const fs = require("node:fs");
const { IncomingMessage, ServerResponse } = require("node:http");
const { setImmediate: turn } = require("node:timers/promises");
const { promisify } = require("node:util");
const Loki = require("lokijs");

const [path, call] = process.argv.slice(2);
const { existsSync, writeFileSync, writeSync } = fs;
const KINDS = /^(append|close|fdatasync|fsync|open|read|rename|truncate|unlink)/;
let calls = 0;

for (const name of Object.keys(fs).filter((name) => KINDS.test(name))) {
  const original = fs[name];
  fs[name] = function (...parts) {
    if (++calls === Number(call)) {
      if (name === "appendFileSync") writeFileSync(parts[0], parts[1].slice(0, parts[1].length / 2));
      process.kill(process.pid, "SIGKILL");
    }
    return original.apply(this, parts);
  };
}

const database = new Loki(path, { persistenceMethod: "fs", autosave: true });
const options = { indices: ["key"], unique: ["name"] };
const row = (key, value) => ({ key, value, name: `${key}`, padding: "é".repeat(200) });

function tell(word) {
  const contents = database.collections.map((collection) => [
    collection.name,
    collection.data.map(({ key, value }) => [key, value]),
  ]);
  writeSync(1, `${JSON.stringify([word, Object.fromEntries(contents)])}\n`);
}

async function acknowledged(change) {
  change();
  tell("trying");
  new ServerResponse(new IncomingMessage()).end();
  tell("done");
  await turn();
}

function upsert(rows, key, value) {
  const old = rows.by("name", `${key}`);
  if (old && value % 2) return rows.update({ ...old, value });
  if (old) rows.remove(old);
  rows.insert(row(key, value));
}

async function main() {
  if (existsSync(path)) await promisify(database.loadDatabase.bind(database))({});
  const rows = database.addCollection("rows", options);
  await promisify(database.saveDatabase.bind(database))();
  tell("loaded");
  for (const { key, name } of rows.data) {
    if (rows.findOne({ key }) !== rows.by("name", name)) throw new Error(`${key} is not found`);
  }
  const next = 1 + Math.max(0, ...rows.data.map(({ value }) => value));
  for (let value = next; value < next + 4; value++) {
    await acknowledged(() => {
      upsert(rows, value % 7, value);
      upsert(rows, 10 + (value % 5), value);
      rows.insert(row(100 + value, value));
    });
    await acknowledged(() => rows.findAndRemove({ key: { $between: [100, 98 + value] } }));
    await acknowledged(() => {
      database.removeCollection("others");
      database.addCollection("others", options).insert(row(value, value));
    });
  }
  await new Promise((done) => database.close(done));
}

main().catch((error) => {
  writeSync(2, `${error.message}\n`);
  process.exit(1);
});
