// `await using` looks for this symbol, which Node has since 18.18 and 20.4. Imported before the classes that use it.

if (Symbol.asyncDispose === undefined) {
  Object.defineProperty(Symbol, "asyncDispose", { value: Symbol.for("Symbol.asyncDispose") });
}

export {};
