// The page of `leash serve`: the rows of `leash top`, live. Every text of a server is inserted as text, never as markup.
"use strict";

const OLD_MS = 3000; // Rows that were looked at longer ago are shown as old.
const RETRY_MS = 2000;
const SAMPLES = 600; // Ten minutes, one sample a second.
const NAMED = 8; // The most processes that a question names.
const RECEIPTS = 15; // The receipts that are shown before "Show all".
const RECEIPTS_MS = 1000;
const HOUR_MS = 3600000;
const BARS = 30;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

const state = {
  rows: new Map(), // The rows of the feed by key.
  history: new Map(), // The memory of the last minute, by key.
  samples: [],
  receipts: [],
  totals: null,
  atMs: 0, // The time of the last look, by the clock of the gateway.
  judgedMs: null, // The time at which servers of other programs were judged.
  heardMs: 0, // The time at which it arrived, by our clock.
  isConnected: false,
  current: null, // The key of the line that Tab reaches.
  allReceipts: false,
};

// ---- Words

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${count} B` : `${value.toFixed(1)} ${units[unit]}`;
}

function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${(seconds / 3600).toFixed(1)}h`;
  return `${(seconds / 86400).toFixed(1)}d`;
}

const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
const processes = (count) => (count === 1 ? "1 process" : `${count} processes`);
const short = (id) => (/^[0-9a-hjkmnp-tv-z]{26}$/.test(id) ? id.slice(0, 8) : id);
const nowMs = () => state.atMs + (performance.now() - state.heardMs); // By the clock of the gateway.

function shownId(row) {
  if (row.kind === "other") return row.root ? String(row.root.pid) : "";
  return row.session && row.session !== row.name ? short(row.session) : "";
}

const shownName = (row) => (row.session === row.name ? short(row.name) : row.name);

function titled(row) {
  const id = shownId(row);
  return id === "" ? shownName(row) : `${shownName(row)} ${row.kind === "other" ? `(pid ${id})` : `[${id}]`}`;
}

function stateKind(word) {
  if (word === "running" || word === "live") return "good";
  if (word === "orphan" || word.startsWith("abandoned")) return "bad";
  if (["likely", "stale-host", "starting", "ending"].includes(word)) return "wait";
  return "plain";
}

// ---- Elements

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Sets a text only if it is another one, so that a selection and a screen reader's place stay.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function button(text, className, act) {
  const made = make("button", className, text);
  made.type = "button";
  made.tabIndex = -1;
  made.addEventListener("click", act);
  return made;
}

function notice(text) {
  byId("notice").textContent = text;
}

// ---- The feed

let source = null;
let retry = null;

function connect() {
  disconnect();
  source = new EventSource("/-/events");
  const on = (name, take) => source.addEventListener(name, (event) => take(JSON.parse(event.data)));
  on("samples", (samples) => {
    state.samples = samples;
  });
  on("snapshot", (document) => {
    state.rows.clear();
    take(document);
    loadReceipts();
  });
  on("change", (document) => {
    document.removed.forEach((key) => state.rows.delete(key));
    take(document);
    sample();
    if (document.ended.length > 0) loadReceipts();
  });
  on("look", (look) => {
    heard(look);
    sample();
  });
  source.onopen = () => {
    state.isConnected = true;
    showConnection();
  };
  source.onerror = () => {
    state.isConnected = false;
    disconnect();
    retry = setTimeout(connect, RETRY_MS);
    showConnection();
  };
}

function disconnect() {
  clearTimeout(retry);
  if (source) source.close();
  source = null;
}

function heard(document) {
  state.atMs = document.at_ms;
  state.judgedMs = document.judged_ms ?? state.judgedMs;
  state.heardMs = performance.now();
  state.isConnected = true;
  noteMemory();
  drawTimes();
  drawSparks();
}

