// The page: routing by address, the list on the left, search and keys.

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const search = document.getElementById("search");
const results = document.getElementById("results");
const gpuSelect = document.getElementById("gpu");
let view = null;

function gpu() {
  return data.gpus.find((it) => it.name === gpuSelect.value) ?? data.gpus[0];
}

/** The step in words. A step of one row is a token. */
const per = data.rows === 1 && data.step === "decode" ? "token" : "step";

const stepSeconds = () => data.kernels.reduce((sum, kernel) => sum + kernel.launches * kernel.roofline[gpu().name], 0);

// ---- the list on the left ----

/** Whether the page shows a plan; the kernels of a folder have none. */
const hasPlan = data.graph.nodes.length > 0;

function drawNav(current) {
  const total = data.kernels.reduce((sum, kernel) => sum + kernel.launches * kernel.bytes, 0);
  const item = (href, selected, ...content) => h("a", { href, "aria-current": selected ? "page" : null }, content);
  nav.replaceChildren(
    hasPlan ? item("#plan", current === null, h("b", {}, "Plan"), h("small", {}, `${data.launches} launches a ${per}`)) : "",
    h("h2", {}, "Kernels"),
    ...data.kernels.map((kernel) => {
      const share = (kernel.launches * kernel.bytes) / total;
      return item(`#k/${kernel.name}`, kernel === current,
        h("b", {}, title(kernel)), hasPlan ? h("span", { class: "share" }, `× ${kernel.launches}`) : null,
        h("small", { title: kernel.name }, kernel.name),
        hasPlan ? h("i", { class: "meter", style: `width:${Math.max(1, 100 * share)}%`, title: `${percent(share)} of a ${per}'s bytes` }) : null);
    }));
}

nav.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  event.stopPropagation();
  const links = [...nav.querySelectorAll("a")];
  links[Math.min(links.length - 1, Math.max(0, links.indexOf(document.activeElement) + step))]?.focus();
});

// ---- views ----

function showPlan() {
  view = null;
  drawNav(null);
  const time = stepSeconds();
  const rows = data.kernels.map((kernel) => {
    const own = kernel.launches * kernel.roofline[gpu().name];
    return h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#k/${kernel.name}`, title: kernel.name }, title(kernel)), h("small", {}, kernel.summary)),
      h("td", {}, number(kernel.launches)), h("td", {}, gridText(kernel.grid)), h("td", {}, number(kernel.threads)), h("td", {}, kernel.ptxas ? String(kernel.ptxas.registers) : "–"),
      h("td", { class: spills(kernel) ? "bad" : null }, kernel.ptxas ? String(spills(kernel)) : "–"), h("td", {}, bytes(shared(kernel))),
      h("td", {}, `${kernel.occupancy.warps} / ${kernel.occupancy.most_warps}`), h("td", {}, bytes(kernel.bytes)), h("td", {}, seconds(kernel.roofline[gpu().name])),
      h("td", { class: "meter" }, h("i", { style: `--share:${own / time}` }), h("span", {}, percent(own / time))));
  });
  const facts = [
    [`launches a ${per}`, number(data.launches), `of ${data.kernels.length} kernels`],
    ["weights, keys and values", bytes(data.bytes_per_token), `a ${per}, ${number(data.context)} positions`],
    [`roofline, ${gpu().name}`, seconds(time), `a ${per}, all launches one after the other`],
    ["that is at most", `${number(Math.floor(data.rows / time))}`, "tokens a second"],
  ];
  main.replaceChildren(
    h("div", { class: "heading" }, h("h1", {}, data.model), h("p", { class: "dim" }, `one ${data.step} step of ${data.rows} row${data.rows === 1 ? "" : "s"} for ${data.target}, as it is captured into a graph and replayed once a ${per}`)),
    h("dl", { class: "figures", style: `--count:${facts.length}` }, facts.map(([name, value, note]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, note))))),
    drawGraph(),
    h("section", { class: "card full" }, h("h2", {}, "Kernels"), h("div", { class: "wide" }, table(["kernel", "launches", "grid", "threads", "registers", "spills", "shared", "warps", "bytes a launch", "roofline", `of a ${per}'s time`], rows, { class: "grid kernels" }))),
    h("footer", {}, `Made by bespoke ${data.version}. Times are bytes by bandwidth or operations by peak, whichever is more; ${gpu().name}: ${gpu().source}. Bandwidth is never reached in full, and launches take time themselves.`));
  document.title = `${data.model} for ${data.target} · bespoke inspect`;
}

