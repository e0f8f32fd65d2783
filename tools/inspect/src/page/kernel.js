// A kernel's view: its figures, and its panes, whose lines are linked by their Rust lines.

const paneIds = ["source", "ir", "ptx", "sass"];
const paneNames = { source: "Rust", ir: "IR", ptx: "PTX", sass: "SASS" };

/** Encodes a line of a file as one number. */
const keyOf = (file, line) => file * 1_000_000 + line;
const placeKey = (place) => keyOf(data.places.places[place][0], data.places.places[place][1]);

/** Call sites of a place as lines, innermost first. */
function callers(place) {
  const list = [];
  for (let at = data.places.places[place][2]; at >= 0; at = data.places.places[at][2]) list.push(placeKey(at));
  return list;
}

function push(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

/** A listing's lines, with an index by place, by line, and by the lines through which they were inlined. */
function indexed(listing, hidden) {
  const [lines, places, byPlace, byKey, through] = [[], [], new Map(), new Map(), new Map()];
  listing.text.split("\n").forEach((text, at) => {
    if (hidden(text)) return;
    const place = listing.places[at];
    const index = lines.length;
    lines.push({ number: at + 1, text: text.replaceAll("\t", "  "), linked: place >= 0 });
    places.push(place);
    if (place < 0) return;
    push(byPlace, place, index);
    push(byKey, placeKey(place), index);
    for (const key of new Set(callers(place))) push(through, key, index);
  });
  return { lines, places, byPlace, byKey, through };
}

/** Indexes of a kernel's code, built when it is first shown. */
const codes = new Map();
function codeOf(kernel) {
  if (codes.has(kernel)) return codes.get(kernel);
  const code = { ir: indexed(kernel.ir, () => false), ptx: indexed(kernel.ptx, (text) => /^\s*\.(loc|file)\s/.test(text)) };
  if (kernel.sass) code.sass = indexed(kernel.sass, () => false);
  // SASS lines are numbered by address.
  const measured = code.sass ?? code.ptx;
  const counts = new Map([...measured.byKey].map(([key, list]) => [key, list.length]));
  const files = new Map();
  for (const listing of [code.ir, code.ptx, code.sass]) {
    for (const key of listing ? [...listing.byKey.keys(), ...listing.through.keys()] : []) files.set(Math.floor(key / 1_000_000), 0);
  }
  for (const [key, count] of counts) files.set(Math.floor(key / 1_000_000), (files.get(Math.floor(key / 1_000_000)) ?? 0) + count);
  // The kernel's own file first, then by the amount of code; files that the binary does not contain last.
  const entry = kernel.ir.places.find((place) => place >= 0);
  const own = entry === undefined ? -1 : data.places.places[entry][0];
  code.files = [...files.keys()].filter((file) => data.sources[file] !== null)
    .sort((a, b) => (b === own) - (a === own) || files.get(b) - files.get(a));
  code.missing = [...files.keys()].filter((file) => data.sources[file] === null);
  const most = Math.max(1, ...counts.values());
  const what = code.sass ? "SASS" : "PTX";
  const known = new Set([code.ir, code.ptx, code.sass].flatMap((listing) => (listing ? [...listing.byKey.keys(), ...listing.through.keys()] : [])));
  code.source = (file) => data.sources[file].replace(/\n$/, "").split("\n").map((text, at) => {
    const key = keyOf(file, at + 1);
    const count = counts.get(key) ?? 0;
    const heat = count ? 0.15 + 0.85 * Math.sqrt(count / most) : 0;
    return { number: at + 1, text, heat, note: `${count} ${what} instructions`, linked: known.has(key) };
  });
  codes.set(kernel, code);
  return code;
}

class KernelView {
  constructor(kernel) {
    this.kernel = kernel;
    this.code = codeOf(kernel);
    this.selected = null;
    this.panes = {};
    const hidden = new Set((memory.get("hidden") ?? "").split(","));
    for (const id of paneIds) {
      if (id !== "source" && !this.code[id]) continue;
      const pane = new Pane(id, paneNames[id], id === "source" ? "rust" : id, {
        select: (index) => this.select(id, index),
        hover: (index) => this.hover(id, index),
      });
      pane.hide.addEventListener("click", () => this.toggle(id));
      pane.element.hidden = hidden.has(id);
      this.panes[id] = pane;
    }
    this.shows = h("div", { class: "shows", role: "group", "aria-label": "Panes" });
    this.board = h("div", { class: "board" }, Object.values(this.panes).map((pane) => pane.element));
    this.note = h("p", { class: "note" });
    for (const id of ["ir", "ptx", "sass"]) {
      const listing = this.code[id];
      if (!listing) continue;
      this.panes[id].show(id === "sass" ? listing.lines.map((line) => sassLine(line)) : listing.lines);
      const instructions = listing.places.filter((place) => place >= 0).length;
      this.panes[id].count.textContent = `${number(instructions)} instructions`;
    }
    this.panes.source.tabs.hidden = false;
    this.openFile(this.code.files[0]);
    this.layout();
    if (memory.get("layout")) this.board.dataset.layout = memory.get("layout");
  }

  openFile(file) {
    if (file === undefined || this.file === file) return;
    this.file = file;
    const { source } = this.panes;
    source.show(this.code.source(file));
    source.count.textContent = data.places.files[file];
    source.tabs.replaceChildren(...this.code.files.map((other) => {
      const path = data.places.files[other].split("/");
      const name = path.slice(path[path.length - 1] === "mod.rs" ? -2 : -1).join("/");
      return h("button", { role: "tab", "aria-selected": String(other === file), title: data.places.files[other], onclick: () => { this.openFile(other); this.remark(); } }, name);
    }));
    source.tabs.querySelector("[aria-selected=true]")?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
    source.search(this.query ?? "");
  }

  /** Lines that correspond to a line of a pane: for each pane the code of that line, code inlined there, and call sites. */
  counterparts(id, index) {
    const found = {};
    const place = id === "source" ? -1 : this.code[id].places[index];
    if (id !== "source" && place < 0) return null;
    const key = id === "source" ? keyOf(this.file, index + 1) : placeKey(place);
    for (const other of ["ir", "ptx", "sass"]) {
      const listing = this.code[other];
      if (!listing) continue;
      const same = listing.byKey.get(key) ?? [];
      const exact = place >= 0 ? (listing.byPlace.get(place) ?? []) : [];
      found[other] = exact.length
        ? { strong: exact, weak: same.filter((line) => !exact.includes(line)) }
        : { strong: same, weak: id === "source" ? (listing.through.get(key) ?? []) : [] };
    }
    const calling = place >= 0 ? callers(place) : [];
    const own = (keys) => keys.filter((it) => Math.floor(it / 1_000_000) === this.file).map((it) => (it % 1_000_000) - 1);
    found.source = { strong: own([key]), weak: own(calling) };
    return { found, key, calling };
  }

  select(id, index, reveal = true) {
    if (id !== "source") {
      const place = this.code[id].places[index];
      const file = place >= 0 ? data.places.places[place][0] : this.file;
      if (data.sources[file] !== null) this.openFile(file);
    }
    this.selected = { id, index };
    this.remark();
    const links = this.counterparts(id, index);
    this.panes[id].reveal(index);
    for (const [other, { strong, weak }] of Object.entries(links?.found ?? {})) {
      const target = strong[0] ?? weak[0];
      if (reveal && other !== id && target !== undefined) this.panes[other].reveal(target);
    }
    this.describe(links);
    history.replaceState(null, "", this.hash());
  }

  /** Marks the selection again, for example after another file was opened. */
  remark() {
    const { id, index } = this.selected ?? {};
    const links = id === undefined || (id === "source" && this.selectedFile() !== this.file) ? null : this.counterparts(id, index);
    for (const [other, pane] of Object.entries(this.panes)) {
      pane.activate(other === id && (id !== "source" || this.selectedFile() === this.file) ? index : -1);
      const { strong = [], weak = [] } = links?.found[other] ?? {};
      pane.mark(strong, weak);
    }
    if (this.selected) this.selected.file ??= this.file;
  }

  selectedFile() {
    return this.selected?.file ?? this.file;
  }

  hover(id, index) {
    const links = index === null ? null : this.counterparts(id, index);
    for (const [other, pane] of Object.entries(this.panes)) {
      const { strong = [] } = links?.found[other] ?? {};
      pane.hover(other === id && index !== null ? [index, ...strong] : strong);
    }
  }

  describe(links) {
    if (!links) {
      this.note.textContent = "This line has no source line of its own.";
      return;
    }
    const place = (key) => `${data.places.files[Math.floor(key / 1_000_000)]}:${key % 1_000_000}`;
    const counts = ["ir", "ptx", "sass"].filter((id) => links.found[id])
      .map((id) => `${links.found[id].strong.length} ${paneNames[id]}`);
    const through = links.calling.length ? ` < ${links.calling.map(place).join(" < ")}` : "";
    const missing = data.sources[Math.floor(links.key / 1_000_000)] === null ? " (not in this binary)" : "";
    this.note.replaceChildren(h("code", {}, place(links.key)), missing, h("code", { class: "dim" }, through), ` · ${counts.join(", ")} instructions`);
    document.getElementById("status").textContent = `${place(links.key)}: ${counts.join(", ")} instructions`;
  }

  clear() {
    this.selected = null;
    this.note.textContent = this.hint();
    this.remark();
  }

  hint() {
    const missing = this.code.missing.length ? ` Not in this binary: ${this.code.missing.map((file) => data.places.files[file].split("/").slice(-3).join("/")).join(", ")}.` : "";
    const sass = this.kernel.sass ? "" : " SASS is shown where ptxas and nvdisasm are found.";
    return `Click a line to see what it became, or came from.${sass}${missing}`;
  }

  toggle(id) {
    const pane = this.panes[id];
    if (!pane) return;
    const open = Object.values(this.panes).filter((it) => !it.element.hidden);
    if (open.length === 1 && open[0] === pane) return;
    pane.element.hidden = !pane.element.hidden;
    memory.set("hidden", paneIds.filter((it) => this.panes[it]?.element.hidden).join(","));
    this.layout();
  }

  layout() {
    const open = Object.values(this.panes).filter((pane) => !pane.element.hidden);
    this.board.dataset.open = open.length;
    this.shows.replaceChildren(...Object.values(this.panes).map((pane) => h("button", {
      "aria-pressed": String(!pane.element.hidden), title: `${pane.digit()}: go there; Shift+${pane.digit()}: hide or show`, onclick: () => this.toggle(pane.id),
    }, paneNames[pane.id])));
    open.forEach((pane) => pane.render());
  }

  turn() {
    const columns = getComputedStyle(this.board).getPropertyValue("--columns").trim();
    this.board.dataset.layout = columns === "square" ? "columns" : "square";
    memory.set("layout", this.board.dataset.layout);
  }

  focus(id) {
    const pane = this.panes[id];
    if (!pane) return;
    if (pane.element.hidden) this.toggle(id);
    pane.scroll.focus();
  }

  search(query) {
    this.query = query;
    for (const pane of Object.values(this.panes)) pane.search(query);
  }

  /** The next hit in the pane with the focus, or in the first one that has any. */
  next(step) {
    const panes = Object.values(this.panes).filter((pane) => !pane.element.hidden);
    const focused = panes.filter((pane) => pane.element.contains(document.activeElement));
    for (const pane of [...focused, ...panes]) {
      const index = pane.hit(step);
      if (index >= 0) {
        this.select(pane.id, index);
        return;
      }
    }
  }

  hash() {
    const base = `#k/${this.kernel.name}`;
    if (!this.selected) return base;
    const { id, index } = this.selected;
    const file = id === "source" ? `${data.places.files[this.file]}:` : "";
    return `${base}/${id}:${file}${this.panes[id].lines[index]?.number ?? index + 1}`;
  }

  /** `ptx:120`, `source:kernels-gen/src/kernels/argmax.rs:84`. */
  goTo(spot) {
    const parts = spot.split(":");
    const [id, line] = [parts[0], parts[parts.length - 1]];
    const pane = this.panes[id];
    if (!pane) return;
    if (id === "source") {
      const file = data.places.files.indexOf(parts.slice(1, -1).join(":"));
      if (file >= 0 && data.sources[file] !== null) this.openFile(file);
    }
    const index = pane.lines.findIndex((it) => String(it.number) === line);
    if (index >= 0) this.select(id, index);
  }
}

/** Addresses are shown in the gutter. */
function sassLine(line) {
  const match = /^([\da-f]{4,})  (.*)$/.exec(line.text);
  return match ? { ...line, number: match[1], text: match[2] } : { ...line, number: "" };
}

/** Figures at the top of a kernel's view. */
function figures(kernel) {
  const time = kernel.roofline[gpu().name] ?? 0;
  const { ctas: resident, warps, most_warps: most } = kernel.occupancy;
  const spilled = spills(kernel);
  const list = [
    hasPlan ? ["launches", number(kernel.launches), `a ${per}`] : null,
    kernel.grid[0] ? ["grid", gridText(kernel.grid), ctas(ctasOf(kernel.grid))] : ["grid", "–", "by the host"],
    ["threads", number(kernel.threads), `${Math.ceil(kernel.threads / 32)} warps`],
    ["registers", kernel.ptxas ? kernel.ptxas.registers : "–", spilled === null ? "needs ptxas" : spilled ? `${spilled} B spilled` : "no spills", spilled > 0],
    ["shared memory", bytes(shared(kernel)), kernel.dynamic_shared ? `${bytes(kernel.dynamic_shared)} dyn.` : "static"],
    ["warps an SM", `${warps} / ${most}`, ctas(resident)],
    ...(hasPlan ? [["bytes", bytes(kernel.bytes), "a launch"],
    ["operations", kernel.operations ? amount(kernel.operations) : "–", kernel.operations ? `${kernel.intensity.toFixed(2)} a byte` : "no products"],
    ["roofline", seconds(time), `${seconds(time * kernel.launches)} a ${per}`]] : []),
  ].filter(Boolean);
  return h("dl", { class: "figures", style: `--count:${list.length}` }, list.map(([name, value, note, bad]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, String(value), note ? h("small", { class: bad ? "bad" : null }, note) : null))));
}
