// The types are written by hand: they must match the exports exactly.

import assert from "node:assert/strict";
import fs from "node:fs";
import test from "node:test";

import * as module from "mcp-leash";
import * as sdk from "mcp-leash/sdk";

const types = fs.readFileSync(new URL("../src/index.d.ts", import.meta.url), "utf8");

test("every export has a type, and every type of a value is an export", () => {
  const declared = [...types.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(module).sort());
});

test("every export of the transports has a type", () => {
  const text = fs.readFileSync(new URL("../src/sdk/index.d.ts", import.meta.url), "utf8");
  const declared = [...text.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(sdk).sort());
});

for (const [, name, text] of types.matchAll(/^export class (\w+)[^{]*\{\n(.*?)^\}/gms)) {
  test(`the methods of ${name} are those of its type`, () => {
    const found = module[name];
    const methods = (pattern) => [...new Set([...text.matchAll(pattern)].map(([, method]) => method))].sort();
    const own = (object) => Object.getOwnPropertyNames(object).filter((method) => typeof object[method] === "function");
    const onInstances = Object.entries(Object.getOwnPropertyDescriptors(found.prototype))
      .filter(([method, { value }]) => typeof value === "function" && method !== "constructor")
      .map(([method]) => method);
    assert.deepEqual(methods(/^ {2}(?!constructor)(\w+)(?:<T>)?\(/gm), onInstances.sort());
    // The creation of errors is internal.
    const onClass = own(found).filter((method) => name !== "LeashError" || method !== "from");
    assert.deepEqual(methods(/^ {2}static (\w+)\(/gm), onClass.sort());
    for (const symbol of ["asyncIterator", "asyncDispose"]) {
      assert.equal(Symbol[symbol] in found.prototype, text.includes(`[Symbol.${symbol}]`), symbol);
    }
    const getters = Object.entries(Object.getOwnPropertyDescriptors(found.prototype)).filter(([, { get }]) => get !== undefined);
    assert.ok(getters.every(([getter]) => text.includes(`readonly ${getter}:`)), String(getters.map(([getter]) => getter)));
  });
}