function showKernel(kernel, spot) {
  const statisticsShown = spot === "statistics";
  if (view?.kernel !== kernel || view.statisticsShown !== statisticsShown || view.stale) {
    view = new KernelView(kernel);
    view.statisticsShown = statisticsShown;
    drawNav(kernel);
    const tab = (name, href, selected, key) => h("a", { href, role: "tab", "aria-selected": String(selected), title: `(${key})` }, name);
    main.replaceChildren(
      h("div", { class: "heading" }, h("h1", {}, title(kernel)), h("p", { class: "dim" }, kernel.summary), h("code", { class: "name", title: kernel.name }, kernel.name)),
      figures(kernel),
      h("div", { class: "bar-tabs" }, h("div", { role: "tablist", "aria-label": "View" }, tab("Code", `#k/${kernel.name}`, !statisticsShown, "c"), tab("Statistics", `#k/${kernel.name}/statistics`, statisticsShown, "s")),
        statisticsShown ? null : [view.note, view.shows]),
      statisticsShown ? statistics(kernel) : view.board);
    main.classList.toggle("code", !statisticsShown);
    view.clear();
    view.search(search.value.trim().toLowerCase());
    Object.values(view.panes).forEach((pane) => pane.render());
    main.scrollTop = 0;
  }
  document.title = `${title(kernel)} · ${data.model} · bespoke inspect`;
  if (spot && !statisticsShown) view.goTo(spot);
}

function route() {
  const hash = decodeURIComponent(location.hash.slice(1));
  const [, name, spot] = /^k\/([^/]+)(?:\/(.*))?$/.exec(hash) ?? [];
  const kernel = data.kernels.find((it) => it.name === name);
  main.classList.toggle("code", Boolean(kernel) && spot !== "statistics");
  if (kernel) showKernel(kernel, spot);
  else if (hash !== "main" && hasPlan) showPlan();
  else if (hash !== "main" && data.kernels.length) showKernel(data.kernels[0]);
}

/** Redraws the view, for example after another GPU was chosen. */
function refresh() {
  if (view) view.stale = true;
  route();
}

// ---- search ----

// Lines of the open kernel.
const MOST_RESULTS = 24;

function find(query) {
  const found = data.kernels.filter((kernel) => `${kernel.name} ${title(kernel)} ${kernel.summary}`.toLowerCase().includes(query))
    .map((kernel) => ({ group: "Kernels", label: title(kernel), text: kernel.name, go: () => { location.hash = `#k/${kernel.name}`; } }));
  const inCode = (kernel) => {
    const lines = [];
    for (const [id, text] of [["ir", kernel.ir.text], ["ptx", kernel.ptx.text], ["sass", kernel.sass?.text]]) {
      if (!text || !text.toLowerCase().includes(query)) continue;
      text.split("\n").forEach((line, at) => {
        if (line.toLowerCase().includes(query) && !(id === "ptx" && /^\s*\.(loc|file)\s/.test(line))) lines.push({ id, line: line.trim(), at: at + 1 });
      });
    }
    for (const file of codeOf(kernel).files) {
      if (!data.sources[file].toLowerCase().includes(query)) continue;
      data.sources[file].split("\n").forEach((line, at) => {
        if (line.toLowerCase().includes(query)) lines.unshift({ id: "source", file, line: line.trim(), at: at + 1 });
      });
    }
    return lines;
  };
  const result = (group, kernel, { id, file, line, at }) => ({
    group, label: id === "source" ? `${data.places.files[file].split("/").slice(-2).join("/")}:${at}` : `${paneNames[id]}${id === "sass" ? "" : ` ${at}`}`, text: line, language: id === "source" ? "rust" : id,
    go: () => openLine(kernel, id, file, at, line),
  });
  if (view) found.push(...inCode(view.kernel).slice(0, MOST_RESULTS).map((line) => result("In this kernel", view.kernel, line)));
  for (const kernel of data.kernels) {
    if (kernel === view?.kernel || query.length < 2) continue;
    const lines = inCode(kernel);
    if (lines.length) found.push({ ...result("In other kernels", kernel, lines[0]), label: title(kernel), note: `${number(lines.length)} lines` });
  }
  return found;
}

function openLine(kernel, id, file, at, line) {
  if (view?.kernel !== kernel || view.statisticsShown) location.hash = `#k/${kernel.name}`;
  route();
  if (id === "source") view.goTo(`source:${data.places.files[file]}:${at}`);
  else if (id === "sass") view.goTo(`sass:${sassLine({ text: line }).number || at}`);
  else view.goTo(`${id}:${at}`);
  view.focus(id);
}

let shown = [];
let chosen = -1;

