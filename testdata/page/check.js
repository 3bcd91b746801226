// Looks at the page of a cluster as people do, in headless Chromium: internal/tests/e2e/page_test.go
// starts it with the nodes in COORDD_PAGE_NODES, and does what it asks for on its output. Screenshots
// go to COORDD_PAGE_IMAGES.

import assert from "node:assert/strict";
import path from "node:path";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const nodes = JSON.parse(process.env.COORDD_PAGE_NODES);
const images = process.env.COORDD_PAGE_IMAGES;
const views = ["overview", "locks", "windows", "queues", "clients", "slow"];
const desktop = { width: 1180, height: 760 };
const wide = { width: 1280, height: 800 };
const tablet = { width: 800, height: 1100 };
const phone = { width: 360, height: 740 };

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// ask has the test do something, and returns its answer.
async function ask(what) {
  console.log("ASK " + what);
  return (await answers.next()).value;
}

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"] });

// open opens the page of a node. Whatever the browser complains about fails the test, but for
// answers that the page expects.
async function open(node, viewport, colorScheme, touch = false) {
  const context = await browser.newContext({ viewport, colorScheme, hasTouch: touch,
    isMobile: touch, bypassCSP: false, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.on("pageerror", (e) => assert.fail(e.stack));
  page.on("console", (m) => {
    if (m.type() === "error" && !m.text().startsWith("Failed to load resource")) {
      assert.fail(m.text());
    }
  });
  page.on("request", (r) => assert.equal(new URL(r.url()).origin, node.url));
  await page.goto(node.url);
  return page;
}

const verdict = (page, text) =>
  page.locator("#verdict", { hasText: text }).waitFor({ timeout: 20000 });

// accessible runs axe on what is shown. The page's policy lets no script in but its own, so the
// script comes by the debugger.
async function accessible(page, what) {
  const found = await page.evaluate(`${await (await import("node:fs/promises")).readFile(axe,
    "utf8")}; axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa",
    "best-practice"] })`);
  const bad = found.violations.map((v) =>
    `${v.id}: ${v.help}\n  ${v.nodes.map((n) => n.html + "\n  " + n.failureSummary).join("\n  ")}`);
  assert.equal(bad.join("\n"), "", what);
  const [content, width] = await page.evaluate(() =>
    [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= width, `${what} is ${content} wide on a screen of ${width}`);
}

// uncut checks that no card cuts off what is in it.
async function uncut(page, what) {
  const cut = await page.locator("main .card").evaluateAll((all) =>
    all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.querySelector("h2").textContent));
  assert.deepEqual(cut, [], what + ": cards that are too narrow");
}

// small checks that fingers find what can be touched.
async function small(page, what) {
  const bad = await page.locator("button:visible, a:visible, input:visible").evaluateAll((all) =>
    all.filter((e) => !e.classList.contains("skip") && e.getBoundingClientRect().height < 44)
      .map((e) => e.textContent));
  assert.deepEqual(bad, [], what + ": targets below 44 pixels");
}

const focused = (page) => page.evaluate(() => {
  const e = document.activeElement;
  return (e.textContent || e.getAttribute("aria-label") || e.id).trim();
});

async function tabTo(page, wanted) {
  for (let i = 0; i < 60; i++) {
    if ((await focused(page)).startsWith(wanted)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail("the keyboard does not reach " + wanted);
}

// everyView looks at each view on each kind of screen.
async function everyView(node) {
  for (const [screen, viewport] of Object.entries({ wide, tablet, phone })) {
    for (const scheme of ["light", "dark"]) {
      const page = await open(node, viewport, scheme, screen === "phone");
      await verdict(page, "All 3 members are well");
      for (const view of views) {
        await page.evaluate((name) => { location.hash = name; }, view);
        const what = `${view}, ${screen}, ${scheme}`;
        await page.locator("main .card tbody tr").first().waitFor();
        await accessible(page, what);
        await uncut(page, what);
        if (screen === "phone") await small(page, what);
      }
      await page.context().close();
    }
  }
}

// hostile names are text.
async function hostile(page) {
  await page.goto(page.url().split("#")[0] + "#locks");
  const cell = page.locator("td.key", { hasText: "<img src=x onerror=alert(1)>" });
  await cell.waitFor();
  assert.ok((await cell.textContent()).includes("\\u{202e}"));
  assert.equal(await page.locator("main img").count(), 0);
}

// keyboard releases a lock without a mouse.
async function keyboard(page) {
  await page.goto(page.url().split("#")[0]);
  await verdict(page, "All 3 members are well");
  await page.keyboard.press("Tab");
  assert.equal(await focused(page), "Skip to the content");
  await tabTo(page, "Locks");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, "solid", "the focus is not visible");
  await page.keyboard.press("Enter");
  await page.locator("td.key", { hasText: "lock:order:1" }).waitFor();
  await tabTo(page, "Details of lock:order:2");
  await page.keyboard.press("Enter");
  await page.locator("dialog dd", { hasText: "worker-2:7f3a" }).waitFor();
  await accessible(page, "the details of a lock");
  await page.keyboard.press("Escape");
  assert.equal(await focused(page), "Details of lock:order:2", "the focus after the details");
  await tabTo(page, "Search by prefix");
  await page.keyboard.type("lock:order:1");
  await page.locator("td.key", { hasText: "lock:order:2" }).waitFor({ state: "detached" });
  await tabTo(page, "Release lock:order:1");
  await page.keyboard.press("Enter");
  await page.locator("dialog[open]").waitFor();
  assert.equal(await focused(page), "Cancel");
  await accessible(page, "the dialog");
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  assert.equal(await focused(page), "Release lock:order:1", "the focus after the dialog");
  await page.keyboard.press("Enter");
  await page.locator("dialog[open]").waitFor();
  await tabTo(page, "Release");
  await page.keyboard.press("Enter");
  await page.locator("#notice", { hasText: "The lock is released." }).waitFor();
  await page.locator(".empty", { hasText: "There is no lock here." }).waitFor();
  assert.notEqual(await page.evaluate(() => document.activeElement.tagName), "BODY",
    "the focus after the button has gone");
}

// reader sees no buttons for what its user may not do.
async function reader(node) {
  const page = await open(node, wide, "light");
  await ask("reader");
  await page.getByLabel("User").fill("reader");
  await page.getByLabel("Password").fill("right");
  await page.keyboard.press("Enter");
  await verdict(page, "All 3 members are well");
  await page.locator("td.act").first().waitFor({ state: "attached" });
  assert.deepEqual(await page.locator("main button:visible").allTextContents(), []);
  await page.context().close();
}

// holders releases the second holder of a semaphore.
async function holders(page) {
  await page.goto(page.url().split("#")[0] + "#locks");
  const row = page.locator("tr", { has: page.locator("td.key", { hasText: "semaphore:gpu" }) });
  await row.waitFor();
  assert.equal(await page.getByRole("button", { name: "Extend semaphore:gpu" }).count(), 0);
  await page.getByRole("button", { name: "Release semaphore:gpu" }).click();
  await accessible(page, "the choice of a holder");
  await page.getByLabel("Holder").selectOption("render-3");
  await page.locator("dialog .command", { hasText: "semaphore:gpu render-3" }).waitFor();
  await page.locator("dialog button.danger").click();
  await row.locator("td.wrap", { hasText: /^render-2$/ }).waitFor();
}

// actions asks for the leadership of a node, and to remove one under a wrong name.
async function actions(page, leader, next) {
  await page.goto(page.url().split("#")[0]);
  await verdict(page, leader + " leads");
  await page.getByRole("button", { name: "Remove " + next }).click();
  const remove = page.locator("dialog button.danger");
  await page.locator("dialog input").fill("another");
  assert.ok(await remove.isDisabled());
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Make leader of " + next }).click();
  await page.getByRole("button", { name: "Transfer leadership" }).click();
  await verdict(page, next + " leads");
}

// password sets one: the page then wants it.
async function password(page) {
  await ask("password");
  const form = page.locator("form");
  await form.waitFor({ timeout: 20000 });
  await accessible(page, "the form to log in");
  await page.keyboard.type("wrong");
  await page.keyboard.press("Enter");
  await page.locator("[role=alert]", { hasText: "WRONGPASS" }).waitFor();
  await page.keyboard.type("right");
  await page.keyboard.press("Enter");
  await verdict(page, "All 3 members are well");
}

async function shot(page, name) {
  await page.screenshot({ path: path.join(images, name + ".png") });
}

// shots takes the pictures of the documents, after some load.
async function shots(node) {
  const page = await open(node, desktop, "light");
  await verdict(page, "All 3 members are well");
  const dark = await open(node, desktop, "dark");
  const small = await open(node, phone, "dark", true);
  await verdict(small, "All 3 members are well");
  await dark.goto(node.url + "#locks");
  await dark.locator("td.key", { hasText: "lock:order:2" }).waitFor();
  await page.waitForFunction(() =>
    document.querySelector(".graph .line").getAttribute("d").split("L").length > 45,
  null, { timeout: 90000 });
  await shot(page, "page");
  await shot(dark, "page-locks");
  await dark.goto(node.url + "#windows");
  await dark.locator("td.key", { hasText: "window:api:alice" }).waitFor();
  await shot(dark, "page-windows");
  await shot(small, "page-phone");
  for (const p of [page, dark, small]) await p.context().close();
}

const survivor = nodes[0];
await everyView(survivor);
await shots(survivor);
const page = await open(survivor, desktop, "light");
await verdict(page, "All 3 members are well");
await hostile(page);
await holders(page);
await keyboard(page);
const leader = await ask("leader");
await actions(page, leader, nodes.find((n) => n.id !== leader && n.id !== survivor.id).id);
await password(page);
await reader(survivor);
const dead = await ask("kill leader");
await verdict(page, dead + " does not answer the leader");
await page.locator("#problems", { hasText: "One more failure stops the cluster" }).waitFor();
await accessible(page, "a dead member");
await ask("start " + dead);
await verdict(page, "All 3 members are well");
await ask("kill others");
await verdict(page, "No leader");
await accessible(page, "no leader");
await page.locator("#notice").waitFor({ state: "hidden" });
await page.evaluate(() => {
  document.activeElement.blur();
  scrollTo(0, 0);
});
await shot(page, "page-no-leader");
await ask("start others");
await verdict(page, "All 3 members are well");
await ask("kill " + survivor.id);
await verdict(page, survivor.id + " does not answer");
await ask("start " + survivor.id);
await page.locator("form").waitFor({ timeout: 20000 }); // the session was in the node's memory
await browser.close();
console.log("DONE");
process.exit(0);
