// The files of azurite_journal.cjs, of which each line is JSON:
//
//   <database>            a snapshot: its generation, the documents in pieces, an end mark
//   <database>.journal-N  what changed since snapshot N was begun: a list of changes at a time
//
// What a kill left unfinished at the end of the last journal was never answered, and is dropped.
// Any other damage is refused.
"use strict";

const fs = require("node:fs");
const { basename, dirname } = require("node:path");

const PIECE = 2 ** 20;
const NEWLINE = 10;

const say = (text) => fs.writeSync(2, `${text}\n`);
const journalOf = (path, number) => `${path}.journal-${number}`;

function journalsOf(path) {
  const start = `${basename(path)}.journal-`;
  const names = fs.readdirSync(dirname(path)).filter((name) => name.startsWith(start));
  return names.map((name) => Number(name.slice(start.length))).sort((one, other) => one - other);
}

function synced(file) {
  return new Promise((done, failed) =>
    fs.fdatasync(file, (error) => (error ? failed(error) : done())),
  );
}

// Begin a new database, and return its open journal.
function begin(path) {
  const left = journalsOf(path);
  if (left.length) throw new Error(`${path} is missing; its journals ${left} are there.`);
  const file = fs.openSync(`${path}~`, "w");
  for (const text of pieces(0, [])) fs.appendFileSync(file, text);
  fs.fsyncSync(file);
  publish(path, file);
  return fs.openSync(journalOf(path, 0), "a");
}

// Put what was written in the place of the snapshot before.
function publish(path, file) {
  fs.closeSync(file);
  fs.renameSync(`${path}~`, path);
  const folder = fs.openSync(dirname(path), "r");
  fs.fsyncSync(folder);
  fs.closeSync(folder);
}

function discard(path, generation) {
  for (const number of journalsOf(path)) {
    if (number < generation) fs.unlinkSync(journalOf(path, number));
  }
}

function made({ name, uniqueNames, binaryIndices, maxId }) {
  return { collection: name, unique: uniqueNames, indices: Object.keys(binaryIndices), maxId };
}

function changed(collection) {
  const documents = [];
  const removed = [];
  for (const id of new Set(collection.dirtyIds)) {
    const document = collection.get(id);
    if (document) documents.push(document);
    else removed.push(id);
  }
  collection.dirtyIds = [];
  return { collection: collection.name, maxId: collection.maxId, documents, removed };
}

function* pieces(generation, collections) {
  yield `{"generation":${generation}}\n`;
  for (const collection of collections) {
    yield `${JSON.stringify([made(collection)])}\n`;
    const start = `[{"collection":${JSON.stringify(collection.name)},"documents":[`;
    let texts = [];
    let size = 0;
    for (const document of [...collection.data, null]) {
      // A document that was removed meanwhile has no id any more.
      if (document?.$loki) size += texts[texts.push(JSON.stringify(document)) - 1].length;
      if (document && size < PIECE) continue;
      yield `${start}${texts.join()}]}]\n`;
      texts = [];
      size = 0;
    }
  }
  yield '{"end":true}\n';
}

// The collections by name, as the snapshot and its journals have them, and the journals' size.
function load(path) {
  const { generation, collections, legacy } = read(path);
  const numbers = journalsOf(path).filter((number) => number >= generation);
  let size = 0;
  for (const [place, number] of numbers.entries()) {
    const file = journalOf(path, number);
    if (number !== generation + place) throw new Error(`The journal before ${file} is missing.`);
    size += replay(file, collections, number === numbers.at(-1));
  }
  return { generation: numbers.at(-1) ?? generation, collections, legacy, size };
}

// A snapshot, or what Azurite by itself has written: one JSON object.
function read(path) {
  const collections = new Map();
  let generation = 0;
  let legacy = false;
  let whole = false;
  try {
    for (const line of lines(path)) {
      const content = JSON.parse(line);
      if (Array.isArray(content)) content.forEach((change) => apply(collections, change));
      generation = content.generation ?? generation;
      legacy ||= content.collections !== undefined;
      whole = content.end === true || legacy;
      for (const collection of content.collections ?? []) {
        apply(collections, made(collection));
        apply(collections, { collection: collection.name, documents: collection.data });
      }
    }
    if (!whole) throw new Error("it has no end");
  } catch (error) {
    throw new Error(`${path} is damaged: ${error.message}`);
  }
  return { generation, collections, legacy };
}

// Apply a journal; its size without what was left unfinished.
function replay(file, collections, last) {
  let size = 0;
  let failure = null;
  const damaged = (error) => new Error(`${file} is damaged at byte ${size}: ${error.message}`);
  for (const line of lines(file)) {
    if (failure) throw failure;
    let changes = [];
    try {
      if (line.at(-1) !== NEWLINE) throw new Error("a line has no end");
      changes = JSON.parse(line);
    } catch (error) {
      failure = damaged(error);
      continue;
    }
    try {
      changes.forEach((change) => apply(collections, change));
    } catch (error) {
      throw damaged(error);
    }
    size += line.length;
  }
  if (!failure) return size;
  if (!last) throw failure;
  say(`${file}: ${fs.statSync(file).size - size} bytes of an unfinished change are dropped.`);
  fs.truncateSync(file, size);
  return size;
}

function apply(collections, change) {
  const { collection: name, dropped, unique, indices, maxId, documents, removed } = change;
  if (dropped) return void collections.delete(name);
  if (indices && !collections.has(name)) {
    collections.set(name, { unique, indices, maxId, documents: new Map() });
  }
  const collection = collections.get(name);
  if (!collection) throw new Error(`there is no collection ${name}`);
  collection.maxId = Math.max(collection.maxId, maxId ?? 0);
  for (const document of documents ?? []) collection.documents.set(document.$loki, document);
  for (const id of removed ?? []) collection.documents.delete(id);
}

// The lines of a file with their ends, as bytes: all of it may be more than one text can hold.
function* lines(path) {
  const file = fs.openSync(path, "r");
  try {
    let parts = [];
    for (;;) {
      const space = Buffer.allocUnsafe(PIECE);
      const piece = space.subarray(0, fs.readSync(file, space));
      if (!piece.length) break;
      let start = 0;
      for (let end; (end = piece.indexOf(NEWLINE, start) + 1); start = end) {
        yield Buffer.concat([...parts, piece.subarray(start, end)]);
        parts = [];
      }
      parts.push(piece.subarray(start));
    }
    const rest = Buffer.concat(parts);
    if (rest.length) yield rest;
  } finally {
    fs.closeSync(file);
  }
}

module.exports = { begin, changed, discard, journalOf, load, made, pieces, publish, say, synced };