function take(document) {
  for (const row of [...document.added, ...document.changed]) state.rows.set(row.key, row);
  for (const key of state.history.keys()) if (!state.rows.has(key)) state.history.delete(key);
  state.totals = document.totals;
  setText(byId("warnings"), document.warnings.join("; "));
  heard(document);
  draw();
}

// One sample of each second.
function noteMemory() {
  const second = Math.floor(state.atMs / 1000);
  for (const row of state.rows.values()) {
    if (row.memory_bytes === null) continue;
    const known = state.history.get(row.key) ?? [];
    if (known.length > 0 && known[known.length - 1][0] === second) known.pop();
    known.push([second, row.memory_bytes]);
    while (known[0][0] < second - 60) known.shift();
    state.history.set(row.key, known);
  }
}

function sample() {
  const totals = state.totals;
  if (!totals) return;
  const last = state.samples[state.samples.length - 1];
  if (last && Math.floor(last[0] / 1000) === Math.floor(state.atMs / 1000)) state.samples.pop();
  state.samples.push([state.atMs, totals.memory_bytes, totals.others_memory_bytes, totals.processes]);
  while (state.samples.length > SAMPLES) state.samples.shift();
  drawCharts();
}

let loading = null; // A request for the receipts that waits or is under way.

// Many sessions may end at the same time: one request a second is enough.
function loadReceipts() {
  loading ??= setTimeout(async () => {
    await fetchReceipts();
    loading = null;
  }, state.receipts.length === 0 ? 0 : RECEIPTS_MS);
}

async function fetchReceipts() {
  try {
    const answer = await fetch("/-/history");
    if (!answer.ok) return;
    state.receipts = await answer.json();
    drawReceipts();
    drawEnded();
  } catch {
    // The connection is lost, which the stream shows.
  }
}

// ---- The list

function matches(row, filter) {
  const texts = [row.name, row.state, row.client, row.owner, row.session, row.url];
  const all = texts.concat(row.processes.map((process) => process.command));
  return filter === "" || all.some((text) => text && text.toLowerCase().includes(filter));
}

// A session with its own row and its members; or one server.
function groups() {
  const found = [];
  const sessions = new Map();
  for (const row of state.rows.values()) {
    if (row.kind !== "session") continue;
    const group = { head: row, members: [] };
    sessions.set(row.session, group);
    found.push(group);
  }
  for (const row of state.rows.values()) {
    const session = row.session && sessions.get(row.session);
    if (row.kind === "session") continue;
    if (session) session.members.push(row);
    else found.push({ head: null, members: [row] });
  }
  return found;
}

const first = (group) => group.head ?? group.members[0];
const sum = (rows, value) => rows.reduce((total, row) => total + (value(row) ?? 0), 0);
const memoryOf = (group) => sum(group.members, (row) => row.memory_bytes);
const processesOf = (group) => sum(group.members, (row) => row.processes.length);

const ORDERS = {
  age: (a, b) => first(a).started_ms - first(b).started_ms,
  memory: (a, b) => memoryOf(b) - memoryOf(a),
  processes: (a, b) => processesOf(b) - processesOf(a),
  name: (a, b) => first(a).name.toLowerCase().localeCompare(first(b).name.toLowerCase()),
};

// The lines of the list, in their order.
function lines() {
  const filter = byId("filter").value.trim().toLowerCase();
  const wanted = groups().flatMap((group) => {
    if (group.head && matches(group.head, filter)) return [group];
    const members = group.members.filter((row) => matches(row, filter));
    return members.length > 0 ? [{ head: group.head, members }] : [];
  });
  wanted.sort(ORDERS[byId("order").value]);
  const clients = new Map();
  const others = [];
  for (const group of wanted) {
    if (first(group).kind === "other") {
      others.push(group);
      continue;
    }
    const name = first(group).client ?? "no client";
    clients.set(name, [...(clients.get(name) ?? []), group]);
  }
  const found = [];
  for (const [name, own] of clients) {
    const members = own.flatMap((group) => group.members);
    const text = `${name}: ${counted(members.length, "server")}`;
    found.push({ key: `client:${name}`, client: text, members });
    own.forEach((group) => addGroup(found, group));
  }
  if (others.length > 0) {
    const members = others.flatMap((group) => group.members);
    found.push({ key: "others", client: `Other programs: ${counted(members.length, "server")}`, members, others: true });
    others.forEach((group) => addGroup(found, group));
  }
  return found;
}

