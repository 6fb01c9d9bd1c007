// Drives Chromium for the tests of the page: one JSON order a line on stdin, one JSON answer a line on stdout.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const [deps, profile] = process.argv.slice(2);
const { chromium } = createRequire(`${deps}/`)("playwright-core");

const context = await chromium.launchPersistentContext(profile, {
  executablePath: "/usr/bin/chromium",
  headless: true,
  // As root, and in a container, Chromium has no sandbox; the other options keep it off the network.
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  viewport: { width: 1280, height: 800 },
});
const LIMIT_MS = 30000;
context.setDefaultTimeout(LIMIT_MS);
const page = context.pages()[0] ?? (await context.newPage());
const problems = [];
page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
page.on("pageerror", (error) => problems.push(error.message));

const find = ({ role, name, exact }) => page.getByRole(role, { name, exact });

const acts = {
  open: async ({ url }) => (await page.goto(url)).status(),
  // Waits until an expression of the page is true; returns its value.
  wait: async ({ script }) => {
    const deadline = performance.now() + LIMIT_MS;
    // Playwright's own wait evaluates text in the page, which the policy of the page refuses.
    while (performance.now() < deadline) {
      const value = await page.evaluate(script);
      if (value) return value;
      await page.waitForTimeout(50);
    }
    throw new Error(`never true; the page has: ${await page.locator("body").innerText()}`);
  },
  read: async ({ script }) => page.evaluate(script),
  click: async (order) => find(order).click(),
  press: async ({ key }) => page.keyboard.press(key),
  type: async ({ text }) => page.keyboard.type(text),
  size: async ({ width, height, scheme }) => {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: scheme });
  },
  picture: async ({ path }) => page.screenshot({ path, animations: "disabled" }),
  // The tree that a screen reader gets.
  roles: async () => page.locator("body").ariaSnapshot(),
  problems: async () => problems.splice(0),
};

console.log(JSON.stringify({ value: "ready" }));
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  try {
    const value = await acts[order.do](order);
    console.log(JSON.stringify({ value: Buffer.isBuffer(value) ? null : (value ?? null) }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
}
await context.close();
