// A pane of code. Only visible lines are in the document, so that long kernels scroll as fast as short ones.

const LINE = 18;
const AROUND = 30;

class Pane {
  /** `on.select(index)`, `on.hover(index or null)`. Lines are `{ number, text, heat }`. */
  constructor(id, name, language, on) {
    Object.assign(this, { id, language, on, lines: [], active: -1, query: "", strong: new Set(), weak: new Set(), hovered: new Set() });
    this.rows = new Map();
    this.count = h("span", { class: "count" });
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Files", hidden: true });
    this.canvas = h("div", { class: "canvas", role: "presentation" });
    this.ticks = h("div", { class: "ticks", "aria-hidden": "true" });
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "listbox", "aria-label": `${name}, by lines`, id: `list-${id}` }, this.canvas);
    this.hide = h("button", { class: "icon small", title: `Hide (Shift+${this.digit()})`, "aria-label": `Hide ${name}` }, "×");
    this.element = h("section", { class: `pane ${id}`, "aria-label": name },
      h("header", {}, h("h2", {}, name), this.count, this.hide), this.tabs, h("div", { class: "frame" }, this.scroll, this.ticks));
    let queued = false;
    this.scroll.addEventListener("scroll", () => {
      if (queued) return;
      queued = true;
      requestAnimationFrame(() => { queued = false; this.render(); });
    });
    this.scroll.addEventListener("click", (event) => this.at(event, (index) => on.select(index)));
    this.scroll.addEventListener("pointerover", (event) => this.at(event, (index) => on.hover(index)));
    this.scroll.addEventListener("pointerleave", () => on.hover(null));
    this.scroll.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.render()).observe(this.scroll);
  }

  digit() {
    return ["source", "ir", "ptx", "sass"].indexOf(this.id) + 1;
  }

  at(event, then) {
    const row = event.target.closest?.(".row");
    if (row) then(Number(row.dataset.index));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / LINE) - 2);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -this.lines.length, End: this.lines.length };
    const step = steps[event.key];
    if (step === undefined || this.lines.length === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const from = this.active < 0 ? Math.floor(this.scroll.scrollTop / LINE) - Math.sign(step) : this.active;
    this.on.select(Math.min(this.lines.length - 1, Math.max(0, from + step)));
  }

  show(lines) {
    this.lines = lines;
    this.active = -1;
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    const width = lines.reduce((most, line) => Math.max(most, line.text.length), 0);
    this.canvas.style.height = `${lines.length * LINE + 8}px`;
    this.canvas.style.minWidth = `calc(${width + 2}ch + var(--gutter))`;
    this.scroll.scrollTop = this.scroll.scrollLeft = 0;
    this.render();
  }

  /** Marks lines; strong marks have ticks beside the scroll bar. */
  mark(strong, weak) {
    [this.strong, this.weak] = [new Set(strong), new Set(weak)];
    const share = (index) => (100 * index) / Math.max(1, this.lines.length);
    this.ticks.replaceChildren(...strong.slice(0, 400).map((index) => h("i", { style: `top:${share(index)}%` })));
    this.render(true);
  }

  hover(indices) {
    this.hovered = new Set(indices);
    this.render(true);
  }

  search(query) {
    this.query = query;
    this.render(true);
  }

  activate(index) {
    this.active = index;
    if (index < 0) this.scroll.removeAttribute("aria-activedescendant");
    else this.scroll.setAttribute("aria-activedescendant", `${this.id}-${index}`);
  }

  /** Scrolls a line to the middle, unless it is visible. */
  reveal(index) {
    const [top, height] = [index * LINE, this.scroll.clientHeight];
    const from = this.scroll.scrollTop;
    if (top < from + 2 * LINE || top > from + height - 3 * LINE) this.scroll.scrollTop = Math.max(0, top - height / 2 + LINE);
    this.render();
  }

  render(anew = false) {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / LINE) - AROUND);
    const last = Math.min(this.lines.length, Math.ceil((this.scroll.scrollTop + this.scroll.clientHeight) / LINE) + AROUND);
    for (const [index, row] of this.rows) {
      if (index < first || index >= last) {
        row.remove();
        this.rows.delete(index);
      }
    }
    for (let index = first; index < last; index++) {
      let row = this.rows.get(index);
      const stale = !row || row.dataset.query !== this.query;
      if (stale) {
        const fresh = this.row(index);
        if (row) row.replaceWith(fresh);
        else this.canvas.append(fresh);
        this.rows.set(index, row = fresh);
      }
      if (anew || stale || row.classList.contains("active") !== (index === this.active)) this.decorate(row, index);
    }
  }

  row(index) {
    const line = this.lines[index];
    const heat = line.heat ? h("i", { class: "heat", style: `opacity:${line.heat.toFixed(2)}`, title: line.note }) : null;
    const row = h("div", { class: "row", role: "option", id: `${this.id}-${index}`, "data-index": index, "aria-posinset": index + 1, "aria-setsize": this.lines.length, style: `top:${index * LINE}px` },
      h("span", { class: "number" }, heat, String(line.number)), h("code", {}, highlighted(this.language, line.text, this.query)));
    if (line.linked === false) row.classList.add("unlinked");
    row.dataset.query = this.query;
    return row;
  }

  decorate(row, index) {
    row.classList.toggle("active", index === this.active);
    row.classList.toggle("strong", this.strong.has(index));
    row.classList.toggle("weak", !this.strong.has(index) && this.weak.has(index));
    row.classList.toggle("hovered", this.hovered.has(index));
    row.setAttribute("aria-selected", String(index === this.active || this.strong.has(index)));
  }

  /** The next search hit after or before the active line. */
  hit(step) {
    const size = this.lines.length;
    for (let away = 1; this.query && away <= size; away++) {
      const index = (((Math.max(this.active, step < 0 ? 0 : -1) + step * away) % size) + size) % size;
      if (this.lines[index].text.toLowerCase().includes(this.query)) return index;
    }
    return -1;
  }
}