function addGroup(found, group) {
  if (group.head) {
    const count = processesOf(group);
    found.push({ key: group.head.key, row: group.head, depth: 1, count });
  }
  for (const row of group.members) {
    const depth = group.head ? 2 : 1;
    found.push({ key: row.key, row, depth, count: row.processes.length });
    if (byId("tree").checked) {
      for (const process of row.processes) found.push({ key: `${row.key} ${process.pid}`, process, depth: depth + 1 });
    }
  }
}

const COLUMNS = ["Name", "Processes", "Memory", "Last minute", "Age", "Calls", "Containment", "Owner", "State", ""];
const NUMBERS = ["Processes", "Memory", "Age", "Calls"];
const elements = new Map(); // The element of each line, by its key.

function draw() {
  drawTotals();
  const body = byId("rows");
  const wanted = lines();
  const focused = document.activeElement && document.activeElement.closest("#rows tr");
  const kept = new Set(wanted.map((line) => line.key));
  let gone = null;
  for (const [key, element] of elements) {
    if (kept.has(key)) continue;
    if (element === focused) gone = [...body.children].indexOf(element);
    element.remove();
    elements.delete(key);
  }
  wanted.forEach((line, at) => {
    let element = elements.get(line.key);
    if (!element) {
      element = makeLine(line);
      elements.set(line.key, element);
    }
    fillLine(element, line);
    // An element that is moved loses the focus, so it stays where it is if it can.
    if (body.children[at] !== element) body.insertBefore(element, body.children[at] ?? null);
  });
  if (focused && gone === null && !focused.contains(document.activeElement)) focused.focus();
  const rows = [...body.querySelectorAll("tr.row")];
  if (!elements.has(state.current) || !elements.get(state.current).classList.contains("row")) {
    const near = rows.find((row) => [...body.children].indexOf(row) >= (gone ?? 0)) ?? rows[rows.length - 1];
    state.current = near ? near.dataset.key : null;
  }
  if (gone !== null && elements.has(state.current)) elements.get(state.current).focus();
  reach();
  showEmpty(wanted.length);
  closeGone();
  drawTimes();
}

// Tab reaches the current line and its buttons only; arrow keys reach the others.
function reach() {
  for (const element of byId("rows").querySelectorAll("tr.row")) {
    const tab = element.dataset.key === state.current ? 0 : -1;
    if (element.tabIndex !== tab) {
      element.tabIndex = tab;
      element.querySelectorAll("button").forEach((one) => (one.tabIndex = tab));
    }
  }
}

function makeLine(line) {
  const element = make("tr", line.row ? "row" : line.process ? "process" : "client");
  element.dataset.key = line.key;
  element.setAttribute("role", "row");
  COLUMNS.forEach((column, at) => {
    const cell = make(at === 0 ? "th" : "td", NUMBERS.includes(column) ? "number" : "");
    cell.setAttribute("role", at === 0 ? "rowheader" : "cell");
    if (at === 0) cell.scope = "row";
    cell.dataset.label = column;
    element.append(cell);
  });
  const cells = element.children;
  if (line.row) {
    element.tabIndex = -1;
    element.addEventListener("focusin", () => {
      state.current = line.key;
      reach();
    });
    cells[0].append(make("span", "name"), " ", make("span", "id"));
    const spark = document.createElementNS(SVG, "svg");
    spark.setAttribute("viewBox", "0 0 80 18");
    spark.setAttribute("class", "spark");
    spark.setAttribute("aria-hidden", "true");
    spark.append(document.createElementNS(SVG, "polyline"));
    cells[3].append(spark);
    cells[8].append(make("span", "pill"));
    const why = button("Why", "", () => showDetails(line.key));
    const end = button("End", "danger", () => ask(line.key));
    cells[9].append(why, end);
    cells[9].className = "actions";
  }
  return element;
}

