// Finds the native program.

import { createRequire } from "node:module";
import path from "node:path";

/** The package that holds the program for this machine. */
export const PLATFORM_PACKAGE = `@mcp-leash/${process.platform}-${process.arch}`;

/**
 * The program that was installed with this package. `undefined` if the package for this platform is not there: npm leaves it out
 * with `--omit=optional`, or if there is none for this platform.
 */
export function packagedBinary() {
  try {
    const manifest = createRequire(import.meta.url).resolve(`${PLATFORM_PACKAGE}/package.json`);
    return path.join(path.dirname(manifest), "bin", "leash");
  } catch {
    return undefined;
  }
}

/** The program to start: LEASH_BIN, else the one that was installed with this package, else `leash` on PATH. */
export function nativeBinary() {
  return process.env.LEASH_BIN || packagedBinary() || "leash";
}
