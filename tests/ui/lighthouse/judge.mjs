// Lighthouse on pages of the web UI, behind the log-in; ../test_lighthouse.py asks for them.
//
//   node judge.mjs URL CHROMIUM    reads one line of JSON for each page, {address, theme, width},
//                                  and answers with one, {scores, failed, warnings, heading, theme}
//
// The browser logs in once, by the form, and keeps its session.  The address "login" is judged in a
// browser context of its own, which has none.  Refreshing is paused: Lighthouse waits until no
// request is under way, and the stream of a page that is live never ends.

import { createInterface } from "node:readline";
import lighthouse, { desktopConfig } from "lighthouse";
import puppeteer from "puppeteer-core";

const [url, executablePath] = process.argv.slice(2);
const JUDGED = ["accessibility", "best-practices"];
const CATEGORIES = [...JUDGED, "performance"];
const FLAGS = { disableStorageReset: true, disableFullPageScreenshot: true, logLevel: "error", onlyCategories: CATEGORIES };
const CONFIGS = { desktop: desktopConfig, phone: undefined };
const HERE = `${url}/ui/logo.svg`;

const tab = async (browser) => (await browser.createBrowserContext()).newPage();

async function logIn(page) {
  await page.goto(url);
  await page.locator("#name").fill("guest");
  await page.locator("#password").fill("guest");
  await page.locator("form button").click();
  await page.waitForSelector("nav");
}

/** As for the first visit, with this theme. */
async function prepare(page, theme) {
  await page.goto(HERE);
  await page.evaluate((name) => {
    localStorage.setItem("penstock.theme", name);
    localStorage.setItem("penstock.interval", "0");
  }, theme);
  const protocol = await page.createCDPSession();
  await protocol.send("Network.clearBrowserCache");
  await protocol.detach();
}

/** What an audit found, with the first place. */
function text({ id, title, details }) {
  const item = details?.items?.[0];
  return `${id}: ${title}: ${item?.node?.snippet ?? JSON.stringify(item ?? "")}`;
}

async function judge(page, { address, theme, width }) {
  await prepare(page, theme);
  const place = address === "login" ? url : `${url}/#${address}`;
  const { lhr } = await lighthouse(place, FLAGS, CONFIGS[width], page);
  if (lhr.runtimeError) throw new Error(`${place}: ${lhr.runtimeError.message}`);
  const scores = CATEGORIES.map((name) => [name, Math.round(lhr.categories[name].score * 100)]);
  const audits = JUDGED.flatMap((name) => lhr.categories[name].auditRefs).map(({ id }) => lhr.audits[id]);
  const failed = audits.filter(({ score }) => score !== null && score < 1).map(text);
  const shown = await page.evaluate(() => ({
    heading: document.querySelector("h1").textContent.trim(),
    theme: document.documentElement.dataset.theme,
  }));
  return { scores: Object.fromEntries(scores), failed, warnings: lhr.runWarnings, ...shown };
}

const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const [stranger, user] = [await tab(browser), await tab(browser)];
await logIn(user);
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  console.log(JSON.stringify(await judge(asked.address === "login" ? stranger : user, asked)));
}
await browser.close();