function fillLine(element, line) {
  const cells = element.children;
  if (line.process) {
    element.dataset.depth = line.depth;
    setText(cells[0], `${line.process.pid} ${line.process.command}`);
    setText(cells[2], bytes(line.process.memory_bytes));
    return;
  }
  if (!line.row) {
    setText(cells[0], line.client);
    setText(cells[1], String(sum(line.members, (row) => row.processes.length)));
    setText(cells[2], bytes(sum(line.members, (row) => row.memory_bytes)));
    return;
  }
  const row = line.row;
  element.dataset.depth = line.depth;
  setText(cells[0].querySelector(".name"), shownName(row));
  setText(cells[0].querySelector(".id"), line.depth > 1 ? "" : shownId(row));
  setText(cells[1], row.kind === "upstream" ? "-" : String(line.count));
  setText(cells[2], row.memory_bytes === null ? "-" : bytes(row.memory_bytes));
  setText(cells[5], calls(row));
  const kinds = { connection: "connection", upstream: "upstream" };
  setText(cells[6], kinds[row.kind] ?? row.containment ?? "-");
  setText(cells[7], (row.kind === "other" ? row.client : row.owner) ?? "-");
  const pill = cells[8].firstChild;
  const word = row.state.split(":")[0];
  setText(pill, word);
  pill.className = `pill ${stateKind(word)}`;
  cells[8].title = row.evidence.join("; ");
  const [why, end] = cells[9].children;
  why.setAttribute("aria-label", `Why is ${titled(row)} alive?`);
  end.setAttribute("aria-label", `${row.remedy === "reap" ? "Reap" : "End"} ${titled(row)}`);
  setText(end, row.remedy === "reap" ? "Reap" : "End");
  end.hidden = row.remedy === "none";
}

// All calls, and those that were not answered yet.
function calls(row) {
  const { calls: all = null, in_flight: open } = row;
  if (all === null && open === null) return "-";
  const answer = all === null ? String(open) : String(all);
  return all !== null && open > 0 ? `${answer} (${open} open)` : answer;
}

function showEmpty(count) {
  const empty = byId("empty");
  empty.hidden = count > 0;
  const filtered = byId("filter").value.trim() !== "";
  setText(
    empty,
    filtered
      ? "Nothing matches the filter."
      : "No MCP server runs here. `leash adopt` puts the servers of your MCP clients on the leash.",
  );
}

function drawTotals() {
  const totals = state.totals;
  if (!totals) return;
  const others = totals.others > 0 ? `${totals.others} (${bytes(totals.others_memory_bytes)})` : "0";
  const values = {
    sessions: totals.sessions,
    trees: totals.trees,
    processes: totals.processes,
    memory: bytes(totals.memory_bytes),
    others,
    orphans: totals.orphans,
    back: bytes(totals.given_back_bytes),
  };
  for (const [name, value] of Object.entries(values)) setText(byId(`total-${name}`), String(value));
  byId("total-orphans").classList.toggle("bad", totals.orphans > 0);
}

// ---- Times

function drawTimes() {
  showConnection();
  if (state.atMs === 0) return;
  const now = nowMs();
  for (const row of state.rows.values()) {
    const element = elements.get(row.key);
    if (element) setText(element.children[4], span(now - row.started_ms));
  }
  for (const cell of document.querySelectorAll("#receipts td[data-ended]")) {
    setText(cell, `${span(now - Number(cell.dataset.ended))} ago`);
  }
  const others = elements.get("others");
  const judged = state.judgedMs === null ? 0 : now - state.judgedMs;
  if (others) setText(others.children[8], judged > OLD_MS ? `judged ${span(judged)} ago` : "");
}

