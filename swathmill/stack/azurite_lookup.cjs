// Loaded into Azurite before its own script (node --require).
//
// Azurite asks its tables for an entity by PartitionKey and RowKey. LokiJS 1.5 looks the first of
// them up in an index and compares every entity that has it with the second: the time for each row
// grows with its partition, that for a large plan with its square. Asked by RowKey first it is the
// same entity, found at once.
//
// Azurite answers a query by trying its filter on every entity of the table. For a range of RowKeys
// the candidates are taken from the index instead; the filter is tried on those.
"use strict";

const { createRequire } = require("node:module");
const requireBeside = createRequire(process.argv[1]);
const { Collection, Resultset } = requireBeside("lokijs");
const { default: Queries } = requireBeside(
  "azurite/dist/src/table/persistence/LokiTableStoreQueryGenerator",
);

const findOne = Collection.prototype.findOne;

Collection.prototype.findOne = function (query) {
  if (query && "PartitionKey" in query && "RowKey" in query) {
    const { RowKey, ...others } = query;
    query = { RowKey, ...others };
  }
  return findOne.call(this, query);
};

// The index sorts texts that are numbers by their value, before all others. So only ranges of keys
// that begin with a letter are taken from it: no number lies between such keys.
const RANGE =
  /^PartitionKey eq '(?:[^']|'')*' and RowKey ge '([a-z](?:[^']|'')*)' and RowKey lt '([a-z](?:[^']|'')*)'$/;

const generate = Queries.generateQueryForPersistenceLayer;

Queries.generateQueryForPersistenceLayer = function (options, context) {
  const where = generate.call(this, options, context);
  const found = RANGE.exec(options.filter ?? "");
  if (found) {
    where.rowKeys = found.slice(1).map((key) => key.replaceAll("''", "'"));
  }
  return where;
};

const where = Resultset.prototype.where;

Resultset.prototype.where = function (matches) {
  if (matches.rowKeys && !this.filterInitialized) {
    this.find({ RowKey: { $between: matches.rowKeys } });
  }
  return where.call(this, matches);
};
