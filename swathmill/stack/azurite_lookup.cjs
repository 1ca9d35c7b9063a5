// Loaded into Azurite before its own script (node --require).
//
// Azurite asks its tables for an entity by PartitionKey and RowKey. LokiJS 1.5 looks the first of
// them up in an index and compares every entity that has it with the second: the time for each row
// grows with its partition, that for a large plan with its square. Asked by RowKey first it is the
// same entity, found at once.
"use strict";

const { createRequire } = require("node:module");
const { Collection } = createRequire(process.argv[1])("lokijs");

const findOne = Collection.prototype.findOne;

Collection.prototype.findOne = function (query) {
  if (query && "PartitionKey" in query && "RowKey" in query) {
    const { RowKey, ...others } = query;
    query = { RowKey, ...others };
  }
  return findOne.call(this, query);
};
