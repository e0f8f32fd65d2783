// Costs of a kernel as tables and bars.

function card(name, ...content) {
  return h("section", { class: "card" }, h("h2", {}, name), content);
}

/** Rows of a name, a proportional bar, and a value. */
function bars(rows) {
  const most = Math.max(1e-30, ...rows.map((row) => row.value));
  return h("table", { class: "bars" }, h("tbody", {}, rows.map((row) => h("tr", { class: row.class },
    h("th", { scope: "row" }, row.name), h("td", { class: "bar" }, h("i", { style: `width:${(100 * row.value) / most}%` })), h("td", { class: "value" }, row.text ?? number(row.value))))));
}

function table(headers, rows, attributes = {}) {
  return h("table", attributes, h("thead", {}, h("tr", {}, headers.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows));
}

function opcodes(kernel) {
  const [listing, name] = kernel.sass ? [kernel.sass, "SASS"] : [kernel.ptx, "PTX"];
  const counts = new Map();
  listing.text.split("\n").forEach((line, at) => {
    if (listing.places[at] < 0) return;
    const text = line.replace(/^\s*[\da-f]{4,}\s+/, "").trim().replace(/^@!?\S+\s+/, "");
    const code = /^[A-Za-z][A-Za-z\d_]*/.exec(text)?.[0];
    if (code) counts.set(code, (counts.get(code) ?? 0) + 1);
  });
  const all = [...counts].sort((a, b) => b[1] - a[1]);
  const shown = all.slice(0, 14).map(([code, count]) => ({ name: code, value: count }));
  const rest = all.slice(14).reduce((sum, [, count]) => sum + count, 0);
  if (rest) shown.push({ name: `${all.length - 14} more`, value: rest, class: "rest" });
  return card(`${name} instructions`, h("p", { class: "dim" }, `${number(all.reduce((sum, [, count]) => sum + count, 0))} in the kernel's text, by opcode`), bars(shown));
}

const limits = { ctas: "places for CTAs", threads: "threads", registers: "registers", shared: "shared memory" };

function occupancyCard(kernel) {
  const rows = kernel.targets.map((on) => h("tr", { class: on.target === data.target ? "own" : null },
    h("th", { scope: "row" }, on.target), h("td", {}, on.grid[0] ? gridText(on.grid) : "–"), h("td", {}, String(on.threads)), h("td", {}, on.usage ? String(on.usage.registers) : "–"),
    h("td", {}, on.usage ? String(on.usage.spill_stores + on.usage.spill_loads) : "–"), h("td", {}, bytes(on.shared)), h("td", {}, String(on.ctas)),
    h("td", { class: "meter" }, h("i", { style: `--share:${on.warps / on.most_warps}` }), h("span", {}, `${on.warps} / ${on.most_warps}`)), h("td", {}, limits[on.limit])));
  return card("Occupancy by target", h("p", { class: "dim" }, hasPlan ? "What each target's own plan has in this place, on one multiprocessor at a time" : "On one multiprocessor at a time"),
    h("div", { class: "wide" }, table(["target", "grid", "threads", "registers", "spills", "shared", "CTAs", "warps", "limited by"], rows, { class: "grid" })));
}

/** Roofline: attainable operations a second over operations a byte, both logarithmic. */
function rooflineCard(kernel) {
  const chosen = gpu();
  const heading = `Roofline of ${chosen.name}`;
  const about = h("p", { class: "dim" }, `${amount(chosen.bandwidth)}B/s; ${chosen.source}`);
  const times = bars(data.gpus.map((it) => ({ name: it.name, value: kernel.roofline[it.name], text: seconds(kernel.roofline[it.name]), class: it === chosen ? "own" : null })));
  if (!kernel.operations) return card(heading, about, h("p", {}, "No matrix product: its bytes alone take this long, a launch."), times);
  const peak = chosen[kernel.unit];
  const [width, height, left, under] = [440, 216, 46, 36];
  const axis = (n) => amount(n).replace(/\.0+(?=\D|$)/, "");
  const x = (n) => left + ((Math.log10(n) + 1) / 5) * (width - left - 18);
  const y = (n) => height - under - ((Math.log10(n) - 10) / 6.2) * (height - under - 12);
  const bound = (n) => Math.min(peak, n * chosen.bandwidth);
  const xs = [0.1, 1, 10, 100, 1000, 10000];
  const ys = [1e10, 1e12, 1e14, 1e16];
  const dots = data.kernels.filter((it) => it.operations && it.unit === kernel.unit && it !== kernel);
  const dot = (it, own) => s("circle", { cx: x(it.intensity), cy: y(bound(it.intensity)), r: own ? 5 : 3.5, class: own ? "dot own" : "dot" }, s("title", {}, `${title(it)}: ${it.intensity.toFixed(2)} operations a byte`));
  const drawing = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${kernel.intensity.toFixed(2)} operations a byte of at most ${amount(peak)} a second`, class: "roofline" },
    xs.map((n) => [s("path", { d: `M${x(n)} 8 V${height - under}`, class: "rule" }), s("text", { x: x(n), y: height - 20, "text-anchor": "middle" }, axis(n))]),
    ys.map((n) => [s("path", { d: `M${left} ${y(n)} H${width - 18}`, class: "rule" }), s("text", { x: left - 6, y: y(n) + 4, "text-anchor": "end" }, axis(n))]),
    s("path", { d: `M${x(0.1)} ${y(bound(0.1))} L${x(peak / chosen.bandwidth)} ${y(peak)} H${width - 18}`, class: "roof" }),
    dots.map((it) => dot(it, false)), dot(kernel, true),
    s("text", { x: width - 22, y: y(peak) - 6, "text-anchor": "end" }, `${units[kernel.unit]}, ${amount(peak)}/s`),
    s("text", { x: width - 18, y: height - 4, "text-anchor": "end" }, "operations a byte"));
  const slow = kernel.intensity < peak / chosen.bandwidth ? "memory" : "arithmetic";
  return card(heading, about, drawing, h("p", {}, `${kernel.intensity.toFixed(2)} operations a byte: bound by ${slow}. A launch takes at least`), times);
}

function flat(value, path = "") {
  if (value === null || typeof value !== "object") return [[path, String(value)]];
  return Object.entries(value).flatMap(([key, inner]) => flat(inner, path ? `${path}.${key}` : key));
}

function pairs(list) {
  return h("dl", { class: "pairs" }, list.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function statistics(kernel) {
  const { report } = kernel;
  const mix = Object.entries(report.mix).sort((a, b) => b[1] - a[1]).map(([name, value]) => ({ name, value }));
  const passes = kernel.passes.map(([pass, before, after]) => h("tr", {}, h("th", { scope: "row" }, pass), h("td", {}, number(before)), h("td", {}, number(after)), h("td", {}, after === before ? "0" : after < before ? `−${before - after}` : `+${after - before}`)));
  return h("div", { class: "cards" },
    occupancyCard(kernel),
    kernel.warps ? warpsCard(kernel) : null,
    hasPlan ? rooflineCard(kernel) : null,
    card("IR instructions", h("p", { class: "dim" }, `${number(report.instructions)} after all passes, constants left out; ${number(report.ptx_lines)} lines of PTX`), bars(mix)),
    opcodes(kernel),
    kernel.constants === null ? null : card("Compile-time parameters", pairs(flat(kernel.constants).filter(([name]) => name !== "kernel"))),
    card("Run-time parameters", pairs(kernel.params)),
    card("Passes that changed something", h("div", { class: "wide" }, table(["pass", "before", "after", "change"], passes, { class: "grid" }))));
}