function showConnection() {
  const pill = byId("connection");
  const age = performance.now() - state.heardMs;
  const isOld = state.atMs > 0 && age > OLD_MS;
  let [text, kind] = ["live", "good"];
  if (document.hidden) [text, kind] = ["paused", "plain"];
  else if (!state.isConnected && state.atMs === 0) [text, kind] = ["connecting", "wait"];
  else if (!state.isConnected) [text, kind] = [`connection lost; last look ${span(age)} ago`, "bad"];
  else if (isOld) [text, kind] = [`old: last look ${span(age)} ago`, "bad"];
  else if (state.atMs === 0) [text, kind] = ["looking", "wait"];
  setText(pill, text);
  pill.className = `pill ${kind}`;
  document.body.classList.toggle("old", isOld || (!state.isConnected && state.atMs > 0));
  document.title = state.totals && state.totals.orphans > 0 ? `leash (${state.totals.orphans})` : "leash";
}

// ---- Charts

function drawSparks() {
  const now = Math.floor(state.atMs / 1000);
  for (const [key, samples] of state.history) {
    const line = elements.get(key)?.querySelector(".spark polyline");
    if (!line) continue;
    const most = Math.max(...samples.map((one) => one[1]), 1);
    const points = samples.map(([at, value]) => `${80 - ((now - at) / 60) * 80},${(17 - (value / most) * 15).toFixed(1)}`);
    // A single sample is a short line.
    if (points.length === 1) points.unshift(`78,${points[0].split(",")[1]}`);
    const text = points.join(" ");
    if (line.getAttribute("points") !== text) line.setAttribute("points", text);
  }
}

function shape(svg, name, className, attributes) {
  const made = document.createElementNS(SVG, name);
  made.setAttribute("class", className);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  svg.append(made);
}

// The charts show one minute at first, and up to ten.
function windowMs() {
  const since = state.samples.length > 0 ? state.atMs - state.samples[0][0] : 0;
  return Math.min(SAMPLES * 1000, Math.max(60000, Math.ceil(since / 60000) * 60000));
}

// Draws areas on top of each other. A time without a look is a gap.
function drawAreas(svg, series, label) {
  const end = state.atMs;
  const most = Math.max(1, ...series[series.length - 1].values) * 1.15;
  const x = (at) => 300 - ((end - at) / windowMs()) * 300;
  const y = (value) => 79 - (value / most) * 77;
  svg.replaceChildren();
  for (const part of [20, 40, 60]) shape(svg, "line", "grid", { x1: 0, x2: 300, y1: part, y2: part });
  const runs = [];
  state.samples.forEach(([at], index) => {
    const isNew = index === 0 || at - state.samples[index - 1][0] > 2 * OLD_MS;
    if (isNew) runs.push([]);
    runs[runs.length - 1].push(index);
  });
  for (const { className, values } of [...series].reverse()) {
    for (const run of runs) {
      const points = run.map((index) => `${x(state.samples[index][0]).toFixed(2)},${y(values[index]).toFixed(2)}`);
      const from = x(state.samples[run[0]][0]).toFixed(2);
      const to = Math.max(x(state.samples[run[run.length - 1]][0]), Number(from) + 1).toFixed(2);
      const last = points[points.length - 1].split(",")[1];
      shape(svg, "polygon", `area ${className}`, { points: `${from},80 ${points.join(" ")} ${to},${last} ${to},80` });
      shape(svg, "polyline", `edge ${className}`, { points: `${points.join(" ")} ${to},${last}` });
    }
  }
  svg.setAttribute("aria-label", label);
}

