// Loaded into Azurite before its own script (node --require).
//
// Azurite holds its rows in LokiJS, which writes each database every five seconds as one JSON text:
// what was answered since goes with the process, and Node makes no text of 512 MiB. Here what a
// request changed is in a journal, which no SIGKILL takes back, before its answer leaves.
//
// A line of the journal says what is, not what was done: applied twice it does no harm. So a
// snapshot is written piece by piece while requests go on: what it misses is in the journal begun
// before it. Until it is whole, the snapshot before and both journals count.
"use strict";

const fs = require("node:fs");
const { ServerResponse } = require("node:http");
const { createRequire } = require("node:module");
const { setImmediate: turn } = require("node:timers/promises");
const files = require("./azurite_journal_files.cjs");
const Loki = createRequire(process.argv[1])("lokijs");

const LEAST = Number(process.env.AZURITE_JOURNAL_BYTES ?? 2 ** 24);

class Journal {
  mode = "incremental"; // has LokiJS note the ids of what changes
  known = new Map(); // the collections that are on the disk, by name
  generation = 0;
  size = 0;
  limit = LEAST; // beyond it a snapshot is due
  due = false;

  constructor(database) {
    this.database = database;
  }

  // LokiJS asks for this when the file exists.
  loadDatabase(path, done) {
    let failure = null;
    try {
      this.load(path);
    } catch (error) {
      failure = error;
    }
    done(failure);
  }

  // LokiJS asks for this at the start, at the end, and every five seconds in which things changed.
  saveDatabase(path, copy, done) {
    try {
      if (this.file === undefined) this.file = files.begin(path);
    } catch (error) {
      return done(error);
    }
    this.flush();
    this.database.autosaveClearFlags();
    if (this.size < this.limit) fs.fdatasync(this.file, done);
    else this.snapshot(path).then(done);
  }

  load(path) {
    const found = files.load(path);
    for (const [name, { unique, indices, maxId, documents }] of found.collections) {
      const collection = this.database.addCollection(name, { unique, indices });
      collection.data = [...documents.values()].sort((one, other) => one.$loki - other.$loki);
      collection.maxId = maxId;
      collection.ensureAllIndexes(true);
      this.known.set(name, collection);
    }
    this.generation = found.generation;
    this.size = found.size;
    this.limit = found.legacy ? 0 : Math.max(LEAST, fs.statSync(path).size);
    this.file = fs.openSync(files.journalOf(path, this.generation), "a");
  }

  // Write down what changed since the last time.
  flush() {
    if (this.file === undefined) return;
    const changes = [];
    const { collections } = this.database;
    for (const [name, collection] of this.known) {
      if (collections.includes(collection)) continue;
      this.known.delete(name);
      changes.push({ collection: name, dropped: true });
    }
    for (const collection of collections) {
      if (!this.known.has(collection.name)) {
        this.known.set(collection.name, collection);
        changes.push(files.made(collection));
      }
      if (collection.dirtyIds.length) changes.push(files.changed(collection));
    }
    if (changes.length) this.append(changes);
  }

  append(changes) {
    try {
      const line = Buffer.from(`${JSON.stringify(changes)}\n`);
      fs.appendFileSync(this.file, line);
      this.size += line.length;
    } catch (error) {
      // What cannot be kept must not be answered; what is kept is there at the next start.
      files.say(`${this.database.filename} cannot be written: ${error.message}`);
      process.exit(1);
    }
    if (this.size < this.limit || this.due) return;
    this.due = true;
    setImmediate(() => this.database.saveDatabase());
  }

  async snapshot(path) {
    const before = { file: this.file, size: this.size };
    try {
      this.file = fs.openSync(files.journalOf(path, this.generation + 1), "a");
      this.generation += 1;
      this.size = 0;
      await files.synced(before.file);
      fs.closeSync(before.file);
      const file = fs.openSync(`${path}~`, "w");
      for (const text of files.pieces(this.generation, [...this.database.collections])) {
        fs.appendFileSync(file, text);
        await turn();
      }
      await files.synced(file);
      files.publish(path, file);
      files.discard(path, this.generation);
      this.limit = Math.max(LEAST, fs.statSync(path).size);
    } catch (error) {
      // The snapshot before and all journals since still say everything.
      files.say(`No snapshot of ${path}: ${error.message}`);
      this.size += before.size;
      this.limit = Math.max(LEAST, 2 * this.size);
    }
    this.due = false;
  }
}

const journals = [];
const configureOptions = Loki.prototype.configureOptions;

Loki.prototype.configureOptions = function (options, initial) {
  if (options?.persistenceMethod === "fs") {
    const adapter = new Journal(this);
    // Extents are made after the database of the rows that name them, and written before it.
    journals.unshift(adapter);
    options = { ...options, adapter };
  }
  configureOptions.call(this, options, initial);
};

for (const name of ["writeHead", "end"]) {
  const answer = ServerResponse.prototype[name];
  ServerResponse.prototype[name] = function (...parts) {
    for (const journal of journals) journal.flush();
    return answer.apply(this, parts);
  };
}
