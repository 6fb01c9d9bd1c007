// An npm registry on the loopback device that has the packages of a directory: `node registry.mjs DIR`. It prints its address.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import { createServer } from "node:http";
import path from "node:path";

const dir = process.argv[2];
const packages = new Map();
for (const file of fs.readdirSync(dir).filter((name) => name.startsWith("mcp-leash-") && name.endsWith(".tgz"))) {
  const manifest = JSON.parse(execFileSync("tar", ["-xOf", path.join(dir, file), "package/package.json"], { encoding: "utf8" }));
  packages.set(manifest.name, { manifest, file, bytes: fs.readFileSync(path.join(dir, file)) });
}

/** What a registry says about a package. */
function packument({ manifest, file, bytes }) {
  const integrity = `sha512-${createHash("sha512").update(bytes).digest("base64")}`;
  const dist = { tarball: `${address()}/files/${file}`, integrity, shasum: createHash("sha1").update(bytes).digest("hex") };
  const { name, version } = manifest;
  // Yarn takes no version that is younger than a day, or of an unknown age.
  const time = { [version]: "2020-01-01T00:00:00.000Z" };
  return { name, "dist-tags": { latest: version }, time, versions: { [version]: { ...manifest, dist } } };
}

const server = createServer((request, response) => {
  const wanted = decodeURIComponent(new URL(request.url, "http://registry").pathname.slice(1));
  const named = packages.get(wanted);
  const stored = [...packages.values()].find(({ file }) => wanted === `files/${file}`);
  if (named !== undefined) {
    response.setHeader("content-type", "application/json").end(JSON.stringify(packument(named)));
  } else if (stored !== undefined) {
    response.setHeader("content-type", "application/octet-stream").end(stored.bytes);
  } else {
    response.writeHead(404).end("{}");
  }
});

function address() {
  return `http://127.0.0.1:${server.address().port}`;
}

server.listen(0, "127.0.0.1", () => process.stdout.write(`${address()}\n`));
// It ends with the test, whose end closes this pipe.
process.stdin.resume().on("end", () => process.exit(0));