function drawCharts() {
  const { samples } = state;
  if (samples.length === 0) return;
  const column = (at) => samples.map((one) => one[at]);
  const [ours, others, count] = [column(1), column(2), column(3)];
  const all = ours.map((value, at) => value + others[at]);
  const now = all.length - 1;
  const since = `${windowMs() / 60000} min`;
  for (const label of document.querySelectorAll(".since")) setText(label, `${since} ago`);
  drawAreas(
    byId("memory-chart"),
    [
      { className: "ours", values: ours },
      { className: "others", values: all },
    ],
    `Memory of all servers: ${bytes(all[now])} now, ${bytes(Math.max(...all))} at most in the last ${since}`,
  );
  setText(byId("memory-now"), `${bytes(all[now])}, at most ${bytes(Math.max(...all))}`);
  const most = Math.max(...count);
  drawAreas(
    byId("process-chart"),
    [{ className: "ours", values: count }],
    `Processes under leash: ${count[now]} now, ${most} at most in the last ${since}`,
  );
  setText(byId("process-now"), `${count[now]}, at most ${most}`);
  drawEnded();
}

function drawEnded() {
  const svg = byId("ended-chart");
  const end = nowMs();
  const bars = Array.from({ length: BARS }, () => ({ gone: 0, left: 0 }));
  for (const { is_gone, receipt } of state.receipts) {
    const at = Math.floor(((receipt.ended_ms - (end - HOUR_MS)) / HOUR_MS) * BARS);
    if (at >= 0) bars[Math.min(at, BARS - 1)][is_gone ? "gone" : "left"] += 1;
  }
  const most = Math.max(4, ...bars.map((bar) => bar.gone + bar.left));
  svg.replaceChildren();
  for (const part of [20, 40, 60]) shape(svg, "line", "grid", { x1: 0, x2: 300, y1: part, y2: part });
  bars.forEach(({ gone, left }, at) => {
    let bottom = 80;
    for (const [count, className] of [[gone, "ours"], [left, "left"]]) {
      const height = (count / most) * 76;
      bottom -= height;
      if (count > 0) shape(svg, "rect", `bar ${className}`, { x: at * 10 + 1, y: bottom, width: 8, height });
    }
  });
  const total = (name) => bars.reduce((all, bar) => all + bar[name], 0);
  const text = `${total("gone") + total("left")} in the last hour`;
  setText(byId("ended-now"), total("left") > 0 ? `${text}, ${total("left")} left something` : text);
  svg.setAttribute("aria-label", `Ended sessions: ${byId("ended-now").textContent}`);
}

// ---- History

function drawReceipts() {
  const body = byId("receipts");
  const shown = state.allReceipts ? state.receipts : state.receipts.slice(0, RECEIPTS);
  const more = byId("more");
  more.hidden = state.allReceipts || state.receipts.length <= RECEIPTS;
  setText(more, `Show all ${state.receipts.length}`);
  byId("no-receipts").hidden = state.receipts.length > 0;
  const known = new Map([...body.children].map((element) => [element.dataset.run, element]));
  const key = ({ receipt }) => `${receipt.run} ${receipt.ended_ms}`;
  const kept = new Set(shown.map(key));
  for (const [run, element] of known) if (!kept.has(run)) element.remove();
  shown.forEach((one, at) => {
    const element = known.get(key(one)) ?? makeReceipt(one, key(one));
    if (body.children[at] !== element) body.insertBefore(element, body.children[at] ?? null);
  });
  drawTimes();
}

function makeReceipt(one, key) {
  const { receipt, why, fate, is_gone } = one;
  const trees = receipt.holdings.filter((holding) => holding.kind === "tree");
  const members = trees.reduce((all, tree) => all + tree.members, 0);
  const memory = trees.reduce((all, tree) => all + tree.memory_bytes, 0);
  const client = receipt.client ? [receipt.client.name, receipt.client.pid].filter(Boolean).join(" ") : "-";
  const session = short(receipt.session);
  const has = trees.length > 0;
  const values = [
    ["Ended", ""],
    ["Server", receipt.name],
    ["Client", client],
    ["Reason", why],
    ["Processes", has ? String(members) : "-"],
    ["Memory", has ? bytes(memory) : "-"],
    ["Took", span(receipt.took_ms)],
    ["Fate", ""],
    ["", ""],
  ];
  const element = make("tr", "receipt");
  element.dataset.run = key;
  element.setAttribute("role", "row");
  for (const [label, text] of values) {
    const cell = make("td", ["Processes", "Memory", "Took"].includes(label) ? "number" : "", text);
    cell.setAttribute("role", "cell");
    cell.dataset.label = label;
    element.append(cell);
  }
  element.children[0].dataset.ended = receipt.ended_ms;
  if (session !== receipt.name) element.children[1].append(" ", make("span", "id", session));
  element.children[3].classList.add("wide");
  element.children[7].append(make("span", `pill ${is_gone ? "good" : "bad"}`, fate));
  const show = button("Receipt", "", () => showReceipt(one));
  show.tabIndex = 0;
  show.setAttribute("aria-label", `Receipt of ${receipt.name} ${session}`);
  element.children[8].append(show);
  element.children[8].className = "actions";
  return element;
}