function drawResults() {
  const query = search.value.trim().toLowerCase();
  shown = query ? find(query) : [];
  chosen = shown.length ? 0 : -1;
  view?.search(query);
  let group = "";
  results.replaceChildren(...shown.flatMap((result, at) => {
    const heading = result.group === group ? [] : [h("div", { class: "group", role: "presentation" }, result.group)];
    group = result.group;
    return [...heading, h("div", { class: "result", role: "option", id: `result-${at}`, onclick: () => take(at) }, h("b", {}, result.label), h("code", {}, highlighted(result.language ?? "rust", result.text, query)), result.note ? h("small", {}, result.note) : null)];
  }));
  if (query && !shown.length) results.append(h("div", { class: "group" }, "Nothing found"));
  open(Boolean(query));
  choose(chosen);
}

function open(shownNow) {
  results.hidden = !shownNow;
  search.setAttribute("aria-expanded", String(shownNow));
}

function choose(at) {
  chosen = at;
  results.querySelectorAll(".result").forEach((element, index) => element.setAttribute("aria-selected", String(index === at)));
  const element = document.getElementById(`result-${at}`);
  if (element) {
    search.setAttribute("aria-activedescendant", element.id);
    element.scrollIntoView({ block: "nearest" });
  } else search.removeAttribute("aria-activedescendant");
}

function take(at) {
  open(false);
  search.blur();
  shown[at]?.go();
}

search.addEventListener("input", drawResults);
search.addEventListener("focus", () => { if (search.value) drawResults(); });
search.addEventListener("blur", () => setTimeout(() => open(false), 150));
search.addEventListener("keydown", (event) => {
  event.stopPropagation();
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (shown.length) choose((chosen + (event.key === "ArrowDown" ? 1 : -1) + shown.length) % shown.length);
  } else if (event.key === "Enter") take(chosen);
  else if (event.key === "Escape") {
    search.value = "";
    drawResults();
    search.blur();
  }
});
// A click in the list must not close it.
results.addEventListener("pointerdown", (event) => event.preventDefault());

// ---- theme, keys ----

const dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}
function turnTheme() {
  const now = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  setTheme(next);
  memory.set("theme", next);
}

function neighbour(step) {
  const at = view ? data.kernels.indexOf(view.kernel) : step > 0 ? -1 : data.kernels.length;
  const kernel = data.kernels[at + step];
  if (kernel) location.hash = `#k/${kernel.name}`;
}

const help = document.getElementById("help");
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open || event.target.matches?.("select, input, textarea")) return;
  const digit = /^Digit([1-4])$/.exec(event.code)?.[1];
  const keys = {
    "/": () => { search.focus(); search.select(); },
    "?": () => help.showModal(),
    "[": () => neighbour(-1),
    "]": () => neighbour(1),
    c: () => { if (view) location.hash = `#k/${view.kernel.name}`; },
    s: () => { if (view) location.hash = `#k/${view.kernel.name}/statistics`; },
    p: () => { if (hasPlan) location.hash = "#plan"; },
    t: turnTheme,
    l: () => view?.turn(),
    n: () => view?.next(1),
    N: () => view?.next(-1),
    j: () => (view && !view.statisticsShown ? view.focus("source") : nav.querySelector("[aria-current]")?.focus()),
    k: () => nav.querySelector("[aria-current]")?.focus(),
    Escape: () => {
      search.value = "";
      drawResults();
      view?.clear();
    },
  };
  let action = keys[event.key];
  if (digit && view && !view.statisticsShown) action = () => (event.shiftKey ? view.toggle(paneIds[digit - 1]) : view.focus(paneIds[digit - 1]));
  if (!action) return;
  event.preventDefault();
  action();
});

document.getElementById("theme").addEventListener("click", turnTheme);
document.getElementById("help-button").addEventListener("click", () => help.showModal());
document.getElementById("model").textContent = data.model;
document.getElementById("target").textContent = data.target;
gpuSelect.append(...data.gpus.map((it) => h("option", { value: it.name }, it.name)));
// The stored GPU, or the first one of the target; an H200 before an H100.
const fitting = data.gpus.filter((it) => it.target === data.target);
gpuSelect.value = data.gpus.find((it) => it.name === memory.get("gpu"))?.name ?? (fitting[fitting.length - 1] ?? data.gpus[0]).name;
gpuSelect.addEventListener("change", () => {
  memory.set("gpu", gpuSelect.value);
  refresh();
});
gpuSelect.closest("label").hidden = !hasPlan;
setTheme(memory.get("theme"));
addEventListener("hashchange", route);
route();