function showReceipt({ receipt, why, left }) {
  const body = byId("details-body");
  body.replaceChildren(make("p", "", `It ended: ${why}.`));
  for (const line of left) body.append(make("p", "problem", line));
  body.append(make("pre", "", JSON.stringify(receipt, null, 2)));
  setText(byId("details-title"), `Receipt of ${receipt.name} ${short(receipt.session)}`);
  byId("details-end").hidden = true;
  detailsKey = null;
  byId("details").showModal();
}

// ---- Details

let detailsKey = null;

async function showDetails(key) {
  const row = state.rows.get(key);
  if (!row) return;
  detailsKey = key;
  setText(byId("details-title"), titled(row));
  const body = byId("details-body");
  const facts = make("dl", "facts");
  const calling = calls(row);
  const all = {
    State: row.state,
    Client: row.client,
    Owner: row.owner,
    Session: row.session,
    Run: row.run,
    URL: row.url,
    Containment: row.containment,
    Calls: calling === "-" ? null : calling,
    Memory: row.memory_bytes === null ? null : bytes(row.memory_bytes),
  };
  for (const [name, value] of Object.entries(all)) if (value) facts.append(make("dt", "", name), make("dd", "", value));
  const why = make("div", "why");
  why.append(make("p", "hint", "Asking leash why it is alive..."));
  body.replaceChildren(facts, why);
  for (const line of row.evidence) body.append(make("p", "", line));
  if (row.processes.length > 0) body.append(processList(row.processes, row.processes.length));
  const end = byId("details-end");
  end.hidden = row.remedy === "none";
  setText(end, row.remedy === "reap" ? "Reap..." : "End...");
  byId("details").showModal();
  try {
    const answer = await fetch(`/-/why?${key}`);
    const lines = answer.ok ? (await answer.json()).lines : [(await answer.text()).trim()];
    if (detailsKey === key) why.replaceChildren(...lines.map((line) => make("p", "", line)));
  } catch {
    if (detailsKey === key) why.replaceChildren(make("p", "problem", "The connection to leash is lost."));
  }
}

function processList(all, most) {
  const list = make("ul", "processes");
  for (const process of all.slice(0, most)) {
    const item = make("li");
    item.append(make("span", "pid", String(process.pid)), " ", make("code", "", process.command));
    item.append(" ", make("span", "id", bytes(process.memory_bytes)));
    list.append(item);
  }
  if (all.length > most) list.append(make("li", "id", `and ${all.length - most} more`));
  return list;
}

// ---- Ending

let asked = null; // The key of the row in question.
let isEnding = false;

function ask(key) {
  const row = state.rows.get(key);
  if (!row || row.remedy === "none") return;
  asked = key;
  const members = [...state.rows.values()].filter(
    (member) => (row.kind === "session" ? member.session === row.session : member.key === key) && member.kind !== "session",
  );
  const all = members.flatMap((member) => member.processes);
  const what = { other: "the orphan", session: "the session" }[row.kind] ?? "the server";
  setText(byId("confirm-title"), `${row.remedy === "reap" ? "Reap" : "End"} ${what} ${titled(row)}?`);
  const body = byId("confirm-body");
  body.replaceChildren();
  if (row.client) body.append(make("p", "", `It works for ${row.client}.`));
  if (row.session) body.append(make("p", "", `Session ${short(row.session)}${row.kind === "session" ? ` has ${counted(members.length, "member")}` : ""}.`));
  body.append(make("p", "", `This ends ${processes(all.length)} and frees ${bytes(sum(all, (one) => one.memory_bytes))}:`));
  body.append(processList(all, NAMED));
  const yes = byId("confirm-yes");
  yes.hidden = false;
  yes.disabled = false;
  setText(yes, row.remedy === "reap" ? "Reap it" : "End it");
  setText(byId("confirm-no"), "Cancel");
  byId("confirm").showModal();
  // Enter must not end anything by accident.
  byId("confirm-no").focus();
}

async function end() {
  const key = asked;
  const yes = byId("confirm-yes");
  isEnding = true;
  yes.disabled = true;
  setText(yes, "Ending...");
  let lines;
  let isFine = false;
  try {
    const answer = await fetch("/-/end", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ key }),
    });
    isFine = answer.ok;
    lines = answer.ok ? (await answer.json()).lines : [(await answer.text()).trim()];
  } catch {
    lines = ["The connection to leash is lost; look at the list before you try again."];
  }
  isEnding = false;
  notice(lines[0] ?? "");
  loadReceipts();
  // The user has closed the question meanwhile.
  if (asked !== key) return;
  yes.hidden = true;
  setText(byId("confirm-no"), "Close");
  setText(byId("confirm-title"), isFine ? "Ended" : "Not ended");
  byId("confirm-body").replaceChildren(...lines.map((line) => make("p", isFine ? "receipt-line" : "problem", line)));
  byId("confirm-no").focus();
}

// Withdraws a question about something that has ended meanwhile.
function closeGone() {
  if (asked === null || isEnding || state.rows.has(asked) || byId("confirm-yes").hidden) return;
  asked = null;
  byId("confirm-yes").hidden = true;
  setText(byId("confirm-no"), "Close");
  setText(byId("confirm-title"), "It has ended meanwhile");
  byId("confirm-body").replaceChildren();
  notice("It has ended meanwhile");
}

// ---- Keys and clicks

function move(by) {
  const rows = [...byId("rows").querySelectorAll("tr.row")];
  const at = rows.findIndex((row) => row.dataset.key === state.current);
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
  if (next) next.focus();
}

byId("rows").addEventListener("keydown", (event) => {
  const row = event.target.closest("tr.row");
  if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
  const isRow = event.target === row;
  const acts = {
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    j: () => move(1),
    k: () => move(-1),
    Home: () => move(-Infinity),
    End: () => move(Infinity),
    e: () => ask(row.dataset.key),
  };
  if (isRow) acts.Enter = () => showDetails(row.dataset.key);
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, select, dialog");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    byId("filter").focus();
  }
});

byId("filter").addEventListener("input", draw);
byId("filter").addEventListener("keydown", (event) => {
  if (event.key === "Enter") move(0);
});
byId("order").addEventListener("change", draw);
byId("tree").addEventListener("change", draw);
byId("more").addEventListener("click", () => {
  state.allReceipts = true;
  drawReceipts();
  byId("receipts").querySelector("button")?.focus();
});
byId("details-close").addEventListener("click", () => byId("details").close());
byId("details").addEventListener("close", () => {
  detailsKey = null;
});
byId("details-end").addEventListener("click", () => {
  const key = detailsKey;
  byId("details").close();
  ask(key);
});
byId("confirm-yes").addEventListener("click", end);
byId("confirm-no").addEventListener("click", () => byId("confirm").close());
byId("confirm").addEventListener("close", () => {
  asked = null;
});

// A tab that no user sees costs nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    disconnect();
    showConnection();
  } else {
    connect();
  }
});

setInterval(() => {
  if (!document.hidden) drawTimes();
}, 1000);
connect();
